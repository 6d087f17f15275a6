"""Opening the database for a command, and finding a run in it.

In:   the URL, and a run as people name it.
Out:  an open client that works nothing; a run.
"""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import perdure
from perdure.cli.exits import Mistake, Trouble
from perdure.errors import RunNotFound
from perdure.stores.sqlite import has_runs

FILE = "sqlite:///"
MEMORY = "sqlite://"


def client(url: str) -> "AbstractAsyncContextManager[perdure.Perdure]":
    """A client of a database that exists; a command that only looks must not create one."""
    refuse_memory(url)
    if url.startswith(FILE) and url != FILE:
        path = Path(unquote(url.removeprefix(FILE)))
        if not path.exists():
            raise Trouble(
                f"there is no database {str(path)!r}; name another with --url or PERDURE_URL, "
                "or start a run with `perdure run`"
            )
        if not has_runs(path):
            raise Trouble(
                f"{str(path)!r} is a database without runs of Perdure; name another with --url or PERDURE_URL"
            )
    return perdure.Perdure(url, worker=False)


def location(url: str) -> str:
    """Where the database is, whatever the folder of the reader: a file's absolute path."""
    return str(Path(unquote(url.removeprefix(FILE))).absolute()) if url.startswith(FILE) else url


def refuse_memory(url: str) -> None:
    """Mistake when the URL names a database that no other process could see."""
    if url == MEMORY:
        raise Mistake(f"{url} is the memory of one process, no other can see it; name a file: --url {FILE}file.db")


async def found(app: "perdure.Perdure", name: str) -> "perdure.Run[Any]":
    """The run with this id, or else with this run_id; RunNotFound."""
    try:
        return await app.get(name)
    except RunNotFound as missing:
        try:
            return await app.get(run_id=name)
        except RunNotFound:
            raise missing from None
