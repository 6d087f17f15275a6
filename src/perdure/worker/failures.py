"""Errors <-> failures: what is kept of an error, and how it is raised again.

Nothing is ever imported to revive an error: its type must be a builtin, or a class
of a module that is loaded already.
"""

import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from perdure import codec
from perdure.kernel.failure import UNKNOWN_ARGUMENTS, Failure

_OURS = str(Path(__file__).parent.parent)
LONGEST_MESSAGE = 4000
LONGEST_TRACEBACK = 8000


def failure_of(error: BaseException) -> Failure:
    """What is kept of an error."""
    kind = type(error)
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - an error whose text fails is still an error
        message = f"<{kind.__name__} whose text cannot be shown>"
    if isinstance(error, BaseExceptionGroup):
        message = f"{message}: {'; '.join(_leaves(error))}"
    trace = "".join(traceback.format_exception(kind, error, _users_part(error.__traceback__)))
    return Failure(
        f"{kind.__module__}.{kind.__qualname__}",
        _clean(message, LONGEST_MESSAGE),
        _arguments(error),
        _clean(trace, LONGEST_TRACEBACK),
    )


def _leaves(group: "BaseExceptionGroup[BaseException]") -> list[str]:
    """The errors in a group, and in groups in it, by type and text."""
    found = []
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            found += _leaves(error)
        else:
            found.append(f"{type(error).__name__}: {error}")
    return found


def _users_part(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the first line of user code on; how we came to call it helps nobody."""
    part = trace
    while part is not None and part.tb_frame.f_code.co_filename.startswith(_OURS):
        part = part.tb_next
    return part or trace


def _clean(text: str, longest: int) -> str:
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= longest else text[:longest] + " ..."


def _arguments(error: BaseException) -> msgspec.Raw:
    try:
        data, _ = codec.ValueType(Any).record(list(error.args), "error")
    except Exception:  # noqa: BLE001 - an error whose arguments cannot be kept is still an error
        return UNKNOWN_ARGUMENTS
    return msgspec.Raw(data) if len(data) <= LONGEST_MESSAGE else UNKNOWN_ARGUMENTS


def revive(failure: Failure) -> Exception | None:
    """The error again, when its type is at hand; else None.

    Made by its constructor if that takes the arguments and gives the same text, else
    without it: then it has its type and text, but not the attributes it was given.
    """
    kind = _known_type(failure.type)
    if kind is None:
        return None
    arguments = msgspec.json.decode(failure.arguments)
    if isinstance(arguments, list):
        try:
            error = kind(*arguments)
            if type(error) is kind and str(error) == failure.message:
                return error
        except Exception:  # noqa: BLE001, S110 - its constructor wants something else
            pass
    try:
        error = kind.__new__(kind)
        error.args = tuple(arguments) if isinstance(arguments, list) else (failure.message,)
    except Exception:  # noqa: BLE001 - a type that cannot be made again is reported by its text
        return None
    return error


def _known_type(name: str) -> type[Exception] | None:
    """The class, if it is loaded; nested classes and modules with dots are both possible."""
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        found: object = sys.modules.get(".".join(parts[:cut]))
        if found is None:
            continue
        for part in parts[cut:]:
            found = getattr(found, part, None)
        if isinstance(found, type) and issubclass(found, Exception):
            return found
    return None
