# Shortcuts; each is a plain command of the README or a part of the gate.
PYTHON ?= .venv/bin/python

.PHONY: all rehearse gate format types contracts test escapes bench

all: gate

rehearse:
	python3 -m venv .venv && .venv/bin/pip install -q -c constraints.txt . && .venv/bin/agent rehearse --check

gate:
	$(PYTHON) -m tests.gate

format:
	$(PYTHON) -m ruff format . && $(PYTHON) -m ruff check --fix .

types:
	$(PYTHON) -m mypy

contracts:
	$(PYTHON) -m tests.gate contracts

test:
	$(PYTHON) -m pytest

# Every attempt on the sandbox, several times over.
escapes:
	for time in 1 2 3; do $(PYTHON) -m pytest -q -n 2 --dist loadgroup tests/escapes || exit 1; done

bench:
	$(PYTHON) -m bench
