"""Plants one fault at a time in the headers of the CUDA rows and demands that each is found.

Usage: python planted_faults.py COMPILER CUDA_HEADERS FOLDER [LAUNCHER]. Exits with 1 and a line for
each fault that was missed, or whose place in the source is no longer there once.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "tests" / "cuda"
EMULATOR = [HERE / "emulator" / name for name in ("block.cc", "fiber.cc", "grid.cc")]

# How each build compiles kernels, and in what its compilation of the emulator differs.
BUILDS = {
    "plain": ([], []),
    "address": (["-fsanitize=address", "-DSAFEOPS_EMULATOR_ADDRESS_SANITIZER"], []),
    "thread": (
        ["-fsanitize=thread", "-DSAFEOPS_EMULATOR_THREAD_SANITIZER"],
        ["-fno-sanitize=thread"],
    ),
}
OPTIONS = ["-std=c++20", "-O1", "-g1", "-ffp-contract=off", "-fno-math-errno"]
OPTIONS += ["-fno-strict-aliasing", "-w"]


@dataclass(frozen=True)
class Fault:
    name: str
    header: str  # under src/core
    source: str  # what stands there, once
    planted: str
    build: str
    finding: str  # a pattern of what is printed


FAULTS = (
    Fault(
        "no second barrier",
        "row_block_cuda.h",
        "state = combine(state, exchange_[w]);\n    __syncthreads();",
        "state = combine(state, exchange_[w]);",
        "thread",
        "data race",
    ),
    Fault(
        "no first barrier",
        "row_block_cuda.h",
        "exchange_[threadIdx.x / kWarp] = mine;\n    __syncthreads();",
        "exchange_[threadIdx.x / kWarp] = mine;",
        "plain",
        "wrong value",
    ),
    Fault(
        "a barrier under a branch",
        "row_block_cuda.h",
        "exchange_[threadIdx.x / kWarp] = mine;\n    __syncthreads();",
        "exchange_[threadIdx.x / kWarp] = mine;\n    if (threadIdx.x < 64) __syncthreads();",
        "plain",
        r"meet at different __syncthreads(.|\n)*row_block_cuda\.h:\d+",
    ),
    Fault(
        "a tile that is too small",
        "run_rows_cuda.h",
        "kBlockExchange + Operands::kInputs",
        "Operands::kInputs",
        "address",
        "heap-buffer-overflow",
    ),
    Fault(
        "no guard of rows past the last one",
        "row_register_cuda.h",
        "row(call, mine, mine < rows);",
        "row(call, mine, true);",
        "address",
        "heap-buffer-overflow",
    ),
    Fault(
        "a shuffle under a branch",
        "row_register_cuda.h",
        "return sum_of_lanes<kLanes>(slot[0]);",
        "return holds(0) ? Value(sum_of_lanes<kLanes>(slot[0])) : Value(slot[0]);",
        "plain",
        "emulator: .*(meet at different warp operations|at different places|have finished)",
    ),
    Fault(
        "a sum that is not atomic",
        "report_cuda.h",
        "atomicAdd(atomic_word(hit.count), static_cast<unsigned long long>(count));",
        "hit.count = hit.count + count;",
        "thread",
        "data race",
    ),
    Fault(
        "no fence before a slice has arrived",
        "row_slice_cuda.h",
        "__threadfence();\n      *last = atomicAdd",
        "*last = atomicAdd",
        "thread",
        "data race",
    ),
)


@dataclass(frozen=True)
class Toolchain:
    compiler: list[str]
    cuda_headers: str
    folder: Path

    def compile(self, source: Path, to: Path, build: str, include: Path | None = None) -> None:
        of_kernels, of_emulator = BUILDS[build]
        options = OPTIONS + of_kernels + (of_emulator if source in EMULATOR else [])
        includes = [include] if include else []
        includes += [HERE / "emulator", HERE, ROOT / "src", ROOT / "include"]
        command = [*self.compiler, *options, *(f"-I{path}" for path in includes)]
        command += ["-isystem", self.cuda_headers, "-c", str(source), "-o", str(to)]
        subprocess.run(command, check=True)

    def link(self, objects: list[Path], to: Path, build: str) -> None:
        command = [*self.compiler[-1:], *BUILDS[build][0], *map(str, objects), "-o", str(to)]
        subprocess.run(command, check=True)

    def emulator(self, build: str) -> list[Path]:
        objects = [self.folder / f"{source.stem}_{build}.o" for source in EMULATOR]
        for source, to in zip(EMULATOR, objects, strict=True):
            self.compile(source, to, build)
        return objects

    def run(self, name: str, build: str, emulator: list[Path], include: Path) -> tuple[int, str]:
        """The exit status of the driver and what it printed."""
        stem = self.folder / f"{name.replace(' ', '_')}_{build}"
        kernels, program = stem.with_suffix(".o"), stem.with_suffix(".out")
        self.compile(HERE / "planted_faults_driver.cc", kernels, build, include)
        self.link([kernels, *emulator], program, build)
        environment = {"TSAN_OPTIONS": "halt_on_error=1", "PATH": "/usr/bin:/bin"}
        done = subprocess.run(
            [str(program)], env=environment, capture_output=True, text=True, timeout=300
        )
        return done.returncode, done.stdout + done.stderr


def plant(fault: Fault, folder: Path) -> Path:
    """A folder whose copy of the header is found before the original."""
    text = (ROOT / "src" / "core" / fault.header).read_text()
    count = text.count(fault.source)
    if count != 1:
        raise ValueError(f"its place is {count} times in {fault.header}: say where it is now")
    include = folder / fault.name.replace(" ", "_")
    (include / "core").mkdir(parents=True)
    (include / "core" / fault.header).write_text(text.replace(fault.source, fault.planted))
    return include


def search(fault: Fault, toolchain: Toolchain, emulator: list[Path]) -> str | None:
    """What is wrong with a fault; nothing if it was found."""
    try:
        include = plant(fault, toolchain.folder)
    except ValueError as error:
        return str(error)
    status, output = toolchain.run(fault.name, fault.build, emulator, include)
    if status == 0:
        return f"not found in the {fault.build} build"
    if not re.search(fault.finding, output):
        return f"found as something else: {output[:2000]}"
    return None


def main() -> int:
    compiler, cuda_headers, folder, *launcher = sys.argv[1:]
    toolchain = Toolchain([*launcher, compiler], cuda_headers, Path(folder))
    shutil.rmtree(folder, ignore_errors=True)
    toolchain.folder.mkdir(parents=True)
    missed = 0
    for build in BUILDS:
        emulator = toolchain.emulator(build)
        status, output = toolchain.run("nothing", build, emulator, ROOT / "src")
        print(f"{'FAILED' if status else 'passed'}: the {build} build without a fault")
        if status:
            print(output[:4000])
            missed += 1
        for fault in FAULTS:
            if fault.build != build:
                continue
            problem = search(fault, toolchain, emulator)
            print(f"{'MISSED' if problem else 'found'}: {fault.name} ({build} build)")
            if problem:
                print(f"  {problem}")
                missed += 1
    print(f"{len(FAULTS)} faults planted, {missed} problems")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
