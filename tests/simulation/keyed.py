"""Idempotency keys in a simulation: who asks under them, and what must hold of them after every write.

In:   a tape; batches that were written.
Out:  requests under keys, each from several callers; Violation when a key has no effect or two, or another answer.
"""

import json
from collections import Counter
from typing import Any

from perdure.app import Perdure, Run
from perdure.stores.answers import Committed
from perdure.stores.operations import Batch, InsertRichRun, PostMessage, TakeKey
from tests.simulation.clients import OfEndedRun, Request
from tests.simulation.invariants import Violation
from tests.simulation.programs import Part, sim_run, sim_signals
from tests.simulation.sight import Seen
from tests.simulation.simulator import Database, MemoryDatabase, SqliteDatabase, Tape

OF_KEYS = (TakeKey, InsertRichRun, PostMessage)
# What the payloads of signals under a key begin with; of runs it is their entity.
UNDER_KEY = "under-"
# Clocks are set forward by a day.
YEAR = 365 * 86_400.0


class StartUnderKey(Request):
    """Start a run without an id of its own, under a key."""

    def __init__(self, key: str, after_step: int, program: list[Part]) -> None:
        super().__init__(key, after_step)
        self.program = program

    async def ask(self, app: Perdure) -> str:
        wanted = sim_run.options(entity_id=self.key)
        return (await app.with_key(self.key, keep=YEAR).start(wanted, self.program, [])).run_id


class SignalUnderKey(OfEndedRun):
    """Send a signal without an id of its own, under a key, to exactly the run that had the id at first."""

    name = "blue"

    def __init__(self, key: str, after_step: int, payload: str) -> None:
        super().__init__(key, after_step)
        self.payload = payload

    async def of(self, run: Run[Any]) -> str:
        await run.with_key(self.payload, keep=YEAR).signal(sim_signals[self.name], self.payload)
        return run.run_id


def drawn_starts(tape: Tape) -> list[Request]:
    """Callers who want the same run, at once or later; each asks until it is answered."""
    first, program = tape.choose(200), tape.one_of([], [["sleep", 2000]])
    return [StartUnderKey(f"{UNDER_KEY}start", first + tape.choose(40), program) for _ in range(tape.between(2, 3))]


class KeyWitness:
    """Sees every write that is about keys, and every answer under one."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._answers: dict[str, str] = {}

    def wrote(self, batch: Batch, outcome: object, seen: Seen) -> None:
        """A batch was written: what is done under a key is done once, and there with it."""
        operations = (operation for group in batch.groups for operation in group)
        if not isinstance(outcome, Committed) or not any(isinstance(each, OF_KEYS) for each in operations):
            return
        keys, starts = self._look()
        begun = Counter(
            entity
            for run_id, entity in starts
            if not seen.runs[run_id].continued_from and not seen.runs[run_id].forked_from
        )
        _check("start", begun, [key for command, key in keys if command == "start"])
        payloads = {
            (message.message_id, json.loads(message.body)["payload"])
            for message in seen.messages.values()
            if message.kind == "SignalSent"
        }
        sent = Counter(payload for _, payload in payloads if payload.startswith(UNDER_KEY))
        _check("signal", sent, [key for command, key in keys if command == "signal"])

    def _look(self) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """The commands and keys there are, and the runs of such entities."""
        if isinstance(self._database, MemoryDatabase):
            tables = self._database.tables
            runs = [(run_id, row.entity_id) for run_id, row in tables.runs.rows.items() if row.entity_id is not None]
            return [(command, key) for _, command, key in tables.keys.rows], runs
        assert isinstance(self._database, SqliteDatabase)
        ask = self._database.db.execute
        runs = ask("select run_id, entity_id from runs where entity_id is not null").fetchall()
        return ask("select command, key from idempotency_keys").fetchall(), runs

    def answered(self, request: StartUnderKey, seen: Seen) -> None:
        """Everybody is told the same run, which is there."""
        run_id = self._answers.setdefault(request.key, request.answer)
        if request.answer != run_id or run_id not in seen.runs:
            raise Violation("I61", f"the start under {request.key} was answered {request.answer}, and before {run_id}")


def _check(command: str, effects: Counter[str], keys: list[str]) -> None:
    if sorted(effects.elements()) != sorted(keys):
        raise Violation(
            "I61", f"{command} was done under {sorted(effects.elements())}, and the keys are {sorted(keys)}"
        )
