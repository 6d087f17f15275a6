"""Suggestions: what the user probably meant, and commands that are shown to be copied.

In:   a name that does not exist, and those that do; the words of a command.
Out:  the nearest name; the command as a shell takes it, with --url and --namespace when they were typed,
      for then nothing else says which database it speaks of. A password is not repeated: the command goes without,
      and takes it from where Postgres looks for it.
"""

import os
import re
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
    wanted = ("url",) if words[:1] == ("namespace",) else ("url", "namespace")
    typed = {name: _typed[name] for name in wanted if name in _typed and not _is_set(name)}
    if "url" in typed:
        typed["url"] = _to_copy(typed["url"])
    options = [word for name, value in typed.items() for word in (f"--{name}", value)]
    return shlex.join(["perdure", *words, *options])


def _is_set(name: str) -> bool:
    """Whether the environment says the same, so that the next command needs no option."""
    return os.environ.get(f"PERDURE_{name.upper()}") == _typed[name]


def _to_copy(url: str) -> str:
    """A URL that works when it is pasted, without the password it may have."""
    shown = re.sub(r":\*\*\*@", "@", without_password(url), count=1)
    kept = re.sub(r"[?&][^=&]*=\*\*\*(?=&|#|$)", "", shown)
    # What followed the first option is the first one now.
    return kept if "?" in kept else kept.replace("&", "?", 1)


def nearest(typed: str, known: Iterable[str]) -> str | None:
    """The known name that is most like the typed one, whatever its case."""
    by_fold = {name.casefold(): name for name in known}
    matches = get_close_matches(typed.casefold(), list(by_fold), 1)
    return by_fold[matches[0]] if matches else None


def did_you_mean(typed: str, known: Iterable[str]) -> str:
    """A question for the middle of a sentence; nothing when no name is near."""
    found = nearest(typed, known)
    return "" if found is None else f" (did you mean {found}?)"
