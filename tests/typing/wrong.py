# pyright: strict, reportUnusedExpression=false, reportUnusedVariable=false
"""Wrong lines: both type checkers report every marked one, mypy under the code it is marked with, and no other."""

import asyncio
from random import random

from perdure import (
    Activity,
    BoundCall,
    Deferred,
    Perdure,
    Request,
    Retry,
    Run,
    Signal,
    Stream,
    SyncPerdure,
    SyncRun,
    Workflow,
    activity,
    at,
    attempt,
    continue_as_new,
    expose,
    info,
    now,
    patched,
    resource,
    rng,
    select,
    set_attributes,
    side_effect,
    sleep,
    undo,
    unwind,
    uuid4,
    workflow,
)
from tests.typing.shop import Line, Pool, approved, charge, checkout, notify, pick, plain, reserve, shipped


async def starting(app: Perdure) -> None:
    await app.start(checkout)  # wrong: call-arg
    await app.start(checkout, "o-17")  # wrong: call-arg
    await app.start(checkout, 17, 4200)  # wrong: arg-type
    await app.start(checkout, "o-17", "4200")  # wrong: arg-type
    await app.start(checkout, "o-17", 4200, True)  # wrong: call-arg
    await app.start(checkout, order="o-17", cent=4200)  # wrong: call-arg
    await app.start(checkout, "o-17", 4200, gift="yes")  # wrong: arg-type
    await app.start(notify, ["a"])  # wrong: list-item
    await app.start(charge, "o-17", 1)  # wrong: arg-type
    await app.start(plain, "o-17")  # wrong: arg-type
    await app.start("checkout", "o-17", 4200)  # wrong: arg-type
    await app.run(checkout, "o-17")  # wrong: call-arg
    await app.start(checkout.options(id="o-17"), "o-17")  # wrong: call-arg
    await app.start(checkout.options(id="o-17"), 17, 4200)  # wrong: arg-type
    await app.start_json("checkout", "{}")  # wrong: arg-type
    await app.start_many(checkout)  # wrong: arg-type
    await app.start_many(checkout.call("o-17"))  # wrong: call-arg
    await app.start_many([pick.call("o-17", 1)])  # wrong: arg-type
    app.run(checkout, "o-17", 4200)  # wrong: unused-coroutine


async def results(app: Perdure, run: Run[str]) -> None:
    a: int = await app.run(checkout, "o-17", 4200)  # wrong: arg-type
    b: int = await run.result()  # wrong: assignment
    c: int = await run  # wrong: assignment
    d: Run[int] = await app.start(checkout, "o-17", 4200)  # wrong: arg-type
    e: list[Run[int]] = await app.start_many(pick.call("o-17", 1))  # wrong: assignment
    f: str = await (await app.get("o-17")).result()  # wrong: assignment
    g: Run[int] = await app.get("o-17", workflow=checkout)  # wrong: arg-type
    h: str = run.result()  # wrong: assignment
    (await app.start_many(pick.call("o-17", 1)))[0].result()  # wrong: union-attr
    (await app.run(checkout, "o-17", 4200)).cents  # wrong: attr-defined


async def handles(app: Perdure, run: Run[str]) -> None:
    await run.signal(approved, "yes")  # wrong: misc
    await run.signal(shipped, "a")  # wrong: misc
    await run.signal(approved)  # wrong: call-arg
    await run.signal(17, True)  # wrong: arg-type
    await run.resolve(decision, "yes")  # wrong: misc
    await run.resolve(approved, True)  # wrong: arg-type
    await run.ask(add, "book")  # wrong: misc
    await run.ask(approved, True)  # wrong: call-overload
    run.stream(approved)  # wrong: call-overload
    await run.query(3)  # wrong: call-overload
    words.publish(3)  # wrong: arg-type
    expose("x", 3)  # wrong: arg-type
    await run.result(timeout="10 s")  # wrong: arg-type
    await run.cancel(3)  # wrong: arg-type
    await run.cancel("enough", 3)  # wrong: call-arg
    await run.cancel(deadline="1 h")  # wrong: arg-type
    await run.terminate("enough", force=True)  # wrong: call-arg
    await run.events()  # wrong: misc
    for event in run.events():  # wrong: attr-defined
        pass
    await app.get()  # wrong: call-overload
    await app.get("o-17", run_id="r")  # wrong: call-overload
    await app.get(17)  # wrong: call-overload
    await app.get("o-17", workflow=charge)  # wrong: call-overload
    await app.list(limit="10")  # wrong: arg-type
    await app.list(workflow=17)  # wrong: arg-type
    await app.list(state="failed")  # wrong: call-arg
    (await app.list())[0].result()  # wrong: attr-defined
    (await run.describe()).cancelled  # wrong: attr-defined


async def opening() -> None:
    Perdure(17)  # wrong: arg-type
    Perdure("sqlite://", queue="night")  # wrong: call-arg
    Perdure("sqlite://", workflows=[charge])  # wrong: list-item
    Perdure("sqlite://", park_after="1 s")  # wrong: arg-type
    with Perdure("sqlite://") as a:  # wrong: attr-defined
        pass
    async with Perdure("sqlite://").sync() as b:  # wrong: attr-defined
        pass


def options() -> None:
    checkout.options(id=17)  # wrong: arg-type
    checkout.options(identity="o-17")  # wrong: call-arg
    checkout.options(on_conflict="ignore")  # wrong: arg-type
    checkout.options(on_parent_close="replace")  # wrong: arg-type
    checkout.options(delay="soon")  # wrong: arg-type
    checkout.options(priority="high")  # wrong: arg-type
    checkout.options(attributes=["tenant"])  # wrong: arg-type
    charge.options(retry=3)  # wrong: arg-type
    charge.options(id="o-17")  # wrong: call-arg
    Retry(attempts=3)  # wrong: call-arg
    Retry(max_attempts="3")  # wrong: arg-type
    a: BoundCall[str] = pick.call("o-17", 1)  # wrong: assignment
    b: Workflow[[str], int] = pick  # wrong: assignment
    c: Activity[[str], int] = reserve  # wrong: assignment


@workflow
async def inside(cursor: int) -> str:
    await charge("o-17")  # wrong: call-arg
    await charge("o-17", "4200")  # wrong: arg-type
    await charge("o-17", 4200, price=3)  # wrong: call-arg
    await reserve(17)  # wrong: arg-type
    charge("o-17", 4200)  # wrong: unused-coroutine
    await pick("o-17")  # wrong: call-arg
    pick("o-17", 1)  # wrong: unused-coroutine
    a: int = await charge("o-17", 4200)  # wrong: assignment
    b: str = await pick("o-17", 1)  # wrong: assignment
    c: list[str] = await asyncio.gather(*(pick("o-17", shelf) for shelf in range(3)))  # wrong: assignment
    d, e, f = await asyncio.gather(pick("o-17", 1), reserve("o-17"))  # wrong: misc
    g: str = await approved.receive()  # wrong: assignment
    await approved.receive(timeout="1 day")  # wrong: arg-type
    (await shipped.receive()).price  # wrong: attr-defined
    async for line in shipped:
        line.price  # wrong: attr-defined
    for x in approved:  # wrong: attr-defined
        pass
    await select(sleep(3))  # wrong: call-arg
    await select(expire=3)  # wrong: arg-type
    h: int = await select(expire=sleep(3))  # wrong: assignment
    await side_effect(random())  # wrong: call-overload
    i: str = await side_effect(random)  # wrong: arg-type
    await sleep("3 days")  # wrong: arg-type
    sleep(3)  # wrong: unused-coroutine
    now() + 1  # wrong: operator
    rng().rand()  # wrong: attr-defined
    uuid4().upper()  # wrong: attr-defined
    info().step  # wrong: attr-defined
    at(3)  # wrong: arg-type
    patched(2)  # wrong: arg-type
    set_attributes("tenant", "acme")  # wrong: call-arg
    undo(charge, "o-17")  # wrong: call-arg
    undo(charge, "o-17", "4200")  # wrong: arg-type
    undo(charge("o-17", 4200))  # wrong: arg-type
    await undo(charge, "o-17", 4200)  # wrong: misc
    unwind()  # wrong: unused-coroutine
    if cursor:
        continue_as_new(checkout.call("o-17"))  # wrong: call-arg
    return cursor  # wrong: return-value


@activity
def looks_around() -> int:
    attempt().retries  # wrong: attr-defined
    resource("Pool")  # wrong: arg-type
    a: Line = resource(Pool)  # wrong: assignment
    return attempt().key  # wrong: return-value


@workflow  # wrong: arg-type
def not_async(order: str) -> str:
    return order


@workflow(timeout=3)  # wrong: call-overload
async def no_such_option() -> None: ...


@activity(retry=3)  # wrong: call-overload
async def no_such_retry() -> None: ...


decision = Deferred("decision", bool)
add = Request("add", int, int)
words = Stream("words", str)
number_signal = Signal(3, int)  # wrong: arg-type
text_signal = Signal("text", "str")  # wrong: arg-type
bare_signal = Signal("bare")  # wrong: var-annotated
misnamed: Signal[str] = Signal("misnamed", int)  # wrong: arg-type


def blocking(app: SyncPerdure, run: SyncRun[str]) -> None:
    app.start(checkout, "o-17")  # wrong: call-arg
    app.start(checkout, "o-17", "4200")  # wrong: arg-type
    app.run(charge, "o-17", 1)  # wrong: arg-type
    app.start_many(pick)  # wrong: arg-type
    app.get()  # wrong: call-overload
    app.lists()  # wrong: attr-defined
    a: int = app.run(checkout, "o-17", 4200)  # wrong: assignment
    b: int = run.result()  # wrong: assignment
    c: Run[str] = app.start(checkout, "o-17", 4200)  # wrong: assignment
    d: list[SyncRun[int]] = app.start_many(pick.call("o-17", 1))  # wrong: assignment
    run.signal(approved, "yes")  # wrong: misc
    run.id = "o-18"  # wrong: misc


async def not_blocking(app: SyncPerdure, run: SyncRun[str]) -> None:
    await app.run(checkout, "o-17", 4200)  # wrong: misc
    await run  # wrong: misc
    async for event in run.events():  # wrong: attr-defined
        pass
