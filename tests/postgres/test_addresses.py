"""What a URL or the environment says wrongly is told in one line, before anything is done."""

import asyncio
import pickle

import pytest

from perdure import Perdure, Run, workflow
from perdure.errors import BadOption, NotOpen, StoreUnavailable
from perdure.stores.postgres.address import CONNECT_SECONDS, address_of
from tools.servers import free_port


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("schema=pg_mine", "use a name that does not begin with pg_"),
        ("target_session_attrs=readwrite", "use one of any, primary, standby, prefer-standby, read-write, read-only"),
        ("connect_timeout=soon", "connect_timeout=soon in the URL says nothing; use a number of seconds"),
    ],
)
def test_an_option_that_says_nothing_is_refused(option: str, told: str) -> None:
    with pytest.raises(BadOption, match=told):
        address_of(f"postgresql://db/shop?{option}")


def test_urls_made_for_other_programs_may_say_how_long_to_try() -> None:
    """`connect_timeout` stands in most of them, and the server knows no setting of that name."""
    assert address_of("postgresql://db/shop").connect_seconds == CONNECT_SECONDS
    assert address_of("postgresql://db/shop?connect_timeout=3").connect_seconds == 3
    assert address_of("postgresql://db/shop?connect_timeout=3").dsn == "postgresql://db/shop"


@pytest.mark.parametrize("value", ["abc", "99 cats"])
async def test_a_setting_that_the_server_does_not_take_is_told(postgres: str, value: str) -> None:
    """It was a traceback of sixty lines, for what is refused was taken for a value that is written."""
    with pytest.raises(StoreUnavailable, match=f'"work_mem": "{value}"; correct the URL'):
        async with Perdure(f"{postgres}?work_mem={value}"):
            raise AssertionError


async def test_a_variable_that_cannot_be_read_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPORT", "abc")
    with pytest.raises(StoreUnavailable, match="a value cannot be used: .*'abc'; correct the URL or the PG. variables"):
        async with Perdure("postgresql://nobody@127.0.0.1/x"):
            raise AssertionError


async def test_a_port_on_which_somebody_else_listens_is_told() -> None:
    """Whoever has mistyped a port reads of a call of the driver's otherwise."""

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        writer.close()

    port = free_port()
    async with await asyncio.start_server(hang_up, "127.0.0.1", port):
        with pytest.raises(StoreUnavailable, match="closed the connection, and may be no Postgres"):
            async with Perdure(f"postgresql://nobody@127.0.0.1:{port}/x"):
                raise AssertionError


@workflow
async def is_there() -> str:
    return "there"


def with_password(url: str, password: str) -> str:
    """The same database; this server lets everybody in."""
    return url.replace("@", f":{password}@", 1)


@pytest.mark.parametrize("others", ["in the account", "in the options", "none"])
async def test_a_pickled_handle_holds_no_password_and_needs_none(postgres_url: str, others: str) -> None:
    """It goes into queues and caches; and the password may be another one by the time it is used."""
    async with Perdure(with_password(postgres_url, "h1dden")) as app:
        run = await app.start(is_there.options(id="r"))
        assert await run == "there"
        kept = pickle.dumps(run)
    assert b"h1dden" not in kept
    copy: Run[str] = pickle.loads(kept)
    with pytest.raises(NotOpen, match="no Perdure is open on 'postgresql://postgres@"):
        await copy.result()
    url = {
        "in the account": with_password(postgres_url, "an0ther"),
        "in the options": f"{postgres_url}&password=an0ther",
        "none": postgres_url,
    }[others]
    async with Perdure(url, worker=False):
        assert await copy.result() == "there"


def test_a_pickled_handle_of_a_bridge_holds_no_password(postgres_url: str) -> None:
    with Perdure(with_password(postgres_url, "h1dden")).sync() as app:
        kept = pickle.dumps(app.start(is_there))
    assert b"h1dden" not in kept
    with Perdure(with_password(postgres_url, "an0ther")).sync():
        assert pickle.loads(kept).result() == "there"


async def test_a_handle_does_not_take_another_database_for_its_own(postgres_url: str) -> None:
    """The host, the database, the schema and the role are part of where it belongs."""
    async with Perdure(postgres_url) as app:
        copy: Run[str] = pickle.loads(pickle.dumps(await app.start(is_there)))
    async with Perdure(f"{postgres_url}x", worker=False):
        with pytest.raises(NotOpen):
            await copy.result()
