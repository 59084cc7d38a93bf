# Every target sets up what it needs on a fresh machine: Python 3.10 or newer and make are enough.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed

# Data sets kept beside the repository are used when they are there.
ifneq ($(wildcard ../shared/data),)
export SOINTER_DATA ?= ../shared/data
endif

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test test-slow lint site docs demo-picture bench faults test-wheel test-lowest audit reproduce-synthetic reproduce-text reproduce-horses reproduce-instancewise reproduce-tables reproduce-text-detector reproduce-usaddress clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# torch first and alone: see constraints.txt. The stamp is written last, so a failed install leaves none.
$(INSTALLED): pyproject.toml constraints.txt
	@rm -f $@
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --upgrade pip
	$(PY) -m pip install --quiet -c constraints.txt torch
	$(PY) -m pip install --quiet -c constraints.txt -e ".[dev]"
	@touch $@

setup: $(INSTALLED) ## create .venv and install sointer with everything needed to develop it

demo: $(INSTALLED) ## explain a loan desk and a reader of digits, and write pages to open in a browser
	$(VENV)/bin/sointer demo

# Each file is run by one worker, which fits what its tests share; tests/conftest.py puts the longest files first.
# One worker more than there are cores, as many tests wait for processes and browsers of their own.
WORKERS := $(shell $(PYTHON) -c "import os; print(min(4, (os.cpu_count() or 1) + 1))")
SPREAD := -n $(WORKERS) --dist=loadfile --no-loadscope-reorder
# Bytecode is kept, whatever the environment says: otherwise every worker and every process that a test starts compiles anew.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(PY) -m pytest

test: $(INSTALLED) ## run the tests that take seconds (about five minutes on two cores)
	$(PYTEST) $(SPREAD) --durations=10

# Marked slow, and so only here: every problem with planted truth in all sizes and seeds, real data sets, the studies and
# benchmarks in their smoke setting, every example of the documentation, the site in a browser. make test has one of each.
test-slow: $(INSTALLED) ## run the tests that take minutes (hours in all)
	$(PYTEST) -m slow $(SPREAD) --durations=10

lint: $(INSTALLED) ## check style, format, types and the direction of imports
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy
	$(VENV)/bin/lint-imports

site: $(INSTALLED) ## build the documentation in docs/_build/html (warnings are errors)
	$(PY) -m sphinx -W --keep-going -n -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

docs: site ## build the documentation, and run every example in it
	$(PY) -m pytest -q -m "" tests/docs

demo-picture: $(INSTALLED) ## run the demo and take the README's picture of it (needs chromium; on a quiet machine, as it shows seconds)
	$(PY) docs/pictures.py demo

bench: $(INSTALLED) ## measure speed, queries and memory against other packages (an hour), and write the page
	$(PY) -m studies run speed

faults: $(INSTALLED) ## kill fits, damage files and so on, and count the outcomes (half an hour)
	$(PY) -m studies run faults

# Tests of the core, the server and HTTP adapters that need neither a browser nor, but for CORE_NEEDS, what only developers
# install. Adapters for ONNX are not among them: to make such models takes onnx and skl2onnx.
CORE_TESTS := $(addprefix tests/,contract/test_sointer.py contract/test_bad_input.py data/test_inputs.py data/test_outputs.py \
	masking/test_removal.py io/test_explainers.py io/test_stream.py explainers/test_honesty.py viz/test_plots.py apps/test_cli.py \
	apps/test_serve.py apps/test_serve_memory.py apps/test_serve_token.py blackbox/test_hostile_servers.py)
CORE_NEEDS := pytest hypothesis httpx

test-wheel: $(INSTALLED) ## build wheel and sdist, install the wheel into a fresh environment, and test it there
	rm -rf build/wheel
	$(PY) -m build --no-isolation --outdir build/wheel
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/python -m pip install --quiet -c constraints.txt torch
	build/wheel/venv/bin/python -m pip install --quiet -c constraints.txt "$$(ls build/wheel/*.whl)[all]" $(CORE_NEEDS)
	build/wheel/venv/bin/python -c "import sointer; assert 'site-packages' in sointer.__file__, sointer.__file__"
	OMP_NUM_THREADS=1 build/wheel/venv/bin/python -m pytest -q -p no:cacheprovider $(CORE_TESTS)

LOWEST_EXTRAS := pandas plot cli report datasets images parquet http onnx serve

test-lowest: $(INSTALLED) ## test with the lowest versions that pyproject.toml allows (torch: the one of constraints.txt)
	rm -rf build/lowest
	$(PYTHON) -m venv build/lowest
	build/lowest/bin/python -m pip install --quiet -c constraints.txt torch
	$(PY) tools/lowest_versions.py $(LOWEST_EXTRAS) > build/lowest/versions.txt
	build/lowest/bin/python -m pip install --quiet -c constraints.txt -r build/lowest/versions.txt $(CORE_NEEDS)
	build/lowest/bin/python -m pip install --quiet --no-deps .
	OMP_NUM_THREADS=1 build/lowest/bin/python -m pytest -q -p no:cacheprovider $(CORE_TESTS)

audit: $(INSTALLED) ## check licences, the built packages, network access; and known weaknesses, if pip-audit is there
	$(PY) -m pytest -q tests/test_supply_chain.py
	@if $(PY) -m pip_audit --version >/dev/null 2>&1; then $(PY) -m pip_audit; else echo "pip-audit is not installed: known weaknesses were not looked up"; fi

reproduce-synthetic: $(INSTALLED) ## run every study on synthetic data (hours) and write its figures and pages
	$(PY) -m studies run synthetic

reproduce-text: $(INSTALLED) ## run the text study (hours; trained models are kept) and write its results
	$(PY) -m studies run text

reproduce-horses: $(INSTALLED) ## run the study of segmented horses (90 minutes; trained models are kept) and write its page
	$(PY) -m studies run horses

reproduce-instancewise: $(INSTALLED) ## run the study of features that differ by sample (two hours) and write its page
	$(PY) -m studies run instancewise

reproduce-tables: $(INSTALLED) ## run the studies of real tables and of structure (hours; needs emotions and scene), write their pages
	$(PY) -m studies run tables

reproduce-text-detector: $(INSTALLED) ## run the study of a text detector on drawn words (an hour) and write its page
	$(PY) -m studies run text_detector

reproduce-usaddress: $(INSTALLED) ## run the study of a tagger of addresses (half an hour; needs usaddress.jsonl.gz) and write its page
	$(PY) -m studies run usaddress

clean: ## remove caches and build products; .venv stays
	rm -rf build dist out docs/_build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src studies tests -name __pycache__ -type d -prune -exec rm -rf {} +
