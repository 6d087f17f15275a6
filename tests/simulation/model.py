"""The reference model: what a program may come to, whatever happens on the way."""

from typing import Any

from tests.simulation.programs import HANGS, MOST_ATTEMPTS, Part, outcome_of

# What is sent to runs: signals and deferreds by their names, and what they are asked.
SENT = ("red", "blue", "north", "south", "asked")


def trouble_with(parts: list[Part], value: Any, sent: dict[str, set[str]]) -> str | None:
    """Why a program cannot have come to this value; `sent` is what was sent to its runs, by signal."""
    wanted = [part for part in parts if part[0] != "continue"]
    if any(part[0] == "raise" for part in wanted):
        return f"it completed although it was to fail: {value!r}"
    return _each(wanted, value, sent)


def fails(parts: list[Part]) -> bool:
    """Whether the program ends by raising, if it gets there."""
    return any(part[0] == "raise" for part in parts)


def is_poisoned(parts: Any) -> bool:
    """Whether a program kills the process that runs it, or starts a child that does."""
    return parts in (["poison"], ["far poison"]) or (
        isinstance(parts, list) and any(is_poisoned(part) for part in parts)
    )


def changes_with_the_code(parts: Any) -> bool:
    """Whether other code does something else in this program."""
    if isinstance(parts, list):
        return parts[:1] == ["other code"] or any(changes_with_the_code(part) for part in parts)
    return False


def may_be_stopped(parts: Any) -> bool:
    """Whether a program goes on, in some part of it, after it was told to stop."""
    return isinstance(parts, list) and (parts[:1] == ["until stopped"] or any(may_be_stopped(part) for part in parts))


def was_stopped(value: Any) -> bool:
    """Whether a program was told to stop where it waited for that."""
    return isinstance(value, list) and (value[:1] == ["stop"] or any(was_stopped(each) for each in value))


def _each(parts: list[Part], values: Any, sent: dict[str, set[str]]) -> str | None:
    if not isinstance(values, list) or len(values) != len(parts):
        return f"{len(parts)} parts came to {values!r}"
    return next(
        (trouble for part, value in zip(parts, values, strict=True) if (trouble := _one(part, value, sent))), None
    )


def _one(part: Part, value: Any, sent: dict[str, set[str]]) -> str | None:  # noqa: C901, PLR0911, PLR0912 - as many as there are parts
    match part, value:
        case ["step", number, failures], _:
            wanted = ["failed", number] if failures >= MOST_ATTEMPTS else outcome_of(number)
            return None if value == wanted else f"{part} came to {value!r}"
        case ["task", number, failures, _], _:
            return _of_task(number, failures, value)
        case ["once", number, queue], _:
            given_up = [] if queue is None else [["no task"]]
            return None if value in [outcome_of(number), ["lost", number], *given_up] else f"{part} came to {value!r}"
        case ["enter", number, failures, queue], _:
            wanted = ["failed", number] if failures >= MOST_ATTEMPTS else outcome_of(number)
            given_up = [] if queue is None else [["no task"]]
            # Its process may stand still for longer than a transaction may take.
            return None if value in [wanted, ["too slow", number], *given_up] else f"{part} came to {value!r}"
        case ["hurried", number, _], _:
            return None if value == ["not begun", number] else _of_task(number, 0, value)
        case ["until stopped", _], ["stop", reason] if reason is None or isinstance(reason, str):
            return None
        case ["until stopped", inner], ["way", won]:
            return _one(inner, won, sent)
        case ["far poison"], ["no task"]:
            return None
        case ["quick" | "effect" | "other code", number], _:
            return None if value == outcome_of(number) else f"{part} came to {value!r}"
        case ["book", number, _], ["booked", booked] if booked == number:
            return None
        case ["sleep", ms], ["slept", int(slept)] if slept >= ms:
            return None
        case ["receive", name, _], ["got", payload] if payload in sent[name]:
            return None
        case ["receive", _, int()], ["got nothing"]:
            return None
        case ["defer", name, _], ["resolved", payload] if payload in sent[name]:
            return None
        case ["defer", _, int()], ["not resolved"]:
            return None
        case ["asked", _], ["asked", question] if question in sent["asked"]:
            return None
        case ["asked", int()], ["not asked"]:
            return None
        case ["gather", parts], _:
            return _each(parts, value, sent)
        case ["race", parts], [str(way), won]:
            return _one(parts[int(way.removeprefix("way"))], won, sent)
        case ["limit", _, inner], ["in time", got]:
            return _one(inner, got, sent)
        case ["limit", _, _], ["late"]:
            return None
        case ["child", parts, _, _], ["child", got]:
            # What was sent to the child is not known here; its own row is checked for that.
            return trouble_with(parts, got, {name: _Anything() for name in SENT})
        case ["child", _, _, _], ["no child", _]:
            return None
        case ["cleaning up", _, inner], _:
            return _one(inner, value, sent)
        case ["say", _], ["said", bool()]:
            return None
        case _:
            return f"{part} came to {value!r}"


def _of_task(number: int, failures: int, value: Any) -> str | None:
    """An activity on a queue comes to what it would anywhere, unless it was held and somebody gave it up."""
    if value in (["no task"], ["too slow", number]):
        return None
    wanted = {MOST_ATTEMPTS: ["failed", number], HANGS: ["too slow", number]}.get(failures, outcome_of(number))
    return None if value == wanted else f"the task {number} came to {value!r}"


class _Anything(set[str]):
    def __contains__(self, _: object) -> bool:
        return True
