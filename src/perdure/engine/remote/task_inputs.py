"""Inputs of activities on queues, read and checked: no attempt can be made of one that makes no sense.

In:   what a task was started with, or is to be.
Out:  its input; BadField or BadOption.
"""

import msgspec

from perdure.errors import BadField
from perdure.kernel.retry import LONGEST_SECONDS
from perdure.kernel.tasks import TaskInput


def task_input(kind: str, given: msgspec.Raw | str) -> TaskInput:
    """The input of a task; refused when no worker could make an attempt of it."""
    try:
        task = msgspec.json.decode(given, type=TaskInput)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadField(kind, f"the input of an activity on a queue: {error}") from None
    check_attempts(kind, task)
    return task


def check_attempts(kind: str, task: TaskInput) -> None:
    """Refuse it here, and not when the activity has failed; BadOption for how it is to be tried again."""
    if not bytes(task.arguments).lstrip().startswith(b"{"):
        raise BadField(kind, "the arguments of an activity are given by name; give an object")
    check_duration(kind, "timeout", task.timeout)
    check_duration(kind, "heartbeat", task.heartbeat)
    if task.heartbeat == 0:
        raise BadField(kind, "heartbeat is 0; give a duration above 0")
    assert task.retry


def check_duration(kind: str, name: str, seconds: float | None) -> None:
    """Refuse a duration that leaves the range of dates."""
    if seconds is not None and not 0 <= seconds <= LONGEST_SECONDS:
        raise BadField(kind, f"{name} is {seconds:g}; give 0 seconds to 1000 years")
