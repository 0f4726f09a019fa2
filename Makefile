# Two commands for a newcomer: make demo, make test. Everything they need is installed by make setup.
#   run      demo [ONCE=1] [MYSIMBDP=1] · setup
#   test     test (15 minutes) · test-all (60 minutes) · unit · lint · coverage
#   parts    faults · interop · bigquery · hdfs · pod: what test-all runs and test leaves out
#   longer   soak [MINUTES=n] [FOREIGN=deltalake,spark] · simulate [SECONDS=n]
#   measure  bench · bench-log · bench-sinks · bench-tenants, each [BENCH=name]
#   other    reference · sbom · clean
# docs/contributing.md says what each is for.

SHELL := /bin/bash
CACHE := $(or $(MILLRACE_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/millrace)
BIN := .venv/bin
# Kafka and Spark want the whole machine: two makes take turns instead of starving each other.
ALONE := scripts/alone $(CACHE)/machine.lock
# A test that hangs ends its process; the others then run in a new one.
PYTEST := $(BIN)/pytest --durations=10
PARALLEL := -n 2 --max-worker-restart=4
# Both processes must collect the same tests in the same order, also where a test is made for each member of a set.
test test-all unit: export PYTHONHASHSEED := 0

.PHONY: setup demo test test-all coverage bigquery hdfs faults interop soak simulate pod unit lint reference sbom bench bench-log bench-sinks bench-tenants clean

setup:
	@scripts/setup python java jars

demo:
	@scripts/setup python java jars $(if $(MYSIMBDP),core_store)
	@$(ALONE) $(BIN)/millrace demo $(if $(ONCE),--once) $(if $(MYSIMBDP),--mysimbdp)

# Every promise of the README, in the same way each time: Hypothesis takes no random seeds.
test:
	@scripts/setup python java jars core_store test_jars postgres mariadb duckdb_delta
	@$(MAKE) --no-print-directory lint
	@$(ALONE) $(PYTEST) $(PARALLEL) -m "not slow"

# Everything, with random seeds: before an issue is resolved.
test-all:
	@scripts/setup python java jars core_store test_jars postgres mariadb duckdb_delta spark35 bigquery kustomize
	@$(MAKE) --no-print-directory lint
	@$(ALONE) $(PYTEST) $(PARALLEL) --hypothesis-profile=random

# The tests of `make test`, measured; every process they start is slower for it.
coverage: setup
	@scripts/setup core_store test_jars postgres mariadb duckdb_delta
	@rm -rf build/coverage && mkdir -p build/coverage
	@$(ALONE) $(BIN)/coverage run -m pytest -m "not slow"

# The sinks whose servers take long to start: the emulators of Google's services, in an environment of their own; a mini HDFS.
bigquery: setup
	@scripts/setup bigquery
	@$(PYTEST) tests/sinks -k "bigquery or gcs"

hdfs: setup
	@$(PYTEST) tests/sinks -k hdfs

faults: setup
	@$(ALONE) $(PYTEST) tests/faults

# Other engines read and write the tables; the result is kept, and docs/delta.md shows it.
interop: setup
	@scripts/setup test_jars duckdb_delta spark35
	@$(ALONE) $(BIN)/python -m tests.interop

# Random load with random faults, then the checks of the black-box checker; see docs/soak.md.
soak: setup
	@$(if $(findstring spark,$(FOREIGN)),scripts/setup test_jars)
	@$(ALONE) $(BIN)/python -m checker soak --minutes $(or $(MINUTES),5) --foreign "$(FOREIGN)"

# The table log in a simulated world: first the planted bugs, each of which must be found, then as many lives as there is time for.
simulate: setup
	@$(BIN)/python -m simulate --bugs
	@$(BIN)/python -m simulate --seconds $(or $(SECONDS),60)

# The containers of deploy/overlays/single-broker as processes of this machine, with their own arguments and probes.
pod: setup
	@scripts/setup kustomize
	@$(ALONE) $(PYTEST) tests/unit/test_deploy.py tests/e2e/test_pod.py

unit: setup
	@$(PYTEST) $(PARALLEL) tests/unit tests/property

lint:
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

# What users read of each sink's settings, made from its own schema.
reference:
	@$(BIN)/python -m millrace.sink.reference docs/sinks
	@for name in table agreement; do $(BIN)/millrace schema $$name > schemas/$$name.json; done
	@$(BIN)/python -m millrace.api.endpoints > docs/endpoints.md

# The software bill of materials: CycloneDX JSON of the Python packages and jars that the platform consists of.
sbom: setup
	@$(BIN)/python scripts/sbom.py build/sbom.json

bench: setup
	@$(ALONE) $(BIN)/python -m bench $(BENCH)

bench-log: setup
	@$(ALONE) $(BIN)/python -m bench log $(BENCH)

bench-sinks: setup
	@scripts/setup core_store test_jars postgres mariadb duckdb_delta
	@$(ALONE) $(BIN)/python -m bench sinks $(BENCH)

bench-tenants: setup
	@$(ALONE) $(BIN)/python -m bench tenants $(BENCH)

clean:
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
