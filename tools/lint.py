"""Checks what no compiler enforces: layers, vocabulary, flags, spelling, format.

Usage: python tools/lint.py [ROOT]. Exits with 1 and one line per finding, or with 0.
A missing formatter is a finding: nothing is skipped.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path

Finding = tuple[int, str]
Rule = Callable[[str, str], Iterator[Finding]]

MAX_LINES = 400
CPP_SUFFIXES = {".cc", ".cpp", ".cu", ".cuh", ".h"}
SOURCE_SUFFIXES = CPP_SUFFIXES | {".cmake", ".py", ".sh"}
SOURCE_NAMES = {"CMakeLists.txt", "Makefile", "bootstrap", "run", "run_fuzzers"}
BINARY_SUFFIXES = {".gif", ".ico", ".jpg", ".npy", ".npz", ".pdf", ".png", ".pt", ".pt2", ".webp"}

CORE = (
    "include/safeops/diagnostics.h",
    "include/safeops/export.h",
    "include/safeops/json_lines.h",
    "include/safeops/policy.h",
    "include/safeops/reporter.h",
    "src/core/*",
    "src/operators/*",
    "fuzz/*",
    "tests/core/*",
    "tests/cuda/*",
)
BINDING_INSIDE_CORE = "src/operators/*_torch*"
HIGHWAY = (
    "src/core/lanes_highway-inl.h",
    "src/core/memory_highway-inl.h",
    "src/core/simd_target.cc",
    "src/core/target.h",
    "src/operators/*_cpu*",
)

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
TORCH_HEADER = re.compile(r"(torch|ATen|c10|caffe2)/|safeops/(operators|safeops)\.h$|.*_torch\.h$")
COMMENT_OR_STRING = re.compile(
    r'R"(?P<tag>[^()\s]*)\(.*?\)(?P=tag)"'
    r'|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'',
    re.DOTALL,
)
HIGHWAY_NAME = re.compile(r"\b(?:hwy|hn)\s*::|\bnamespace\s+hwy\b|\bnamespace\s+hn\b")
INEXACT_FLAG = re.compile(
    r"-O(?:fast)\b|-m(?:recip)\b|-ffp-contract=(?!off\b)\w+"
    r"|-f(?:fast-math|unsafe-math-optimizations|associative-math|reciprocal-math"
    r"|finite-math-only|no-signed-zeros|no-honor-nans|no-honor-infinities)\b"
    r"|\bfloat_control\b|\bfp\s+(?:reassociate|contract\s*\(\s*(?:on|fast))"
)
MACHINE_PATH = re.compile(r"(?<![\w.$})])/(?:home|root|tmp|work|Users)/")
VAGUE_NAME = {"common", "helper", "helpers", "misc", "util", "utils"}
# A lambda introducer: brackets that index nothing and are no attribute.
LAMBDA = re.compile(r"(?<![\w\])\[])\[(?P<capture>[^\[\]]*)\]\s*(?=[({<]|SAFEOPS_)")


def matches(path: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(path, pattern) for pattern in patterns)


def is_cpp(path: str) -> bool:
    return Path(path).suffix in CPP_SUFFIXES


def line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def without_comments(text: str) -> str:
    """The same text with comments and literals blanked, so that positions stay."""
    return COMMENT_OR_STRING.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def core_without_torch(path: str, text: str) -> Iterator[Finding]:
    if not is_cpp(path) or not matches(path, CORE) or fnmatch(path, BINDING_INSIDE_CORE):
        return
    for match in INCLUDE.finditer(text):
        if TORCH_HEADER.match(match[1]):
            yield line_of(text, match.start(1)), f"the core must not include {match[1]}"


def library_without_python(path: str, text: str) -> Iterator[Finding]:
    if not is_cpp(path) or not matches(path, ("include/*", "src/*")):
        return
    for match in INCLUDE.finditer(text):
        if match[1] in {"Python.h", "torch/extension.h"} or match[1].startswith("pybind11/"):
            yield line_of(text, match.start(1)), f"no library may include {match[1]}"


def highway_in_its_place(path: str, text: str) -> Iterator[Finding]:
    if not is_cpp(path) or not matches(path, ("include/*", "src/*")) or matches(path, HIGHWAY):
        return
    for match in INCLUDE.finditer(text):
        if match[1].startswith("hwy/"):
            yield line_of(text, match.start(1)), f"only the vocabulary may include {match[1]}"
    for match in HIGHWAY_NAME.finditer(without_comments(text)):
        yield line_of(text, match.start()), f"only the vocabulary may name '{match[0]}'"


def lambdas_of_row_programs(path: str, text: str) -> Iterator[Finding]:
    if not fnmatch(path, "src/operators/*_math.h"):
        return
    code = without_comments(text)
    for match in LAMBDA.finditer(code):
        line = line_of(code, match.start("capture"))
        if match["capture"].strip():
            yield line, "a lambda of a row program captures nothing"
        body = code.find("{", match.end())
        if "SAFEOPS_LANES" not in code[match.end() : body]:
            yield line, "a lambda of a row program needs SAFEOPS_LANES before its body"


def exact_arithmetic(path: str, text: str) -> Iterator[Finding]:
    if Path(path).suffix == ".md":
        return
    for match in INEXACT_FLAG.finditer(text):
        yield line_of(text, match.start()), f"'{match[0]}' changes values"


def ascii_only(path: str, text: str) -> Iterator[Finding]:
    for number, line in enumerate(text.splitlines(), 1):
        found = next((letter for letter in line if ord(letter) > 126), None)
        if found is not None:
            yield number, f"U+{ord(found):04X} is not ASCII"


def short_files(path: str, text: str) -> Iterator[Finding]:
    if Path(path).suffix not in SOURCE_SUFFIXES and Path(path).name not in SOURCE_NAMES:
        return
    lines = text.count("\n")
    if lines > MAX_LINES:
        yield MAX_LINES, f"{lines} lines; at most {MAX_LINES} in a source file"


def telling_names(path: str, text: str) -> Iterator[Finding]:
    for part in Path(path).parts:
        vague = VAGUE_NAME.intersection(re.split(r"[._-]", part.lower()))
        if vague:
            yield 1, f"the name '{part}' does not say what is inside"


def no_machine_paths(path: str, text: str) -> Iterator[Finding]:
    for match in MACHINE_PATH.finditer(text):
        yield line_of(text, match.start()), f"'{match[0]}...' exists on one machine only"


RULES: tuple[Rule, ...] = (
    core_without_torch,
    library_without_python,
    highway_in_its_place,
    lambdas_of_row_programs,
    exact_arithmetic,
    ascii_only,
    short_files,
    telling_names,
    no_machine_paths,
)


def project_files(root: Path) -> list[str]:
    """Files that git tracks or would add."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return sorted(name for name in listing.split("\0") if name and (root / name).is_file())


def check_text(path: str, text: str) -> list[str]:
    """Findings of all rules in one file, as lines to print."""
    return [f"{path}:{line}: {message}" for rule in RULES for line, message in rule(path, text)]


def find_tool(name: str, root: Path) -> str | None:
    """The pinned tool of the running environment or of .venv, before any other."""
    folders = (Path(sys.executable).parent, root / ".venv" / "bin")
    for folder in folders:
        found = shutil.which(name, path=str(folder))
        if found:
            return found
    return shutil.which(name)


def run_tool(command: list[str], root: Path) -> str:
    """What the tool complains about; nothing if it is content."""
    tool = find_tool(command[0], root)
    if tool is None:
        return f"{command[0]} is missing: run tools/bootstrap"
    result = subprocess.run([tool, *command[1:]], cwd=root, capture_output=True, text=True)
    return (result.stdout + result.stderr).strip() if result.returncode else ""


def check_format(root: Path, files: list[str]) -> list[str]:
    cpp = [path for path in files if is_cpp(path)]
    findings = []
    if cpp:
        complaint = run_tool(["clang-format", "--dry-run", "-Werror", *cpp], root)
        places = re.findall(r"^(.*?:\d+):\d+: error: ", complaint, re.MULTILINE)
        first_of_file = {place.rpartition(":")[0]: place for place in reversed(places)}
        findings += [f"{place}: clang-format differs" for place in sorted(first_of_file.values())]
        if complaint and not places:
            findings.append(complaint)
    if any(path.endswith(".py") for path in files):
        for command in (["check", "--output-format=concise"], ["format", "--check"]):
            complaint = run_tool(["ruff", command[0], "--quiet", *command[1:], "."], root)
            findings += [f"ruff {command[0]}: {line}" for line in complaint.splitlines()]
    return findings


def lint(root: Path) -> int:
    files = project_files(root)
    findings = []
    for path in files:
        if Path(path).suffix not in BINARY_SUFFIXES:
            findings += check_text(path, (root / path).read_text(errors="replace"))
    findings += check_format(root, files)
    for finding in findings:
        print(finding)
    print(f"lint: {len(files)} files, {len(findings)} findings")
    return 1 if findings or not files else 0


if __name__ == "__main__":
    sys.exit(lint(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()))
