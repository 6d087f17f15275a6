# `make` lists the targets. Each creates the virtualenv it needs.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# The demo needs the package alone; everything else needs its tools as well.
INSTALLED := $(VENV)/.installed
READY  := $(VENV)/.ready
MINUTES ?= 60
PEERS  := .peers
CLIENTS := .clients
PYTHONS ?= python3.11 python3.12 python3.13
SEEDS  ?= 3000
WORKERS ?= auto

.DEFAULT_GOAL := help
.PHONY: help demo test lint check format generate bench bench-postgres bench-peers bench-parked bench-flood bench-schedules bench-outbox bench-steering bench-http soak fire kill-cycles unwinding transactions failpoints holders outbox-writers servers zombies company io-errors power-loss disk-full backups pooler fire-postgres postgres-crashes postgres-transactions postgres-zombies postgres-rolling postgres-backends postgres-cuts postgres-holders postgres-outbox-writers postgres-servers postgres-hot postgres-claims programs pythons clean simulate mutants small-world clock-changes schedule-traces fuzz-http clients

help:           ## this list
	@grep -E '^[a-z-]+: .*##|^[a-z-]+:  *##' $(MAKEFILE_LIST) | sed 's/:.*##/ ##/' | awk -F'##' '{printf "  make %-18s %s\n", $$1, $$2}'

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $(INSTALLED)

$(READY): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(READY)

demo: $(INSTALLED)  ## an order is killed with -9 half-way, started again, and finishes
	$(BIN)/python demo/run.py

test: $(READY)  ## all tests, in as many processes as WORKERS says
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal

behaviour-http: $(READY)  ## more of the behaviour tests, run by a worker over a server
	PERDURE_TEST_HTTP=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) -k http tests/test_*.py

lint: $(READY)  ## format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check: lint test ## green before every commit

format: $(READY) ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

generate: $(READY) ## write the sync classes anew from the async ones
	$(BIN)/python -m tools.generate_sync

bench: $(READY) ## how fast, beside the floor of this machine (about six minutes)
	$(BIN)/python -m bench

bench-postgres: $(READY) ## the same on a Postgres from PyPI, with two workers, and a million timers (about twenty minutes)
	$(BIN)/python -m bench --store postgres
	$(BIN)/python -m bench.timers --store postgres

bench-peers: $(READY) $(PEERS)/.ready ## DBOS, Restate and Absurd beside us, as far as they can be had (about fifteen minutes)
	$(BIN)/python -m bench.peers

# What cannot be had is skipped, with a message.
$(PEERS)/.ready:
	$(PYTHON) -m venv $(PEERS)/dbos
	$(PEERS)/dbos/bin/python -m pip install --quiet --disable-pip-version-check dbos
	-$(PEERS)/dbos/bin/python -m pip install --quiet --disable-pip-version-check pysqlite3-binary
	$(PYTHON) -m venv $(PEERS)/restate
	-$(PEERS)/restate/bin/python -m pip install --quiet --disable-pip-version-check restate-sdk granian aiohttp
	-npm install --silent --no-fund --no-audit --prefix $(PEERS)/npm @restatedev/restate-server
	$(PYTHON) -m venv $(PEERS)/absurd
	-$(PEERS)/absurd/bin/python -m pip install --quiet --disable-pip-version-check absurd-sdk absurdctl 'psycopg[binary]'
	@touch $@

bench-parked: $(READY) ## parking at scale: 100,000 parked runs, a million timers, 50,000 taken over (about ten minutes)
	$(BIN)/python -m bench.parked
	$(BIN)/python -m bench.timers
	$(BIN)/python -m bench.herd

bench-steering: $(READY) ## filters among a million runs, many at once, retry, fork, subscribers (about ten minutes)
	$(BIN)/python -m bench.steering
	$(BIN)/python -m bench.steering --store postgres

bench-outbox: $(READY) ## what a log sink costs runs, and a delivery among a million events (a few minutes)
	$(BIN)/python -m bench.outbox
	$(BIN)/python -m bench.outbox --store postgres

bench-schedules: $(READY) ## schedules that are due at once beside starts, and a look among 100,000 (a few minutes)
	$(BIN)/python -m bench.schedules
	$(BIN)/python -m bench.schedules --store postgres

bench-http: $(READY) ## starts by HTTP beside starts in process, keys, followers, remote workers, a page among a million runs
	$(BIN)/python -m bench.http --many 1000000
	$(BIN)/python -m bench.remote_worker
	$(BIN)/python -m bench.http_frames --streams 100000
	$(BIN)/python -m bench.http --store postgres --many 1000000
	$(BIN)/python -m bench.remote_worker --store postgres
	$(BIN)/python -m bench.http_frames --store postgres --streams 100000

bench-flood: $(READY) ## 100,000 messages for one run, beside others (half an hour for both stores)
	$(BIN)/python -m bench.flood
	$(BIN)/python -m bench.flood --store postgres

soak: $(READY)  ## mixed load for MINUTES (60); memory, files, threads and log must stay flat; draws docs/soak.svg
	$(BIN)/python -m bench.soak --minutes $(MINUTES)

fire: $(READY)  ## kill-cycles to backups below, with a table at the end (about an hour)
	$(BIN)/python -m tests.processes.fire

kill-cycles: $(READY) ## five hundred kill -9 under load, on a quick and on a slow disk
unwinding: $(READY) ## a hundred kill -9 while runs undo what they have done
transactions: $(READY) ## two hundred kill -9 during transactional activities
failpoints: $(READY) ## a process dies at every named moment, another one goes on
holders: $(READY) ## fifty kill -9 of the worker that starts the runs of a schedule of every second
outbox-writers: $(READY) ## a hundred thousand events of eight processes on one file, none lost
servers: $(READY) ## a hundred kill -9 of two servers and three workers over them
zombies: $(READY) ## a hundred processes frozen beyond their lease come back
company: $(READY) ## two and four processes on one file, ten minutes each
io-errors: $(READY) ## each of the first 300 writes and syncs fails (needs strace)
power-loss: $(READY) ## the power fails at two thousand moments (needs strace)
disk-full: $(READY) ## the disk is full and free again, twenty times (needs root)
backups: $(READY) ## twenty backups of a database at work, each restored and worked on
kill-cycles unwinding transactions failpoints holders outbox-writers servers zombies company io-errors power-loss disk-full backups:
	$(BIN)/python -m tests.processes.fire $@

pooler: $(READY) ## the contract of stores behind PgBouncer in transaction mode (needs pgbouncer)
	$(BIN)/python -m tests.postgres.poolers

fire-postgres: $(READY) ## postgres-crashes to postgres-claims below, with a table at the end (about half an hour)
	$(BIN)/python -m tests.postgres.fire

postgres-crashes: $(READY) ## a server that crashes thirty times under two workers
postgres-transactions: $(READY) ## two hundred kill -9 during transactional activities
postgres-servers: $(READY) ## a hundred kill -9 of two servers and three workers over them
zombies: $(READY) ## fifty processes frozen beyond their lease come back to Postgres
postgres-rolling: $(READY) ## three workers are restarted one after the other under load, fifty rounds
postgres-backends: $(READY) ## two hundred backends of the server are terminated under load
postgres-cuts: $(READY) ## three hundred connections are cut before, in and after a commit
postgres-holders: $(READY) ## fifty kill -9 of the worker that starts the runs of a schedule of every second
postgres-outbox-writers: $(READY) ## a hundred thousand events of 32 writers that commit late or not at all, none lost
postgres-servers: $(READY) ## a hundred kill -9 of two servers and three workers over them
postgres-hot: $(READY) ## a million transitions while somebody holds a snapshot open for five minutes
postgres-claims: $(READY) ## sixteen claimers take a hundred thousand tasks, each once
postgres-crashes postgres-transactions postgres-zombies postgres-rolling postgres-backends postgres-cuts postgres-holders postgres-outbox-writers postgres-servers postgres-hot postgres-claims:
	$(BIN)/python -m tests.postgres.fire $@

simulate: $(READY) ## SEEDS schedules of the whole engine in a world where everything goes wrong
	$(BIN)/python -m tests.simulation run --seeds $(SEEDS)

mutants: $(READY) ## planted bugs, one at a time, and how many schedules it takes to find each
	$(BIN)/python -m tests.simulation mutants

programs: $(READY) ## five thousand random programs, replayed at every prefix of their histories
	$(BIN)/python -m tests.programs check --count 5000

pythons: $(READY) ## histories of each of PYTHONS replayed on all of them, and the same simulations on each
	$(BIN)/python -m tests.programs across $(PYTHONS) --count 600
	$(BIN)/python -m tests.simulation across $(PYTHONS)

clock-changes: $(READY) ## cron around every clock change of all zones from 2015 to 2040 (about half an hour)
	$(BIN)/python -m pytest -m long tests/test_cron.py

schedule-traces: $(READY) ## 10,000 random lives of a schedule, each decision compared with the model (some minutes)
	SCHEDULE_TRACES=10000 $(BIN)/python -m pytest -n 0 tests/test_schedule_rules.py -k random_lives

filters: $(READY) ## five thousand random filters on both databases and in the evaluator
	PERDURE_FILTER_EXAMPLES=500 $(BIN)/pytest tests/test_filter_queries.py

small-world: $(READY) ## every interleaving of two workers, two runs and two faults (a few minutes)
	$(BIN)/python -m tests.small_world

clients: $(READY) $(CLIENTS)/.ready ## clients made of openapi.json by others' tools, in Python and TypeScript, start a run and list
	$(BIN)/python -m tests.server.clients $(CLIENTS)

$(CLIENTS)/.ready:
	$(PYTHON) -m venv $(CLIENTS)/python
	$(CLIENTS)/python/bin/python -m pip install --quiet --disable-pip-version-check openapi-python-client
	npm install --silent --no-fund --no-audit --prefix $(CLIENTS)/npm openapi-typescript openapi-fetch typescript@5 @types/node
	@touch $@

fuzz-http: $(READY) ## fifty thousand requests made from openapi.json: no 5xx, no answer outside of it (some minutes)
	PERDURE_HTTP_CASES=60000 $(BIN)/python -m pytest -n 0 -s --timeout 14400 tests/server/test_fuzzing.py

clean:          ## remove what the targets made
	rm -rf $(VENV) $(PEERS) $(CLIENTS) .pytest_cache .mypy_cache .ruff_cache build dist
