# Two commands on a fresh machine: `make demo` serves the workbench, `make test` runs every test.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
HOST := 127.0.0.1
PORT ?= 5006
WORKERS ?= 2
# Numerical libraries must not start more threads than the tests budget for.
export OMP_NUM_THREADS ?= 2

MINUTES ?= 30

.PHONY: soak demo test test-fast test-slow test-unit test-golden test-notebooks test-browser test-gloo lint types docs bench fuzz kill-test venv clean

demo: $(VENV)/.demo
	$(BIN)/python data/make_workspace.py workspace
	$(BIN)/commcanary-lab serve --workspace workspace --port $(PORT)

venv: $(VENV)/.all

# `demo` needs the product only; `test` needs everything. Installing everything also satisfies the demo.
$(VENV)/.demo: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[workbench,replay]'
	touch $@

$(VENV)/.all: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all]'
	touch $@ $(VENV)/.demo

test: lint types test-unit test-gloo test-notebooks test-browser docs

# Fewer examples of the property tests, no documentation examples, no browser.
test-fast: venv
	HYPOTHESIS_PROFILE=quick $(BIN)/python -m pytest -q -n $(WORKERS) --ignore tests/docs -m "not slow and not gloo and not golden"

test-unit: venv
	$(BIN)/python -m pytest -q -n $(WORKERS) -m "not slow and not gloo"

test-golden: venv
	$(BIN)/python -m pytest -q -n $(WORKERS) -m "golden and not slow"

test-gloo: venv
	$(BIN)/python -m pytest -q -m "gloo and not slow"

test-notebooks: venv
	PANEL_INLINE=True $(BIN)/python -m pytest -q --nbmake --nbmake-timeout=120 -o addopts="" -p no:cacheprovider notebooks

test-browser: venv
	$(BIN)/python -m pytest -q -o addopts="-p no:cacheprovider" -o filterwarnings="" -m "not slow" -n $(WORKERS) --dist loadfile tests/browser

test-slow: venv
	$(BIN)/python -m pytest -q -m slow
	$(BIN)/python -m pytest -q -s -o addopts="-p no:cacheprovider" -o filterwarnings="" -m slow tests/browser

# Half an hour of scripted use of the workbench in Chromium: memory, files, threads and processes must not go on growing.
soak: venv
	$(BIN)/python -m tests.browser.soak $(MINUTES) docs/soak.json

lint: venv
	$(BIN)/ruff check commcanary_lab apps tests data

types: venv
	$(BIN)/mypy

docs: venv
	$(BIN)/python -m sphinx -q -W -b html docs docs/_build/html

bench: venv
	mkdir -p build
	$(BIN)/python -m pytest -q -o addopts="-p no:cacheprovider" tests/bench --benchmark-only --benchmark-columns=min,median,rounds \
		--benchmark-sort=name --benchmark-group-by=group --benchmark-json=build/benchmark.json
	$(BIN)/python docs/make_benchmarks.py build/benchmark.json docs/benchmarks.md

# Random damage for every reader, the same for the same seed; inputs that crash are kept in build/crashes.
INPUTS ?= 1000
SEED ?= 7
fuzz: venv
	$(BIN)/python -m tests.robustness.fuzz --inputs $(INPUTS) --seed $(SEED)

# SIGKILL at random points of compile, search, campaign and workspace indexing.
KILLS ?= 100
kill-test: venv
	$(BIN)/python -m tests.robustness.kill_test --kills $(KILLS) --seed $(SEED)

clean:
	rm -rf $(VENV) docs/_build workspace
