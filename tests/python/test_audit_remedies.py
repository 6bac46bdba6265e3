"""The table of what each policy does, against the operators, and what is said about a line."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

import safeops
from safeops import _library, _remedies
from safeops._policy import POLICIES
from safeops._remedies import REMEDIES, Remedy

EPS = 2.0**-10
INCOMING = 3.0

# One singular row, or element, of every kind: the arguments of the operator, the last singular.
WITNESS = {
    ("normalize", "zero_norm"): ([0.0, 0.0],),
    ("normalize", "below_eps"): ([EPS / 4, EPS / 4],),
    ("softmax", "empty_row"): ([-math.inf, -math.inf],),
    ("log_softmax", "empty_row"): ([-math.inf, -math.inf],),
    ("logsumexp", "empty_row"): ([-math.inf, -math.inf],),
    ("div", "zero_denominator"): ([2.0, -2.0, 0.0], [0.0, -0.0, 0.0]),
    ("div", "below_eps"): ([2.0, -2.0], [EPS / 2, -EPS / 2]),
    ("reciprocal", "zero_denominator"): ([0.0],),
    ("reciprocal", "below_eps"): ([EPS / 2, -EPS / 2],),
    ("rsqrt", "zero_argument"): ([0.0],),
    ("rsqrt", "negative_argument"): ([-2.0],),
    ("rsqrt", "below_eps"): ([EPS / 2],),
    ("sqrt", "zero_argument"): ([0.0],),
    ("sqrt", "negative_argument"): ([-2.0],),
    ("sqrt", "below_eps"): ([EPS / 2],),
    ("log", "zero_argument"): ([0.0],),
    ("log", "negative_argument"): ([-2.0],),
    ("log", "below_eps"): ([EPS / 2],),
}
ROWS = ("normalize", "softmax", "log_softmax", "logsumexp")
EACH = [(*key, policy) for key in WITNESS for policy in POLICIES]


def call(operator: str, tensors: list[torch.Tensor], policy: str, eps: float | None):
    keywords = {"policy": policy}
    if operator in ROWS:
        keywords["dim"] = 0
    if operator != "logsumexp":
        keywords["eps"] = eps
    return getattr(safeops, operator)(*tensors, **keywords)


def tensors_of(operator: str, condition: str) -> list[torch.Tensor]:
    return [
        torch.tensor(numbers, dtype=torch.float64, requires_grad=True)
        for numbers in WITNESS[operator, condition]
    ]


def assert_claimed(claim: str, found: torch.Tensor, tensors: list[torch.Tensor]) -> None:
    """`claim` is a kind of number, or a formula over the input, g and eps."""
    found = found.detach()
    if claim == "inf or nan":
        assert not found.isfinite().any()
        return
    names = dict(
        zip("ab" if len(tensors) == 2 else "x", [t.detach() for t in tensors], strict=True)
    )
    names.setdefault("b", names.get("x"))
    names |= {"g": torch.full_like(tensors[0], INCOMING).detach(), "nan": math.nan, "inf": math.inf}
    names |= {"eps": torch.full_like(tensors[0], EPS).detach()}
    names |= {"log": torch.log, "sqrt": torch.sqrt, "signed": torch.copysign}
    formula = claim.replace("+-eps", "signed(eps, b)")
    expected = torch.as_tensor(eval(formula, names), dtype=torch.float64).expand_as(found)
    torch.testing.assert_close(found, expected, equal_nan=True)


def check(remedy: Remedy, operator: str, condition: str, policy: str) -> None:
    tensors = tensors_of(operator, condition)
    if remedy.value == "error":
        with pytest.raises(safeops.SingularityError) as raised:
            call(operator, tensors, policy, EPS)
        assert raised.value.condition == condition
        assert remedy.gradient == ("error",) * len(tensors)
        return
    y = call(operator, tensors, policy, EPS)
    assert_claimed(remedy.value, y, tensors[:1] if operator in ROWS else tensors)
    incoming = torch.full_like(y, INCOMING)
    if remedy.gradient == ("error",) * len(tensors):
        with pytest.raises(ValueError, match="policy 'raise' met"):
            y.backward(incoming)
        return
    for claim, gradient in zip(
        remedy.gradient, torch.autograd.grad(y, tensors, incoming), strict=True
    ):
        assert_claimed(claim, gradient, tensors)
    assert safeops.diagnostics.snapshot().total(operator, condition, "backward") > 0


@pytest.mark.parametrize(("operator", "condition", "policy"), EACH)
def test_policies_do_what_the_table_says(operator: str, condition: str, policy: str) -> None:
    check(REMEDIES[operator, condition][policy], operator, condition, policy)


@pytest.mark.parametrize(("operator", "condition", "policy"), EACH)
def test_a_wrong_claim_would_be_found(operator: str, condition: str, policy: str) -> None:
    right = REMEDIES[operator, condition][policy]
    for wrong in (
        replace(right, value="17"),
        *(
            replace(right, gradient=(*right.gradient[:i], "17", *right.gradient[i + 1 :]))
            for i in range(len(right.gradient))
        ),
    ):
        with pytest.raises((AssertionError, ValueError, TypeError)):
            check(wrong, operator, condition, policy)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("operator", sorted({operator for operator, _ in WITNESS} - set(ROWS)))
def test_without_an_eps_a_small_element_is_singular_where_the_table_says(operator, policy) -> None:
    if operator == "div":
        small = [torch.tensor([2.0]), torch.tensor([1e-13])]
    else:
        small = [torch.tensor([1e-13])]
    with torch.no_grad():
        needs_eps = REMEDIES[operator, "below_eps"][policy].needs_eps
        call(operator, small, policy, None)
    assert (safeops.diagnostics.snapshot().total() == 0) is needs_eps


@pytest.mark.parametrize("policy", POLICIES)
def test_without_an_eps_a_small_row_is_singular_where_the_table_says(policy) -> None:
    call("normalize", [torch.tensor([1e-13, 0.0])], policy, None)
    needs_eps = REMEDIES["normalize", "below_eps"][policy].needs_eps
    assert (safeops.diagnostics.snapshot().total() == 0) is needs_eps


def test_every_hit_that_an_operator_can_meet_is_in_the_table() -> None:
    assert set(REMEDIES) == set(WITNESS)
    assert {operator for operator, _ in REMEDIES} == set(_library.OPERATORS)
    assert {condition for _, condition in REMEDIES} == set(_library.HIT_CONDITIONS)
    assert all(tuple(entry) == POLICIES for entry in REMEDIES.values())


def test_remedies_are_sentences() -> None:
    assert {p: str(r) for p, r in _remedies.remedies("div", "below_eps").items()} == {
        "stock": "value a / b, gradient g / b and -g * (a / b) / b; regular unless an eps is given",
        "nan": "value nan, gradient nan; regular unless an eps is given",
        "epsilon": "value a / +-eps, gradient g / +-eps and 0",
        "zero": "value 0, gradient 0; regular unless an eps is given",
        "raise": "SingularityError; regular unless an eps is given",
    }
    assert str(REMEDIES["sqrt", "zero_argument"]["raise"]) == "value 0, gradient an error"
    assert _remedies.remedies("normalize", "rescued") == {}


@pytest.mark.parametrize(
    ("policies", "backward", "gradient", "says"),
    [
        (("stock",), 0, None, "A row is all 0; policy 'zero' gives 0 and gradient 0. No backward"),
        (("stock",), 2, 3e12, "a gradient of up to 3e+12 on, enough to wreck"),
        (("stock",), 2, 3.0, "up to 3 on: no damage seen so far"),
        (("stock",), 2, 0.0, "All gradients there were 0 so far"),
        (("stock",), 2, math.inf, "Backward passed inf on"),
        (("stock",), 2, math.nan, "Backward passed nan on"),
        (("stock",), 2, None, "how large their gradients were was not seen"),
        (("zero",), 2, 1.0, "Policy 'zero' answered"),
        (("stock",), 0, math.nan, "Backward passed nan on: what lies before this line gets it"),
        (("epsilon", "zero"), 2, 1.0, "Policy 'epsilon' and 'zero' answered: nothing to do"),
        (("zero",), 0, None, "Policy 'zero' answered: nothing to do"),
        (("nan",), 2, math.nan, "NaN times 0 is NaN"),
        (("zero", "raise"), 0, None, "Policy 'raise' stopped here"),
    ],
)
def test_suggestions(policies, backward, gradient, says) -> None:
    said = _remedies.suggestion("normalize", "zero_norm", policies, backward, gradient)
    assert says in said and said.endswith(".")


@pytest.mark.parametrize(
    ("policies", "gradient", "says"),
    [
        (("epsilon",), 1e12, "A row is all 0; policy 'zero' gives 0 and gradient 0. Backward"),
        (("epsilon",), math.nan, "Backward passed nan on"),
        (("zero",), 1e12, "Policy 'zero' answered. Backward passed a gradient of up to 1e+12 on"),
        (("stock", "zero"), 1.0, "no damage seen so far"),
        (("stock", "zero"), None, "A row is all 0; policy 'zero' gives 0 and gradient 0. Backward"),
    ],
)
def test_there_is_something_to_do_where_stock_ran_or_a_gradient_is_large(
    policies, gradient, says
) -> None:
    said = _remedies.suggestion("normalize", "zero_norm", policies, 2, gradient)
    assert says in said and "nothing to do" not in said


def test_every_line_of_the_table_has_a_suggestion() -> None:
    said = {key: _remedies.suggestion(*key, ("stock",), 0, None) for key in REMEDIES}
    assert all(text.endswith(" so far.") for text in said.values())
    assert _remedies.suggestion("normalize", "rescued", ("stock",), 0, None) == ""
