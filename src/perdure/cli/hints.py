"""Commands that are shown to be copied: they speak of the same database as the one just typed.

In:   the words of a command.
Out:  the command as a shell takes it; with --url when it was typed, for then nothing else says it.
"""

import shlex
from contextvars import ContextVar

import typer

_typed_url: ContextVar[str | None] = ContextVar("typed_url", default=None)


def note_url(context: typer.Context, url: str) -> str:
    """Remember the URL if it was typed; one from the environment holds for the next command as well."""
    source = context.get_parameter_source("url")
    _typed_url.set(url if source is not None and source.name == "COMMANDLINE" else None)
    return url


def hint(*words: str) -> str:
    """`perdure` with these words, each quoted where a shell wants it."""
    url = _typed_url.get()
    return shlex.join(["perdure", *words, *(["--url", url] if url is not None else [])])
