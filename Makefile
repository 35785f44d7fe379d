# One command per task; each sets up what it needs. `make setup PYTHON=python3.12` picks a Python.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.10; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/setup-done
DEMO_READY := $(VENV)/demo-done
CLASSES := $(VENV)/class-archives/spark.jsa
SITE_VENV := .venv-docs
SITE_READY := $(SITE_VENV)/setup-done
# The PySpark that every test runs on; `make test-spark` takes another one.
PINNED := 'pyspark==4.2.*'

.PHONY: setup lint format docs test test-all test-spark test-oldest-spark test-on-this-spark chaos soak simulate demo demo-kafka bench bench-sinks bench-shared bench-dashboard bench-data-source bench-peers dist audit sbom clean

## setup: .venv with the package and every extra, and the jars (kept in ~/.cache/seamark)
setup: $(READY)

# $(call install,EXTRA): $(VENV) with the package and one extra. It says what it fetches.
define install
	@$(or $(PYTHON),false) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || \
		{ echo "seamark: no Python 3.10 or later found; install one, or give its path: make setup PYTHON=..." >&2; exit 1; }
	@java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
		found=$$("$$java" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p'); \
		[ "$${found:-0}" -ge 17 ] || \
		{ echo "seamark: Java 17 or later is needed, found $${found:-none}; install one, or set JAVA_HOME to it" >&2; exit 1; }
	@# A Python without ensurepip (Debian's, without python3-venv) gets its pip from outside.
	@[ -x $(BIN)/pip ] || $(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || { \
		$(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $(VENV) install --quiet pip; }
	$(BIN)/python -m pip install --disable-pip-version-check -e '.[$(1)]' $(PINNED)
endef

$(READY): pyproject.toml
	$(call install,dev)
	$(BIN)/python -m seamark.spark.jars
	@touch $@

## lint: style, formatting, types, and who may import whom
lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check --exclude '*.md'
	$(BIN)/mypy
	@# its cache does not notice a module that appears under an import it has seen before
	$(BIN)/lint-imports --no-cache

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format --exclude '*.md'

# Sphinx has an environment of its own, which sees the packages of $(VENV) too: autodoc imports Seamark.
$(SITE_READY): $(READY)
	$(BIN)/python -m venv --clear --without-pip $(SITE_VENV)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> "$$($(SITE_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/others.pth"
	$(BIN)/python -m pip --disable-pip-version-check --python $(SITE_VENV)/bin/python install --quiet -e '.[docs]'
	@touch $@

## docs: the site, in build/docs, with llms.txt; a warning is a failure. Nothing is fetched once it is set up
docs: $(SITE_READY)
	$(SITE_VENV)/bin/python -m sphinx -q -E -W --keep-going -c docs/site -d build/doctrees . build/docs

# Half of what a short-lived Spark JVM costs is the loading of its classes.
$(CLASSES): $(READY) tests/class_archive.py src/seamark/spark/class_archive.py
	$(BIN)/python -m tests.class_archive

# Tests mostly wait for a JVM or a broker: three workers are busy on two cores.
WORKERS ?= 3

PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

## test: ten minutes on two cores, on real systems; tests/core.py has what is in it
test: setup $(CLASSES)
	$(PYTEST) -m 'not chaos and not full' $(ARGS)

## test-all: every test but the matrix of kills; names the slowest. MINUTES=40 begins none outside of the core later
test-all: setup $(CLASSES)
	$(PYTEST) -m 'not chaos' --durations=20 $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

VERSION ?= 4.0.5

## test-spark: the core on another Spark, in an environment of its own; VERSION=4.0.5
test-spark:
	$(MAKE) VENV=.venv-spark-$(VERSION) PINNED=pyspark==$(VERSION) test-on-this-spark

## test-oldest-spark: what differs most, on the oldest Spark
test-oldest-spark:
	$(MAKE) test-spark VERSION=4.0.5 WHICH=oldest

test-on-this-spark: setup $(CLASSES)
	$(PYTEST) -m 'not chaos' $$($(BIN)/python -m tests.core $(WHICH)) $(ARGS)

## chaos: the whole matrix of kills
chaos: setup $(CLASSES)
	$(BIN)/python -m pytest -m chaos $(ARGS)

## soak: half an hour of random faults; prints the seed that repeats them
soak: setup
	$(BIN)/seamark verify --minutes 30 $(ARGS)

SEEDS ?= 5000
JOBS ?= 2

## simulate: the coordinator under random schedules; SEEDS=N or A..B, JOBS=processes, ARGS=--data-source for format("seamark")
simulate: setup
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) --jobs $(JOBS) $(ARGS)

# What the demo needs, which is a part of what `make setup` installs.
$(DEMO_READY): pyproject.toml
	$(call install,demo)
	@touch $@

## demo, demo-kafka: the main job, killed twice on the way
demo: $(or $(wildcard $(READY)),$(DEMO_READY))
	$(BIN)/python -m seamark demo $(ARGS)

demo-kafka: $(or $(wildcard $(READY)),$(DEMO_READY))
	$(BIN)/python -m seamark demo --kafka $(ARGS)

## bench, bench-sinks: Kafka to Kafka beside Spark's own sink; each database sink beside a plain load
## bench-shared: one stream into one, two and four sinks
## bench-data-source: a batch of format("seamark") beside Spark's own Kafka sink, and its commit into SQLite
## bench-peers: beside Spark, Flink and Quix Streams, each in an environment of its own; ARGS="--rows 1000000"
## bench-dashboard: a job looked at by twenty browsers, and not (needs Debian's chromium)
bench: setup
	$(BIN)/python -m benchmarks.kafka_sink $(ARGS)

bench-sinks: setup
	$(BIN)/python -m benchmarks.sinks $(ARGS)

bench-shared: setup
	$(BIN)/python -m benchmarks.shared_sinks $(ARGS)

bench-data-source: setup
	$(BIN)/python -m benchmarks.data_source $(ARGS)

bench-peers: setup
	$(BIN)/python -m benchmarks.peers $(ARGS)

bench-dashboard: setup
	$(BIN)/python -m benchmarks.dashboard $(ARGS)

TOOLS := .venv-release
INSTALLED := .venv-installed

$(TOOLS)/ready:
	$(PYTHON) -m venv --clear $(TOOLS)
	$(TOOLS)/bin/python -m pip --disable-pip-version-check install --quiet build twine pip-audit cyclonedx-bom
	@touch $@

## dist: dist/ with the sdist, and the wheel made of it; their metadata is checked
dist: $(TOOLS)/ready
	rm -rf dist
	$(TOOLS)/bin/pyproject-build
	$(TOOLS)/bin/twine check --strict dist/*

# What a user with every extra gets, and nothing of the tests.
$(INSTALLED)/ready: pyproject.toml
	$(PYTHON) -m venv --clear $(INSTALLED)
	$(INSTALLED)/bin/python -m pip --disable-pip-version-check install --quiet '.[spark,all,verify]'
	@touch $@

## audit, sbom: known faults of what all extras bring (asks a service); dist/sbom.cdx.json lists it
audit: $(TOOLS)/ready $(INSTALLED)/ready
	$(INSTALLED)/bin/python -m pip freeze --exclude pyspark-seamark > $(INSTALLED)/packages.txt
	$(TOOLS)/bin/pip-audit --strict --no-deps --disable-pip -r $(INSTALLED)/packages.txt

sbom: $(TOOLS)/ready $(INSTALLED)/ready
	@mkdir -p dist
	$(TOOLS)/bin/cyclonedx-py environment --output-reproducible -o dist/sbom.cdx.json $(INSTALLED)/bin/python

clean:
	rm -rf .venv .venv-* .mypy_cache .ruff_cache .pytest_cache .import_linter_cache build dist
