# The only documented commands. `make demo` and `make test` need nothing but Python 3.11 and the package index.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
PY := $(VENV)/bin/python
SEED ?=
SEEDS ?= 500
START ?= 1
JOBS ?= 2
MINUTES ?= 120
RECORDS ?= 10000000
SOAK ?=
OLD ?= HEAD~1
PAGES ?=
JAR ?=
#: Tests within one process: their coverage says something.
COVERED := tests/unit tests/datadriven tests/contract

export PYTHONHASHSEED := 0
# A start without .pyc files takes half a second of CPU more, and tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test rest coverage release check setup lint format types imports sim mutate contract interop suites protocol console sparks spark-versions pipelines pipeline-run chaos schedules soak rolling upgrade replace bench dist binary peer rewrite docs docs-commands site checklist clean sbom lockage

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18

demo: $(VENV)/.complete ## three nodes, a real ZooKeeper, real data, a killed leader, and a pipeline that makes it an Iceberg table
	@$(PY) -m kafkalite_cli.demo

test: $(VENV)/.complete ## every test: unit, property, scenarios, contract, simulation, real processes, Spark
	$(PY) -m pytest tests -n 3 --dist worksteal

coverage: $(VENV)/.complete ## tests within one process, and the share of lines that they run; fails below the floor (pyproject.toml)
	$(PY) -m pytest $(COVERED) -n 2 --dist worksteal -p tests.line_coverage

# Five at once, beside those of `coverage`: half of the time, these tests wait for their processes.
rest: $(VENV)/.complete
	$(PY) -m pytest tests -n 5 --dist worksteal --durations 30 $(COVERED:%=--ignore=%)

# Types and imports take one core, and so do the seeds here: both at once. The tests of processes leave a third of the CPU idle: the others take
# it.
check: lint ## what CI runs: lint, types, import contracts, every test, the first simulation seeds
	$(MAKE) -j2 --output-sync=recurse static simfirst JOBS=1
	$(MAKE) -j2 rest coverage

.PHONY: static
static: types imports

setup: $(VENV)/.complete ## make .venv from requirements.lock

$(VENV)/.complete: requirements.lock pyproject.toml
	@.ci/setup

lint: $(VENV)/.complete ## ruff
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

format: $(VENV)/.complete ## let ruff format
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

types: $(VENV)/.complete ## mypy --strict
	$(VENV)/bin/mypy

imports: $(VENV)/.complete ## who may import whom (import-linter)
	@PYTHONPATH=.:cli:spark $(VENV)/bin/lint-imports

sim: $(VENV)/.complete ## deterministic simulation: make sim SEED=7, make sim SEEDS=500 [START=1]
	@if [ -n "$(SEED)" ]; then $(PY) -m kafkalite.testing.simulate --seed $(SEED); \
	else $(PY) -m kafkalite.testing.simulate --seeds $(SEEDS) --start $(START) --jobs $(JOBS); fi

.PHONY: simfirst
simfirst: $(VENV)/.complete
	$(PY) -m kafkalite.testing.simulate --seeds 8 --start 4 --jobs $(JOBS)

mutate: $(VENV)/.complete ## one operator or constant of a rule changed at a time: does a test fail? (MODULE=kafkalite.log.retention: one)
	$(PY) -m kafkalite.testing.mutate $(MODULE)

contract: $(VENV)/.complete ## the coordinator contract, on a real ZooKeeper and on the simulated one
	$(PY) -m pytest tests/contract

interop: $(VENV)/.complete ## every foreign client that can be had here: Python, kcat, JavaScript, Go, Kafka's tools, Streams, Connect
	KAFKALITE_INTEROP=all $(PY) -m pytest tests/interop

suites: $(VENV)/.complete ## other people's own test suites: franz-go, librdkafka, kafka-python, Apache Kafka's, … (SUITE=NAME; SOURCES=DIR: checkouts; needs Go, npm, gcc, Java)
	$(PY) -m tests.suites $(SUITE) $(if $(SOURCES),--sources $(SOURCES))

console: $(VENV)/.complete ## the console in Chromium, by clicks (apt: chromium chromium-driver); SCREENSHOTS=1 writes docs/images
	@command -v chromedriver >/dev/null || { echo "there is no chromedriver: apt-get install chromium chromium-driver"; exit 1; }
	$(PY) -m pytest tests/unit/http -k chromium
	@if [ -n "$(SCREENSHOTS)" ]; then $(PY) -m tests.support.console_pictures; fi

protocol: $(VENV)/.complete ## what a kafka-clients jar has that we do not offer (JAR=FILE; default: the newest client that the tests use)
	@$(PY) -m kafkalite.testing.kafka_jar $(JAR)

sparks: $(VENV)/.complete ## the Spark tests on the oldest and the newest Spark, Spark Connect, executors with the wheel alone
	@.ci/sparks

spark-versions: $(VENV)/.complete ## reader, writer, streams, a pipeline on Spark 4.0 to 4.3: local, a cluster of two workers, Connect (VERSIONS="4.3")
	@.ci/spark-versions

pipelines: $(VENV)/.complete ## the pipelines' tests, and their tables read by DuckDB and by Spark with Iceberg's jar
	@.ci/pipelines

pipeline-run: $(VENV)/.complete ## ten million flights (RECORDS=N) into Iceberg and Delta on Spark: join, deduplication, windows, kills; compared row by row
	$(PY) -m bench.pipeline_run --records $(RECORDS)

chaos: $(VENV)/.complete ## real processes, two minutes of kill -9, SIGSTOP, restarts, a ZooKeeper restart
	$(PY) -m kafkalite.testing.chaos --seconds 120

schedules: $(VENV)/.complete ## real processes, three quarters of an hour of fault schedules (SCHEDULE=NAME: one), the network's as root
	$(PY) -m kafkalite.testing.schedules $(SCHEDULE)

soak: $(VENV)/.complete ## two hours of every fault under librdkafka and Kafka's Java client (MINUTES=N SOAK=--flush), as root
	$(PY) -m bench.soak --minutes $(MINUTES) $(SOAK)

rolling: $(VENV)/.complete ## ten rolling restarts under librdkafka's load; then ten with OLD=COMMIT's code and this one's mixed
	$(PY) -m bench.rolling --rounds 10
	$(PY) -m bench.rolling --rounds 10 --old $(OLD)

upgrade: $(VENV)/.complete ## OLD=COMMIT's wheel replaced by this one's, node by node, under librdkafka's load with transactions and groups; one step back
	$(PY) -m bench.upgrade --old $(OLD)

replace: $(VENV)/.complete ## a node dies for good under librdkafka's load and another id takes its place; restarts measured
	$(PY) -m bench.replace

bench: $(VENV)/.complete ## throughput, latency, start-up, memory, 10,000 partitions, a move
	$(PY) -m bench.throughput
	$(PY) -m bench.failover
	$(PY) -m bench.moves
	$(PY) -m bench.silence

dist: $(VENV)/.complete ## wheel and sdist in dist/, and a clean environment that sees them serve
	.ci/dist $(PY)

release: $(VENV)/.complete ## is this commit a release? version, CHANGELOG, generated documents, wheel (docs/releasing.md)
	.ci/release $(PY)

sbom: $(VENV)/.complete ## dist/kafkalite.cdx.json: what a release runs with, from requirements.lock (CycloneDX)
	mkdir -p dist && $(PY) -m bench.sbom > dist/kafkalite.cdx.json

lockage: $(VENV)/.complete ## how old requirements.lock is
	$(PY) -m bench.sbom --age

binary: $(VENV)/.complete ## dist/kafkalite: one file that serves without a Python installed
	.ci/binary $(PY)

peer: $(VENV)/.complete ## the same load on kafkalite and on Apache Kafka, side by side (needs Java, Maven and Go)
	$(PY) -m bench.beside_kafka

rewrite: $(VENV)/.complete ## write the present results into the scenario files; explain the diff in the commit
	KAFKALITE_REWRITE=1 $(PY) -m pytest tests/unit tests/datadriven

checklist: $(VENV)/.complete ## the sentences of docs/invariants.md and the tests that hold them
	$(PY) -m pytest tests -q --collect-only --checklist

docs: $(VENV)/.complete ## regenerate the tables under docs/ that come from code and tests
	$(PY) -m kafkalite_cli.docs
	$(PY) -m tests.invariants

docs-commands: $(VENV)/.complete ## every command of README and docs/, executed from the pages (PAGES=FILE…: some)
	$(PY) -m tests.documented $(PAGES)

site: ## docs/ as a site in .site/html, searchable without a server; fails on a broken link
	@.ci/site python3

clean: ## remove what the targets made
	rm -rf $(VENV) .sparks .site demo-data .mypy_cache .ruff_cache .pytest_cache .hypothesis
