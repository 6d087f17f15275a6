"""Clients: who starts runs and signals them, and remembers each acknowledgement.

In:   an open Perdure that only asks, in a process that nobody kills.
Out:  load, and an oracle of what was acknowledged and must come true.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any, TypeVar

from perdure import Perdure, Run, Workflow
from perdure.errors import RunClosed, StoreUnavailable
from tests.processes.grounds import Ground, Recorded, recorded_steps, repeated, steps
from tests.processes.workflows import (
    cancelled,
    family,
    gathered,
    generations,
    plain,
    poke,
    signalled,
    stumbling,
    timed,
)

KINDS: list[Workflow[..., Any]] = [
    plain,
    timed,
    gathered,
    signalled,
    signalled,
    family,
    generations,
    cancelled,
    stumbling,
]
IN_FLIGHT = 100
SIGNALS = 2

T = TypeVar("T")


class Oracle:
    """The append-only log of what was acknowledged, kept by a process that is never killed."""

    def __init__(self) -> None:
        self._lines: dict[str, list[tuple[str, str]]] = {}

    def write(self, kind: str, key: str, detail: str = "") -> None:
        self._lines.setdefault(kind, []).append((key, detail))

    def read(self, kind: str) -> list[tuple[str, str]]:
        """Every acknowledgement of this kind: of which key, and the rest."""
        return self._lines.get(kind, [])


class Client:
    """Keeps enough runs in flight, and sends each signalled run its signals at random moments.

    A patient one asks again, in the same words, whenever the database was not there to answer.
    """

    def __init__(
        self,
        app: Perdure,
        site: Ground,
        oracle: Oracle,
        chance: random.Random,
        kinds: Sequence[Workflow[..., Any]] = KINDS,
        *,
        in_flight: int = IN_FLIGHT,
        is_patient: bool = False,
    ) -> None:
        self._kinds = kinds
        self._in_flight = in_flight
        self._is_patient = is_patient
        self._app = app
        self._site = site
        self._oracle = oracle
        self._chance = chance
        self._numbers = count()
        self._to_signal: list[tuple[Run[Any], int]] = []
        self.is_closing = False

    async def feed(self) -> None:
        """Until closing; never cancelled, since then it would not be known what was acknowledged."""
        while not self.is_closing:
            # Suspects take turns; too many of them, and their turns never end.
            if self._site.busy_runs() < 2 * self._in_flight and self._site.open_runs() < 10 * self._in_flight:
                await asyncio.gather(*(self._start(self._chance.choice(self._kinds)) for _ in range(20)))
            for _ in range(max(0, len(self._to_signal) - self._in_flight)):
                await self._signal_one()
            await asyncio.sleep(0.005)

    async def start_each(self, count: int) -> None:
        """Start so many runs of every kind."""
        await asyncio.gather(*(self._start(kind) for kind in self._kinds for _ in range(count)))

    async def signal_each(self) -> None:
        """Send every run that waits for something the first of it."""
        waiting, self._to_signal = self._to_signal, []
        for run, sent in waiting:
            await self._signal(run, sent)

    async def finish(self) -> None:
        """Send what is still to be sent."""
        while self._to_signal:
            await self._signal_one()

    async def _start(self, kind: Workflow[..., Any]) -> None:
        key = f"{kind.name}-{next(self._numbers)}"
        run = await self._surely(lambda: self._app.start(kind.options(id=key), key))
        self._oracle.write("start", key, run.run_id)
        if kind is signalled or kind is cancelled:
            self._to_signal.append((run, 0))

    async def _signal_one(self) -> None:
        await self._signal(*self._to_signal.pop(self._chance.randrange(len(self._to_signal))))

    async def _signal(self, run: Run[Any], sent: int) -> None:
        if run.workflow == cancelled.name:
            await self._surely(lambda: run.cancel(run.id), is_done=RunClosed)
            self._oracle.write("cancel", run.id)
            return
        payload = f"{run.id}/{sent}"
        await self._surely(lambda: run.signal(poke, payload, id=payload), is_done=RunClosed)
        self._oracle.write("signal", run.id, payload)
        if sent + 1 < SIGNALS:
            self._to_signal.append((run, sent + 1))

    async def _surely(self, ask: Callable[[], Awaitable[T]], is_done: type[Exception] | None = None) -> T:
        """What is answered; asked again, an error may say as well that the first time has worked."""
        tries = 0
        while True:
            tries += 1
            try:
                return await ask()
            except StoreUnavailable:
                if not self._is_patient:
                    raise
                await asyncio.sleep(0.05)
            except Exception as error:
                if tries > 1 and is_done is not None and isinstance(error, is_done):
                    return None  # type: ignore[return-value]  # nobody looks at what these answer
                raise


def expected(key: str) -> object:
    """What the run of this key returns, or why it ended."""
    done = steps(key)
    if key.startswith("cancelled"):
        return {"reason": key}
    if key.startswith("signalled"):
        return [done[0], f"{key}/0", done[1], f"{key}/1", *done[2:]]
    return done


def status_of(key: str) -> str:
    """As what the run of this key ends; a cancelled one when it has cleaned up."""
    return "CANCELLED" if key.startswith("cancelled") else "COMPLETED"


class Witness:
    """Reads what is on disk after each blow, and sees to it that nothing that was there ever changes.

    A process that comes back may still do a step that it had begun; then `may_repeat`, but not change a history.
    """

    def __init__(self, site: Ground, oracle: Oracle, *, may_repeat: bool = False) -> None:
        self._may_repeat = may_repeat
        self._site = site
        self._oracle = oracle
        self._open: dict[str, list[Recorded]] = {}
        self._closed: dict[str, list[Recorded]] = {}
        self._recorded: set[tuple[str, int]] = set()
        self._effects_seen = 0
        self.again: list[object] = []

    def look(self) -> None:
        """After a blow: everything acknowledged is there, and what was there before is the beginning of what is now."""
        before = self._open
        found = dict(self._site.rows("select run_id, closed_at is not null from runs"))
        assert [key for key, run_id in self._oracle.read("start") if run_id not in found] == []
        now = self._site.histories([run_id for run_id in found if run_id not in self._closed])
        assert [run_id for run_id, history in before.items() if now[run_id][: len(history)] != history] == []
        effects, self._effects_seen = self._site.effects_after(self._effects_seen)
        # Whatever was executed since the last look, that look had found the outcomes known then on disk.
        self.again += repeated(self._recorded, effects)
        self._closed |= {run_id: history for run_id, history in now.items() if found[run_id]}
        self._open = {run_id: history for run_id, history in now.items() if not found[run_id]}
        self._recorded |= recorded_steps(now)

    def check(self) -> None:
        """At the end: 0 lost, 0 extra, right results, every signal once, nothing recorded was done again."""
        site, oracle = self._site, self._oracle
        self.look()
        assert self._may_repeat or self.again == []
        assert self._open == {}
        started = dict(oracle.read("start"))
        firsts = "select workflow_id from runs where parent_id is null and continued_from is null"
        assert sorted(key for (key,) in site.rows(firsts)) == sorted(started), "each of them once"
        # Who had to ask again may have been given the run that continues the first one.
        keys = dict(site.rows("select run_id, workflow_id from runs"))
        assert [(key, keys[run_id]) for key, run_id in started.items() if keys[run_id] != key] == []
        assert site.outcomes() == {key: (status_of(key), expected(key)) for key in started}
        kinds = Counter(key.split("-", maxsplit=1)[0] for key in started)
        everybody = len(started) + 3 * kinds["family"] + 4 * kinds["generations"]
        histories = site.histories()
        assert len(histories) == everybody
        assert [run_id for run_id, history in self._closed.items() if histories[run_id] != history] == []
        received = site.rows("select body from events where kind = 'SignalReceived'")
        payloads = [json.loads(body)["payload"] for (body,) in received]
        assert sorted(payloads) == sorted(payload for _, payload in oracle.read("signal"))
        site.check()
