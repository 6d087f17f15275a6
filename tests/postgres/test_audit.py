"""`perdure audit` on Postgres asks what it asks of a file, and finds what a bug or a careless hand did."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count

import asyncpg
import pytest

from perdure import Perdure
from perdure.stores.audit import invariants
from perdure.stores.postgres.checks.audit import audit_of
from tests import lived
from tests.cli.test_audit import BROKEN
from tests.postgres.corruptions import NAMES, OF_POSTGRES, corrupt

_copies = count()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    db = await asyncpg.connect(url)
    try:
        yield db
    finally:
        await db.close()


async def _execute(url: str, sql: str) -> None:
    async with connected(url) as db:
        await db.execute(sql)


@contextmanager
def database(server: str, name: str, more: str = "") -> Iterator[str]:
    """A database of its own, for a while; its URL."""
    asyncio.run(_execute(server, f"create database {name} {more}"))
    try:
        yield server.rpartition("/")[0] + f"/{name}"
    finally:
        asyncio.run(_execute(server, f"drop database {name} with (force)"))


@pytest.fixture(scope="session")
def lived_in(postgres: str) -> Iterator[str]:
    """The name of a database whose worker died with runs of every kind in it."""
    name = f"lived_{os.getpid()}"
    with database(postgres, name) as url:
        asyncio.run(lived.live(url))
        yield name


@pytest.fixture
def copy(postgres: str, lived_in: str) -> Iterator[str]:
    """The URL of a copy of it."""
    with database(postgres, f"{lived_in}_{next(_copies)}", f"template {lived_in}") as url:
        yield url


def test_a_database_that_has_lived_is_clean(copy: str) -> None:
    """An audit that cries wolf is not read; this database has been through everything that can happen to runs."""
    found = asyncio.run(audit_of(copy))

    assert found.violations == ()
    assert [check.check for check in found.checks] == list(invariants())
    assert found.runs > 30


@pytest.mark.parametrize("name", NAMES)
def test_each_corruption_is_found(copy: str, name: str) -> None:
    """Whatever a bug or a careless hand did, the sentence it breaks is named."""
    asyncio.run(corrupt(copy, name))
    found = asyncio.run(audit_of(copy))
    assert (OF_POSTGRES | BROKEN)[name] in {violation.check for violation in found.violations}


def test_nearly_every_sentence_is_broken_by_some_corruption() -> None:
    """A check that no corruption trips may be blind. Pages and columns are kept whole by Postgres itself."""
    assert {(OF_POSTGRES | BROKEN)[name] for name in NAMES} | {"file", "columns"} == set(invariants())


def test_a_finding_has_the_words_of_a_file(copy: str) -> None:
    asyncio.run(corrupt(copy, "a_delayed_run_that_never_wakes"))
    (violation,) = asyncio.run(audit_of(copy)).violations
    assert (violation.check, violation.workflow_id, violation.namespace) == ("ripe", "delayed", "main")
    assert violation.found == "is PENDING, but never ripe"


async def test_an_audit_beside_a_worker_finds_nothing(postgres_url: str) -> None:
    """It sees one moment, between two commits and never within one."""
    async with Perdure(postgres_url) as app:
        runs = [await app.start(lived.lives_in_steps, "x") for _ in range(30)]
        for _ in range(5):
            assert (await audit_of(postgres_url)).violations == ()
        for run in runs:
            await run.result()
        found = await audit_of(postgres_url)
    assert (found.violations, found.runs, found.events) == ((), 30, 90)
