"""Streams on Postgres: several processes publish in one stream at the same time."""

import asyncio

from perdure.stores.answers import Committed, Outcome
from perdure.stores.operations import Batch, InsertRun, MoveStreams, Operation, PublishValues
from perdure.stores.postgres.store import PostgresStore

RUN = InsertRun("r", "main", "r", "wf", "q", "RUNNING", None, 1, 0, "{}", 7, 1)


async def written(store: PostgresStore, *operations: Operation) -> Outcome:
    future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    store.commit(Batch([[operation] for operation in operations], None, 0), future.set_result)
    return await future


def values(task: int, first: int) -> PublishValues:
    bodies = tuple(f"[{task},{number}]" for number in range(first, first + 3))
    return PublishValues("r", "main", "s", f"task {task}", "a", 1, 1, bodies)


async def test_numbers_have_no_gap_whoever_publishes_at_the_same_time(empty_url: str) -> None:
    """Each process sees in its own transaction only what others have committed; the head makes them wait."""
    stores = [PostgresStore(empty_url) for _ in range(4)]
    for store in stores:
        await store.open()
    try:
        assert isinstance(await written(stores[0], RUN), Committed)

        async def publish(task: int) -> None:
            for first in range(0, 60, 3):
                assert isinstance(await written(stores[task], values(task, first)), Committed)

        await asyncio.gather(*map(publish, range(4)))
        page = await stores[0].reads.channels.stream_page("r", "s", 0, 1000)
        assert [value.n for value in page] == [*range(1, 241)]
        for task in range(4):
            of_task = [value.body for value in page if value.body.startswith(f"[{task},")]
            assert of_task == [f"[{task},{number}]" for number in range(60)], "in the order of publishing"
    finally:
        for store in stores:
            await store.close()


async def test_the_streams_of_a_run_go_on_with_the_next_number(empty_url: str) -> None:
    store = PostgresStore(empty_url)
    await store.open()
    try:
        own = PublishValues("r", "main", "s", "r", "", 1, 1, ("1", "2"))
        await written(store, RUN, own, MoveStreams("r", "next"))
        heads = (await store.reads.channels.heads(["r", "next"])).items()
        assert {run_id: (head.n, head.own) for run_id, (head,) in heads} == {"r": (2, 2), "next": (2, 0)}
        await written(store, own._replace(run_id="next", source_run_id="next"))
        assert [value.n for value in await store.reads.channels.stream_page("next", "s", 0, 9)] == [3, 4]
        assert await store.reads.channels.stream_begin("next", "s") == 2
    finally:
        await store.close()
