# make run     watch the simulated GPU's demo, or this machine's CUDA programs where there is a driver
# make check   the tests that need neither root nor eBPF nor another process: a minute
# make test    every test, real eBPF included (root)
# The rest: test-long, test-runs, fresh-machine, setup, lint, bench, torch, torch-cuda, numba, fault-suite, stories, real-traces, mutants, old-kernel, recordings, shown, pictures, screens, install, uninstall, clean. Variables: PYTHON, ARGS, PREFIX, DESTDIR.

ifndef PYTHON
PYTHON := $(shell scripts/python.sh)
endif
ARGS ?=
PREFIX ?= /usr/local
DESTDIR ?=

export PYTHON PREFIX DESTDIR

.PHONY: gpu-kit gpu-check run check test test-long test-runs fresh-machine fault-suite stories real-traces mutants old-kernel setup dev lint bench torch torch-cuda numba recordings shown pictures screens install uninstall clean

run: setup
	@scripts/run.sh $(ARGS)

check: dev
	@scripts/test.sh --quick $(ARGS)

test: dev
	@scripts/test.sh $(ARGS)

# minutes each: each kind of system call failing, fuzzing with atheris where it can be had
# (GPUTOP_FUZZ_SECONDS a target), a day in accelerated time; ARGS="-k record" runs a part, in one process
test-long: dev
	@scripts/test.sh -m long $(ARGS)

# make test thirty times in a row, ten of them beside others; ARGS=6
test-runs: dev
	@scripts/test_runs.sh $(ARGS)

# the README's two commands in a bare Debian (root, mmdebstrap, a network; 1.5 GB for as long as it takes);
# ARGS="tests/test_cli.py", ARGS=all
fresh-machine:
	@scripts/fresh_machine.sh $(ARGS)

# injected causes against what explain says; ARGS="--seeds 1,2,3 T01 T02", R for R1 to R9
fault-suite: dev
	@.venv/bin/python -m tests.faults $(ARGS)

# PyTorch programs, what is true of them and what gputop says; ARGS="--seeds 1,2,3 --busy --write S0"
stories: dev
	@.venv/bin/python -m tests.stories $(ARGS)

# traces of real GPUs in a folder, with their kernels and without them; ARGS="FOLDER --write" for docs/real-gpus.md
real-traces: dev
	@.venv/bin/python -m tests.reality $(ARGS)

# a folder for a machine with a real GPU, without a network there
gpu-kit: dev
	@PATH="$(CURDIR)/.venv/bin:$$PATH" .venv/bin/python -m scripts.gpu_kit

# on that machine: what gputop says of ten programs against torch.profiler, exact counts, costs, the proofs' constants;
# ARGS="-o FOLDER --python PYTHON"
gpu-check:
	@scripts/gpu_check.sh $(ARGS)

# small wrong changes of the code, and whether the tests notice: two seconds each, 40 a file; ARGS="--again FILE",
# ARGS=--write for docs/mutation.md
mutants: dev
	@scripts/mutants.sh $(ARGS)

# gputop on Linux 6.1, or on the kernel of a Debian package, in qemu; ARGS="linux-image-….deb -- gputop check"
old-kernel: dev
	@scripts/old_kernel.sh $(ARGS)

# what run and test share; a second time it only looks whether anything changed
setup:
	@scripts/setup.sh run

dev:
	@scripts/setup.sh dev

lint: dev
	@scripts/lint.sh

bench: dev
	@.venv/bin/python -m tests.bench $(ARGS)

# a CPU build of PyTorch, outside of the repository, for the tests with its real DataLoader
torch: dev
	@scripts/torch.sh

# a CUDA build of PyTorch for the simulated GPU, outside of the repository: gputop --simgpu -- THAT_PYTHON train.py
torch-cuda:
	@scripts/torch_cuda.sh

# numba-cuda and pyzmq, outside of the repository, for the stories of programs without PyTorch
numba:
	@scripts/numba.sh

# records the demos again (root), and shows what gputop says of them in the pages
recordings: dev
	@scripts/recordings.sh $(ARGS)
	@$(MAKE) --no-print-directory shown

# after a change of what gputop prints: the outputs in README.md, recordings/README.md, docs/commands.md, docs/causes/ and the
# notebook; what docs/library.md says of each name
shown: dev
	@.venv/bin/python scripts/shown.py
	@.venv/bin/python -m scripts.cause_pages
	@.venv/bin/python scripts/library_page.py
	@.venv/bin/python scripts/notebook.py

# the pictures of the pages, drawn from the recordings; ARGS=FOLDER: nine subjects in four sizes, as SVG and PNG
pictures: dev
	@.venv/bin/python scripts/pictures.py $(ARGS)

# after a change of the screen: the texts in tests/screens that tests/test_ui_screens.py compares with
screens: dev
	@GPUTOP_SCREENS=write .venv/bin/python -m pytest -q tests/test_ui_screens.py

# a copy with a virtual environment of its own; what is changed in the checkout later does not reach it
install:
	@scripts/setup.sh system
	@scripts/install.sh

uninstall:
	@scripts/install.sh --remove

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
