"""Errors <-> failures: what is kept of an error, and how it is raised again.

In:   an error that was raised; later, what was kept of it.
Out:  a failure, as a value; the error again, of its own type, where that is at hand.
Nothing is ever imported to revive an error: its type must be a builtin, or a class of
a module that is loaded already. Of its code nothing runs but `kind(*args)` and `str`.
"""

import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from types import GetSetDescriptorType, MemberDescriptorType, TracebackType
from typing import Any

import msgspec

from perdure.kernel.failure import NO_ATTRIBUTES, UNKNOWN_ARGUMENTS, Failure
from perdure.worker.failures.classes import class_named, name_of
from perdure.worker.failures.values import keep, restore

_OURS = str(Path(__file__).parent.parent)
LONGEST_MESSAGE = 4000
LONGEST_TRACEBACK = 8000

# Of a group of errors: so many are kept at each level, so many levels, so many bytes in all.
MOST_ERRORS = 50
DEEPEST_GROUP = 10
LARGEST_GROUP = 64 * 1024

_NOTES = "__notes__"


# Keeping


def failure_of(error: BaseException) -> Failure:
    """What is kept of an error."""
    failure = _failure(error, DEEPEST_GROUP)
    if failure.errors and len(msgspec.json.encode(failure.errors)) > LARGEST_GROUP:
        failure = msgspec.structs.replace(failure, errors=())
    return msgspec.structs.replace(failure, traceback=_traceback(error))


def _failure(error: BaseException, left: int) -> Failure:
    errors: tuple[Failure, ...]
    message, errors = text_of(error), ()
    if isinstance(error, BaseExceptionGroup):
        message = f"{message}: {'; '.join(_leaves(error, left))}"
        errors = _members(error, left)
    args, attributes = _recipe(error)
    kept = {name: value for name, value in attributes.items() if _is_attribute(name) and keep(value) is not None}
    return Failure(
        writable(name_of(type(error))),
        writable(message),
        arguments=keep(list(args)) or UNKNOWN_ARGUMENTS,
        attributes=keep(kept) or NO_ATTRIBUTES,
        errors=errors,
    )


def text_of(error: BaseException) -> str:
    """The text of an error, or one in its place when making it fails."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an error whose text fails is still an error
        return f"<{type(error).__name__} whose text cannot be shown>"


def _leaves(group: "BaseExceptionGroup[BaseException]", left: int) -> list[str]:
    """The errors in a group, and in groups in it, by type and text."""
    found = []
    for error in group.exceptions[:MOST_ERRORS]:
        if isinstance(error, BaseExceptionGroup) and left:
            found += _leaves(error, left - 1)
        else:
            found.append(f"{type(error).__name__}: {text_of(error)}")
    return found


def _members(group: "BaseExceptionGroup[BaseException]", left: int) -> tuple[Failure, ...]:
    if not left:
        return ()
    kept = [_failure(error, left - 1) for error in group.exceptions[:MOST_ERRORS]]
    more = len(group.exceptions) - len(kept)
    return (*kept, _failure(RuntimeError(f"and {more} more errors"), 0)) if more else tuple(kept)


def _recipe(error: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What its type is to be called with, and its attributes, as the error itself would have it copied."""
    if isinstance(error, BaseExceptionGroup):
        return (error.message,), vars(error)
    try:
        kind, args, *more = error.__reduce__()
        if kind is type(error):
            return tuple(args), dict(more[0] or {}) if more else {}
    except Exception:  # noqa: BLE001, S110 - an error that cannot be copied is still an error
        pass
    return error.args, vars(error)


def _is_attribute(name: object) -> bool:
    return name == _NOTES or (type(name) is str and not name.startswith("__"))


def _traceback(error: BaseException) -> str:
    try:
        lines = traceback.format_exception(type(error), error, _users_part(error.__traceback__))
    except Exception:  # noqa: BLE001 - whatever an error's own code does, the error is kept
        return ""
    # What was raised, and where, stands at the end; what caused it at the beginning.
    return writable("".join(lines), LONGEST_TRACEBACK, LONGEST_TRACEBACK // 2)


def _users_part(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the first line of user code on; how we came to call it helps nobody."""
    part = trace
    while part is not None and part.tb_frame.f_code.co_filename.startswith(_OURS):
        part = part.tb_next
    return part or trace


def writable(text: str, longest: int = LONGEST_MESSAGE, end: int = 0) -> str:
    """What can be written of a text: of a long one its beginning, and as much of its end as is wanted."""
    if len(text) > longest:
        text = f"{text[: longest - end]} ...{text[len(text) - end :]}"
    return text.encode("utf-8", "backslashreplace").decode()


# Reviving


def raised(failure: Failure, otherwise: Callable[[str, str], Exception]) -> Exception:
    """The error a workflow sees when a call of it has failed: its own again, else one with its type and text."""
    revived = revive(failure)
    # A future cannot carry StopIteration.
    if revived is not None and not isinstance(revived, StopIteration):
        return revived
    return otherwise(failure.type.removeprefix("builtins."), failure.message)


def revive(failure: Failure) -> Exception | None:
    """The error again, when its type is at hand; else None.

    Made by its constructor if that takes the arguments and gives the same text, else
    without it. Attributes that could not be kept are missing; if the text is another one
    without them, a note tells what it was.
    """
    kind = class_named(failure.type)
    if kind is None or not issubclass(kind, Exception):
        return None
    if issubclass(kind, ExceptionGroup):
        return _revived_group(kind, failure)
    args = restore(failure.arguments)
    known = isinstance(args, list)
    made = _tried(lambda: kind(*args), kind, failure) if known else None
    if made is not None and _is_told(made, failure):
        return made
    bare = _tried(lambda: _bare(kind, tuple(args) if known else (failure.message,)), kind, failure)
    if bare is not None and not _is_told(bare, failure):
        bare.add_note(f"its text was: {failure.message}")
    return bare


def _revived_group(kind: Any, failure: Failure) -> Exception | None:
    args = restore(failure.arguments)
    members = [revive(each) or RuntimeError(each.summary) for each in failure.errors]
    return _tried(lambda: kind(*args, members), kind, failure)


def _tried(make: Callable[[], Any], kind: type[Exception], failure: Failure) -> Exception | None:
    """A new error with the attributes it had, unless its type does not have it."""
    try:
        error = make()
        if type(error) is not kind:
            return None
        attributes = restore(failure.attributes)
        for name, value in attributes.items() if isinstance(attributes, dict) else ():
            if _is_attribute(name):
                _set(error, name, value)
    except Exception:  # noqa: BLE001 - a type that cannot be made again is reported by its text
        return None
    return error


def _bare(kind: type[Exception], args: tuple[Any, ...]) -> Exception:
    """An error made without its constructor."""
    builtin: Any = next(base for base in kind.__mro__ if base.__module__ == "builtins")
    error: Exception = builtin.__new__(kind)
    error.args = args
    return error


def _set(error: Exception, name: str, value: object) -> None:
    """Set an attribute of the error itself; builtin errors have some that are not in their dict."""
    place = inspect.getattr_static(type(error), name, None)
    if isinstance(place, GetSetDescriptorType | MemberDescriptorType):
        place.__set__(error, value)
    else:
        vars(error)[name] = value


def _is_told(error: Exception, failure: Failure) -> bool:
    return writable(text_of(error)) == failure.message
