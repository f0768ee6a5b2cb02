# The README's commands. Everything is installed into .venv; only `make test` installs Debian's Chromium where there is none.
PYTHON ?= python3
BIN := .venv/bin
LOGITS ?= data
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: demo test lint docs bench bench-scale accuracy flagship annotators results clean

demo: .venv/demo.stamp  ## calibrate a bundled network, print the comparison, write files
	$(BIN)/attemper demo --output demo-output

test: .venv/test.stamp .venv/browser.stamp lint  ## every check
	$(BIN)/python -m pytest --numprocesses=2

lint: .venv/test.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: .venv/docs.stamp  ## the documentation as a site, into site/, with warnings as errors; it asks the network for nothing
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Now: python3 -m http.server --directory site"

bench: .venv-bench/stamp  ## speed, memory and import time beside the peers, in an environment of its own
	.venv-bench/bin/python benchmarks/speed.py
	.venv-bench/bin/python benchmarks/affine.py --speed

bench-scale: .venv/test.stamp  ## lost workers, memory (16 GB of disk), how time grows, the merge; drift; the GPU if there is one
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/drift.py
	$(BIN)/python benchmarks/gpu.py

accuracy: .venv/test.stamp  ## few and noisy labels; LOGITS=folder takes other npz files than data/
	$(BIN)/python benchmarks/accuracy.py $(LOGITS)

flagship: .venv-bench/stamp  ## structured scaling beside the peers; LOGITS=folder
	.venv-bench/bin/python benchmarks/flagship.py $(LOGITS)

annotators: .venv/test.stamp  ## labels as annotators get them wrong; LOGITS=folder
	$(BIN)/python benchmarks/annotators.py $(LOGITS)

results: .venv/demo.stamp  ## every table and figure of the paper, into docs/results/ (minutes; goes on after an interrupt)
	$(BIN)/attemper reproduce all --output docs/results

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

clean:
	rm -rf .venv .venv-bench demo-output site
