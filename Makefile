# The front door: `make demo` and `make test` need Python 3.11+, git and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
FRAMEWORKS := .venv-frameworks
TORCH := 2.13.0
# Three processes a core, eight at most; those whose tests start a cluster have one each. ARGS=-n0 runs in one.
PARALLEL := -n auto --maxprocesses 8 --dist loadscope --no-loadscope-reorder
# Bytecode is kept even where PYTHONDONTWRITEBYTECODE is set: compiling the tests takes each process eight seconds.
PYTEST := PYTHONDONTWRITEBYTECODE= PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest -q $(PARALLEL)

.PHONY: help demo test test-frameworks dashboard test-dashboard test-s3 docs e2e fuzz audit lint format bench attack chaos lock openapi monitoring release clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{gsub(/[$$][$$]/, "$$", $$2); printf "  make %-16s %s\n", $$1, $$2}'

$(STAMP): requirements/dev.txt pyproject.toml reporter/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; try: make PYTHON=python3.12")'
	@echo "installing the locked dependencies into $(VENV) (once, about a minute)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
	  --editable ./reporter --editable .
	@touch $@

demo: $(STAMP)  ## training jobs on a local cluster and the dashboard, in about a minute (KEEP=1 leaves it running)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m localcluster.demo $(if $(KEEP),--keep)

test: $(STAMP)  ## everything that needs no other program
	@$(PYTEST) $(ARGS)

$(FRAMEWORKS)/.installed: requirements/frameworks.txt reporter/pyproject.toml
	@echo "installing the frameworks into $(FRAMEWORKS) (once, some minutes)"
	@test -x $(FRAMEWORKS)/bin/python || $(PYTHON) -m venv $(FRAMEWORKS)
	@$(FRAMEWORKS)/bin/python -m pip install --quiet --disable-pip-version-check torch==$(TORCH)
	@$(FRAMEWORKS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
	  -r requirements/frameworks.txt
	@$(FRAMEWORKS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
	  --no-build-isolation --editable ./reporter
	@touch $@

test-frameworks: $(STAMP) $(FRAMEWORKS)/.installed  ## train every framework for real, on CPUs (a large download; MATRIX_REPEATS=20: every way to end 20 times)
	@$(FRAMEWORKS)/bin/python -m pytest -q -c tests/frameworks/frameworks.ini --rootdir . -n 2 --dist worksteal \
	  tests/frameworks $(ARGS)

# npm's own lock file decides; nothing of node_modules is in the repository or in the wheel.
dashboard/node_modules/.package-lock.json: dashboard/package-lock.json
	@command -v npm >/dev/null || { echo "the dashboard is built and tested with Node 20.19 or newer and npm"; exit 1; }
	@cd dashboard && npm ci --no-fund --no-audit --loglevel=error && touch node_modules/.package-lock.json

dashboard: dashboard/node_modules/.package-lock.json  ## build the page again (visibility_api/dashboard), with Node and npm
	@cd dashboard && npm run --silent types && npm run --silent docs && npm run --silent check && npm run --silent build

DOCS := .venv-docs
docs:  ## the documentation as a website, in build/site; it fails for a link that leads nowhere
	@test -x $(DOCS)/bin/mkdocs || { $(PYTHON) -m venv $(DOCS) && $(DOCS)/bin/pip install --quiet 'mkdocs>=1.6,<2' 'mkdocs-material>=9.7,<10'; }
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict -f website/mkdocs.yml && echo build/site/index.html

test-dashboard: $(STAMP) dashboard/node_modules/.package-lock.json  ## the page in headless Chromium, axe and all (ARGS=fleet: one file)
	@cd dashboard && npm run --silent types && npm run --silent check && npm test --silent
	@cd dashboard && npm run --silent test:browser -- $(ARGS)
	@TEST_DASHBOARD=1 $(PYTEST) -n0 tests/e2e/test_dashboard_browser.py \
	  $(if $(wildcard $(KUBEBUILDER_ASSETS)/kube-apiserver),--cluster=real)

S3 := .venv-s3
$(S3)/.installed:
	@test -x $(S3)/bin/python || $(PYTHON) -m venv $(S3)
	@$(S3)/bin/python -m pip install --quiet --disable-pip-version-check 'moto[s3,server]>=5.2,<6'
	@touch $@

test-s3: $(STAMP) $(S3)/.installed  ## the archive in a server that speaks S3 (moto's)
	@$(PYTEST) -n0 tests/e2e/test_job_records.py -k s3 $(if $(wildcard $(KUBEBUILDER_ASSETS)/kube-apiserver),--cluster=real)

e2e: $(STAMP)  ## the same behaviours through a real kube-apiserver in $KUBEBUILDER_ASSETS
	@$(PYTEST) tests/e2e --cluster=real $(ARGS)

fuzz: $(STAMP)  ## every parser of strangers' bytes, a minute each (ARGS="--seconds 600 document": one, for longer)
	@$(BIN)/python -m tests.fuzz $(ARGS)

audit: AUDIT := .venv-audit
audit:  ## known vulnerabilities of the server's locked dependencies (needs the internet; lint does it where it can)
	@test -x $(AUDIT)/bin/pip-audit || { $(PYTHON) -m venv $(AUDIT) && $(AUDIT)/bin/pip install --quiet pip-audit; }
	@$(AUDIT)/bin/pip-audit --strict --disable-pip --require-hashes -r requirements/server.txt $(ARGS)

# What pip-audit asks. An index that carries packages only has no such answer.
ADVISORIES := https://pypi.org/pypi/pip/24.0/json
REACHES := import json, sys, urllib.request as r; sys.exit("vulnerabilities" not in json.load(r.urlopen(sys.argv[1], timeout=5)))

lint: $(STAMP)  ## ruff (bandit's rules too), mypy --strict, import-linter, and the audit where PyPI's advisories can be read
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports
	@if $(BIN)/python -c '$(REACHES)' $(ADVISORIES) 2>/dev/null; then $(MAKE) --no-print-directory audit; \
	  else echo "NOT CHECKED: known vulnerabilities of the dependencies; no advisories at $(ADVISORIES)"; fi

format: $(STAMP)  ## put the code into the house format
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

bench: $(STAMP)  ## ratios against a bare ASGI application, side by side in one run (ARGS=--growth: more)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m benchmarks $(ARGS)

attack: $(STAMP)  ## what others notice of attacks, behind a real kube-apiserver where $$KUBEBUILDER_ASSETS has one
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m benchmarks.attack $(ARGS)

chaos: $(STAMP)  ## what users see on bad days, behind a real kube-apiserver in $$KUBEBUILDER_ASSETS (half an hour)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m benchmarks.chaos $(ARGS)

openapi: $(STAMP)  ## write the published documents in openapi/ again
	@$(BIN)/python -m apidocs

monitoring: $(STAMP)  ## write Grafana's dashboards and the table of docs/prometheus.md again
	@$(BIN)/python -m monitoring

# Ours are installed from the checkout, never from an index: neither is in a lock.
lock: LOCK := --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
  --no-emit-package trainjob-progress
lock:  ## work the lock files out again (needs uv; WHEELS=DIR with a CPU build of torch)
	@uv pip compile $(LOCK) --extra archive --extra kinds --extra nats pyproject.toml -o requirements/server.txt
	@uv pip compile $(LOCK) --extra dev pyproject.toml -o requirements/dev.txt
	@printf '# What the image builds our two packages with: the same as in dev.txt.\n' > requirements/build.txt
	@sed -n '/^setuptools==/,/^ *#/{/^ *#/!p}' requirements/dev.txt >> requirements/build.txt
	@uv pip compile --quiet --python-version 3.11 --generate-hashes --no-emit-index-url \
	  $(if $(WHEELS),--find-links $(WHEELS)) --no-emit-find-links --no-header --no-emit-package torch requirements/frameworks.in \
	  -o requirements/frameworks.txt

RELEASING := .venv-release
release: $(STAMP)  ## packages, manifests, SBOM, notes and checksums, in dist/ (IMAGE=REGISTRY/trainjob-visibility:TAG)
	@test -n "$(IMAGE)" || { echo "make release IMAGE=REGISTRY/trainjob-visibility:TAG, or @sha256:…"; exit 2; }
	@test -x $(RELEASING)/bin/cyclonedx-py || { $(PYTHON) -m venv $(RELEASING) && $(RELEASING)/bin/pip install --quiet 'cyclonedx-bom>=7,<8'; }
	@PATH="$(CURDIR)/$(BIN):$(CURDIR)/$(RELEASING)/bin:$$PATH" $(BIN)/python -m release --image "$(IMAGE)"

clean:  ## remove what the other targets made
	rm -rf $(VENV) $(FRAMEWORKS) $(RELEASING) $(DOCS) $(S3) dashboard/node_modules .venv-audit .fuzz build dist *.egg-info reporter/build reporter/*.egg-info .mypy_cache .ruff_cache .pytest_cache
