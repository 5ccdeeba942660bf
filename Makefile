# `make demo` shows a registration with known truth; `make test` runs lint, types and all tests, among them a strict build
# of the documentation; `make docs` leaves that site in site/. They build a virtual environment first and need only
# Python 3.10+ and make.
PYTHON ?= python3
VENV := .venv
# Continuous integration adds peers and bench, so that no comparison with other tools is skipped there.
EXTRAS ?= test,docs
BIN := $(VENV)/bin

.PHONY: demo test lint types docs clean

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS)]"
	touch $@

demo: $(VENV)/.installed
	$(BIN)/warpfactor demo --output demo-output --force

lint: $(VENV)/.installed
	$(BIN)/ruff check src tests docs
	$(BIN)/ruff format --check src tests docs

types: $(VENV)/.installed
	$(BIN)/mypy

docs: $(VENV)/.installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

# Two processes, each with whole files, as tests of one file share what they register; tests/conftest.py has their order.
# Tests start many processes; where Python is told not to keep what it has compiled, each would compile our code again.
test: export PYTHONDONTWRITEBYTECODE =
test: lint types
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

clean:
	rm -rf $(VENV) demo-output site .pytest_cache .mypy_cache .ruff_cache
