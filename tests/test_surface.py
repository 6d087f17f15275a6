"""What authors and callers write: options, generations, changes of code, handles and lists."""

import asyncio
import pickle
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import (
    BadArguments,
    BadInput,
    BadOption,
    IdConflict,
    NotAllowedInWorkflow,
    NotInActivity,
    NotInWorkflow,
    NotOpen,
    Perdure,
    ResourceNotFound,
    Retry,
    Run,
    RunFailed,
    Signal,
    Status,
    Workflow,
    activity,
    at,
    attempt,
    continue_as_new,
    info,
    now,
    patched,
    resource,
    select,
    set_attributes,
    side_effect,
    sleep,
    workflow,
)
from perdure.authoring.options import WorkflowOptions
from perdure.kernel.conflict import GiveIt, OnConflict, Refuse, TakeOver, resolve
from perdure.stores.records import RunRow
from perdure.testing import Environment

item = Signal[int]("item")
stop = Signal("stop", str)
begun: list[str] = []


@activity
async def remember(text: str) -> str:
    begun.append(text)
    return text


@workflow
async def remembers(text: str) -> str:
    return await remember(text)


@workflow
async def collects_on(total: int, generation: int) -> int:
    set_attributes(generation=generation, tenant=None if generation == 3 else "acme")
    at(f"generation {generation}")
    for _ in range(2):
        total += await item.receive()
    if generation < 3:
        continue_as_new(collects_on.call(total, generation + 1))
    return total


@workflow
async def goes_on_for_ever(generation: int) -> None:
    await item.receive()
    continue_as_new(generation + 1)


def count_reads(env: Environment) -> list[str]:
    """The ids of runs whose rows are read from now on."""
    ids: list[str] = []
    read = env.engine.reader.read

    async def counted(namespace: str, run_id: str) -> RunRow:
        ids.append(run_id)
        return await read(namespace, run_id)

    env.engine.reader.read = counted  # type: ignore[method-assign]  # counts what goes through it
    return ids


async def test_an_old_handle_costs_no_more_the_more_often_its_run_goes_on(env: Environment) -> None:
    """Each signal walked through all generations: after a month of an hourly one, seven hundred reads."""
    async with env:
        run, costs = await env.start(goes_on_for_ever.options(id="g"), 0), []
        ids = count_reads(env)
        for _ in range(20):
            await run.signal(item, 1)
            await env.settle()
            costs.append(len(ids))
            ids.clear()
        assert max(costs) <= 2


async def test_a_start_under_the_id_of_a_run_that_went_on_reads_few_rows(env: Environment) -> None:
    """What the first generation was started with is asked at every start; it never changes."""
    async with env:
        run = await env.start(goes_on_for_ever.options(id="g"), 0)
        for _ in range(10):
            await run.signal(item, 1)
            await env.settle()
        assert (await env.start(goes_on_for_ever.options(id="g"), 0)).id == "g"
        ids = count_reads(env)
        assert (await env.start(goes_on_for_ever.options(id="g"), 0)).id == "g"
        assert len(ids) <= 1


@workflow
async def describes_itself() -> list[object]:
    first = info()
    await sleep(1)
    second = info()
    return [
        first.id,
        first.workflow,
        first.queue,
        first.entity_id,
        first.correlation_id,
        first.attributes,
        first.parent_id,
        first.history_length,
        second.history_length,
        (now() - first.started_at).total_seconds() >= 1,
    ]


@workflow
async def chooses() -> list[str]:
    seen = []
    for _ in range(3):
        match await select(expired=sleep(30), item=item.receive(), stop=stop.receive()):
            case "item", number:
                seen.append(f"item {number}")
            case name, value:
                seen.append(f"{name} {value}")
    return seen


@workflow
async def iterates() -> int:
    total = 0
    async for number in item:
        if number == 0:
            break
        total += number
    return total


# Options


async def test_a_delayed_run_does_not_begin_before_its_time(env: Environment) -> None:
    """Signals that come before are kept, and do not wake it."""
    begun.clear()
    async with env:
        run = await env.start(remembers.options(delay=timedelta(hours=1)), "late")
        await run.signal(stop, "?")
        await env.pass_time(3599)
        assert ((await run.describe()).status, begun) == (Status.PENDING, [])
        await env.pass_time(1)
        assert await env.result(run) == "late"


async def test_the_clock_of_a_delayed_run_begins_when_it_does(env: Environment) -> None:
    """Else its first timer would have fired before it was set."""
    async with env:
        run = await env.start(describes_its_time.options(delay=3600))
        created = (await run.describe()).created_at
        began, waited = await env.result(run)
        assert (began - created).total_seconds() >= 3600
        assert waited == 600


@workflow
async def describes_its_time() -> tuple[datetime, float]:
    began = now()
    assert info().started_at == began
    await sleep(600)
    return began, (now() - began).total_seconds()


async def test_a_higher_priority_is_taken_first(tmp_path: Path) -> None:
    begun.clear()
    path = str(tmp_path / "t.db")
    async with Environment(path, worker=False) as client:
        for priority in (0, 5, -1, 9):
            await client.start(remembers.options(priority=priority), f"p{priority}")
    async with Environment(path, clock=client.clock) as env:
        await env.settle()
    assert begun == ["p9", "p5", "p0", "p-1"]


OTHER = "it has other arguments"
CONFLICTS = [
    ("return", None, True, GiveIt()),
    ("return", None, False, GiveIt()),
    ("return", OTHER, True, Refuse(OTHER)),
    ("reject", None, True, Refuse("on_conflict is 'reject'")),
    ("replace", OTHER, True, TakeOver(terminates=False)),
    ("replace", None, False, Refuse("on_conflict is 'replace', but it is still open")),
    ("terminate", OTHER, True, TakeOver(terminates=False)),
    ("terminate", None, False, TakeOver(terminates=True)),
]


@pytest.mark.parametrize(("policy", "difference", "is_closed", "expected"), CONFLICTS)
def test_the_rule_for_a_taken_id(policy: str, difference: str | None, expected: object, *, is_closed: bool) -> None:
    assert resolve(OnConflict(policy), difference=difference, is_closed=is_closed) == expected


async def test_four_ways_to_start_under_a_taken_id(env: Environment) -> None:
    async with env:
        first = await env.start(collects_on.options(id="x"), 0, 3)
        assert await env.start(collects_on.options(id="x"), 0, 3) == first
        with pytest.raises(IdConflict, match="reject") as rejected:
            await env.start(collects_on.options(id="x", on_conflict="reject"), 0, 3)
        assert rejected.value.allowed == ("return", "terminate")
        with pytest.raises(IdConflict, match="still open") as open_still:
            await env.start(collects_on.options(id="x", on_conflict="replace"), 1, 3)
        assert open_still.value.allowed == ("terminate",)
        second = await env.start(collects_on.options(id="x", on_conflict="terminate"), 1, 3)
        assert (await first.describe()).status is Status.TERMINATED
        assert (await env.app.get("x")) == second
        await second.terminate()
        third = await env.start(collects_on.options(id="x", on_conflict="replace"), 2, 3)
        assert [run.run_id for run in await env.app.list(id="x")] == [third.run_id, second.run_id, first.run_id]
        for number in (3, 4):
            await third.signal(item, number)
        assert await env.result(third) == 9


BAD_OPTIONS: list[dict[str, Any]] = [
    {"timeout": -1},
    {"delay": "soon"},
    {"priority": "high"},
    {"priority": True},
    {"on_conflict": "perhaps"},
    {"on_parent_close": "weep"},
    {"entity_id": ""},
    {"correlation_id": "x" * 201},
    {"attributes": ["a"]},
    {"attributes": {"a": {1, 2}}},
    {"attributes": {"a": "x" * 20_000}},
    {"queue": "\n"},
]


@pytest.mark.parametrize("options", BAD_OPTIONS, ids=[str(o)[:30] for o in BAD_OPTIONS])
def test_bad_options_are_refused_where_they_are_given(options: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        remembers.options(**options)


async def test_runs_are_found_by_entity_correlation_and_parent(env: Environment) -> None:
    async with env:
        one = await env.start(remembers.options(entity_id="npc-1", correlation_id="c-1", attributes={"tier": 2}), "a")
        await env.start(remembers.options(entity_id="npc-2", correlation_id="c-1"), "b")
        assert [run.run_id for run in await env.app.list(entity_id="npc-1")] == [one.run_id]
        assert len(await env.app.list(correlation_id="c-1")) == 2
        assert (await one.describe()).attributes == {"tier": 2}


async def test_a_run_knows_itself(env: Environment) -> None:
    async with env:
        given = describes_itself.options(id="me", entity_id="e", correlation_id="c", attributes={"a": 1})
        run = await env.start(given)
        assert await env.result(run) == [
            *("me", "describes_itself", "default", "e", "c"),
            *({"a": 1}, None, 1, 2, True),
        ]


# Generations


async def test_a_run_continues_as_new_with_its_attributes_and_unread_signals(env: Environment) -> None:
    async with env:
        run = await env.start(collects_on.options(id="sum", attributes={"env": "test"}, entity_id="e"), 0, 1)
        for number in range(1, 6):
            await run.signal(item, number)
        await env.settle()
        newest = await env.app.get("sum")
        assert newest != run
        # The first handle goes on speaking to whoever continues its run.
        await run.signal(item, 6)
        assert await env.result(run) == 21
        third, second, first = await env.app.list(id="sum")
        assert [run.status for run in (first, second, third)] == ["CONTINUED", "CONTINUED", "COMPLETED"]
        assert (first.continued_to, second.continued_to) == (second.run_id, third.run_id)
        assert (second.continued_from, third.continued_from) == (first.run_id, second.run_id)
        assert third.attributes == {"env": "test", "generation": 3}
        assert second.attributes == {"env": "test", "generation": 2, "tenant": "acme"}
        assert (third.step, third.entity_id) == ("generation 3", "e")


async def test_no_signal_counts_twice_because_its_run_has_continued(env: Environment) -> None:
    """Whoever sends under an id and got no answer sends again, and cannot know that another run reads by now."""
    async with env:
        run = await env.start(collects_on.options(id="sum"), 0, 1)
        for number in (1, 2, 3, 4):
            await run.signal(item, number, id=f"n-{number}")
        await env.settle()
        assert [run.status for run in await env.app.list(id="sum")] == ["RUNNING", "CONTINUED", "CONTINUED"]
        for number in (4, 3, 2, 1):
            await run.signal(item, number, id=f"n-{number}")
        for number in (5, 6):
            await run.signal(item, number, id=f"n-{number}")
        assert await env.result(run) == 21


async def test_the_same_start_again_finds_a_run_that_has_continued(env: Environment) -> None:
    async with env:
        await env.start(collects_on.options(id="sum"), 0, 1)
        await (await env.app.get("sum")).signal(item, 1)
        await (await env.app.get("sum")).signal(item, 1)
        await env.settle()
        again = await env.start(collects_on.options(id="sum"), 0, 1)
        assert again == await env.app.get("sum")
        assert (await again.describe()).continued_from is not None


@workflow
async def goes_on_regardless(number: int) -> None:
    try:
        await sleep(3600)
    finally:
        continue_as_new(number + 1)


async def test_a_cancel_and_its_deadline_hold_for_the_run_that_continues(env: Environment) -> None:
    async with env:
        run = await env.start(goes_on_regardless.options(id="g"), 0)
        await env.settle()
        await run.cancel("really", deadline=5)
        await env.pass_time(1)
        newest = await env.app.get("g")
        described = await newest.describe()
        assert (newest != run, described.cancel_reason, described.closed_at) == (True, "really", None)
        await env.pass_time(6)
        await env.pass_time(1)
        assert (await newest.describe()).status is Status.CANCELLED


@workflow
async def continues_from_a_group(rounds: int) -> str:
    async with asyncio.TaskGroup():
        if rounds:
            continue_as_new(rounds - 1)
    return "done"


async def test_a_run_may_continue_from_inside_a_task_group(env: Environment) -> None:
    async with env:
        assert await env.result(await env.start(continues_from_a_group, 2)) == "done"


@workflow
async def continues_badly(how: str) -> str:
    match how:
        case "arguments":
            continue_as_new()
        case "workflow":
            continue_as_new(remembers.call("x"))
        case "task":

            async def branch() -> None:
                continue_as_new("x")

            await asyncio.create_task(branch())
    return "no"


@pytest.mark.parametrize(
    ("how", "error"), [("arguments", BadArguments), ("workflow", BadOption), ("task", NotAllowedInWorkflow)]
)
async def test_continuing_wrongly_fails_with_advice(env: Environment, how: str, error: type[Exception]) -> None:
    async with env:
        with pytest.raises(RunFailed) as caught:
            await env.result(await env.start(continues_badly, how))
        assert isinstance(caught.value.__cause__, error)


def test_what_belongs_into_a_workflow_says_so_outside() -> None:
    for call in (lambda: patched("x"), lambda: at("x"), info, lambda: set_attributes(a=1), lambda: continue_as_new(1)):
        with pytest.raises(NotInWorkflow):
            call()


# Changes of code


async def before_the_change(count: int) -> str:
    for _ in range(count):
        await remember("old")
        await item.receive()
    return "old way"


async def after_the_change(count: int) -> str:
    way = "old way"
    for _ in range(count):
        if patched("audit first"):
            await remember("audited")
            way = "new way"
        await remember("old")
        await item.receive()
    return way


def version(fn: Any) -> Workflow[..., Any]:
    return Workflow(fn, "changes", WorkflowOptions())


@pytest.mark.parametrize("replay_always", [False, True])
async def test_patched_sends_runs_under_way_the_old_way_and_new_ones_the_new(
    tmp_path: Path, *, replay_always: bool
) -> None:
    """Through a restart as well: what was answered once is answered so for the rest of the run."""
    path, changed = str(tmp_path / "t.db"), version(after_the_change)
    async with Environment(path, workflows=[version(before_the_change)]) as env:
        await env.start(version(before_the_change).options(id="old"), 3)
        await env.settle()
    clock = env.clock
    for seed in (2, 3, 4):
        env = Environment(path, clock=clock, workflows=[changed], replay_always=replay_always, seed=seed)
        async with env:
            for id in ("old", "new"):
                run = await env.start(changed.options(id=id), 3)
                await run.signal(item, 1)
                await env.settle()
                assert (await run.describe()).held is None
    async with Environment(path, clock=clock, workflows=[changed]) as env:
        ways = [await env.result(await env.app.get(id)) for id in ("old", "new")]
        assert ways == ["old way", "new way"]
        kinds = [[event.kind for event in await env.events(id)] for id in ("old", "new")]
        assert [names.count("Patched") for names in kinds] == [0, 1]


async def waits_before_the_change(text: str) -> str:
    await sleep(timedelta(days=3))
    return await remember(text)


async def waits_after_the_change(text: str) -> str:
    if patched("look first"):
        await remember("looked")
    await sleep(timedelta(days=3))
    return await remember(text)


async def test_a_run_that_waits_behind_the_change_goes_the_old_way(tmp_path: Path) -> None:
    """It has no event yet, but it went by: what it waits for was asked for by the old code."""
    begun.clear()
    path, changed = str(tmp_path / "t.db"), version(waits_after_the_change)
    async with Environment(path, workflows=[version(waits_before_the_change)]) as env:
        await env.start(version(waits_before_the_change).options(id="x"), "done")
        await env.pass_time(60)
    async with Environment(path, clock=env.clock, workflows=[changed]) as env:
        run = await env.app.get("x")
        assert await env.result(run) == "done"
        described = await run.describe()
        assert described.closed_at is not None
        assert described.closed_at - described.created_at < timedelta(days=3, minutes=5)
        assert begun == ["done"]


async def test_a_run_that_was_started_before_the_change_and_begins_after_it_goes_the_new_way(tmp_path: Path) -> None:
    begun.clear()
    path, changed = str(tmp_path / "t.db"), version(waits_after_the_change)
    async with Environment(path, worker=False) as client:
        await client.start(version(waits_before_the_change).options(id="x"), "done")
    async with Environment(path, clock=client.clock, workflows=[changed]) as env:
        assert await env.result(await env.app.get("x")) == "done"
        assert begun == ["looked", "done"]


# Waiting


async def test_select_gives_the_winner_and_the_losers_consume_nothing(env: Environment) -> None:
    async with env:
        run = await env.start(chooses)
        await env.settle()
        await run.signal(stop, "now")
        await run.signal(item, 7)
        await env.settle()
        await env.pass_time(31)
        assert await env.result(run) == ["stop now", "item 7", "expired None"]


async def test_a_signal_can_be_iterated(env: Environment) -> None:
    async with env:
        run = await env.start(iterates)
        for number in (1, 2, 3, 0):
            await run.signal(item, number)
        assert await env.result(run) == 6


async def test_a_signal_sent_twice_under_one_id_counts_once(env: Environment) -> None:
    async with env:
        run = await env.start(iterates)
        for _ in range(3):
            await run.signal(item, 5, id="once")
        assert [m.payload for m in await run.unread()] == []
        await run.signal(item, 0)
        assert await env.result(run) == 5


@workflow
async def cools_down() -> list[float]:
    began = now()
    waited = []
    for _ in range(3):
        await asyncio.gather(sleep(10, key="cool-down"), sleep(99, key="cool-down"))
        waited.append((now() - began).total_seconds())
    return waited


async def test_a_timer_with_a_key_keeps_its_first_time(env: Environment) -> None:
    async with env:
        assert await env.result(await env.start(cools_down.options(id="c"))) == [10, 10, 10]
        places = [event.place for event in await env.events("c") if event.kind == "TimerFired"]
        assert places == ["timer(cool-down)", "timer(cool-down)#2"]


async def first_here(text: str) -> str:
    kept = await remember.options(key="the one")(text)
    await item.receive()
    return kept


async def then_there(text: str) -> str:
    async def branch() -> str:
        return await remember.options(key="the one")("never again")

    kept = await asyncio.create_task(branch())
    await item.receive()
    return kept


async def test_a_call_with_a_key_may_be_moved(tmp_path: Path) -> None:
    path = str(tmp_path / "t.db")
    async with Environment(path, workflows=[version(first_here)]) as env:
        await env.start(version(first_here).options(id="x"), "kept")
        await env.settle()
    async with Environment(path, clock=env.clock, workflows=[version(then_there)], seed=2) as env:
        run = await env.app.get("x")
        await run.signal(item, 1)
        assert await env.result(run) == "kept"


# Handles and lists


async def test_start_many_answers_each_call_in_order(env: Environment) -> None:
    async with env:
        await env.start(remembers.options(id="taken"), "other")
        calls = [remembers.call(str(number)) for number in range(50)]
        calls[20] = remembers.options(id="taken").call("mine")
        answers = await env.app.start_many(*calls)
        assert isinstance(answers[20], IdConflict)
        runs = [answer for answer in answers if isinstance(answer, Run)]
        assert [await env.result(run) for run in runs] == [str(n) for n in range(50) if n != 20]
        assert await env.app.start_many() == []
        with pytest.raises(BadOption, match="start_many"):
            await env.app.start_many(remembers)  # type: ignore[arg-type]  # as a newcomer would


async def test_pages_stay_as_they_are_while_runs_come_and_end(env: Environment) -> None:
    async with env:
        ids = [(await env.start(remembers, str(n))).run_id for n in range(25)]
        seen: list[str] = []
        cursor = None
        while True:
            page = await env.app.list(limit=10, after=cursor)
            seen += [run.run_id for run in page]
            env.clock.advance(5)
            await env.start(remembers, "newcomer")
            await env.settle()
            if (cursor := page.cursor) is None:
                break
        assert seen == sorted(ids, reverse=True)


async def test_a_handle_is_awaitable_and_picklable(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 't.db'}"
    async with Perdure(url) as app:
        run = await app.start(remembers.options(id="r"), "kept")
        copy = pickle.loads(pickle.dumps(run))
        assert copy == run
        assert (await copy, await run) == ("kept", "kept")
    with pytest.raises(NotOpen, match="no Perdure is open on"):
        await copy.result()
    async with Perdure(url, worker=False):
        assert await copy.result() == "kept"


async def test_following_events_ends_with_the_run(env: Environment) -> None:
    async with env:
        run = await env.start(collects_on, 0, 3)

        async def follow() -> list[str]:
            return [event.kind async for event in run.events(follow=True)]

        following = asyncio.ensure_future(follow())
        await env.pass_time(1)
        await run.signal(item, 1)
        await env.pass_time(1)
        await run.signal(item, 2)
        assert await env.alive(following) == ["RunStarted", "SignalReceived", "SignalReceived", "RunCompleted"]


async def test_two_perdures_live_side_by_side(tmp_path: Path) -> None:
    async with (
        Perdure(f"sqlite:///{tmp_path / 'a.db'}") as one,
        Perdure(f"sqlite:///{tmp_path / 'b.db'}") as other,
        Perdure("sqlite://") as third,
    ):
        assert [await app.run(remembers, "x") for app in (one, other, third)] == ["x"] * 3
        assert [len(await app.list()) for app in (one, other, third)] == [1, 1, 1]


class Pool:
    """Something an activity needs."""

    def __init__(self, name: str) -> None:
        self.name = name


@activity
async def borrows() -> str:
    return resource(Pool).name


@activity
def borrows_in_a_thread() -> str:
    return resource(Pool).name


@activity(retry=Retry(max_attempts=3, initial_interval=0))
async def counts_its_attempts() -> tuple[str, int]:
    this = attempt()
    if this.number < 3:
        raise ConnectionError
    return this.key.removeprefix(this.run_id), this.number


@workflow
async def uses_resources() -> list[str]:
    return [await borrows(), await borrows_in_a_thread()]


@workflow
async def tries_thrice() -> tuple[str, int]:
    return await counts_its_attempts()


async def test_each_worker_hands_its_own_resources_to_activities(tmp_path: Path) -> None:
    one = Perdure(f"sqlite:///{tmp_path / 'a.db'}", resources=[3, Pool("one")])
    other = Perdure(f"sqlite:///{tmp_path / 'b.db'}", resources=[Pool("other")])
    async with one, other, Perdure("sqlite://") as bare:
        both = await asyncio.gather(one.run(uses_resources), other.run(uses_resources))
        assert [*both] == [["one", "one"], ["other", "other"]]
        with pytest.raises(RunFailed) as caught:
            await bare.run(uses_resources)
        assert isinstance(caught.value.__cause__, ResourceNotFound)


async def test_an_activity_knows_which_attempt_it_is_and_a_key_for_all_of_them(env: Environment) -> None:
    async with env:
        assert await env.result(await env.start(tries_thrice)) == ("/counts_its_attempts", 3)


@workflow
async def records_a_date() -> date:
    def today() -> date:
        return date(2026, 11, 15)

    return await side_effect(today)


async def test_a_side_effect_is_recorded_under_its_annotation(env: Environment) -> None:
    async with env:
        assert await env.result(await env.start(records_a_date)) == date(2026, 11, 15)


async def test_common_mistakes_with_start_are_named(env: Environment) -> None:
    async with env:
        with pytest.raises(BadOption, match=r"a call of remembers; .* apart: start\(remembers, ...\)"):
            await env.app.start(remembers("x"))  # type: ignore[arg-type,var-annotated,unused-ignore]
        with pytest.raises(BadOption, match="remember is an activity"):
            await env.app.start(remember, "x")  # type: ignore[arg-type]


def test_resources_are_for_activities() -> None:
    for call in (attempt, lambda: resource(Pool)):
        with pytest.raises(NotInActivity):
            call()


async def test_times_are_aware(env: Environment) -> None:
    async with env:
        run = await env.start(remembers.options(timeout=60), "x")
        described = await run.describe()
        assert described.deadline_at is not None
        assert described.deadline_at - described.created_at == timedelta(seconds=60)
        assert described.created_at.tzinfo is UTC
        assert isinstance(described.created_at, datetime)
