# SPDX-License-Identifier: Apache-2.0
# Every target sets up what it needs in .venv; nothing has to be installed by hand but Python 3.11 or newer.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
RUNS := $(VENV)/.runs
LOWEST := .venv-lowest
PYTEST := $(BIN)/python -m pytest
JOBS ?= 2
# Whole federations wait for servers a part of the time, so that two cores serve three of them.
WAITING_JOBS ?= 3
# Component tests wait most of the time: a webhook is asked a second after it is installed, garbage of a new kind is
# collected after half a minute. With three at a time, two cores were idle for a third of it.
SERVING_JOBS ?= 4
# What has tests on real API servers or in whole federations: the thousands of unit tests need not be collected for them.
ON_SERVERS := tests/component tests/conformance tests/e2e tests/security
# What takes longest on real API servers, and runs last: on a slow machine CI has no time for all of it.
LONGEST := tests/component/kinds tests/component/provisioning tests/component/rights
# Seconds of Unix time from which none of these is begun; empty for no limit.
LONGEST_UNTIL ?=
# Runs tests that failed once more, at most five in a run, and prints the first failure: see CONTRIBUTING.md.
RUN_TESTS := $(BIN)/python hack/run_tests.py

# Without bytecode each process compiles the libraries anew: two seconds in each of a thousand processes of the tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test lowest attacks conformance combinations faults fuzz lint type bench simulate lifecycle arrivals writes verify fmt clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(RUNS) ## bring a federation up, run 20 Jobs through it, show them, take it down
	@$(BIN)/mkctl demo

# Real API servers that collect garbage less often take a quarter less CPU time to start, and two thirds more memory.
test attacks conformance combinations: export GOGC ?= 400

# Neighbours share the servers of their module: `worksteal` keeps them together. Groups of xdist do nothing with pytest 9.2
# (https://github.com/pytest-dev/pytest-xdist/issues/1386). A whole federation takes a minute, so those are dealt out singly.
test: $(STAMP) ## unit and component tests, then whole federations; attacks and conformance have the longer ones
	@$(BIN)/mkctl binaries --optional
	@$(RUN_TESTS) -n $(JOBS) --dist worksteal -m "not conformance" tests/unit
	@$(RUN_TESTS) -n $(SERVING_JOBS) --dist worksteal -m "not e2e and not bench and not conformance and not faults and not attacks" \
		$(ON_SERVERS) tests/simulation
	@$(RUN_TESTS) -n $(WAITING_JOBS) --maxschedchunk 1 -m "e2e and not attacks" tests/e2e

lowest: $(LOWEST)/.ready ## the unit tests with the lowest version of each library that pyproject.toml allows, in a virtual environment of its own
	@$(LOWEST)/bin/python hack/run_tests.py -n $(JOBS) --dist worksteal -m "not conformance" tests/unit

attacks: $(STAMP) ## kill all processes, a short fuzz, poison objects, a flood, failing writes; CI runs it after the tests
	@$(BIN)/mkctl binaries --optional
	@$(RUN_TESTS) -n $(WAITING_JOBS) --dist worksteal -m attacks $(ON_SERVERS) tests/simulation

conformance: $(STAMP) ## the embedded API server beside a real one; CI runs it after the tests
	@$(BIN)/mkctl binaries --optional
	@$(RUN_TESTS) -n $(SERVING_JOBS) --dist worksteal -m "conformance and not alone and not left_out" $(addprefix --ignore=,$(LONGEST)) $(ON_SERVERS)
	@$(RUN_TESTS) -n $(JOBS) --dist loadfile -m "conformance and alone and not left_out" tests/component
	@MK_TESTS_UNTIL=$(LONGEST_UNTIL) $(RUN_TESTS) -n $(SERVING_JOBS) --dist worksteal -m "conformance and not alone and not left_out" $(LONGEST)

combinations: $(STAMP) ## the combinations of API server and transport that CI leaves out; half an hour
	@$(RUN_TESTS) -n $(WAITING_JOBS) --dist loadfile -m left_out $(ON_SERVERS)

faults: $(STAMP) ## 300 Jobs in flight while each process is killed, frozen or cut off; twenty minutes, MK_FAULTS_JOBS=40 for fewer
	@$(BIN)/mkctl binaries --optional
	@$(PYTEST) -m faults -s tests/e2e

FUZZ_MINUTES ?= 10
fuzz: $(STAMP) ## write what tenants and agents may write, at random, for $(FUZZ_MINUTES) minutes; a failure is printed as a replay
	@$(BIN)/python -m tests.security.fuzz --minutes $(FUZZ_MINUTES)

lint: $(STAMP) ## ruff and the layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports

type: $(STAMP) ## mypy --strict
	@$(BIN)/mypy

SEEDS ?= 2000
FIRST ?= 1
simulate: $(STAMP) ## run $(SEEDS) seeds from $(FIRST) of a federation in virtual time; a failing one prints its timeline
	@$(BIN)/python -m tests.simulation --first $(FIRST) --seeds $(SEEDS)
	@$(BIN)/python -m tests.simulation --provisioning --first $(FIRST) --seeds $$(( ($(SEEDS) + 11) / 12 ))
	@$(BIN)/python -m tests.simulation --parallel --first $(FIRST) --seeds $$(( ($(SEEDS) + 7) / 8 ))
	@$(BIN)/python -m tests.simulation --jobsets --first $(FIRST) --seeds $$(( ($(SEEDS) + 7) / 8 ))
	@$(BIN)/python -m tests.simulation --pods --first $(FIRST) --seeds $$(( ($(SEEDS) + 7) / 8 ))
	@$(BIN)/python -m tests.simulation --groups --first $(FIRST) --seeds $$(( ($(SEEDS) + 3) / 4 ))
	@$(BIN)/python -m tests.simulation --elastic --first $(FIRST) --seeds $$(( ($(SEEDS) + 3) / 4 ))
	@$(BIN)/python -m tests.simulation --queues --first $(FIRST) --seeds $$(( ($(SEEDS) + 3) / 4 ))
	@$(BIN)/python -m tests.simulation --queues --groups --first $(FIRST) --seeds $$(( ($(SEEDS) + 7) / 8 ))
	@$(BIN)/python -m tests.simulation --sets --first $(FIRST) --seeds $$(( ($(SEEDS) + 7) / 8 ))
	@$(BIN)/python -m tests.simulation --deployments --first $(FIRST) --seeds $$(( ($(SEEDS) + 7) / 8 ))
	@$(BIN)/python -m tests.simulation --leaderworkersets --first $(FIRST) --seeds $$(( ($(SEEDS) + 7) / 8 ))
	@$(BIN)/python -m tests.simulation --ready --first $(FIRST) --seeds $$(( ($(SEEDS) + 7) / 8 ))
	@$(BIN)/python -m tests.simulation.seeds.arrivals --first $(FIRST) --seeds $(SEEDS)

STEPS ?= 10000
LIFECYCLE_SEED ?= 1
lifecycle: $(STAMP) ## take $(STEPS) steps of the lifecycle's state machine, with checks and provisioning; prints the steps of a violation
	@$(BIN)/python -m tests.simulation.lifecycle --steps $(STEPS) --seed $(LIFECYCLE_SEED)

ARRIVALS ?= 100
arrivals: $(STAMP) ## make all objects of $(ARRIVALS) federations within a second, in any order, on real API servers
	@$(BIN)/mkctl binaries
	@MK_ARRIVALS=$(ARRIVALS) $(PYTEST) -s tests/component/dispatch/test_arrivals.py

WRITES ?= --check
writes: $(STAMP) ## fail every background write in each way, once and for a minute; WRITES=--all in every course that makes it
	@$(BIN)/python -m tests.simulation.scripts.write_failures $(WRITES)

ONLY ?=
BASELINE ?=
JSON ?=
bench: $(STAMP) ## print the figures of docs/performance.md; ONLY=engine a part, BASELINE=FILE ratios to a former run, JSON=FILE its file
	@$(BIN)/python -m tests.bench $(ONLY) $(if $(BASELINE),--baseline '$(BASELINE)') $(if $(JSON),--json '$(JSON)')

verify: $(STAMP) ## make what is generated anew; fail when it differs from what is checked in
	@$(BIN)/python hack/gen_crds.py --check
	@$(BIN)/python hack/gen_kind_roles.py --check
	@$(BIN)/python hack/gen_kind_sizes.py --check
	@$(BIN)/python hack/gen_kind_table.py --check
	@$(BIN)/python hack/gen_concepts.py --check
	@$(BIN)/python hack/gen_messages.py --check

fmt: $(STAMP) ## format and sort imports
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

clean: ## remove the virtual environment and caches of this checkout
	@rm -rf $(VENV) $(LOWEST) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What the demo needs, without the tools of development.
$(RUNS): pyproject.toml requirements.lock
	@echo "setting up $(VENV) (once)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "multikueue needs Python 3.11 or newer, found " + sys.version.split()[0])'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# Compiled is what is imported, when it is: kubernetes-asyncio alone has a thousand unused modules.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint requirements.lock --editable .
	@$(BIN)/python -m compileall -q multikueue manager worker_agent devcluster  # start-up is a third of what it is without
	@touch $@

$(STAMP): $(RUNS)
	@echo "adding the tools of development (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock --group dev
	@touch $@

$(LOWEST)/.ready: pyproject.toml requirements.lock hack/lowest_versions.py | $(STAMP)
	@echo "setting up $(LOWEST) (once)"
	@$(BIN)/python -m venv --clear $(LOWEST)
	@$(BIN)/python hack/lowest_versions.py >$(LOWEST)/constraints.txt
	@$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(LOWEST)/constraints.txt --editable . --group test
	@touch $@
