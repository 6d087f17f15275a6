"""Finding runs: by what they are, by what they say of themselves, and how many there are."""

import asyncio

import pytest

from perdure import BadFilter, BadOption, Run, Signal, activity, at, continue_as_new, info, set_attributes, workflow
from perdure.kernel.events import Event
from perdure.stores.records import RunRow
from perdure.testing import Environment

go_on = Signal("go_on", str)


@activity(queue="kitchen")
async def cook(order: str) -> str:
    return order


@workflow
async def table_order(order: str) -> str:
    set_attributes(courses=len(order), is_late=False)
    at("waiting")
    tenant = await go_on.receive()
    set_attributes(tenant=tenant, courses=None)
    at("eating")
    await go_on.receive()
    raise ValueError(order)


@workflow
async def takeaway(order: str) -> str:
    return await cook(order)


@workflow
async def waits_only() -> None:
    await go_on.receive()


async def ids(env: Environment, where: str, **beside: object) -> list[str]:
    return sorted(info.id for info in await env.app.list(where=where, **beside))  # type: ignore[arg-type]  # shorthand


async def test_a_run_is_found_by_what_it_says_of_itself_as_soon_as_that_is_on_disk(env: Environment) -> None:
    """Else whoever reacts to an attribute that they were shown would look for the run in vain."""
    async with env:
        one = await env.start(table_order.options(id="t-1", attributes={"tenant": "acme", "tags": ["a", 7]}), "ab")
        await env.start(table_order.options(id="t-2", attributes={"tenant": "acme"}, entity_id="e"), "abc")
        await env.start(table_order.options(id="t-3"), "a")
        assert await ids(env, "tenant = 'acme'") == ["t-1", "t-2"]
        assert await ids(env, "courses >= 2 and is_late = false and step = 'waiting'") == ["t-1", "t-2"]
        assert await ids(env, "tags contains 7") == ["t-1"]
        assert await ids(env, "tenant = 'acme'", entity_id="e") == ["t-2"]
        assert await ids(env, "tenant is null", status="running", workflow=table_order) == ["t-3"]

        await one.signal(go_on, "other")
        await env.settle()
        assert await ids(env, "tenant = 'acme'") == ["t-2"]
        assert await ids(env, "tenant = 'other' and courses is null") == ["t-1"]
        await one.signal(go_on, "")
        await env.settle()
        assert await ids(env, "error = 'ValueError: ab' and created_at > ago('1d')") == ["t-1"]
        assert await env.app.count() == 3
        assert await env.app.count(where="tenant = :t", params={"t": "acme"}) == 1
        assert (await env.app.count(by="status"))["FAILED"] == 1


async def test_a_page_by_a_filter_leads_to_the_next_one(env: Environment) -> None:
    async with env:
        for n in range(5):
            await env.start(table_order.options(id=f"t-{n}", attributes={"tenant": "acme"}), "a")
            await env.pass_time(1)
        found, cursor = [], None
        while True:
            page = await env.app.list(where="tenant = 'acme'", limit=2, after=cursor)
            found += [info.id for info in page]
            cursor = page.cursor
            if cursor is None:
                break
        assert found == ["t-4", "t-3", "t-2", "t-1", "t-0"]


async def test_activities_on_a_queue_are_found_by_who_asks_for_them(env: Environment) -> None:
    """They are parts of other runs, and would stand in the way of whoever counts what customers started."""
    async with env:
        run = await env.start(takeaway.options(id="away"), "soup")
        await env.settle()
        assert await ids(env, "true") == ["away"]
        assert await ids(env, "workflow != 'other'") == ["away"]
        assert len(await ids(env, "workflow = 'task:cook'")) == 1
        assert len(await ids(env, "workflow like 'task:%'")) == 1
        assert len(await ids(env, f"parent_id = '{run.run_id}'")) == 1
        assert await env.app.count() == 1


async def test_a_bad_filter_is_refused_with_its_place(env: Environment) -> None:
    async with env:
        with pytest.raises(BadFilter, match="no status"):
            await env.app.list(where="status = 'broken'")
        with pytest.raises(BadFilter, match="missing"):
            await env.app.count(where="tenant = :t")
        with pytest.raises(BadFilter):
            await env.app.list(where="")
        with pytest.raises(BadOption, match="where="):
            await env.app.list(params={"t": 1})
        with pytest.raises(BadOption, match="but by status"):
            await env.app.count(by="tenant")


# Attributes from outside


@workflow
async def tells_what_it_reads(rounds: int = 2) -> list[object]:
    seen: list[object] = [dict(info().attributes)]
    for n in range(rounds):
        await go_on.receive()
        set_attributes(mine=n, shared=f"code {n}")
        seen.append(dict(info().attributes))
    return seen


async def test_attributes_from_outside_stay_and_the_code_does_not_see_them(env: Environment) -> None:
    """A replay that read what somebody has set since would take another way than the first time."""
    async with env:
        run = await env.start(tells_what_it_reads.options(id="r", attributes={"shared": "start", "gone": 1}))
        await env.settle()
        await run.set_attributes(shared="outside", vip=True, gone=None)
        assert (await run.describe()).attributes == {"shared": "outside", "vip": True}
        assert await ids(env, "vip = true and shared = 'outside' and gone is null") == ["r"]

        await run.signal(go_on, "")
        await env.settle()
        assert (await run.describe()).attributes == {"shared": "code 0", "vip": True, "mine": 0}
        await run.set_attributes(shared="outside again")
        await env.pass_time(3600)
        await run.signal(go_on, "")
        assert await run.result() == [
            {"shared": "start", "gone": 1},
            {"shared": "code 0", "gone": 1, "mine": 0},
            {"shared": "code 1", "gone": 1, "mine": 1},
        ]
        await run.set_attributes(mine=None, closed="yes")
        assert (await run.describe()).attributes == {"shared": "code 1", "vip": True, "closed": "yes"}
        assert await ids(env, "closed = 'yes' and status = 'completed'") == ["r"]


SAID: dict[str, object] = {
    "empty": "", "quote": "it's",
    "line": "a\nb", "umlaut": "ä😀", "nul": "a\0b", "long": "x" * 201, "back": "\\u0041",
    "no": False, "yes": True, "zero": 0, "low": -(2**63), "high": 2**63 - 1, "beyond": 2**63, "huge": 10**30,
    "half": 0.5, "whole": 2.0, "small": 5e-324, "many": ["a", 1, 1.0, True, None, ["b"]], "map": {"a": 1},
}  # fmt: skip


async def test_runs_are_found_alike_by_what_they_began_with_and_by_what_was_said_later(env: Environment) -> None:
    """Plain attributes of new runs take a quicker way to disk than all others."""
    async with env:
        for name, value in SAID.items():
            await env.app.start(waits_only.options(id=f"began {name}", attributes={name: value, "none": None}))
            later = await env.app.start(waits_only.options(id=f"later {name}"))
            await later.set_attributes(**{name: value})
        await env.app.start(waits_only.options(id="all", attributes=SAID))
        for name, value in SAID.items():
            both = ["all", f"began {name}", f"later {name}"]
            assert await ids(env, f"attributes.{name} is not null and none is null") == both
            if isinstance(value, list):
                assert await ids(env, f"attributes.{name} contains :value", params={"value": value[1]}) == both
            elif not isinstance(value, dict) and name != "nul":
                assert await ids(env, f"attributes.{name} = :value", params={"value": value}) == both


async def test_callers_that_set_attributes_at_once_lose_nothing(env: Environment) -> None:
    """Each has read them before another one has written; who comes second makes its change to what is there then."""
    async with env:
        run = await env.start(waits_only)
        await env.settle()
        names = [f"from_{number}" for number in range(5)]
        await asyncio.gather(*(run.set_attributes(**{name: True}) for name in names))

        assert {*names} <= {*(await run.describe()).attributes}
        where = " and ".join(f"{name} = true" for name in names)
        assert [each.run_id for each in await env.app.list(where=where)] == [run.run_id]


async def test_a_run_is_not_found_by_an_attribute_that_is_gone(env: Environment) -> None:
    """Also when it was the last one, and there is nothing to be found by in its place."""
    async with env:
        run = await env.start(waits_only)
        await env.settle()
        await run.set_attributes(tenant="acme", tags=["a", "b"])
        await run.set_attributes(tags=["b"])
        assert await env.app.count(where="tags contains 'b'") == 1
        assert await env.app.count(where="tags contains 'a'") == 0
        await run.set_attributes(tenant=None, tags=None)

        assert await env.app.count(where="tenant = 'acme' or tags contains 'b'") == 0
        assert await env.app.count(where="tenant = 'acme'") == 0
        assert await env.app.count(where="tenant is null and tags is null") == 1


async def test_a_replay_does_not_overwrite_what_was_set_from_outside(env: Environment) -> None:
    """The code says again what it said before; that was then, and what came from outside is newer."""
    async with env:
        run = await env.start(tells_what_it_reads.options(id="r"))
        await run.signal(go_on, "")
        await env.settle()
        await run.set_attributes(shared="outside")
        await env.pass_time(3600)
        await env.crash()
        await env.settle()
        run = await env.app.get("r", workflow=tells_what_it_reads)
        assert (await run.describe()).attributes == {"shared": "outside", "mine": 0}


@workflow
async def says_more_later() -> None:
    await go_on.receive()
    set_attributes(mine=1)
    await go_on.receive()


async def test_what_was_set_from_outside_stays_when_the_code_says_something_else(env: Environment) -> None:
    """The code of a worker that has read the run anew has changed one attribute, not those that it never touched."""
    async with env:
        start = says_more_later.options(id="r", attributes={"shared": "start", "gone": 1})
        run = await env.start(start)
        await env.pass_time(3600)
        await run.set_attributes(shared="outside", gone=None)
        await env.crash()
        await env.settle()
        run = await env.app.get("r", workflow=says_more_later)
        await run.signal(go_on, "")
        await env.settle()
        assert (await run.describe()).attributes == {"shared": "outside", "mine": 1}


@workflow
async def marked_for_ever(n: int) -> None:
    set_attributes(n=n)
    await go_on.receive()
    continue_as_new(n + 1)


async def test_attributes_from_outside_go_on_with_the_run(env: Environment) -> None:
    """An entity that runs for years is one run after the other; its owner has marked it once."""
    async with env:
        run = await env.start(marked_for_ever.options(id="r"), 1)
        await env.settle()
        await run.set_attributes(vip=True)
        await run.signal(go_on, "")
        await env.settle()
        newest = await env.app.get("r")
        assert (await newest.describe()).attributes == {"n": 2, "vip": True}
        assert await ids(env, "vip = true and n = 2") == ["r"]
        await run.set_attributes(late=1)
        assert (await newest.describe()).attributes == {"n": 2, "vip": True, "late": 1}


async def test_bad_attributes_from_outside_are_refused(env: Environment) -> None:
    async with env:
        run = await env.start(marked_for_ever.options(id="r"), 1)
        with pytest.raises(BadOption, match="limit is"):
            await run.set_attributes(long="x" * 20_000)
        with pytest.raises(BadOption):
            await run.set_attributes(when=object())
        assert "long" not in (await run.describe()).attributes


# Reading from the end


@workflow
async def has_a_long_history(events: int) -> None:
    for _ in range(events):
        await go_on.receive()


async def seqs(run: Run[None], **wanted: object) -> list[int]:
    return [event.seq async for event in run.events(**wanted)]  # type: ignore[arg-type]  # shorthand


async def test_the_end_of_a_history_is_read_without_its_beginning(env: Environment) -> None:
    """Of a run that is years old the last twenty events are shown as quickly as those of a new one."""
    async with env:
        run = await env.start(has_a_long_history.options(id="r"), 60)
        for _ in range(60):
            await run.signal(go_on, "")
        await run.result()
        whole = await seqs(run)
        assert whole == list(range(1, 63))
        assert await seqs(run, newest_first=True) == whole[::-1]
        assert await seqs(run, newest_first=True, limit=3) == [62, 61, 60]
        assert await seqs(run, newest_first=True, before=60, limit=2) == [59, 58]
        assert await seqs(run, newest_first=True, before=3) == [2, 1]
        assert await seqs(run, newest_first=True, after=59) == [62, 61, 60]
        assert await seqs(run, before=4) == [1, 2, 3]
        assert await seqs(run, after=10, limit=2) == [11, 12]
        assert await seqs(run, newest_first=True, after=99, limit=2) == []
        read: list[int] = []
        reads = env.app._store.reads
        whole_page = reads.events

        async def counted(row: RunRow, after: int, limit: int) -> list[Event]:
            page = await whole_page(row, after, limit)
            read.append(len(page))
            return page

        reads.events = counted  # type: ignore[method-assign]  # only counted
        assert len(await seqs(run, newest_first=True, limit=20)) == 20
        assert read == [20]


async def test_the_end_of_an_open_history_is_its_last_event(env: Environment) -> None:
    async with env:
        run = await env.start(has_a_long_history.options(id="r"), 60)
        assert await seqs(run, newest_first=True, limit=5) == [1]
        await run.signal(go_on, "")
        await env.settle()
        assert await seqs(run, newest_first=True, limit=5) == [2, 1]
        with pytest.raises(BadOption, match="newest_first"):
            await seqs(run, newest_first=True, follow=True)
        with pytest.raises(BadOption, match="limit is 0"):
            await seqs(run, limit=0)
