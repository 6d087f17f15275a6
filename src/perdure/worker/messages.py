"""Messages that come for live runs: put into their inboxes, and read from the database when some may be missing.

In:   what the engine notices; runs that were to be parked when a message came first.
Out:  runs that go on with what they were sent.
"""

from collections.abc import Sequence

from perdure.engine.ports import Engine
from perdure.kernel.messages import Message
from perdure.worker.executor import Executor
from perdure.worker.inbox import InboxReading
from perdure.worker.live_run import LiveRun


class IncomingMessages:
    """Hands messages to the runs of this worker."""

    def __init__(self, engine: Engine, executor: Executor) -> None:
        self._claimer = engine.claimer
        self._executor = executor

    def notice(self, run_id: str, message: Message, count: int | None) -> bool:
        """A message has come, the count-th of its run if that is known; False when the run does not live here."""
        live = self._executor.runs.by_id.get(run_id)
        if live is None:
            return False
        if live.knows(message):
            return True
        if count is not None and count != live.owned.messages + 1:
            # Another message came between, of another process: read all of them, in their order.
            self.read_inbox(live)
        elif live.add_message(message):
            live.owned.messages += 1
            if not live.is_leaving and not live.is_committing:
                self._executor.settle(live, None)
        return True

    def notice_unread(self, run_id: str, messages: Sequence[Message], had: int | None) -> None:
        """What is unread of a run, in order, after what it knows; `had` with the last of it, the count with all."""
        live = self._executor.runs.by_id.get(run_id)
        if live is None:
            return
        for message in messages:
            live.owned.messages += live.add_message(message)
        if live.inbox is not None and messages:
            live.inbox.read_to = max(live.inbox.read_to, messages[-1].number)
        if had is not None:
            # Nothing that came up to then is missing here; whatever this is behind by was known before it was counted.
            live.owned.messages = max(live.owned.messages, had)
        if messages and not live.is_leaving and not live.is_committing:
            self._executor.settle(live, None)

    def read_inbox(self, live: LiveRun) -> None:
        """Read a run's inbox; one reading at a time, and another one if more came meanwhile."""
        if live.reading:
            live.reading = InboxReading.AND_AGAIN
        else:
            live.reading = InboxReading.ONCE
            self._executor.background.spawn(self.read_until_calm(live))

    async def read_until_calm(self, live: LiveRun) -> None:
        try:
            while not live.is_gone:
                live.reading = InboxReading.ONCE
                await self._claimer.read_messages_of(live.run_id, 0 if live.inbox is None else live.inbox.read_to)
                if live.reading is InboxReading.ONCE:
                    return
        finally:
            live.reading = None

    def go_on(self, live: LiveRun) -> None:
        """A message came before the run could be parked: read it, and do what was put aside."""
        deferred, live.deferred = live.deferred or (), None
        self.read_inbox(live)
        for command in deferred:
            self._executor.advance(live, command)
        self._executor.expire(live)
        if not live.is_leaving:
            self._executor.effects.try_again(live)
            self._executor.settle(live, None)
