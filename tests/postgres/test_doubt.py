"""A client whose commit is done, but whose answer is lost, is told what became of it and not what it finds later."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from perdure import Perdure, Signal, workflow
from perdure.kernel.conflict import OnConflict
from tests.postgres.proxies import Cut, Proxy
from tools.servers import Server

hint = Signal("hint", str)

each_cut = pytest.mark.parametrize("cut", list(Cut))


@workflow
async def takes_a_hint(text: str) -> str:
    return text + await hint.receive()


@workflow
async def takes_two_hints(text: str) -> str:
    return text + await hint.receive() + await hint.receive()


@asynccontextmanager
async def client_by_proxy(server: Server, url: str) -> AsyncIterator[tuple[Perdure, Proxy]]:
    async with (
        Proxy(server.port) as proxy,
        Perdure(url.replace(f":{server.port}/", f":{proxy.port}/"), worker=False) as app,
    ):
        yield app, proxy


@pytest.fixture
def url(mortal: Server, request: pytest.FixtureRequest) -> str:
    if not mortal.is_running():
        mortal.start()
    return f"{mortal.url}?schema=doubt_{abs(hash(request.node.name))}"


@each_cut
async def test_a_start_is_answered_with_its_own_run(mortal: Server, url: str, cut: Cut) -> None:
    """Written twice it is one run, and not one that is in the way of itself."""
    async with client_by_proxy(mortal, url) as (app, proxy):
        await app.start(takes_a_hint, "first")
        proxy.cut_next(cut, "batch")
        run = await app.start(takes_a_hint.options(id="same"), "a")
        assert not proxy.is_about_to_cut
        assert [found.run_id for found in await app.list(id="same")] == [run.run_id]


@pytest.mark.parametrize("policy", [OnConflict.REPLACE, OnConflict.TERMINATE])
@each_cut
async def test_a_run_that_takes_the_place_of_another_is_not_replaced_by_itself(
    mortal: Server, url: str, cut: Cut, policy: OnConflict
) -> None:
    """Whoever asks again who has the id must not take its own run for one that is to make way."""
    async with client_by_proxy(mortal, url) as (app, proxy):
        first = await app.start(takes_a_hint.options(id="same"), "a")
        await first.cancel()
        proxy.cut_next(cut, "commit")
        run = await app.start(takes_a_hint.options(id="same", on_conflict=policy), "b")
        assert not proxy.is_about_to_cut
        assert [found.run_id for found in await app.list(id="same")] == [run.run_id, first.run_id]
        assert (await run.describe()).status == "PENDING"


@each_cut
async def test_who_cancels_a_run_is_not_told_that_it_was_cancelled_before(mortal: Server, url: str, cut: Cut) -> None:
    """It would look for somebody else who has done so, and for what is wrong with its own call."""
    async with client_by_proxy(mortal, url) as (app, proxy):
        run = await app.start(takes_a_hint, "a")
        proxy.cut_next(cut, "commit")
        await run.cancel("enough")
        assert not proxy.is_about_to_cut
        assert (await run.describe()).status == "CANCELLED"


@each_cut
async def test_who_terminates_a_run_is_not_told_that_it_was_terminated_before(
    mortal: Server, url: str, cut: Cut
) -> None:
    """As above."""
    async with client_by_proxy(mortal, url) as (app, proxy):
        run = await app.start(takes_a_hint, "a")
        proxy.cut_next(cut, "commit")
        await run.terminate("enough")
        assert not proxy.is_about_to_cut
        assert (await run.describe()).status == "TERMINATED"


@each_cut
async def test_who_lets_a_held_run_go_on_is_not_told_that_it_is_not_held(mortal: Server, url: str, cut: Cut) -> None:
    """Whoever mended the code and resumes what was held must not believe that it came too late."""
    async with client_by_proxy(mortal, url) as (app, proxy):
        run = await app.start(takes_a_hint, "a")
        schema = url.rpartition("=")[2]
        with psycopg.connect(mortal.url, options=f"-c search_path={schema}", autocommit=True) as db:
            db.execute("update runs set held = 'mismatch', wake_at = null")
        proxy.cut_next(cut, "commit")
        await run.resume()
        assert not proxy.is_about_to_cut
        assert (await run.describe()).held is None


@each_cut
async def test_a_signal_whose_answer_was_lost_arrives_once(mortal: Server, url: str, cut: Cut) -> None:
    """Sent again by the engine, it is the same signal."""
    async with client_by_proxy(mortal, url) as (app, proxy):
        run = await app.start(takes_two_hints, "a")
        proxy.cut_next(cut, "batch")
        await run.signal(hint, "b")
        assert not proxy.is_about_to_cut
        await run.signal(hint, "c")
        async with Perdure(url):
            assert await run.result(timeout=60) == "abc"
