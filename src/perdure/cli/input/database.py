"""Opening the database for a command, and finding a run in it.

In:   the URL and the namespace, and a run as people name it.
Out:  an open client that works nothing; a run.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import perdure
from perdure.app.database import FILE, MEMORY, file_of, foreign_file, has_runs, strange_kind
from perdure.app.network.remote import is_remote
from perdure.cli.output.errors import Mistake, Trouble
from perdure.cli.output.suggestions import hint, nearest
from perdure.cli.output.tables import LogFormatter
from perdure.errors import RunNotFound, without_password

NEWEST = 200
# What the engine tells of outages; a command says it itself, in its error or while it waits.
OUTAGES = ("store_unavailable", "watch_failed")


@asynccontextmanager
async def client(url: str, namespace: str) -> "AsyncIterator[perdure.Perdure]":
    """A client of a database that exists; a command that only looks must not create one."""
    app = idle(url, namespace)
    if not is_remote(url):
        await _refuse_strange(url, existing(url))
    async with app:
        yield app


async def _refuse_strange(url: str, path: Path | None) -> None:
    """Trouble when the database has no tables of ours."""
    if await has_runs(url):
        return
    if path is not None and (foreign := foreign_file(path)) is not None:
        raise Trouble(f"{url}: {foreign.what}; {foreign.remedy}; nothing was changed")
    if path is not None:
        raise Trouble(f"{str(path)!r} is a database without runs of Perdure; name another with --url or PERDURE_URL")
    raise Trouble(
        f"{without_password(url)}: the database has no runs of Perdure in this schema; name another with --url or "
        "PERDURE_URL (schema=... in it), or let `perdure migrate` make the tables"
    )


def idle(url: str, namespace: str) -> "perdure.Perdure":
    """A client that works nothing, and whose engine does not speak of outages."""
    logging.getLogger("perdure.engine").addFilter(_is_no_outage)
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(LogFormatter())
    return perdure.Perdure(url, namespace=namespace, worker=False)


def _is_no_outage(record: logging.LogRecord) -> bool:
    return not getattr(record, "event", "").startswith(OUTAGES)


def existing(url: str) -> Path | None:
    """The file behind a URL, if it names one; Trouble when it is not there, or a folder, a pipe or the like."""
    refuse_memory(url)
    refuse_server(url)
    path = file_of(url)
    if path is not None and not path.exists():
        raise Trouble(
            f"there is no database {str(path)!r}; name another with --url or PERDURE_URL, "
            "or start a run with `perdure run`"
        )
    if path is not None and (kind := strange_kind(path)) is not None:
        raise Trouble(f"{url}: this is {kind}; name a file with --url or PERDURE_URL")
    return path


def refuse_memory(url: str) -> None:
    """Mistake when the URL names a database that no other process could see."""
    if url == MEMORY:
        raise Mistake(f"{url} is the memory of one process, no other can see it; name a file: --url {FILE}file.db")


def refuse_server(url: str) -> None:
    """Mistake when the URL names a server, and the database itself is needed."""
    if is_remote(url):
        raise Mistake(f"{url} is a server, and this needs the database itself; name that with --url or PERDURE_URL")


def under(app: "perdure.Perdure", key: str | None) -> "perdure.Perdure":
    """The same, whose commands are done once under a key, if there is one."""
    return app if key is None else app.with_key(key)


async def found(app: "perdure.Perdure", name: str, key: str | None = None) -> "perdure.Run[Any]":
    """The run with this id, or else with this run_id; RunNotFound, or Trouble that names a near one.

    What is asked of it is done once under the key, if there is one.
    """
    run = await _found(app, name)
    return run if key is None else run.with_key(key)


async def _found(app: "perdure.Perdure", name: str) -> "perdure.Run[Any]":
    try:
        return await app.get(name)
    except RunNotFound as missing:
        try:
            return await app.get(run_id=name)
        except RunNotFound:
            near = nearest(name, [info.id for info in await app.list(limit=NEWEST)])
            if near is None:
                raise missing from None
            raise Trouble(
                f"no run {name!r} in namespace {app.namespace!r} (did you mean {near}?); "
                f"`{hint('list')}` shows the runs there are"
            ) from None
