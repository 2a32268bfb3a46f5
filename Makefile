# Everything a person does with this repository. Works as root and as an ordinary user; a second run is quick.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup demo up test test-long check format bench lock clean

UV_VERSION := 0.13.9
# An installed uv is used if there is one; otherwise one is put into .uv/ from PyPI.
UV := $(or $(shell command -v uv 2>/dev/null),.uv/bin/uv)
RUN := .venv/bin
# `python3` may be older than what Ebbtide needs; take the first that fits.
PYTHON := $(shell for p in python3.12 python3.11 python3.13 python3; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null && { $$p -c 'import sys; print(sys.executable)'; break; }; done)
export PYTHONSAFEPATH := 1
# Company networks often sign with a certificate of their own, which the system knows and uv by itself does not.
export UV_SYSTEM_CERTS := 1

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

.uv/bin/uv:
	@test -n "$(PYTHON)" || { echo "Ebbtide needs Python 3.11, 3.12 or 3.13 on the PATH; none was found. Install one and run this again."; exit 1; }
	@echo "installing uv $(UV_VERSION) into .uv/"
	@$(PYTHON) -m venv .uv && .uv/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

# The stamp holds a digest of the lock and the project file, so that a second run does nothing.
setup: $(filter .uv/bin/uv,$(UV)) ## Virtual environment from the lock file, and the broker's jars
	@test -n "$(PYTHON)" || { echo "Ebbtide needs Python 3.11, 3.12 or 3.13 on the PATH; none was found. Install one and run this again."; exit 1; }
	@want=$$(cat locks/requirements.txt pyproject.toml | sha256sum | cut -c1-16); \
	if [ "$$(cat .venv/.ready 2>/dev/null)" != "$$want" ]; then \
		echo "installing the locked environment into .venv/"; \
		test -x .venv/bin/python || $(UV) venv --quiet --python "$(PYTHON)" .venv || exit 1; \
		$(UV) pip sync --quiet --require-hashes --python .venv/bin/python locks/requirements.txt || exit 1; \
		$(UV) pip install --quiet --python .venv/bin/python --no-deps --editable . || exit 1; \
		echo "$$want" > .venv/.ready; \
	fi
	@$(RUN)/python -m ebbtide_platform.local.jars

demo: setup ## The main job from end to end on the embedded platform, then what happened
	@$(RUN)/ebbtide demo

up: setup ## Leave the platform running in the foreground (Ctrl-C ends it)
	@$(RUN)/ebbtide up --tenant acme

test: setup check ## Every test that needs no GPU (what .ci/run calls)
	@$(RUN)/python -m pytest -m "not long"

test-long: setup ## Full sizes with fixed seeds; writes docs/benchmarks.md
	@$(RUN)/python -m pytest -m long tests/long -s

check: setup ## Format, lint, types, import contracts, layout: under a minute
	@$(RUN)/pytest -q tests/architecture
	@$(RUN)/ruff format --check --quiet . && $(RUN)/ruff check --quiet .
	@$(RUN)/lint-imports --no-logo >/tmp/ebbtide-imports.$$$$ 2>&1 || { cat /tmp/ebbtide-imports.$$$$; exit 1; }; rm -f /tmp/ebbtide-imports.$$$$
	@$(RUN)/python -m ebbtide_schemas.json_schemas --check
	@$(RUN)/mypy --no-error-summary

format: setup ## Rewrite the code in the house format
	@$(RUN)/ruff format . && $(RUN)/ruff check --fix .

bench: setup ## Measure, as ratios to a baseline of the same run (WRITE=--write keeps it in docs/speed.md)
	@PYTHONPATH=tests $(RUN)/python -m bench $(WRITE)

lock: $(filter .uv/bin/uv,$(UV)) ## Resolve the dependencies anew into locks/
	@$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --all-extras --group dev \
		--custom-compile-command "make lock" --output-file locks/requirements.txt pyproject.toml

clean: ## Remove what setup made (never data)
	@rm -rf .venv .uv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
