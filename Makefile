# Two commands matter: `make demo` and `make test`. Both set everything up first.
PYTHON ?= python3
VENV   ?= .venv
WHEELS ?= ../shared/wheels
# How often a run that proves nothing, because others had the machine, is repeated.
RERUNS ?= 1
# Where the folders of scenarios' runs are made.
RUNS   ?= runs
BIN    := $(VENV)/bin
# Every test that starts a process compiles our sources again where bytecode is not kept.
export PYTHONDONTWRITEBYTECODE :=
# What is never imported need not be compiled, and what is, is once.
PIP    := $(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check

.PHONY: help demo check coverage test test-all examples league detection bench figures docs sweep tune variants soak attack lint setup clean
.DEFAULT_GOAL := help

help:
	@echo "make demo      set up, break a real run on purpose, show the verdict"
	@echo "make check     lint, types, and the unit tests that start no process and simulate no cluster (a minute on two cores)"
	@echo "make coverage  the same tests, and how much of the code they reach"
	@echo "make test      set up, unit tests and the scenarios of tier ci"
	@echo "make test-all  the same with every scenario"
	@echo "make examples  every scenario of the examples, with the pinned and the newest versions of the frameworks (some hours)"
	@echo "make league    public fault-tolerant trainers under the same twelve faults, docs/league.md (a day; ONLY=torchrun: a part)"
	@echo "make detection plant the bugs of tests/mutants one by one, print which check finds which (about 20 minutes)"
	@echo "make bench     measure the figures that docs/figures.md states, as JSON (some hours)"
	@echo "make docs      write the tables of docs/evidence.md from the events' definitions"
	@echo "make figures   list the figures that an earlier behaviour of the trainer made, and what measures them again"
	@echo "make sweep     choose the learning rates, the outer optimizer and the rest again (about 40 minutes)"
	@echo "make tune      choose the settings of a run from scratch again, for both sides (about 20 minutes)"
	@echo "make variants  more learners, other models and unequal learners against the synchronous run (some hours)"
	@echo "make soak      kill the harness 200 times at random moments, print what is left (about 20 minutes)"
	@echo "make attack    open 10,000 connections without a token to a real run, print what it cost (about 6 minutes)"
	@echo "make lint      ruff and mypy --strict"

# torch alone would bring gigabytes of CUDA: a wheel folder first, then PyTorch's CPU index, then whatever there is.
$(VENV)/.torch:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "diloco-chaos needs Python 3.11 or newer: make PYTHON=python3.11 ..." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@wheel=$$(ls $(WHEELS)/torch-*.whl 2>/dev/null | head -n 1); \
	if [ -n "$$wheel" ] && $(PIP) --find-links $(WHEELS) "torch==$$(basename "$$wheel" | cut -d- -f2)"; then \
	  echo "torch: from $(WHEELS)"; \
	elif $(PIP) --retries 0 --timeout 15 --index-url https://download.pytorch.org/whl/cpu "torch>=2.6" 2>/dev/null; then \
	  echo "torch: from PyTorch's CPU index"; \
	else \
	  echo "torch: PyTorch's CPU index does not answer; installing the default build, which is large"; \
	  $(PIP) "torch>=2.6"; \
	fi
	@touch $@

# What runs need, and what work on the project needs beside that.
$(VENV)/.runs: pyproject.toml $(VENV)/.torch
	$(PIP) --editable .
	@touch $@

$(VENV)/.ready: pyproject.toml $(VENV)/.torch
	$(PIP) --editable ".[dev]"
	@touch $(VENV)/.runs $@

setup: $(VENV)/.ready

demo: $(VENV)/.runs
	$(BIN)/diloco-chaos run scenarios/flagship.yaml --retries-inconclusive $(RERUNS)

# Tests of cores without I/O, of YAML, plans, checks and files, without those that start processes, train or simulate whole
# clusters: with lint they take less than a minute.
QUICK = tests/faults tests/chaos/scenario tests/chaos/checks tests/chaos/evidence tests/chaos/test_registry.py \
  tests/harness/base tests/harness/record tests/harness/trainers/core tests/harness/trainers/api \
  tests/harness/trainer/algorithm tests/harness/trainer/config \
  tests/harness/trainer/learner tests/harness/trainer/coordinator \
  tests/harness/trainer/data_parallel tests/docker \
  $(filter-out tests/docs/test_python_blocks.py, $(wildcard tests/docs/test_*.py)) \
  $(addprefix --ignore=, tests/chaos/scenario/test_availability.py tests/harness/trainer/coordinator/test_blocking.py \
  tests/harness/trainer/algorithm/test_codec.py tests/harness/trainers/core/test_interpreters.py \
  tests/harness/base/test_machine.py tests/harness/record/test_reaper.py tests/chaos/scenario/test_step_time.py \
  tests/chaos/checks/test_forgeries.py)

check: lint
	$(BIN)/pytest $(QUICK) --quiet --numprocesses 2 --dist loadfile

coverage: setup
	$(BIN)/pytest $(QUICK) --quiet --numprocesses 2 --dist loadfile --cov diloco_chaos \
	  --cov-report term:skip-covered --no-cov-on-fail

REPORT := -rfE -o junit_family=xunit1 --junitxml
# Three at a time where time does not matter (a third of it is spent waiting), two where jobs sleep; scenarios are judged by
# their pace, and run alone. What fails keeps no later part from being run; $(1) says which scenarios.
define TESTS
@mkdir -p build/tests; rm -f build/tests/*.xml; status=0; \
$(BIN)/pytest tests --ignore tests/alone --ignore tests/paired --numprocesses 3 --dist loadfile $(REPORT) build/tests/unit.xml \
  || status=$$?; \
$(BIN)/pytest tests/paired --numprocesses 2 $(REPORT) build/tests/paired.xml || status=$$?; \
$(BIN)/pytest tests/alone $(REPORT) build/tests/alone.xml || status=$$?; \
$(BIN)/pytest scenarios $(1) --chaos-step-time auto --chaos-rerun-inconclusive $(RERUNS) --chaos-runs $(RUNS) \
  $(REPORT) build/tests/scenarios.xml || status=$$?; \
$(BIN)/python tests/support/summary.py $(addprefix build/tests/, unit.xml paired.xml alone.xml scenarios.xml) || status=$$?; exit $$status
endef

test: setup
	$(call TESTS,--chaos-tier ci)

test-all: setup
	$(call TESTS,)

examples: setup
	$(BIN)/python examples/versions.py build/examples

league: setup
	$(BIN)/python -m benchmarks.league $(if $(ONLY),--only $(ONLY))

lint: setup
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

detection: setup
	$(BIN)/python -m benchmarks.detection

bench: setup
	$(BIN)/python -m benchmarks.bench

docs: setup
	@$(BIN)/python docs/events.py

figures: setup
	@$(BIN)/python -m benchmarks.figures.check

sweep: setup
	$(BIN)/python -m benchmarks.tuning.sweep

tune: setup
	$(BIN)/python -m benchmarks.tuning.tune

variants: setup
	$(BIN)/python -m benchmarks.tuning.variants

soak: setup
	$(BIN)/python -m benchmarks.hostile.soak --kills 200

attack: setup
	$(BIN)/python -m benchmarks.hostile.attack

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build dist
