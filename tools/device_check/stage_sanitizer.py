"""compute-sanitizer on the program that needs no torch, as often as time allows."""

from __future__ import annotations

import shutil
import subprocess

from stage import Context, Skip
from stage_hashes import program

# Cheapest first. racecheck covers shared memory; a barrier that not all threads reach is synccheck.
TOOLS = ("memcheck", "initcheck", "synccheck", "racecheck")
# What it exits with where it has found something; the program exits with 3 at most.
FOUND = 9
FINISHED = ("passed", "FAILED")
REFUSALS = ("not supported", "unable to", "permission", "failed to initialize", "no cuda-capable")


def find() -> str:
    places = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", None)
    for place in places:
        found = shutil.which("compute-sanitizer", path=place)
        if found:
            return found
    raise Skip("compute-sanitizer is not installed here")


def run(context: Context) -> None:
    if context.dry:
        raise Skip("dry run: compute-sanitizer checks device code only")
    command = find()
    for position, tool in enumerate(TOOLS):
        share = context.left() / (len(TOOLS) - position) - 1
        context.note(**{tool: verdict_of(context, command, tool, share)})
    verdicts = {tool: context.notes[tool] for tool in TOOLS}
    if all(verdict.startswith("refused") for verdict in verdicts.values()):
        raise Skip("compute-sanitizer refuses to run here")
    for tool, verdict in verdicts.items():
        if verdict not in FINISHED:
            context.lack(f"{tool}: {verdict}")


def verdict_of(context: Context, command: str, tool: str, seconds: float) -> str:
    words = [
        command,
        "--tool",
        tool,
        "--error-exitcode",
        str(FOUND),
        str(program(context)),
        "--quick",
    ]
    if tool == "initcheck":
        words.append("--raw")
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=max(1.0, seconds))
    except subprocess.TimeoutExpired:
        return f"not finished in {seconds:.0f} s"
    output = done.stdout + done.stderr
    if done.returncode not in (0, FOUND) and any(word in output.lower() for word in REFUSALS):
        return f"refused: {output[-500:]}"
    context.expect(done.returncode == 0, f"{tool}: {output[-2000:]}")
    return "passed" if done.returncode == 0 else "FAILED"
