"""The undos of a run: what its code has registered, and their unwinding in the run's own loop.

In:   activities and workflows that undo something, with their arguments as written.
Out:  durable calls, newest first; which of them are done, and which failed for good.

They are calls like any other, at places of their own, so a replay comes by them again and repeats none that is
recorded. Knows nothing of how a run ends; its program decides whether to unwind.
"""

import asyncio
from collections import deque
from contextvars import Context

import msgspec

from perdure.authoring.undo import Undo
from perdure.worker.failures.failures import failure_of
from perdure.worker.loop.loop import RunLoop, RunTask
from perdure.worker.loop.places import current_branch

# So many of them are shown in a run's row, and so many of those that are over are remembered.
MOST_SHOWN = 100
# Of those that failed so many are told in the error of their run, each at most so long.
MOST_NOTES, LONGEST_NOTE = 10, 300
# What a row says of a run that has registered something, until it says what; and how a row says that something waits.
UNKNOWN = '[{"name":null,"state":"waiting"}]'
WAITING = '"state":"waiting"'
# Of one that has forgotten all of it.
NOTHING = "[]"


class UndoStack:
    """What one run has to undo, in the order of the calls of all its branches."""

    # The task that unwinds everything after the end of the code, once that has begun.
    last: RunTask | None = None
    # Whether the code has ended, and what it has done is being undone.
    is_unwinding = False

    def __init__(self, loop: RunLoop) -> None:
        self._loop = loop
        self._unwinders: list[RunTask] = []
        # Those that are over, in the order of their ends, and how many failed.
        self._over: deque[Undo] = deque(maxlen=MOST_SHOWN)
        self._failed = 0
        self._notes: list[str] = []
        # A set in the order of the calls.
        self.waiting: dict[Undo, None] = {}

    @property
    def has_undone(self) -> bool:
        """Whether any of them was called."""
        return bool(self._over)

    def names(self) -> str:
        """What is left to be undone, newest first."""
        return ", ".join(entry.name for entry in reversed(self.waiting))

    # Unwinding

    async def unwind(self) -> None:
        """Undo what is registered by now; a cancellation meanwhile is felt when that is over."""
        if self.waiting:
            await _over(self._begin(dict(self.waiting)))

    def finish(self) -> None:
        """Undo everything: the code has ended, and not well."""
        self.is_unwinding = True
        self.last = self._begin(None)
        self.last.add_done_callback(self._finished)

    def _finished(self, _: object) -> None:
        self.is_unwinding = False

    def _begin(self, wanted: dict[Undo, None] | None) -> RunTask:
        # Its branch is the run's own, whoever asks for it: its calls have the same places whatever they undo.
        context = Context()
        context.run(current_branch.set, self._loop.root.undo())
        before = self._unwinders[-1:]
        task: RunTask = self._loop.create_task(self._unwind(wanted, before), context=context)
        self._unwinders = [unwinder for unwinder in self._unwinders if not unwinder.done()] + [task]
        return task

    async def _unwind(self, wanted: dict[Undo, None] | None, before: list[RunTask]) -> None:
        if wanted is None and (left_behind := self._stop_branches()):
            await asyncio.wait(left_behind)
        for unwinder in before:
            await _over(unwinder)
        waiting, over = self.waiting, self._over
        left = waiting if wanted is None else wanted
        while left:
            entry = next(reversed(left))
            if wanted is not None:
                del wanted[entry]
            # The code, or another branch of it, may have dropped it meanwhile.
            if entry in waiting:
                entry.is_begun = True
                try:
                    await entry.function(*entry.args, **entry.kwargs)
                except Exception as error:  # noqa: BLE001 - one that fails for good does not stop the next
                    self._fail(entry, error)
                else:
                    entry.state = "done"
                over.append(entry)
                del waiting[entry]

    def _stop_branches(self) -> list[RunTask]:
        """Cancel the tasks that the code has left behind: what they have done is to be undone as well."""
        left = [task for task in self._loop.open_tasks() if task not in self._unwinders]
        for task in left:
            task.cancel()
        return left

    # What is told of them

    def _fail(self, entry: Undo, error: Exception) -> None:
        entry.state, entry.error = "failed", _cut(failure_of(error).summary)
        self._failed += 1
        if self._failed <= MOST_NOTES:
            self._notes.append(f"undo {entry.name} failed: {entry.error}")

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be undone, for the error of the run."""
        more = self._failed - MOST_NOTES
        return (*self._notes, f"and {more:,} more could not be undone") if more > 0 else tuple(self._notes)

    def text(self) -> str | None:
        """All of them as JSON, in the order in which they are undone; None when there is none."""
        shown = [
            {"name": entry.function.name, "state": entry.state}
            if entry.error is None
            else {"name": entry.function.name, "state": entry.state, "error": entry.error}
            for entry in (*self._over, *reversed(self.waiting))
        ]
        if not shown:
            return None
        if len(shown) > MOST_SHOWN:
            more = {"name": f"and {len(shown) - MOST_SHOWN:,} more", "state": shown[-1]["state"]}
            shown = [*shown[:MOST_SHOWN], more]
        return msgspec.json.encode(shown).decode()

    def clear(self) -> None:
        """Let go of all: handles and their stack hold each other."""
        self.waiting.clear()
        self._unwinders = []
        self.last = None
        self.is_unwinding = False


async def _over(task: RunTask) -> None:
    """Until the task is over; a cancellation meanwhile is felt only then."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_NOTE else f"{text[:LONGEST_NOTE]} ..."
