"""Bad input: a clear typed error, and nothing written."""

import asyncio
import math
import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from perdure import (
    AnotherLoop,
    BadArguments,
    BadId,
    BadInput,
    BadOption,
    BadValue,
    DuplicateName,
    IdConflict,
    NotADatabase,
    NotInWorkflow,
    NotOpen,
    Perdure,
    PerdureError,
    Retry,
    RunClosed,
    RunNotFound,
    Signal,
    UnknownWorkflow,
    ValueTooLarge,
    activity,
    now,
    side_effect,
    sleep,
    workflow,
)
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing import Environment

done = Signal("done", int)
calls: list[str] = []


@dataclass
class Order:
    item: str
    count: int

    def method(self) -> None: ...


def takes_nothing() -> None: ...


@activity
async def echo(value: str) -> str:
    return value


@activity
async def returns_unannotated(value: str):  # type: ignore[no-untyped-def]  # noqa: ANN201 - on purpose
    return {value}


@activity
async def returns_wrong(value: str) -> int:
    calls.append(value)
    return value  # type: ignore[return-value]  # on purpose


@workflow
async def takes_text(text: str, times: int = 1) -> str:
    return await echo(text * times)


@workflow
async def takes_order(order: Order, when: datetime | None = None) -> str:
    return f"{order.count} {order.item} {when}"


@workflow
async def takes_anything(value) -> object:  # type: ignore[no-untyped-def]  # noqa: ANN001 - on purpose
    return value


@workflow
async def misuses(how: str) -> object:  # noqa: PLR0911 - one for each misuse
    match how:
        case "arguments":
            return await echo(1)  # type: ignore[arg-type]  # on purpose
        case "result":
            return await returns_wrong("x")
        case "unannotated":
            return await returns_unannotated.options(retry=Retry(max_attempts=1))("x")
        case "thread":
            return await asyncio.to_thread(len, "x")  # perdure: ok - the loop itself refuses it
        case "socket":
            return await asyncio.open_connection("localhost", 1)  # perdure: ok - as above
        case "app":
            return await Perdure("sqlite://").start(takes_text, "x")
        case "sleep":
            await sleep(-1)
            return None
        case _:
            raise SystemExit(how)


Act = Callable[[Perdure], Coroutine[Any, Any, object]]
REFUSED: list[tuple[str, Act, type[PerdureError], str]] = [
    ("a missing argument", lambda app: app.start(takes_text), BadArguments, "missing a required argument: 'text'"),  # type: ignore[call-arg]
    ("an argument too many", lambda app: app.start(takes_text, "a", 1, 2), BadArguments, "too many positional"),  # type: ignore[call-arg]
    ("an unknown keyword", lambda app: app.start(takes_text, "a", what=1), BadArguments, "unexpected keyword"),  # type: ignore[call-arg]
    ("a wrong type", lambda app: app.start(takes_text, 5), BadValue, "argument 'text'.*Expected `str`, got `int`"),  # type: ignore[arg-type]
    ("a wrong type inside", lambda app: app.start(takes_order, Order("x", "y")), BadValue, "Expected `int`"),  # type: ignore[arg-type]
    ("NaN", lambda app: app.start(takes_anything, math.nan), BadValue, "nan has no place in JSON"),
    ("infinity inside", lambda app: app.start(takes_anything, [{"a": math.inf}]), BadValue, "inf has no place"),
    (
        "a set without an annotation",
        lambda app: app.start(takes_anything, {1}),
        BadValue,
        "set values come back as set only under an annotation",
    ),
    (
        "a datetime without an annotation",
        lambda app: app.start(takes_anything, datetime.now(UTC)),
        BadValue,
        "annotate",
    ),
    (
        "keys that are no strings",
        lambda app: app.start(takes_anything, {1: 2}),
        BadValue,
        "would come back as a string",
    ),
    ("an object", lambda app: app.start(takes_anything, object()), BadValue, "annotate the type"),
    ("half a surrogate pair", lambda app: app.start(takes_text, "\ud800"), BadValue, "surrogate"),
    ("too large a value", lambda app: app.start(takes_text, "x" * 3_000_000), ValueTooLarge, "3,000,0.. bytes"),
    ("a value that contains itself", lambda app: app.start(takes_anything, endless()), BadValue, "nested too deeply"),
    ("an empty id", lambda app: app.start(takes_text.options(id=""), "a"), BadId, "is empty"),
    ("a blank id", lambda app: app.start(takes_text.options(id="  "), "a"), BadId, "is empty"),
    ("an over-long id", lambda app: app.start(takes_text.options(id="x" * 201), "a"), BadId, "has 201 characters"),
    ("a control character", lambda app: app.start(takes_text.options(id="a\nb"), "a"), BadId, "unprintable"),
    ("an id that is no string", lambda app: app.start(takes_text.options(id=5), "a"), BadId, "is int, not str"),  # type: ignore[arg-type]
    ("a plain function", lambda app: app.start(endless, "a"), BadOption, "not a workflow"),  # type: ignore[arg-type]
    ("an unknown workflow", lambda app: app.start_json("nobody", b"{}"), UnknownWorkflow, "no workflow named 'nobody'"),
    ("arguments that are no JSON", lambda app: app.start_json("takes_text", b"{"), BadArguments, "not JSON"),
    ("a run that is not there", lambda app: app.get("nobody"), RunNotFound, "no run 'nobody'"),
    ("a status that is none", lambda app: app.list(status="happy"), BadOption, "no status is named 'happy'"),
    ("a page of nothing", lambda app: app.list(limit=0), BadOption, "1 to 1000"),
]


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(("act", "kind", "words"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
async def test_bad_input_is_refused_and_nothing_is_written(
    tmp_path: Path, act: Act, kind: type[PerdureError], words: str
) -> None:
    async with Environment(str(tmp_path / "bad.db")) as env:
        await env.settle()
        before = env.store.commits
        with pytest.raises(kind, match=words):
            await act(env.app)
        await env.settle()
        assert (env.store.commits, len(await env.app.list())) == (before, 0)


async def test_the_same_id_gives_the_same_run_and_another_input_a_conflict(env: Environment) -> None:
    async with env:
        first = await env.start(takes_text.options(id="one"), "a")
        again = await env.start(takes_text.options(id="one"), "a")
        assert again.run_id == first.run_id
        assert await env.result(again) == "a"
        assert (await env.start(takes_text.options(id="one"), text="a")).run_id == first.run_id
        with pytest.raises(
            IdConflict, match=r'takes_text\(\{"text":"a","times":1\}\).*takes_text\(\{"text":"b","times":1\}\)'
        ):
            await env.start(takes_text.options(id="one"), "b")
        with pytest.raises(IdConflict, match="takes_anything"):
            await env.start(takes_anything.options(id="one"), "a")


async def test_a_signal_to_nobody_or_to_a_closed_run_is_refused(env: Environment) -> None:
    async with env:
        run = await env.start(takes_text.options(id="one"), "a")
        await env.result(run)
        with pytest.raises(RunClosed, match=r"has ended \(COMPLETED\)"):
            await run.signal(done, 1)
        with pytest.raises(BadValue, match="Expected `int`"):
            await run.signal(done, "x")  # type: ignore[misc]  # on purpose
        run.run_id = "0"
        with pytest.raises(RunNotFound, match="no run 'one'"):
            await run.signal(done, 1)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("arguments", "BadValue: echo, argument 'value': Expected `str`, got `int`"),
        ("result", "the result of activity 'returns_wrong': Expected `int`, got `str`"),
        ("unannotated", "set values come back as set only"),
        ("thread", "using a thread is not possible inside a workflow.*activity"),
        ("socket", "create connection of the event loop is not possible inside a workflow.*activity"),
        ("app", "using a Perdure or a Run is not possible inside a workflow"),
        ("sleep", "the duration of sleep.. is -1"),
        ("exit", "SystemExit"),
    ],
)
async def test_misuse_inside_a_workflow_fails_that_run_only(env: Environment, how: str, words: str) -> None:
    async with env:
        bad = await env.start(misuses, how)
        good = await env.start(takes_text, "good")
        with pytest.raises(PerdureError, match=words):
            await env.result(bad)
        assert await env.result(good) == "good"


async def test_a_result_that_cannot_be_recorded_is_not_asked_for_again(env: Environment) -> None:
    """Another attempt would do what it does once more, and return the like of it."""
    calls.clear()
    async with env:
        run = await env.start(misuses, "result")
        with pytest.raises(PerdureError, match="Expected `int`"):
            await env.result(run)
        assert calls == ["x"]


async def test_values_come_back_as_annotated(env: Environment) -> None:
    async with env:
        moment = datetime(2030, 1, 2, tzinfo=UTC)
        run = await env.start(takes_order, Order("book", 2), moment)
        assert await env.result(run) == f"2 book {moment}"


@pytest.mark.parametrize(
    "url", ["", "shop.db", "mysql://x", "sqlite:", "sqlite:/x", "sqlite://x.db", "sqlite:///", None]
)
def test_a_url_that_names_no_store_is_refused(url: Any) -> None:
    with pytest.raises(BadOption, match="sqlite:///file.db"):
        Perdure(url)


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("shop.db", "sqlite:///shop.db"),
        ("/var/lib/shop.db", "sqlite:////var/lib/shop.db"),
        ("sqlite:shop.db", "sqlite:///shop.db"),
        ("sqlite:/shop.db", "sqlite:///shop.db"),
        ("sqlite:/var/lib/shop.db", "sqlite:////var/lib/shop.db"),
        ("sqlite://shop.db", "sqlite:///shop.db"),
        ("SQLite:///shop.db", "sqlite:///shop.db"),
        ("SQLITE:////var/lib/shop.db", "sqlite:////var/lib/shop.db"),
    ],
)
def test_a_url_that_nearly_names_a_file_is_told_the_whole_one(url: str, meant: str) -> None:
    """How many slashes there are is what everybody gets wrong first."""
    with pytest.raises(BadOption) as caught:
        Perdure(url)
    assert f"(did you mean {meant}?)" in str(caught.value)


@pytest.mark.parametrize("url", ["sqlite:///shop.db?mode=ro", "sqlite:///?mode=ro", "sqlite://?mode=memory"])
def test_options_in_the_url_of_a_file_are_refused(url: str) -> None:
    """They would become a part of the file's name, and nobody would see that they do nothing."""
    with pytest.raises(BadOption, match=r"has options after the \?, SQLite takes none; a \? in a file's name is %3F"):
        Perdure(url)


async def test_a_question_mark_in_the_name_of_a_file_is_written_encoded(tmp_path: Path) -> None:
    async with Perdure(f"sqlite:///{tmp_path}/shop%3F.db"):
        assert (tmp_path / "shop?.db").exists()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:u:secret@h/db",
        "postgresql:/u:secret@h/db",
        "postgresql:///u:secret@h/db",
        "postgresql//u:secret@h/db",
        "postgres:secret@h/db",
        "postgresql:u:secret/db",
        "postgresql://u:secret/db",
        "postgresql://u:sec/ret",
        " postgresql://u:secret@h/db",
        "jdbc:postgresql://u:secret@h/db",
        "mysql://u:secret",
        "u:secret@h/db",
        "u:sec:ret@h",
        "sqlite://u:secret@h",
        "sqlite:u:secret@h/x.db",
        "sqlite://u:secret",
        "host=h user=u password=sec#ret dbname=db",
        "postgresql:?password=sec#ret",
        b"postgresql://u:secret@h/db",
    ],
)
def test_a_url_that_cannot_be_read_keeps_its_password(url: Any) -> None:
    """The error goes into a log; whoever mistypes a URL must not have to change the password as well."""
    with pytest.raises(BadOption, match="use (sqlite|postgresql)://") as caught:
        Perdure(url)
    assert "ret" not in f"{caught.value!r} {caught.value}"


async def test_an_app_that_is_not_open_says_so(tmp_path: Path) -> None:
    app = Perdure(f"sqlite:///{tmp_path}/x.db")
    with pytest.raises(NotOpen, match="async with"):
        await app.start(takes_text, "a")
    assert list(tmp_path.iterdir()) == []


def test_a_plain_with_is_told_how_to_do_without_await(tmp_path: Path) -> None:
    """Python says that there is no context manager; everybody who does not await writes this first."""
    opening: Any = Perdure(f"sqlite:///{tmp_path}/x.db")
    with pytest.raises(BadOption, match=r"`with Perdure\(url\).sync\(\) as app:`"), opening:
        raise AssertionError
    assert list(tmp_path.iterdir()) == []


async def test_an_async_with_on_the_bridge_is_told_to_leave_one_of_both(tmp_path: Path) -> None:
    """Python says that a method is missing; it does not say which of the two words is too much."""
    opening: Any = Perdure(f"sqlite:///{tmp_path}/x.db").sync()
    with pytest.raises(BadOption, match=r"`with Perdure\(url\).sync\(\) as app:`; .* `async with Perdure\(url\) as"):
        async with opening:
            raise AssertionError
    assert list(tmp_path.iterdir()) == []


async def test_opening_a_file_that_is_no_database_leaves_it_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary")
    with pytest.raises(NotADatabase, match="not a SQLite database"):
        async with Perdure(f"sqlite:///{path}"):
            pass
    assert (path.read_text(), [p.name for p in tmp_path.iterdir()]) == ("dear diary", ["notes.txt"])


async def test_workflow_calls_outside_a_workflow_say_what_to_do() -> None:
    with pytest.raises(NotInWorkflow, match="app.run"):
        await takes_text("a")
    with pytest.raises(NotInWorkflow, match="datetime.now"):
        now()
    with pytest.raises(NotInWorkflow, match="side_effect"):
        await side_effect(lambda: 1)
    with pytest.raises(NotInWorkflow, match="run.signal"):
        await done.receive()
    assert await echo("plain") == "plain"


def test_decorators_refuse_what_they_cannot_make_durable() -> None:
    def named(name: str) -> Any:
        async def fn() -> None: ...

        fn.__qualname__ = name
        return fn

    kept = workflow(name="taken")(named("first"))
    with pytest.raises(DuplicateName, match="taken by .*first"):
        workflow(name="taken")(named("second"))
    assert workflow(name="taken")(named("first")) is not kept
    with pytest.raises(BadOption, match="async def"):
        workflow(takes_nothing)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(BadOption, match="instead of a lambda"):
        activity(lambda: 1)
    with pytest.raises(BadOption, match="is a method"):
        activity(Order.method)
    with pytest.raises(BadOption, match="decorated already"):
        activity(echo)
    with pytest.raises(BadOption, match="must not contain"):
        activity(name="a/b")(named("third"))
    with pytest.raises(BadOption, match="timeout"):
        echo.options(timeout=-1)


@pytest.mark.parametrize(
    "options",
    [
        {"queues": "default"},
        {"queues": ()},
        {"queues": (1,)},
        {"max_live": 0},
        {"max_live": "many"},
        {"worker": "no"},
        {"workflows": [5]},
        {"workflows": "takes_text"},
        {"resources": 5},
    ],
    ids=str,
)
def test_a_perdure_that_could_never_work_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        Perdure("sqlite://", **options)


@pytest.mark.parametrize(
    "options",
    [
        {"max_attempts": True},
        {"max_attempts": 1.5},
        {"max_attempts": None},
        {"initial_interval": 1e12},
        {"max_interval": "long"},
        {"non_retryable": "ValueError"},
        {"non_retryable": 5},
        {"non_retryable": (5,)},
    ],
    ids=str,
)
def test_a_retry_with_the_wrong_kind_of_value_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        Retry(**options)


async def test_questions_that_make_no_sense_are_refused(env: Environment) -> None:
    async with env:
        run = await env.start(takes_text, "x")
        app: Any = env.app
        questions: list[Callable[[], Any]] = [
            lambda: app.get([]),
            lambda: app.get(10**30),
            lambda: app.get("\ud800"),
            lambda: app.get(run_id=5),
            lambda: app.list(id=5),
            lambda: app.list(id={}),
            lambda: app.list(status=5),
            lambda: app.list(status=[None]),
            lambda: app.list(after=True),
            lambda: app.list(after="JUNK"),
            lambda: app.list(where="true", after="o-17"),
            lambda: app.stuck(cursor="JUNK"),
            lambda: run.children(after="JUNK"),
            lambda: run.children(after=7),  # type: ignore[arg-type]
            lambda: app.resume_all(where="true", reason="why not"),
            lambda: anext(run.events("x")),  # type: ignore[arg-type]
            lambda: anext(run.events(None)),  # type: ignore[arg-type]
            lambda: run.cancel(5),  # type: ignore[arg-type]
            lambda: run.terminate("x" * 2000),
        ]
        for question in questions:
            with pytest.raises(BadInput):
                await question()


@workflow
async def waits_for_a_number() -> int:
    return await done.receive()


async def test_a_signal_that_does_not_fit_is_set_aside(env: Environment, caplog: pytest.LogCaptureFixture) -> None:
    """Somebody's typo must not be the end of the run."""
    async with env:
        run = await env.start(waits_for_a_number)
        for payload in (None, "yes", 7):
            await run.signal("done", payload)
        assert await env.result(run) == 7
        assert await run.unread() == []
        aside = await run.set_aside()
        assert [(message.kind, message.name, message.payload) for message in aside] == [
            ("SignalSent", "done", None),
            ("SignalSent", "done", "yes"),
        ]
    assert sum("was set aside" in record.message for record in caplog.records) == 2


async def test_options_given_as_arguments_are_named(env: Environment) -> None:
    async with env:
        with pytest.raises(BadArguments, match=r"start\(takes_text.options\(id=...\), ...\)"):
            await env.app.start(takes_text, "x", id="x")  # type: ignore[call-arg]
        for given, said in ((takes_text.call("x"), "start_many"), ("takes_text", "start_json")):
            with pytest.raises(BadOption, match=said):
                await env.app.start(given)  # type: ignore[arg-type]


async def test_the_error_of_a_run_shows_where_it_was_raised(env: Environment) -> None:
    async with env:
        run = await env.start(misuses, "result")
        with pytest.raises(PerdureError) as caught:
            await env.result(run)
        assert "in misuses" in "".join(caught.value.__notes__)


async def test_a_perdure_works_only_on_the_loop_it_was_opened_on(tmp_path: Path) -> None:
    """Moved on by another thread's loop, a run would go down with it."""
    async with Perdure(f"sqlite:///{tmp_path / 't.db'}") as app:
        run = await app.start(takes_text, "x")
        for call in (lambda: run.result(), lambda: app.list(), lambda: run.cancel()):
            with pytest.raises(AnotherLoop, match=r"\.sync\(\)"):
                await asyncio.to_thread(lambda call=call: asyncio.run(call()))  # type: ignore[misc]
        assert await run.result() == "x"


async def test_a_file_that_does_not_say_its_version_is_refused_by_name(tmp_path: Path) -> None:
    """Somebody emptied the table; a traceback would say nothing of that."""
    path = tmp_path / "emptied.db"
    async with Environment(str(path)):
        pass
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("delete from perdure_schema")
    with pytest.raises(NotADatabase, match="tables of its own"):
        await SqliteStore(str(path), threads=False).open()
