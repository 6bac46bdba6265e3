# make build | demo | demo-softmax | demo-division | demo-post-mortem | test | test-long
#      test-clients | lint
#      fuzz SECONDS=60 | bench | test-sanitize | coverage | tidy | wheel
#      check-cuda | cuda-all | update-cuda-registers | device-check
#
# PYTHON=...   an interpreter that has torch >= 2.11; default: .venv, made here
# JOBS=...     compilers at a time
# CUDA_ARCHITECTURES=...  of `build`, where there is nvcc: those of the GPUs here, or 90-real;
#              cuda-all has all

PYTHON ?=
SECONDS ?= 60
JOBS ?= $(shell nproc)
CUDA_ARCHITECTURES ?= $(shell nvidia-smi -L >/dev/null 2>&1 && echo native || echo 90-real)

export PYTHON
python := $(if $(PYTHON),$(shell command -v $(PYTHON)),$(CURDIR)/.venv/bin/python)
ifneq ($(PYTHON),)
export PYTHONPATH := $(CURDIR)/python$(if $(PYTHONPATH),:$(PYTHONPATH))
endif

configure = cmake --preset release -DPython_EXECUTABLE=$(python) \
  "-DCMAKE_CUDA_ARCHITECTURES=$(CUDA_ARCHITECTURES)" \
  -DCMAKE_COMPILE_WARNING_AS_ERROR=$(if $(CI),ON,OFF) --log-level=WARNING --no-warn-unused-cli

.PHONY: build demo demo-softmax demo-division demo-post-mortem test test-long test-clients check-cpp check-cuda check-python lint cuda-all update-cuda-registers device-check fuzz bench test-sanitize coverage tidy wheel clean

build:
	tools/bootstrap
	$(configure)
	cmake --build --preset release --parallel $(JOBS)

demo: build
	$(python) examples/digits/demo.py

demo-softmax: build
	$(python) examples/digits_attention/demo.py

demo-division: build
	$(python) examples/feature_scaling/demo.py

demo-post-mortem: build
	$(python) examples/post_mortem/demo.py

# Everything runs even when something fails, and then the whole fails.
test: build
	+@$(MAKE) --keep-going --no-print-directory check-cpp check-cuda check-python lint
	@echo "test: C++ tests, checks of CUDA kernels (unless SKIPPED above), Python tests and lint passed"

check-cpp:
	ctest --preset release

# PTX and registers of every kernel. Says loudly that it did nothing where there is no nvcc.
check-cuda:
	cmake --build --preset release --parallel $(JOBS) --target check_cuda

# A fresh Inductor cache: a kernel compiled for an earlier build must not be found again. A file
# stays in one process, for the fixtures that are dear. Threads that wait leave the cores to others.
check-python:
	cache=$$(mktemp -d) && trap 'rm -rf "$$cache"' EXIT && \
	  OMP_WAIT_POLICY=passive TORCHINDUCTOR_CACHE_DIR="$$cache" \
	  $(python) -m pytest -q -n $(JOBS) --dist loadfile

# Every case of the sweeps, of which check-python takes a selection.
test-long: build
	SAFEOPS_TEST_LONG=1 $(python) -m pytest -q -n $(JOBS) --dist loadfile -o faulthandler_timeout=0

# Other people's packages, unmodified, under patch and audit.
test-clients: build
	tools/bootstrap clients
	$(python) tools/client_suites.py
	$(python) -m pytest -q tests/clients

lint:
	$(python) tools/lint.py

# For every architecture; the table tools/cuda_registers.tsv is checked, or written anew.
cuda-all:
	tools/bootstrap
	tools/cuda_all check_cuda $(JOBS)

update-cuda-registers:
	tools/bootstrap
	tools/cuda_all update_cuda_registers $(JOBS)

# Prepares build/device_check, and runs it where there is a GPU.
device-check:
	tools/bootstrap
	$(python) tools/device_check prepare --jobs $(JOBS)
	$(python) tools/device_check run --optional

fuzz:
	tools/bootstrap clang
	cmake --preset asan-ubsan --log-level=WARNING
	cmake --build --preset asan-ubsan --parallel $(JOBS)
	tools/run_fuzzers build/asan-ubsan $(SECONDS)

bench:
	tools/bootstrap bench
	$(configure) -DSAFEOPS_BUILD_BENCHMARKS=ON
	cmake --build --preset release --parallel $(JOBS)
	set -e; for bench in build/release/benchmarks/*_bench; do $$bench; done
	$(python) benchmarks/bench.py

test-sanitize:
	tools/bootstrap clang
	cmake --workflow --preset asan-ubsan
	cmake --workflow --preset tsan

coverage:
	tools/bootstrap
	find build/coverage -name '*.gcda' -delete 2>/dev/null || true
	cmake --workflow --preset coverage
	$(python) tools/coverage.py build/coverage

tidy: build
	tools/bootstrap tidy
	run-clang-tidy -quiet -j $(JOBS) -p build/release '$(CURDIR)/src/.*\.cc'

wheel:
	tools/bootstrap
	$(python) -m pip wheel --no-build-isolation --no-deps -w dist .

clean:
	rm -rf build dist python/safeops/lib
