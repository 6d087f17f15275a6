"""Crashes: whatever happens at whichever commit, the run ends as if nothing had happened."""

import asyncio
import contextlib
import itertools
from pathlib import Path
from typing import Any

import pytest

from perdure import Run, RunClosed, RunEnded, RunEvent, StoreUnavailable, Workflow
from perdure.engine.ports import OwnedRun
from perdure.stores import rows
from perdure.testing import Crash, Environment, Fault
from perdure.worker.program import Program
from tests.reference import (
    REFERENCES,
    answer,
    at_most_once,
    by_signal,
    calls,
    counted,
    decision,
    question,
    undone_when_told,
    until_told,
    when_asked,
)

MODES = pytest.mark.parametrize("replay_always", [False, True], ids=["live", "replay always"])


class Story:
    """One reference workflow taken to its end through one fault, by a client that tries again."""

    def __init__(self, env: Environment, workflow: Workflow[..., Any], argument: object) -> None:
        self.env = env
        self.workflow = workflow
        self.argument = argument
        self.prefixes: list[tuple[str, list[RunEvent]]] = []
        self.is_answered = False
        self.heard: list[int] = []

    async def run(self) -> object:
        for _ in range(200):
            if self.env.has_died:
                await self.env.crash()
            try:
                run = await self._go_on()
            except (Crash, StoreUnavailable):
                continue
            run = await self.env.app.get("story")
            if (await run.describe()).closed_at is not None:
                return await _result(run)
            self.env.clock.advance(1000)
        raise AssertionError(f"no end: {await (await self.env.app.get('story')).describe()}")

    async def _go_on(self) -> Run[Any]:
        """Start the run or find it again, and see it a little further."""
        alive = self.env.alive
        run = await alive(self.env.app.start(self.workflow.options(id="story"), self.argument))
        await self._settle()
        newest = await self.env.app.get("story")
        self.prefixes.append((newest.run_id, await self.env.events("story")))
        has_timed_out = any(event.kind == "TimerFired" for event in self.prefixes[-1][1])
        if has_timed_out and not self.is_answered:
            # What is asked may have been heard, and have ended the run, though a crash has swallowed the answer.
            with contextlib.suppress(RunClosed):
                if self.workflow.name == by_signal.name:
                    await alive(run.signal(answer, 7))
                elif self.workflow.name == when_asked.name:
                    await alive(run.resolve(decision, 7))
                    self.heard = [await alive(run.ask(question, number, id=f"q-{number}")) for number in (4, 5)]
                    await alive(run.cancel("enough"))
                elif self.workflow.name in {until_told.name, undone_when_told.name}:
                    await alive(run.cancel("enough"))
            self.is_answered = True
        await self._settle()
        return run

    async def _settle(self) -> None:
        await self.env.settle()
        if self.env.has_died:
            raise Crash


async def _result(run: Run[Any]) -> object:
    try:
        return await run.result()
    except RunEnded as ended:
        # What a failed run says of where it was raised is for people.
        return f"{ended}, {getattr(ended.__cause__ or ended, '__notes__', [])}"


async def _published(run: Run[Any]) -> list[tuple[int, int]]:
    """What the workflow has published, in all its generations."""
    return [(item.n, item.value) async for item in run.stream(counted)]


def outcomes(history: list[RunEvent]) -> set[tuple[str, str, str]]:
    """What a history says, without its times, attempts and order."""
    told = ("result", "value", "payload", "failure")
    return {
        (event.place, event.kind, str([_told(event.body[key]) for key in told if key in event.body]))
        for event in history
        if event.kind != "RunStarted"
    }


def _told(value: object) -> object:
    return value["message"] if isinstance(value, dict) and "message" in value else value


async def replays_itself(env: Environment, workflow: Workflow[..., Any]) -> bool:
    """Whether the history, read from disk, leads the code through to the same end."""
    reader = env.engine.reader
    row = await reader.find("main", "story")
    events = await reader.events("main", row.run_id, 0, 10_000)
    owned = OwnedRun(row.run_id, row.workflow_id, row.workflow, row.input, row.seed, row.created_at)
    owned.traits = rows.traits_of(row)
    program = Program(workflow, owned)
    program.replay(events[1:-1])
    program.begin()
    for event in events[1:-1]:
        program.deliver(event)
    try:
        end = program.end()
        assert not isinstance(end, BaseException)
        return program.is_done and rows.body_of(end) == rows.body_of(events[-1].fact)
    finally:
        program.evict()


async def take(path: Path, name: str, fault: tuple[int, Fault] | None, *, replay_always: bool) -> tuple[Any, Any, int]:
    """The result, the outcomes and the number of commits of one story."""
    calls.clear()
    workflow, argument = REFERENCES[name]
    env = Environment(str(path), replay_always=replay_always)
    await env.open(fault)
    story = Story(env, workflow, argument)
    result = await story.run()
    assert story.heard == ([5, 25] if workflow.name == when_asked.name else [])
    history = await env.events("story")
    for run_id, prefix in story.prefixes:
        run = await env.app.get(run_id=run_id)
        assert [event async for event in run.events()][: len(prefix)] == prefix
    assert [event.seq for event in history] == list(range(1, len(history) + 1))
    assert await replays_itself(env, workflow)
    await env.pass_time(5)
    newest = await env.app.get("story")
    published = await _published(newest)
    assert [n for n, _ in published] == list(range(1, len(published) + 1))
    told = (result, await newest.query(), published)
    everybody = sorted((run.id, run.status.value, run.step, str(run.attributes)) for run in await env.app.list())
    commits = env.commits + env.store.commits
    await env.__aexit__()
    return (told, everybody), outcomes(history), commits


@MODES
@pytest.mark.parametrize("name", REFERENCES)
def test_a_fault_at_any_commit_changes_nothing(name: str, quick_path: Path, *, replay_always: bool) -> None:
    """Every commit of every reference workflow, every kind of fault; half of them once more without a cache."""

    async def all_faults() -> int:
        expected, facts, commits = await take(quick_path / "plain.db", name, None, replay_always=replay_always)
        count = 0
        for fault, number in itertools.product(Fault, range(1, commits + 1, 2 if replay_always else 1)):
            path = quick_path / f"{fault.name}-{number}.db"
            result, found, _ = await take(path, name, (number, fault), replay_always=replay_always)
            assert (result, found) == (expected, facts), f"{fault} at commit {number}"
            count += 1
        return count

    assert asyncio.run(all_faults()) >= (9 if replay_always else 18)


@MODES
def test_what_is_begun_at_most_once_is_begun_at_most_once(quick_path: Path, *, replay_always: bool) -> None:
    """Every commit, every kind of fault: what a caller hears is true, and nothing runs twice."""

    async def all_faults() -> set[str]:
        _, commits = await pay(quick_path / "plain.db", None, replay_always=replay_always)
        heard = set[str]()
        for fault, number in itertools.product(Fault, range(1, commits + 1)):
            path = quick_path / f"{fault.name}-{number}.db"
            told, _ = await pay(path, (number, fault), replay_always=replay_always)
            for n, said in enumerate(told):
                began = calls[f"pay {n}"]
                assert began <= 1, f"{fault} at commit {number}: it began {began} times"
                assert said == "lost" or began == 1, f"{fault} at commit {number}: nothing was paid"
            heard |= {*told}
        return heard

    assert asyncio.run(all_faults()) == {"paid", "lost"}


async def pay(path: Path, fault: tuple[int, Fault] | None, *, replay_always: bool) -> tuple[list[str], int]:
    """What a run heard that pays twice, and the number of commits it took."""
    calls.clear()
    env = Environment(str(path), replay_always=replay_always)
    await env.open(fault)
    told = await Story(env, at_most_once, "pay").run()
    assert await replays_itself(env, at_most_once)
    commits = env.commits + env.store.commits
    await env.__aexit__()
    assert isinstance(told, list)
    return told, commits
