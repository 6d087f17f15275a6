"""An operation is a value, a row in the table and its statement: one that nobody knew works in every store."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import pytest
from msgspec.structs import replace

from perdure.stores.answers import Applied, Committed, Moved
from perdure.stores.operations import Batch, Operation
from perdure.stores.port import Store
from perdure.stores.postgres.writing.function import write_batch
from perdure.stores.postgres.writing.single_call import rows_of
from perdure.stores.queries import queries
from perdure.stores.records import RunRow
from perdure.stores.rules.questions import Found
from perdure.stores.rules.table import TABLE, News, news_of, parts_of_single_call, update
from tests.simulation.memory import MemoryStore, Progress
from tests.simulation.memory.statements import STATEMENTS, update_each
from tests.simulation.memory.view import Steps, View
from tests.test_store_contract import WORKER, a_run, answers, opened
from tests.test_store_contract import store as any_store

store = any_store


class Promote(NamedTuple):
    """Give a run that the worker owns another priority."""

    run_id: str
    worker_id: str
    priority: int


IN_SQLITE = """
update runs
   set priority = promoted.column3
  from (values :rows) as promoted
 where run_id = promoted.column1
   and owner = promoted.column2
returning run_id"""
IN_POSTGRES = """
update runs
   set priority = (r ->> 2)::bigint
  from jsonb_array_elements(:rows::jsonb) as r
 where run_id = r ->> 0
   and owner = r ->> 1
returning run_id"""


def in_memory(view: View, rows: Sequence[Promote]) -> Steps[Found]:
    def promote(row: RunRow, promoted: Promote) -> RunRow:
        return replace(row, priority=promoted.priority)

    return (yield from update_each(view, rows, lambda row, promoted: row.owner == promoted.worker_id, promote))


@pytest.fixture(autouse=True)
def _declared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if it stood there from the beginning."""
    monkeypatch.setitem(cast("dict[Any, Any]", TABLE), Promote, update("promote_runs", News.WORK))
    monkeypatch.setitem(queries("sqlite"), "promote_runs", IN_SQLITE)
    monkeypatch.setitem(queries("postgres"), "promote_runs", IN_POSTGRES)
    monkeypatch.setitem(STATEMENTS, "promote_runs", in_memory)
    parts_of_single_call.cache_clear()
    write_batch.cache_clear()
    yield
    parts_of_single_call.cache_clear()
    write_batch.cache_clear()


def a_promotion(run_id: str, worker_id: str = WORKER) -> Operation:
    return cast("Operation", Promote(run_id, worker_id, 7))


async def test_an_operation_of_its_own_is_applied_or_refused(store: Store) -> None:
    """Whoever adds one edits nothing that sorts, applies or announces batches."""
    async with opened(store):
        await answers(store, [a_run("r1"), a_run("r2"), a_run("r3")])

        together = await answers(store, [a_promotion("r1")], [a_promotion("r2")])
        beside = await answers(store, [a_promotion("r3"), a_promotion("r1", "another")], [a_promotion("r2")])

        rows = [await store.reads.run("main", run_id) for run_id in ("r1", "r2", "r3")]
        assert [row.priority for row in rows if row is not None] == [7, 7, 0]
        assert together == [Applied(), Applied()]
        assert beside == [Moved(), Applied()]


def test_an_operation_of_its_own_is_told_to_others_and_goes_in_the_single_call() -> None:
    groups = [[a_promotion("r1")]]
    assert news_of(groups) == News.WORK
    assert rows_of(groups) == ({"promote_runs": [("r1", WORKER, 7)], "now": 0}, {})
    assert "given -> 'promote_runs'" in write_batch("perdure").sql


def test_an_operation_of_its_own_is_a_step_of_the_simulator() -> None:
    """Other processes may come in between, as with all others."""
    simulated = MemoryStore()
    assert simulated.transaction(Batch([[a_run("r1")]], None, 0)).run() == Committed({})
    promotion = simulated.transaction(Batch([[a_promotion("r1")]], None, 0))
    assert promotion.step() == Progress("promote_runs")
    assert promotion.run() == Committed({})
    assert simulated.tables.runs.rows["r1"].priority == 7
