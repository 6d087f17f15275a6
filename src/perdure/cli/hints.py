"""Hints: what somebody probably meant, and commands that are shown to be copied.

In:   a name that does not exist, and those that do; the words of a command.
Out:  the nearest name; the command as a shell takes it, with --url and --namespace when they were typed,
      for then nothing else says which database it speaks of. A password is not repeated.
"""

import shlex
from collections.abc import Iterable
from difflib import get_close_matches

import typer

from perdure.errors import without_password

_typed: dict[str, str] = {}


def note(context: typer.Context, parameter: typer.CallbackParam, value: str) -> str:
    """Remember the option if it was typed; what the environment says holds for the next command as well."""
    name = str(parameter.name)
    source = context.get_parameter_source(name)
    _typed.pop(name, None)
    if source is not None and source.name == "COMMANDLINE":
        _typed[name] = value
    return value


def hint(*words: str) -> str:
    """`perdure` with these words, each quoted where a shell wants it."""
    typed = [
        word
        for name in ("url", "namespace")
        if name in _typed
        for word in (f"--{name}", without_password(_typed[name]))
    ]
    return shlex.join(["perdure", *words, *typed])


def nearest(typed: str, known: Iterable[str]) -> str | None:
    """The known name that is most like the typed one, whatever its case."""
    by_fold = {name.casefold(): name for name in known}
    matches = get_close_matches(typed.casefold(), list(by_fold), 1)
    return by_fold[matches[0]] if matches else None


def did_you_mean(typed: str, known: Iterable[str]) -> str:
    """A question for the middle of a sentence; nothing when no name is near."""
    found = nearest(typed, known)
    return "" if found is None else f" (did you mean {found}?)"
