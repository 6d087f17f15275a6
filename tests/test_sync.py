"""The sync bridge: the same engine for code that does not await, from any thread."""

import ast
import asyncio
import contextvars
import inspect
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

import flask
import pytest

import perdure
from perdure import (
    BadOption,
    NotADatabase,
    NotOpen,
    Perdure,
    PerdureError,
    Retry,
    Run,
    RunCancelled,
    RunEvent,
    RunFailed,
    RunNotFound,
    RunTerminated,
    Signal,
    Status,
    SyncPerdure,
    SyncRun,
    WouldDeadlock,
    activity,
    resource,
    workflow,
)
from perdure.app.sync.bridge import MOST_AT_ONCE
from tools.generate_sync import BY_NAME, TARGET, CannotCarryOver, class_text, generated

T = TypeVar("T")

told = Signal("told", str)
request_id = contextvars.ContextVar("request_id", default="none")


@activity
async def one_more(number: int) -> int:
    return number + 1


@workflow
async def one_step_more(number: int) -> int:
    return await one_more(number)


@workflow
async def many_steps_more(count: int) -> int:
    number = 0
    for _ in range(count):
        number = await one_more(number)
    return number


@workflow
async def waits_to_be_told(greeting: str) -> str:
    return f"{greeting} {await told.receive()}"


@workflow
async def has_children(count: int) -> int:
    return sum(await asyncio.gather(*(one_step_more(n) for n in range(count))))


@activity(retry=Retry(max_attempts=2, initial_interval=0))
def breaks(text: str) -> str:
    raise ValueError(text)


@workflow
async def fails_with(text: str) -> str:
    return await breaks(text)


@pytest.fixture
def app() -> Iterator[SyncPerdure]:
    with Perdure("sqlite://", grace=0).sync() as app:
        yield app


def in_threads(work: Callable[[int], T], threads: int = 8, calls: int = 40) -> list[T]:
    """What the calls give, made by several threads at once."""
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, range(calls)))


def bridge_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "perdure-sync"]


# Generated


def test_the_sync_classes_are_generated_from_the_async_ones_as_they_are_now() -> None:
    assert TARGET.read_text() == generated(), "run `make generate`"


@pytest.mark.parametrize(("original", "twin"), [(Perdure, SyncPerdure), (Run, SyncRun)])
def test_the_sync_classes_have_the_names_parameters_and_docstrings_of_the_async_ones(
    original: type[object], twin: type[object]
) -> None:
    """Proved apart from the generator: one that leaves something out must not pass."""

    def public(kind: type[object]) -> dict[str, Any]:
        return {name: value for name, value in inspect.getmembers(kind) if not name.startswith("_")}

    # A server is asynchronous, and there is no bridge of a bridge.
    without = {"asgi", "sync"}
    methods = {
        name: value for name, value in public(original).items() if inspect.isfunction(value) and name not in without
    }
    assert methods.keys() <= public(twin).keys()
    for name, method in methods.items():
        mine = public(twin)[name]
        assert mine.__doc__ == method.__doc__
        assert list(inspect.signature(mine).parameters) == list(inspect.signature(method).parameters)
        assert not inspect.iscoroutinefunction(mine)
    assert not hasattr(twin, "__await__")


def test_the_generator_carries_handles_over_wherever_they_stand() -> None:
    source = """
class Run:
    def __init__(self, id: str) -> None:
        self.id = id

    @property
    def newest(self) -> "Run[int]":
        '''The last one.'''

    async def fork(self, at: int = 0) -> "Run[int] | None":
        '''Another one.'''

    async def all(self, *, how: Literal["Run"]) -> list["Run[int]"]: ...

    def changes(self) -> AsyncIterator[str]: ...
"""
    node = ast.parse(source).body[0]
    assert isinstance(node, ast.ClassDef)
    _, _, text = class_text(BY_NAME["Run"], node).partition("    @property\n    def newest")
    assert f"    @property\n    def newest{text}".splitlines() == [
        "    @property",
        "    def newest(self) -> SyncRun[int]:",
        '        """The last one."""',
        "        return SyncRun(self._bridge, self._inner.newest)",
        "",
        "    def fork(self, at: int=0) -> SyncRun[int] | None:",
        '        """Another one."""',
        "        found = self._bridge.wait(self._inner.fork(at))",
        "        return SyncRun(self._bridge, found) if isinstance(found, Run) else found",
        "",
        "    def all(self, *, how: Literal['Run']) -> list[SyncRun[int]]:",
        "        return [SyncRun(self._bridge, item) for item in self._bridge.wait(self._inner.all(how=how))]",
        "",
        "    def changes(self) -> Iterator[str]:",
        "        return self._bridge.iterate(self._inner.changes())",
    ]


@pytest.mark.parametrize("returns", ["dict[str, Run[int]]", "Run[int] | Run[str]", None])
def test_what_the_generator_cannot_carry_over_is_an_error(returns: str | None) -> None:
    source = (
        f"class Run:\n    def __init__(self): ...\n    async def odd(self){f' -> {returns}' if returns else ''}: ..."
    )
    node = ast.parse(source).body[0]
    assert isinstance(node, ast.ClassDef)
    with pytest.raises(CannotCarryOver):
        class_text(BY_NAME["Run"], node)


# The same methods, blocking


def test_runs_are_started_awaited_and_found_without_await(app: SyncPerdure) -> None:
    run = app.start(one_step_more.options(id="o-1"), 1)
    assert (run.id, run.workflow, repr(run)) == ("o-1", "one_step_more", "<run o-1 of one_step_more>")
    assert run.result() == 2
    assert app.run(one_step_more, 5) == 6
    assert app.start_json("one_step_more", b"[7]", id="o-2").result() == 8
    assert app.get("o-1") == run
    assert hash(app.get(run_id=run.run_id)) == hash(run)
    assert app.get("o-1", workflow=one_step_more).result() == 2
    assert len(app.list(workflow=one_step_more, limit=2)) == 2
    assert {"o-1", "o-2"} < {info.id for info in app.list(workflow=one_step_more)}
    with pytest.raises(RunNotFound, match="o-9"):
        app.get("o-9")
    with pytest.raises(BadOption, match="run 'o-1' is one of 'one_step_more', not of 'many_steps_more'"):
        app.get("o-1", workflow=many_steps_more)


def test_many_are_started_at_once_and_the_refused_among_them_are_errors(app: SyncPerdure) -> None:
    app.start(one_step_more.options(id="taken"), 1)
    answers = app.start_many(one_step_more.call(1), one_step_more.options(id="taken").call(2), one_step_more.call(3))
    assert [type(answer) for answer in answers] == [SyncRun, perdure.IdConflict, SyncRun]
    assert [answer.result() for answer in answers if not isinstance(answer, PerdureError)] == [2, 4]


def test_a_run_is_seen_told_and_stopped_without_await(app: SyncPerdure) -> None:
    run = app.start(waits_to_be_told, "hello")
    run.signal("nobody waits for this", 1)
    assert [message.name for message in run.unread()] == ["nobody waits for this"]
    run.signal(told, "world")
    assert run.result() == "hello world"
    assert run.describe().status is Status.COMPLETED

    cancelled, terminated = app.start(waits_to_be_told, "a"), app.start(waits_to_be_told, "b")
    cancelled.cancel("enough")
    terminated.terminate("at once")
    with pytest.raises(RunCancelled, match="enough"):
        cancelled.result()
    with pytest.raises(RunTerminated, match="at once"):
        terminated.result()

    parent = app.start(has_children, 3)
    assert parent.result() == 6
    assert [child.workflow for child in parent.children()] == ["one_step_more"] * 3

    failed = app.start(fails_with, "no luck")
    with pytest.raises(RunFailed, match="no luck"):
        failed.result()
    assert [attempt.error for attempt in failed.attempts()] == ["ValueError: no luck"]


def test_a_result_that_takes_longer_than_the_timeout_is_a_timeout_and_comes_later(app: SyncPerdure) -> None:
    run = app.start(waits_to_be_told, "hello")
    with pytest.raises(TimeoutError, match="it goes on"):
        run.result(timeout=0.01)
    run.signal(told, "again")
    assert run.result(timeout=60) == "hello again"


# Events


def test_events_are_a_plain_iterator_over_more_than_one_page(app: SyncPerdure) -> None:
    run = app.start(many_steps_more, MOST_AT_ONCE + 10)
    run.result()
    seqs = [event.seq for event in run.events()]
    assert seqs == list(range(1, MOST_AT_ONCE + 13))
    assert next(run.events(after=seqs[-2])).kind == "RunCompleted"


def test_following_events_gives_each_as_it_comes_until_the_run_has_ended(app: SyncPerdure) -> None:
    run = app.start(waits_to_be_told, "hello")
    events = run.events(follow=True)
    first = next(events)
    run.signal(told, "world")
    assert [event.kind for event in [first, *events]] == ["RunStarted", "SignalReceived", "RunCompleted"]
    assert list(events) == []


def test_an_iterator_that_is_dropped_half_way_leaves_nothing_behind(app: SyncPerdure) -> None:
    async def tasks() -> int:
        return len(asyncio.all_tasks())

    run = app.start(waits_to_be_told, "hello")
    before = app._bridge.wait(tasks())
    for event in run.events(follow=True):
        assert event.kind == "RunStarted"
        break
    while app._bridge.wait(tasks()) > before:
        app.list(limit=1)


def test_an_error_among_the_events_comes_after_those_before_it(app: SyncPerdure) -> None:
    async def source() -> Any:
        yield 1
        yield 2
        raise ValueError("three")

    items = app._bridge.iterate(source())
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(ValueError, match="three"):
        next(items)


# Threads


def test_many_threads_share_one_bridge_and_its_handles(app: SyncPerdure) -> None:
    runs = in_threads(lambda n: app.start(waits_to_be_told, str(n)))
    in_threads(lambda n: runs[n].signal(told, str(n)))
    assert in_threads(lambda n: runs[n].result()) == [f"{n} {n}" for n in range(40)]


def test_all_who_wait_for_one_run_get_its_result(app: SyncPerdure) -> None:
    for _ in range(10):
        run = app.start(waits_to_be_told, "hello")
        with ThreadPoolExecutor(8) as pool:
            waiting = [pool.submit(run.result) for _ in range(8)]
            run.signal(told, "all")
            assert [each.result() for each in waiting] == ["hello all"] * 8


async def test_a_blocking_call_under_a_running_loop_works() -> None:
    """The engine has a thread of its own; the caller's loop stands still, but nothing waits for it."""
    with Perdure("sqlite://").sync() as app:
        assert app.run(one_step_more, 1) == 2


def test_a_call_sees_nothing_of_the_callers_context(app: SyncPerdure) -> None:
    """A workflow would see it once, and not on replay; and a long timer would keep a web request alive."""
    request_id.set("r-1")
    assert app.run(says_request_id) == "none"
    request_id.set("none")


@workflow
async def says_request_id() -> str:
    return request_id.get()


# Inside workflows and activities


class Office:
    """What activities here are given."""

    app: SyncPerdure


@activity
def asks_another_run(number: int) -> int:
    return resource(Office).app.run(one_step_more, number)


@activity(retry=Retry(max_attempts=1))
async def blocks_its_own_thread(number: int) -> int:
    return resource(Office).app.run(one_step_more, number)


@workflow
async def by_activity(number: int) -> int:
    return await asks_another_run(number)


@workflow
async def by_blocking_activity(number: int) -> int:
    return await blocks_its_own_thread(number)


@workflow
async def by_itself(what: str) -> object:
    match what:
        case "run":
            return office.app.run(one_step_more, 1)
        case "handle":
            return handles[0].describe()
        case "events":
            return list(handles[0].events())
        case _:
            with Perdure("sqlite://").sync():
                return None


office = Office()
handles: list[SyncRun[object]] = []


@pytest.fixture
def office_app() -> Iterator[SyncPerdure]:
    with Perdure("sqlite://", resources=[office], grace=0).sync() as app:
        office.app = app
        yield app


def test_a_plain_activity_may_use_the_bridge(office_app: SyncPerdure) -> None:
    assert office_app.run(by_activity, 1) == 2


def test_an_async_activity_on_the_engines_thread_is_refused_instead_of_waiting_for_ever(
    office_app: SyncPerdure,
) -> None:
    with pytest.raises(RunFailed, match="plain `def`") as caught:
        office_app.run(by_blocking_activity, 1)
    assert isinstance(caught.value.__cause__, WouldDeadlock)


@pytest.mark.parametrize("what", ["run", "handle", "events", "open"])
def test_workflow_code_must_not_use_the_bridge(office_app: SyncPerdure, what: str) -> None:
    handles[:] = [office_app.start(one_step_more, 1)]
    with pytest.raises(RunFailed, match="do it in an activity"):
        office_app.run(by_itself, what)
    handles.clear()


# Opening and closing


def test_a_bridge_that_is_closed_says_so_and_leaves_no_thread() -> None:
    opened = Perdure("sqlite://").sync()
    with pytest.raises(NotOpen, match="with Perdure"):
        opened.run(one_step_more, 1)
    with opened as app:
        run = app.start(waits_to_be_told, "hello")
        events = run.events(follow=True)
        assert bridge_threads() == ["perdure-sync"]
    for use in (lambda: app.run(one_step_more, 1), run.describe, run.events, lambda: next(events), app.list):
        with pytest.raises(NotOpen):
            use()
    with pytest.raises(NotOpen):
        app.__exit__(None, None, None)
    assert bridge_threads() == []


def test_a_bridge_is_opened_once_at_a_time() -> None:
    engine = Perdure("sqlite://")
    with engine.sync() as app:
        with pytest.raises(BadOption, match="open already"), app:
            pass
        with pytest.raises(BadOption, match="open already"), engine.sync():
            pass
        assert app.run(one_step_more, 1) == 2
    with app:
        assert app.run(one_step_more, 2) == 3


def test_what_cannot_be_opened_raises_in_the_caller_and_leaves_no_thread(tmp_path: Path) -> None:
    (tmp_path / "letter.db").write_text("Dear reader, this is not a database. " * 50)
    with pytest.raises(NotADatabase, match="not a SQLite database"), Perdure(f"sqlite:///{tmp_path}/letter.db").sync():
        pass
    with pytest.raises(NotADatabase, match="does not exist"), Perdure(f"sqlite:///{tmp_path}/no/such.db").sync():
        pass
    with pytest.raises(BadOption, match="names no store"):
        Perdure("nonsense").sync()
    assert bridge_threads() == []


def test_those_who_wait_when_the_bridge_is_closed_are_told() -> None:
    with ThreadPoolExecutor(4) as pool:
        with Perdure("sqlite://", grace=0).sync() as app:
            runs = [app.start(waits_to_be_told, "hello") for _ in range(4)]
            waiting: list[Future[Any]] = [pool.submit(run.result) for run in runs[:2]]
            waiting += [pool.submit(list, run.events(follow=True)) for run in runs[2:]]
        for each in waiting:
            with pytest.raises(NotOpen):
                each.result()


def test_threads_that_call_while_the_bridge_is_being_closed_never_hang() -> None:
    """Each gets an answer or NotOpen, whichever way the race goes."""

    def call_on(app: SyncPerdure) -> int:
        for number in range(1_000_000):
            try:
                app.run(one_step_more, number)
            except NotOpen:
                return number
        raise AssertionError("the bridge was never closed")

    for _ in range(5):
        with ThreadPoolExecutor(4) as pool:
            with Perdure("sqlite://", grace=0).sync() as app:
                calling = [pool.submit(call_on, app) for _ in range(4)]
                app.run(many_steps_more, 20)
            assert all(each.result() >= 0 for each in calling)


def test_an_error_in_the_block_closes_without_grace() -> None:

    def break_off() -> None:
        with Perdure("sqlite://", grace=3600).sync() as app:
            app.start(by_slow_activity)
            is_slow.wait()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        break_off()
    may_end.set()
    assert bridge_threads() == []


is_slow, may_end = threading.Event(), threading.Event()


@activity
def takes_its_time() -> None:
    is_slow.set()
    may_end.wait()


@workflow
async def by_slow_activity() -> None:
    await takes_its_time()


def interrupt() -> None:
    raise KeyboardInterrupt


@activity
async def interrupts() -> None:
    asyncio.get_running_loop().call_soon(interrupt)
    await asyncio.sleep(60)


@workflow
async def by_interrupting() -> None:
    await interrupts()


def test_code_that_ends_the_loop_ends_the_waiting_too() -> None:
    """A callback that raises KeyboardInterrupt ends the event loop; whoever waits must not wait for ever."""
    app = Perdure("sqlite://").sync()
    app.__enter__()
    for use in (lambda: app.run(by_interrupting), lambda: app.run(one_step_more, 1)):
        with pytest.raises(NotOpen):
            use()
    with pytest.raises(KeyboardInterrupt):
        app.__exit__(None, None, None)
    assert bridge_threads() == []


# Errors


def test_a_traceback_begins_at_the_users_line_and_is_short(app: SyncPerdure) -> None:
    with pytest.raises(RunFailed) as caught:
        app.run(fails_with, "no luck")
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert frames[0].line == 'app.run(fails_with, "no luck")'
    assert {Path(frame.filename).parent.name for frame in frames[1:]} == {"app", "sync"}
    assert len(frames) <= 7
    assert isinstance(caught.value.__cause__, ValueError)


# Pickled handles


def test_a_handle_pickles_and_works_wherever_a_bridge_is_open_on_its_database(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/test.db"
    with Perdure(url, grace=0).sync() as app:
        run = app.start(waits_to_be_told.options(id="o-1"), "hello")
        pickled = pickle.dumps(run)
        assert pickle.loads(pickled) == run
        assert pickle.loads(pickled).describe().id == "o-1"
    restored = pickle.loads(pickled)
    with pytest.raises(NotOpen, match="test.db"):
        restored.describe()
    with Perdure(url, grace=0).sync():
        with Perdure(url, worker=False).sync():
            restored.signal(told, "again")
        assert restored.result() == "hello again"
        assert run.result() == "hello again"


async def test_a_pickled_async_handle_does_not_take_the_engine_of_another_loop(tmp_path: Path) -> None:
    """Two loops in one engine: nobody would ever wake up."""
    url = f"sqlite:///{tmp_path}/test.db"
    async with Perdure(url) as other:
        pickled = pickle.dumps(await other.start(waits_to_be_told, "hello"))
    with Perdure(url).sync() as app:
        restored: Run[str] = pickle.loads(pickled)
        with pytest.raises(NotOpen):
            await restored.describe()
        async with Perdure(url):
            await restored.signal(told, "here")
            assert await restored.result() == "hello here"
            assert app.get(restored.id).result() == "hello here"


# Ctrl-C


@activity
async def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@workflow
async def interrupts_whoever_waits() -> str:
    await told.receive()
    await press_ctrl_c()
    return await told.receive()


def test_ctrl_c_ends_the_waiting_and_the_bridge_goes_on(app: SyncPerdure) -> None:
    run = app.start(interrupts_whoever_waits)

    def tell_and_wait() -> None:
        run.signal(told, "now")
        run.result()

    with pytest.raises(KeyboardInterrupt):
        tell_and_wait()
    assert app.run(one_step_more, 1) == 2
    run.signal(told, "later")
    assert run.result() == "later"


def test_ctrl_c_while_following_events_loses_none_of_them(app: SyncPerdure) -> None:
    run = app.start(interrupts_whoever_waits)
    events = run.events(follow=True)
    seen: list[RunEvent] = []

    def follow() -> None:
        run.signal(told, "now")
        seen.extend(iter(events.__next__, None))

    with pytest.raises(KeyboardInterrupt):
        follow()
    run.signal(told, "later")
    seen.extend(events)
    assert [event.seq for event in seen] == [event.seq for event in run.events()]


# Processes


def script(text: str, tmp_path: Path) -> "subprocess.CompletedProcess[str]":
    """Run a program that has `url`, `told` and two workflows."""
    program = f"""
import os, sys, threading, warnings
from perdure import *

warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)
url = "sqlite:///{tmp_path}/test.db"
told = Signal("told", str)

@activity
async def increment(number: int) -> int:
    return number + 1

@workflow
async def one_step_more(number: int) -> int:
    return await increment(number)

@workflow
async def waits() -> str:
    return await told.receive()

{textwrap.dedent(text)}
"""
    command = [sys.executable, "-W", "error", "-c", program]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_a_program_that_ends_without_closing_ends(tmp_path: Path) -> None:
    ended = script(
        """
        app = Perdure(url).sync().__enter__()
        run = app.start(waits.options(id="o-1"))
        events = run.events(follow=True)
        next(events)
        threading.Thread(target=run.result, daemon=True).start()
        threading.Thread(target=lambda: list(run.events(follow=True)), daemon=True).start()
        print(app.run(one_step_more, 1))
        """,
        tmp_path,
    )
    assert (ended.stdout, ended.stderr, ended.returncode) == ("2\n", "", 0)
    with Perdure(f"sqlite:///{tmp_path}/test.db", worker=False).sync() as app:
        assert app.get("o-1").describe().closed_at is None


def test_threads_that_outlive_the_main_one_go_on_using_the_bridge(tmp_path: Path) -> None:
    """A program lasts as long as its threads; thread pools do not, so nothing here may depend on one."""
    ended = script(
        """
        app = Perdure(url).sync().__enter__()

        def work():
            threading.main_thread().join()
            run = app.start(one_step_more.options(id="o-1"), 1)
            print(run.result(), app.get("o-1").describe().status, len(list(run.events(follow=True))))

        threading.Thread(target=work).start()
        """,
        tmp_path,
    )
    assert (ended.stdout, ended.stderr, ended.returncode) == ("2 COMPLETED 3\n", "", 0)


def test_a_forked_child_is_told_to_open_its_own(tmp_path: Path) -> None:
    """The thread of the engine stays behind in the parent; waiting for it would be for ever."""
    ended = script(
        """
        def child():
            for use in (lambda: app.run(one_step_more, 1), run.describe, lambda: next(events), app.list):
                try:
                    use()
                except OpenElsewhere as error:
                    print(str(error).replace(str(os.getppid()), "PARENT").replace(url, "URL"))
            with Perdure(url).sync() as own:
                print("child", own.run(one_step_more, 1), run.describe().id == run.id)

        with Perdure(url).sync() as app:
            run = app.start(waits)
            events = run.events(follow=True)
            next(events)
            sys.stdout.flush()
            if (pid := os.fork()) == 0:
                child()
                del events
                sys.exit(7)
            print("ended", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            run.signal(told, "parent goes on")
            print(run.result(), app.run(one_step_more, 2))
        """,
        tmp_path,
    )
    text = (
        "the Perdure on 'URL' was opened by process PARENT, from which this one was forked; "
        "open another one here, after the fork: `with Perdure(url).sync() as app:`"
    )
    expected = [text] * 4 + ["child 2 True", "ended 7", "parent goes on 3"]
    assert (ended.stdout.splitlines(), ended.stderr, ended.returncode) == (expected, "", 0)


# Web frameworks


def test_flask_views_start_tell_and_show_runs_from_many_threads(app: SyncPerdure) -> None:
    web = flask.Flask(__name__)

    @web.post("/orders/<id>")
    def order(id: str) -> dict[str, str]:
        return {"id": app.start(waits_to_be_told.options(id=id), flask.request.get_json()["greeting"]).id}

    @web.post("/orders/<id>/approval")
    def approve(id: str) -> dict[str, str]:
        run = app.get(id, workflow=waits_to_be_told)
        run.signal(told, flask.request.get_json()["by"])
        return {"result": run.result(timeout=60)}

    @web.errorhandler(RunNotFound)
    def not_found(error: Exception) -> tuple[dict[str, str], int]:
        return {"error": str(error)}, HTTPStatus.NOT_FOUND

    def visit(n: int) -> tuple[object, object, int]:
        client = web.test_client()
        made = client.post(f"/orders/o-{n}", json={"greeting": "hello"})
        approved = client.post(f"/orders/o-{n}/approval", json={"by": f"ann {n}"})
        missing = client.post(f"/orders/p-{n}/approval", json={"by": "ann"})
        return made.json, approved.json, missing.status_code

    assert in_threads(visit) == [({"id": f"o-{n}"}, {"result": f"hello ann {n}"}, 404) for n in range(40)]


def test_django_views_start_tell_and_show_runs_from_many_threads(app: SyncPerdure) -> None:
    # Imported here: some of its objects raise when tests of memory look at all there are, until it is configured.
    import django
    from django.conf import settings
    from django.http import HttpRequest, JsonResponse
    from django.test import Client
    from django.urls import path

    def order(request: HttpRequest, id: str) -> JsonResponse:
        return JsonResponse({"id": app.start(waits_to_be_told.options(id=id), request.POST["greeting"]).id})

    def approve(request: HttpRequest, id: str) -> JsonResponse:
        run = app.get(id, workflow=waits_to_be_told)
        run.signal(told, request.POST["by"])
        return JsonResponse({"result": run.result(timeout=60)})

    async def approve_async(request: HttpRequest, id: str) -> JsonResponse:
        return approve(request, id)

    class Urls:
        urlpatterns = (
            path("orders/<str:id>", order),
            path("orders/<str:id>/approval", approve),
            path("orders/<str:id>/approval/async", approve_async),
        )

    settings.configure(ROOT_URLCONF=Urls, ALLOWED_HOSTS=["testserver"], SECRET_KEY="test", USE_TZ=True)
    django.setup()

    def visit(n: int) -> tuple[object, object]:
        client = Client()
        made = client.post(f"/orders/o-{n}", {"greeting": "hello"})
        approved = client.post(f"/orders/o-{n}/approval{'/async' if n % 2 else ''}", {"by": f"ann {n}"})
        return made.json(), approved.json()

    assert in_threads(visit) == [({"id": f"o-{n}"}, {"result": f"hello ann {n}"}) for n in range(40)]
