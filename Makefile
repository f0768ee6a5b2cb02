# The commands of README.md and CONTRIBUTING.md. Everything is installed into .venv, and peers into .venv-bench; only `make test-all` installs Debian's Chromium where there is none.
PYTHON ?= python3
BIN := .venv/bin
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile --constraint constraints.txt

# Packages are compiled when they are first imported; every process would do it again otherwise.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-all lint docs bench results lock clean

demo: .venv/demo.stamp  ## calibrate a bundled network, print the comparison, write files
	rm -rf demo-output
	$(BIN)/attemper demo demo-output

test: .venv/test.stamp lint  ## what a change needs: minutes
	$(BIN)/python -m pytest --numprocesses=2

test-all: .venv/test.stamp .venv/browser.stamp lint  ## every check: also clusters, a browser, the wheel, the docs, training
	$(BIN)/python -m pytest --numprocesses=2 -m "slow or not slow"

lint: .venv/test.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: .venv/docs.stamp  ## the documentation as a site, into site/, with warnings as errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Now: python3 -m http.server --directory site"

bench: .venv-bench/stamp  ## speed and memory compared with other packages; intervals and guarantees; the GPU if there is one
	.venv-bench/bin/python benchmarks/speed.py fits
	.venv-bench/bin/python benchmarks/speed.py reading
	.venv-bench/bin/python benchmarks/speed.py gpu
	.venv-bench/bin/python benchmarks/intervals.py metrics
	.venv-bench/bin/python benchmarks/levels.py

results: .venv/demo.stamp  ## every table and figure of the paper, into docs/results/ (20 minutes on two cores; resumes after an interrupt)
	$(BIN)/python -m experiments.reproduce all --output docs/results

lock: .venv/test.stamp  ## constraints.txt anew, from what is installed for the tests: delete a pin, `make clean lock`
	(grep '^#' constraints.txt; $(BIN)/python -m pip freeze --all --exclude pip --exclude-editable | sed 's/+cpu$$//') > .venv/lock.txt
	mv .venv/lock.txt constraints.txt
	touch .venv/demo.stamp .venv/test.stamp

.venv/demo.stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) --editable ".[report,files]"
	touch $@

.venv/docs.stamp: .venv/demo.stamp
	$(PIP) --editable ".[report,files,docs]"
	touch $@

.venv/test.stamp: .venv/demo.stamp
	$(PIP) --editable ".[report,files,torch,onnx,docs,test]"
	touch $@

# Tests open reports in Debian's Chromium.
.venv/browser.stamp: | .venv/demo.stamp
	(command -v chromium && command -v chromedriver) || \
	  ($(SUDO) apt-get update -qq && $(SUDO) apt-get install -qq -y chromium chromium-driver)
	touch $@

.venv-bench/stamp: pyproject.toml constraints.txt benchmarks/peers.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip --disable-pip-version-check install --quiet "$$(grep ^torch== constraints.txt)"
	.venv-bench/bin/python -m pip --disable-pip-version-check install --quiet --editable ".[files]" --requirement benchmarks/peers.txt
	touch $@

clean:
	rm -rf .venv .venv-bench demo-output dist site
