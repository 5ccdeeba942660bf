# `make demo` shows a registration with known truth; `make test` runs lint, types and all tests.
# Both build a virtual environment first and need only Python 3.10+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint types clean

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[test]"
	touch $@

demo: $(VENV)/.installed
	$(BIN)/warpfactor demo --output demo-output --force

lint: $(VENV)/.installed
	$(BIN)/ruff check src tests bench docs
	$(BIN)/ruff format --check src tests bench docs

types: $(VENV)/.installed
	$(BIN)/mypy

test: lint types
	$(BIN)/pytest

clean:
	rm -rf $(VENV) demo-output .pytest_cache .mypy_cache .ruff_cache
