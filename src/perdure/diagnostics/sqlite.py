"""Whether a database is well: file, settings, schema, workers, runs, clock; its locks are looked at elsewhere.

In:   the path of a SQLite file.
Out:  findings; nothing in the database is changed.
"""

import os
import socket
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from perdure.clock import SystemClock
from perdure.diagnostics.findings import Finding, Hint, command, ok, trouble, warning
from perdure.diagnostics.locks import check_locks, check_permissions
from perdure.diagnostics.runs import (
    LARGEST_AUDITED,
    check_clock,
    check_duties,
    check_runs,
    check_stuck,
    queues_of,
    told_audit,
)
from perdure.diagnostics.schedules import check_schedules
from perdure.errors import StoreError
from perdure.stores.health import WorkerSeen
from perdure.stores.sqlite.checks.audit import audit_of
from perdure.stores.sqlite.checks.health import VERSION, Health, has_reset_race, health_of
from perdure.stores.sqlite.files import strange_kind
from perdure.views.words import counted, size_text, span

# SQLite writes the log back every 1,000 pages, about 4 MB; this many bytes mean that it cannot.
LARGE_LOG = 64 * 2**20
SMALL_PAGE = 4096
ROOM = "make room; it goes on by itself"


def check_database(path: Path, *, is_full: bool = False, hint: Hint = command) -> Iterator[Finding]:
    """All that can be said about the file; one that is not there is no trouble yet.

    While the disk is full nobody can renew a lease or take a run; that says nothing about who lives.
    """
    if not path.exists():
        yield ok("database", f"{path} is not there yet; the first run creates it")
        return
    if (kind := strange_kind(path)) is not None:
        yield trouble("database", f"{path} is {kind}", "name a file with --url")
        return
    now = SystemClock().now()
    try:
        health = health_of(path, now)
    except StoreError as error:
        yield trouble("database", str(error), "name another file with --url, or bring back a backup")
        return
    except OSError as error:
        yield trouble(
            "database",
            f"{path} cannot be read: {error.strerror}",
            "make it readable for this user, or name another file with --url",
        )
        return
    yield _check_file(path, health)
    if health.page_bytes or not health.schema:
        yield _check_settings(health)
    yield check_permissions(path)
    yield _check_schema(health)
    if health.foreign is not None:
        return
    if health.schema and not health.is_read:
        what = "not looked at: the tables are not those of a version this Perdure knows"
        yield warning("runs", what, "see to the schema first")
        return
    yield from check_locks(path, health.workers)
    yield from _check_workers(health, now, is_full=is_full)
    yield from _check_sharing(health, now)
    yield check_runs(health, now, hint=hint, is_full=is_full)
    if not is_full:
        yield check_stuck(health, now, hint)
    yield from check_duties(health, now)
    yield from check_schedules(health, now, hint)
    yield check_clock(health, now)
    if health.is_read and health.schema == health.known_schema and health.damage is None:
        yield _check_contents(path, health, hint)


def _check_file(path: Path, health: Health) -> Finding:
    found = f"{path}, {size_text(health.bytes)}"
    if health.damage is not None:
        return trouble("database", f"{found}, is damaged: {health.damage}", "bring back a backup")
    if not os.access(path, os.W_OK):
        return trouble("database", f"{found}, cannot be written", "make it writable for this user")
    if health.schema and not health.is_wal:
        return warning("database", f"{found}, has no write-ahead log", "the next worker that opens it turns it on")
    if health.log_bytes > LARGE_LOG:
        return warning(
            "database",
            f"{found}, and a log of {size_text(health.log_bytes)}",
            "some program reads without end; the log shrinks when it stops",
        )
    return ok("database", f"{found}, with a write-ahead log" if health.is_wal else found)


def _check_settings(health: Health) -> Finding:
    found = f"{'write-ahead log' if health.is_wal else 'no write-ahead log'}, pages of {size_text(health.page_bytes)}"
    if not health.page_bytes:
        return ok("settings", "those of the first worker that opens it")
    if health.moves_pages:
        return warning("settings", f"{found}, auto_vacuum = full", "every commit moves pages; vacuum it with none")
    if health.page_bytes < SMALL_PAGE:
        return warning("settings", found, "small pages make it slow; vacuum it with `pragma page_size = 4096`")
    return ok("settings", found)


def _check_schema(health: Health) -> Finding:
    if health.schema > health.known_schema:
        return trouble("schema", f"{health.schema}; this Perdure knows up to {health.known_schema}", "upgrade perdure")
    if health.differences:
        return trouble(
            "schema",
            f"{health.schema}, but {', '.join(health.differences[:3])}",
            "bring back a backup; do not change the tables by hand",
        )
    if health.foreign is not None:
        return trouble("schema", health.foreign.what, health.foreign.remedy)
    if health.schema == 0:
        return warning("schema", "no tables of Perdure", "name another database with --url, or start a run in this one")
    if health.schema < health.known_schema:
        return warning(
            "schema",
            f"{health.schema}; this Perdure makes it {health.known_schema} when it opens it",
            "back it up first",
        )
    return ok("schema", str(health.schema))


def _check_workers(health: Health, now: int, *, is_full: bool) -> Iterator[Finding]:
    found = [_check_worker(worker, now, is_full=is_full) for worker in health.workers]
    alive = [worker for worker in health.workers if worker.is_alive and (is_full or worker.lease_until >= now)]
    names = f" ({_processes(alive)})" if alive else ""
    yield ok("workers", f"{counted(len(alive), 'worker')} alive{names}" if alive else "none is alive")
    yield from (finding for finding in found if finding is not None)


def _check_sharing(health: Health, now: int) -> Iterator[Finding]:
    processes = {worker.pid for worker in health.workers if worker.is_alive and worker.lease_until >= now}
    if len(processes) > 1 and has_reset_race():
        yield warning(
            "sharing",
            f"{len(processes)} processes share the file with SQLite {VERSION}, which has a rare race between them",
            "Perdure's lock keeps its own processes apart; let no other program write, or use SQLite 3.51.3",
        )


def _processes(workers: list[WorkerSeen]) -> str:
    return ", ".join(f"process {worker.pid}, {queues_of(worker)}, {counted(worker.runs, 'run')}" for worker in workers)


def _check_worker(worker: WorkerSeen, now: int, *, is_full: bool) -> Finding | None:
    """What is wrong with a worker, if anything is."""
    name = f"process {worker.pid} on {worker.host}, {counted(worker.runs, 'run')}"
    if worker.host != socket.gethostname():
        return warning(
            "worker", f"{name}: on another machine", "a SQLite file serves one machine; was it copied or is it shared?"
        )
    if worker.is_alive is False:
        return warning("worker", f"{name}: is gone", "the next worker that starts takes over; start one")
    if worker.is_alive is None:
        return warning(
            "worker", f"{name}: its lock is missing", "was the file copied? its runs are taken over after its lease"
        )
    if worker.lease_until < now and is_full:
        return warning("worker", f"{name}: cannot renew its lease, for the disk is full", ROOM)
    if worker.lease_until < now:
        late = span(timedelta(milliseconds=now - worker.lease_until))
        return warning("worker", f"{name}: has not renewed its lease for {late}", "it hangs or was stopped; end it")
    return None


def _check_contents(path: Path, health: Health, hint: Hint) -> Finding:
    if health.bytes + health.log_bytes > LARGEST_AUDITED:
        return ok("audit", f"not done, the file is large; `{hint('audit')}` does it")
    try:
        found = audit_of(path).violations
    except StoreError as error:
        return warning("audit", f"not done: {error}", "try again")
    return told_audit(found, hint)
