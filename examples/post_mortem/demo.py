"""Repeats the public post-mortem of pytorch#184575 with the debugger that it used.

NeuralDBG watches three networks whose input turns to zeros, first alone, then with every singular
row that safeops meets among its events; beside PyTorch stand the repair of the post and every
policy.
"""

import argparse
import warnings

import model
import report
import torch
from rich.console import Console
from training import Setup, Treatment, train

TABLE = Setup("the published table", model.ReluTower, 32, 1.0, 0, torch.optim.Adam, 0, 1, 1)
SINGULAR = Setup("a singular one", model.bias_free_tower, 32, 0.5, 2, torch.optim.SGD, 42, 0, 5)
CHAIN = Setup("the whole chain", model.zero_bias_tower, 16, 1.0, 0, torch.optim.SGD, 1, 0, 3)

HEALTHY = Treatment("healthy input", is_sick=False)
STOCK = Treatment("F.normalize")
REPAIR = Treatment("repair of the post", mark_small=True)
REPAIR_FROM_THE_START = Treatment("the repair, always", mark_small=True, from_the_start=True)
POLICIES = tuple(
    Treatment(f"policy {policy}", policy=policy)
    for policy in ("stock", "nan", "epsilon", "zero", "raise")
)
# Anomalies and events that the post reports for these three.
PUBLISHED = {HEALTHY.name: "0/46", STOCK.name: "17/63", REPAIR.name: "19/65"}


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    console = Console()
    console = console if console.is_terminal else Console(width=100)
    # Batches this small gain nothing from a second thread.
    torch.set_num_threads(1)
    # NeuralDBG registers hooks of a kind that PyTorch advises against.
    warnings.filterwarnings("ignore", message=".*backward hook.*")

    for setup in (TABLE, SINGULAR, CHAIN):
        treatments = [HEALTHY, STOCK, REPAIR, *POLICIES]
        if setup is TABLE:
            treatments.insert(3, REPAIR_FROM_THE_START)
        alone = {treatment.name: train(setup, treatment, False) for treatment in treatments}
        fed = {treatment.name: train(setup, treatment, True) for treatment in treatments}
        published = PUBLISHED if setup is TABLE else {}
        report.print_setup(setup, alone, fed, published, console)
        if setup is CHAIN:
            report.print_chain(alone[STOCK.name], fed[STOCK.name], console)


if __name__ == "__main__":
    main()
