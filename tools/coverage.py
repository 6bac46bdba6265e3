"""Prints covered lines per core source of a build folder compiled with --coverage."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def line_counts(build: Path) -> dict[str, dict[int, int]]:
    """Executions of every line; a header is summed over the units that include it."""
    counts: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for data in build.glob("src/**/*.gcda"):
        output = subprocess.run(
            ["gcov", "--json-format", "--stdout", str(data)],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for document in output.splitlines():
            for file in json.loads(document)["files"]:
                path = Path(file["file"])
                if path.is_relative_to(ROOT):
                    for line in file["lines"]:
                        name = str(path.relative_to(ROOT))
                        counts[name][line["line_number"]] += line["count"]
    return counts


def main(build: Path) -> int:
    counts = line_counts(build)
    if not counts:
        print(f"coverage: no data in {build}")
        return 1
    for name, lines in sorted(counts.items()):
        missed = [number for number, count in sorted(lines.items()) if count == 0]
        share = 100 * (len(lines) - len(missed)) / len(lines)
        shown = f"  not run: {' '.join(map(str, missed))}" if missed else ""
        print(f"{share:6.1f} % of {len(lines):4} lines  {name}{shown}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
