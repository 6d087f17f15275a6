"""Whether a Postgres database is well: server, settings, schema, connections, workers, runs, clock, what is in the way.

In:   a URL.
Out:  findings; nothing in the database is changed.
"""

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import msgspec

from perdure.diagnostics.findings import Finding, Hint, command, ok, trouble, warning
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
from perdure.errors import NewerSchema, StoreError, StoreUnavailable
from perdure.stores.health import WorkerSeen
from perdure.stores.postgres.checks.audit import audit_of
from perdure.stores.postgres.checks.health import PostgresHealth, health_of
from perdure.stores.postgres.checks.inspection import due_of
from perdure.stores.postgres.checks.privileges import lacking_rights
from perdure.stores.postgres.errors import AGAIN
from perdure.stores.postgres.errors import remedy as remedy_of
from perdure.stores.postgres.schema import OLDEST
from perdure.stores.urls import location
from perdure.views.words import counted, size_text, span

# A worker has seven connections at most; with fewer left the next one may not come up.
FEW_CONNECTIONS = 10
CLOCKS_APART_MS = 1_000
# So many dead rows, and more of them than live ones, make every look at a table slow.
MANY_DEAD = 10_000
SHOWN_VERSION = 2


def check_postgres(url: str, hint: Hint = command) -> Iterator[Finding]:
    """All that can be said about the database."""
    try:
        health = asyncio.run(_health_of(url))
    except StoreError as error:
        yield _told(error)
        return
    yield from findings_of(url, health, hint)
    if health.schema:
        yield _check_rights(url, hint)
    if health.is_read and not health.differences:
        yield _check_contents(url, health, hint)


def _told(error: StoreError) -> Finding:
    """Why there is nothing to look at, and what helps against just that."""
    if isinstance(error, NewerSchema):
        found = f"{error.url}: it has schema {error.found}, this Perdure knows up to {error.known}"
        return trouble("database", found, "upgrade perdure, or name another database with --url")
    if not isinstance(error, StoreUnavailable):
        return trouble("database", str(error), "name another database with --url, or another schema (schema=... in it)")
    advice = AGAIN if error.__context__ is None else remedy_of(error.__context__)
    found = str(error).removesuffix(f"; {advice}")
    if advice == AGAIN:
        return trouble("database", found, "let the server be reached, or name another one with --url")
    return trouble("database", found, advice.partition("; nothing was changed")[0])


def _check_rights(url: str, hint: Hint) -> Finding:
    try:
        lacking = asyncio.run(lacking_rights(url))
    except StoreError as error:
        return warning("rights", f"not looked at: {error}", "try again")
    if not lacking:
        return ok("rights", "this role may do all that a worker does")
    return warning(
        "rights",
        f"this role cannot work, for it lacks {'; '.join(lacking)}",
        f"fine for who only looks; a worker's role wants what `{hint('migrate', '--print-roles')}` grants",
    )


async def _health_of(url: str) -> PostgresHealth:
    """What the database looks like, with the runs that wait for a worker to take them."""
    health = await health_of(url)
    return msgspec.structs.replace(health, due=await due_of(url)) if health.due_runs else health


def findings_of(url: str, health: PostgresHealth, hint: Hint = command) -> Iterator[Finding]:
    """What is to be said of what was seen."""
    yield _check_server(health)
    yield ok("database", f"{location(url)}, {size_text(health.bytes)}")
    yield _check_settings(health)
    yield _check_schema(health, hint)
    yield _check_connections(health)
    yield _check_notices(health)
    if health.is_read:
        yield from _check_workers(health)
        yield check_runs(health, health.now, hint=hint, is_service=True)
        yield check_stuck(health, health.now, hint)
        yield from check_duties(health, health.now)
        yield from check_schedules(health, health.now, hint)
    yield _check_clocks(health)
    if health.is_read:
        yield check_clock(health, health.now)
    yield from _check_open(health)
    yield _check_dead(health)


def _check_server(health: PostgresHealth) -> Finding:
    found = " ".join(health.server.split()[:SHOWN_VERSION])
    if health.major < OLDEST:
        return trouble("server", f"{found} is too old", f"use Postgres {OLDEST} or newer")
    if health.is_standby:
        return trouble("server", f"{found}, a standby that only reads", "name the primary in the URL")
    if health.is_read_only:
        return warning("server", f"{found}, read-only by default", "Perdure's connections ask to write all the same")
    return ok("server", found)


def _check_settings(health: PostgresHealth) -> Finding:
    if health.unsafe:
        said = ", ".join(f"{name} = {value}" for name, value in health.unsafe.items())
        what = "what was answered with success may be lost"
        return trouble("settings", f"{said}: {what}", "set it to on; relaxed=on in the URL uses it as it is")
    isolation = "" if health.isolation == "read committed" else f"; read committed for Perdure, not {health.isolation}"
    return ok("settings", f"every commit is synced (synchronous_commit = {health.synchronous_commit}){isolation}")


def _check_schema(health: PostgresHealth, hint: Hint) -> Finding:
    if health.schema == 0:
        return warning("schema", "no tables of Perdure", f"`{hint('migrate')}` makes them, or name another database")
    if health.schema < health.known_schema:
        found = f"{health.schema}; this Perdure makes it {health.known_schema} when it opens it"
        return warning("schema", found, f"back it up, then `{hint('migrate')}`")
    if health.differences:
        found = f"{health.schema}, but {', '.join(health.differences[:3])}"
        if all(each.startswith("the function") for each in health.differences):
            return warning("schema", found, f"`{hint('migrate')}` makes it")
        return trouble("schema", found, "bring back a backup; do not change the tables by hand")
    return ok("schema", str(health.schema))


def _check_connections(health: PostgresHealth) -> Finding:
    left = health.most_connections - health.connections
    found = f"{health.connections} of {health.most_connections} in use"
    if left < FEW_CONNECTIONS:
        return warning("connections", found, "let the server take more (max_connections), or use fewer processes")
    return ok("connections", found)


def _check_notices(health: PostgresHealth) -> Finding:
    if health.is_pooled:
        return ok("notify", "a pooler is in between; processes look for news by themselves, and live by their leases")
    if health.hears is None:
        return ok("notify", "off in the URL; processes look for news by themselves")
    if not health.hears:
        return warning(
            "notify",
            "what one connection says is not heard by another",
            "say notify=off in the URL, or go to the server directly",
        )
    return ok("notify", "what one connection says is heard by another")


def _check_workers(health: PostgresHealth) -> Iterator[Finding]:
    # Behind a pooler nobody holds a lock.
    fit = {True, None} if health.is_pooled else {True}
    alive = [worker for worker in health.workers if worker.is_alive in fit and worker.lease_until >= health.now]
    names = ", ".join(
        f"process {each.pid} on {each.host}, {queues_of(each)}, {counted(each.runs, 'run')}" for each in alive
    )
    yield ok("workers", f"{counted(len(alive), 'worker')} alive ({names})" if alive else "none is alive")
    yield from (
        found for each in health.workers if each not in alive and (found := _check_worker(each, health.now)) is not None
    )


def _check_worker(worker: WorkerSeen, now: int) -> Finding | None:
    """What is wrong with a worker, if anything is."""
    name = f"process {worker.pid} on {worker.host}, {counted(worker.runs, 'run')}"
    if worker.is_alive is False:
        return warning("worker", f"{name}: is gone", "the next worker that starts takes over; start one")
    if worker.is_alive is None:
        return warning(
            "worker",
            f"{name}: the server does not hold its lock",
            "it has ended, lost its connection, or works behind a pooler; others take over when its lease ends",
        )
    if worker.lease_until < now:
        late = span(timedelta(milliseconds=now - worker.lease_until))
        return warning("worker", f"{name}: has not renewed its lease for {late}", "it hangs or was stopped; end it")
    return None


def _check_clocks(health: PostgresHealth) -> Finding:
    apart = span(timedelta(milliseconds=abs(health.behind_ms)))
    if abs(health.behind_ms) > CLOCKS_APART_MS:
        way = "behind" if health.behind_ms > 0 else "ahead of"
        return warning(
            "server clock",
            f"this machine's clock is {apart} {way} the server's",
            "runs go by the server's; let both machines keep their time (NTP)",
        )
    return ok("server clock", f"{apart} between this machine and the server")


def _check_open(health: PostgresHealth) -> Iterator[Finding]:
    if not health.open_long:
        yield ok("transactions", "none is open for long")
    for each in health.open_long:
        yield warning(
            "transactions",
            f"{each.holder} has had one open for {span(timedelta(seconds=each.seconds))} ({each.state})",
            f"dead rows are kept until it ends, and make everything slow; let it commit, or end it: `{each.ending}`",
        )


def _check_dead(health: PostgresHealth) -> Finding:
    bad = [each for each in health.hot if each.dead > max(MANY_DEAD, each.live)]
    if not bad:
        return ok("dead rows", ", ".join(f"{each.table} {each.dead}" for each in health.hot) or "none")
    told = ", ".join(f"{each.table} has {each.dead} beside {each.live} live ones" for each in bad)
    remedy = (
        "end what holds them (transactions, above)" if health.open_long else "see that autovacuum is on and keeps up"
    )
    return warning("dead rows", told, remedy)


def _check_contents(url: str, health: PostgresHealth, hint: Hint) -> Finding:
    if health.bytes > LARGEST_AUDITED:
        return ok("audit", f"not done, the database is large; `{hint('audit')}` does it")
    try:
        found = asyncio.run(audit_of(url)).violations
    except StoreError as error:
        return warning("audit", f"not done: {error}", "try again")
    return told_audit(found, hint)
