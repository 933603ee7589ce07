# Everything runs in a virtual environment of its own; nothing needs sudo, a key, or a network but package registries.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
SOURCES := runekeep server extractor storage schemas tests examples proto

.PHONY: demo test check proto baseline format install node clean bench-claims crash

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

# The main job on a sample conversation: server, two extractors, live progress, memories, a diff and three searches.
demo: install
	python examples/demo.py

# All tests, with real processes; the Node client's packages come from its lock file, PostgreSQL's programs from Debian's
# package `postgresql` where it is installed, else from a development package.
test: install node
	python -m pytest

node: examples/node/node_modules/.package-lock.json

examples/node/node_modules/.package-lock.json: examples/node/package-lock.json
	cd examples/node && npm ci --silent --no-audit --no-fund

# How many jobs a second can be claimed with 100 and with 100,000 pending, on both stores; about ten minutes.
bench-claims: install
	python -m tests.bench.claims

# Processes killed at every failpoint, and other faults: a hundred of them under load on each store, then everything is
# checked; about ten minutes. A short form is among the tests. The last line is one JSON object.
crash: install
	python -m tests.crash

# Lint, format, types, import rules, contract and freshness of generated files.
check: install
	ruff check $(SOURCES)
	ruff format --check $(SOURCES)
	mypy
	lint-imports
	buf lint
	buf format --diff --exit-code --path proto/runekeep
	buf breaking --against proto/baseline.binpb
	python proto/generate.py --check

# Stubs from the contract.
proto: install
	python proto/generate.py

# Freezes the contract as it is released: later changes are held against it.
baseline: install
	buf build -o proto/baseline.binpb

format: install
	ruff format $(SOURCES)
	ruff check --fix $(SOURCES)
	buf format -w --path proto/runekeep

clean:
	rm -rf $(VENV) build dist *.egg-info examples/node/node_modules
