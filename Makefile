# make demo       builds specs/, runs every group beside the chain that it replaces, then a decode loop around the step;
#                 on a GPU then us a step at the sizes of Kimi K3
# make test       runs the tests
# make test-all   those too that take long: faults made on purpose, more targets, two ranks
# make check      all that CI checks: lint, types, generated files up to date, tests
# make bless      accepts what the specs and the bad specs' messages have become, and shows the difference
#
# A first run makes .venv with the pinned tools; only Python 3.10 or later is needed. With VENV=none the
# interpreter PYTHON is used as it is, and the demo runs on the committed generated/: it needs torch,
# triton and pytest, but none of what kgen itself needs.

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2

ifeq ($(VENV),none)
RUN := $(PYTHON)
else
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready
endif

.PHONY: help demo test test-all check bless
.DEFAULT_GOAL := help

# The comment above, up to its first line that isn't one.
help:
	@sed -n -e '/^#/!q' -e 's/^# \{0,1\}//p' $(firstword $(MAKEFILE_LIST))

demo: $(READY)
ifneq ($(VENV),none)
	$(RUN) -m kgen build specs
endif
	$(RUN) examples/groups.py
	$(RUN) examples/dspark_decode/run.py
	$(RUN) examples/dspark_decode/at_k3.py

test: $(READY)
	$(RUN) -m pytest -n $(WORKERS)

test-all: $(READY)
	$(RUN) -m pytest -n $(WORKERS) -m "slow or not slow"

check: $(READY)
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m mypy
	$(RUN) -m kgen build specs --check
	$(RUN) -m pytest -n $(WORKERS)

bless: $(READY)
	$(RUN) -m kgen build specs
	$(RUN) -m kgen schema > schemas/spec.json
	$(RUN) -m kgen schema --step > schemas/step.json
	$(RUN) -m pytest --bless tests/test_specs_bad.py
	git diff --stat

$(VENV)/.ready: requirements-dev.txt pyproject.toml
	@$(PYTHON) tools/venv.py $(VENV)
