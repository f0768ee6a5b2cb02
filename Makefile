# The README's commands. Everything is installed into .venv or folders beside it; only `make test-all` installs Debian's Chromium where there is none.
PYTHON ?= python3
BIN := .venv/bin
LOGITS ?= data
ARENA ?= arena
EXTRAS ?= plots,report
# Old Ray leaves files open, and old array-api-compat calls torch as it is no longer called.
OLD_WARNINGS := -W ignore::pytest.PytestUnraisableExceptionWarning -W "ignore:torch.asarray:UserWarning"
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile --constraint constraints.txt

# Packages are compiled when they are first imported. Where the shell forbids to keep that, every process would do it again: 10 s of CPU for torch and JAX.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-all lint docs bench bench-scale accuracy families arena certificates annotators results test-oldest lock dist sbom clean

demo: .venv/demo.stamp  ## calibrate a bundled network, print the comparison, write files
	$(BIN)/attemper demo --output demo-output

test: .venv/test.stamp lint  ## what a change needs: minutes
	$(BIN)/python -m pytest --numprocesses=2

test-all: .venv/test.stamp .venv/browser.stamp lint  ## every check: also clusters, browsers, wheels, docs, Triton's interpreter, training
	$(BIN)/python -m pytest --numprocesses=2 -m "slow or not slow"

lint: .venv/test.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

docs: .venv/docs.stamp  ## the documentation as a site, into site/, with warnings as errors; it asks the network for nothing
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Now: python3 -m http.server --directory site"

bench: .venv-bench/stamp  ## speed, memory and import time beside the peers, in an environment of its own
	.venv-bench/bin/python benchmarks/speed.py
	.venv-bench/bin/python benchmarks/affine.py --speed

bench-scale: .venv/test.stamp  ## lost workers, memory (16 GB of disk), how time grows, the merge; drift; the GPU if there is one
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/drift.py
	$(BIN)/python benchmarks/monitoring.py clusters
	$(BIN)/python benchmarks/gpu.py

accuracy: .venv/test.stamp  ## few and noisy labels; LOGITS=folder takes other npz files than data/
	$(BIN)/python benchmarks/families.py $(LOGITS) --out results/accuracy.csv

families: .venv-bench/stamp  ## few and noisy labels, family by family, beside the peers; LOGITS=folder
	.venv-bench/bin/python benchmarks/families.py $(LOGITS) --out results/families.csv --peers --write docs/families.md

arena: .venv-bench/stamp  ## the leaderboard beside the peers, into docs/arena.md; ARENA=folder of predictions
	.venv-bench/bin/python benchmarks/arena.py $(ARENA) --out results/arena.csv --write docs/arena.md

certificates: .venv-bench/stamp  ## how often the guarantee of a referral policy is broken, and how many are referred beside SGR and MAPIE
	.venv-bench/bin/python benchmarks/certificates.py

annotators: .venv/test.stamp  ## labels as annotators get them wrong; LOGITS=folder
	$(BIN)/python benchmarks/annotators.py $(LOGITS)

results: .venv/demo.stamp  ## every table and figure of the paper, into docs/results/ (minutes; goes on after an interrupt), and the verdicts
	$(BIN)/python -m experiments.reproduce all --output docs/results
	$(BIN)/python -m experiments.claims --results docs/results --output docs

test-oldest: .venv-oldest/stamp  ## the tests with the oldest versions that pyproject.toml allows, in an environment of its own
	.venv-oldest/bin/python -m pytest --numprocesses=2 -m "slow or not slow" tests $(OLD_WARNINGS) \
	  --ignore=tests/distributions/test_pins.py --ignore=tests/test_repository.py

lock: .venv/test.stamp  ## constraints.txt anew, from what is installed for the tests: delete a pin, `make clean lock`
	(grep '^#' constraints.txt; $(BIN)/python -m pip freeze --all --exclude pip --exclude-editable | sed 's/+cpu$$//') > .venv/lock.txt
	mv .venv/lock.txt constraints.txt
	touch .venv/demo.stamp .venv/test.stamp

dist: .venv-build/stamp  ## the wheel and the sdist, into dist/; the same bytes every time
	.venv-build/bin/python -m hatchling build

sbom: .venv-sbom/stamp  ## dist/attemper.cdx.json: what `pip install "attemper[$(EXTRAS)]"` brings, as a CycloneDX bill of materials
	$(PYTHON) -m venv --clear .venv-sbom/attemper
	.venv-sbom/attemper/bin/python -m pip --disable-pip-version-check install --quiet --no-compile --constraint constraints.txt ".[$(EXTRAS)]"
	.venv-sbom/attemper/bin/python -m pip --disable-pip-version-check uninstall --quiet --yes pip setuptools
	mkdir -p dist
	.venv-sbom/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --output-reproducible \
	  --output-file dist/attemper.cdx.json .venv-sbom/attemper/bin/python

.venv/demo.stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) --editable ".[plots,report]"
	touch $@

.venv/docs.stamp: .venv/demo.stamp
	$(PIP) --editable ".[plots,report,docs]"
	touch $@

.venv/test.stamp: .venv/demo.stamp
	$(PIP) --editable ".[plots,report,torch,parquet,docs,test]"
	touch $@

# Tests open reports in Debian's Chromium.
.venv/browser.stamp: | .venv/demo.stamp
	(command -v chromium && command -v chromedriver) || \
	  ($(SUDO) apt-get update -qq && $(SUDO) apt-get install -qq -y chromium chromium-driver)
	touch $@

.venv-bench/stamp: pyproject.toml constraints.txt benchmarks/peers.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip --disable-pip-version-check install --quiet torch==2.13.0
	.venv-bench/bin/python -m pip --disable-pip-version-check install --quiet --editable . --requirement benchmarks/peers.txt
	touch $@

.venv-oldest/stamp: pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv --clear .venv-oldest
	.venv-oldest/bin/python -m pip --disable-pip-version-check install --quiet --requirement constraints-oldest.txt --editable .
	touch $@

# What a release is built with, and nothing else.
.venv-build/stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear .venv-build
	.venv-build/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt hatchling
	touch $@

.venv-sbom/stamp:
	$(PYTHON) -m venv .venv-sbom
	.venv-sbom/bin/python -m pip --disable-pip-version-check install --quiet cyclonedx-bom==7.5.0
	touch $@

clean:
	rm -rf .venv .venv-bench .venv-build .venv-oldest .venv-sbom demo-output dist site
