# The two commands of the README. Each sets up what it needs, once, in .venv.
#   make demo    fill a text, fit and ask a table and images, write a page: about two minutes
#   make test    lint, types, doctests, tests and their coverage: five to ten minutes
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Processes that run the tests; each takes up to 2 GB.
WORKERS ?= 2

# Two spinning OpenMP threads on a busy machine can be a hundred times slower than one.
export OMP_NUM_THREADS ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: demo test lint coverage format tables docs build bench clean

demo: $(VENV)/.demo
	$(BIN)/anyorder demo

test: lint
	$(BIN)/pytest -n $(WORKERS) --cov --cov-report=

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The lines and branches that the last `make test` left out, as pages.
coverage: $(VENV)/.test
	$(BIN)/coverage html --quiet --fail-under=0
	@echo "htmlcov/index.html"

format: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The result tables of the README are generated from experiments/results.
tables: $(VENV)/.demo
	$(BIN)/python -m experiments.tables

docs: $(VENV)/.test
	$(BIN)/python -m sphinx -q -W -b html docs docs/_build
	@echo "docs/_build/index.html"

# The source archive and the wheel; then the wheel fits and answers in an environment of its own.
build:
	rm -rf build dist
	$(PYTHON) -m venv build/tools
	build/tools/bin/python -m pip install --quiet --constraint constraints.txt hatchling
	build/tools/bin/python -m hatchling build -d dist
	$(PYTHON) -m venv build/clean
	build/clean/bin/python -m pip install --quiet --constraint constraints.txt dist/*.whl
	build/clean/bin/anyorder --version
	cd build/clean && bin/anyorder fit pydoc --out run --minutes 0.1 && bin/anyorder infill run "th_ statement"

bench: $(VENV)/.demo
	$(BIN)/python -m benchmarks.mask_sampling

$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[demo]'
	@touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "anyorder needs Python 3.11 or later; set it with: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) build dist htmlcov docs/_build .coverage .coverage.*
