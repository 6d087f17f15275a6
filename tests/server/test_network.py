"""Between a server and its callers: TLS, a proxy that cuts connections, a proxy that answers by itself."""

import asyncio
import datetime as dt
import os
import re
import socket
import ssl
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from pathlib import Path

import aiohttp
import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from perdure import Every, Perdure, Signal, Stream, workflow
from perdure.app.network.server import begin_server
from perdure.app.network.serving import ServerOptions
from perdure.errors import BadOption, StoreUnavailable
from perdure.http.remote.connection import Connection
from perdure.http.remote.transport import HttpAnswer
from perdure.testing import VirtualClock

PATIENCE = 60.0
COUNT, HEARD = 300, 4000
cut_lines = Stream("cut-lines", int)
cut_go = Signal("cut-go", bool)


@workflow
async def cut_flow() -> int:
    for number in range(COUNT // 2):
        cut_lines.publish(number)
    await cut_go.receive()
    for number in range(COUNT // 2, COUNT):
        cut_lines.publish(number)
    return COUNT


async def test_a_server_without_code_sees_to_schedules(tmp_path: Path) -> None:
    """All workers may be remote, and none of them can: their schedules would never start."""
    url = f"sqlite:///{tmp_path}/duties.db"
    async with Perdure(url, worker=False) as app:
        await app.schedules.create("often", cut_flow.call(), Every(1, overlap="allow_all"))
        words = [sys.executable, "-m", "perdure.cli", "serve", "--url", url, "--listen", "127.0.0.1:0", "--no-auth"]
        server = await asyncio.create_subprocess_exec(*words, stdout=PIPE, stderr=PIPE)
        try:
            async with asyncio.timeout(PATIENCE):
                while not await app.list(schedule="often"):  # noqa: ASYNC110 - as others see it
                    await asyncio.sleep(0.05)
            assert {run.status for run in await app.list(schedule="often")} == {"PENDING"}
        finally:
            server.terminate()
            await server.communicate()
        assert server.returncode == 0


async def test_a_server_that_cannot_listen_makes_no_key(quick_path: Path) -> None:
    """Nobody would ever see it; and the next server, finding a key, would show none."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        async with Perdure(f"sqlite:///{quick_path / 'k.db'}", worker=False) as app:
            with pytest.raises(BadOption, match="cannot listen"):
                await begin_server(app, ServerOptions(listen=f"127.0.0.1:{taken.getsockname()[1]}"))
            assert await app.keys.list() == []


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of this machine that nobody but itself vouches for, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "perdure test")])
    now = dt.datetime.now(dt.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert, secret = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(made.public_bytes(Encoding.PEM))
    secret.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return cert, secret


async def test_a_server_speaks_tls_with_a_certificate_that_is_given(tmp_path: Path) -> None:
    """A process of its own, and one that calls it; who does not know the certificate does not speak with it."""
    cert, secret = certificate(tmp_path)
    words = [sys.executable, "-m", "perdure.cli"]
    own = {**os.environ, "PYTHONUNBUFFERED": "1", "SSL_CERT_FILE": str(cert)}
    server = await asyncio.create_subprocess_exec(
        *(*words, "serve", "--url", f"sqlite:///{tmp_path}/tls.db", "--listen", "127.0.0.1:0"),
        *("--tls-cert", str(cert), "--tls-key", str(secret)),
        stdout=PIPE,
        stderr=PIPE,
        env=own,
    )
    try:
        assert server.stdout is not None
        said = msgspec.json.decode(await asyncio.wait_for(server.stdout.readline(), PATIENCE))
        assert re.fullmatch(r"https://127\.0\.0\.1:\d+", said["url"])
        known = ssl.create_default_context(cafile=str(cert))
        async with aiohttp.ClientSession() as http:
            async with http.post(f"{said['url']}/v1/session", json={"key": said["first_key"]}, ssl=known) as session:
                assert session.headers["set-cookie"].endswith("; Secure")
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await http.get(f"{said['url']}/health")
        caller = await asyncio.create_subprocess_exec(
            *(*words, "list", "--json", "--url", said["url"]), stdout=PIPE, env=own | {"PERDURE_KEY": said["first_key"]}
        )
        told, _ = await asyncio.wait_for(caller.communicate(), PATIENCE)
        assert (caller.returncode, told.strip()) == (0, b"[]")
    finally:
        server.terminate()
        _, log = await asyncio.wait_for(server.communicate(), PATIENCE)
    assert server.returncode == 0
    assert said["first_key"] not in log.decode()


async def test_a_certificate_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    cert, _ = certificate(tmp_path)
    (tmp_path / "junk.pem").write_text("junk")
    async with Perdure(f"sqlite:///{tmp_path / 't.db'}", worker=False) as app:
        for name in ("junk.pem", "nobody.pem"):
            given = str(tmp_path / name)
            with pytest.raises(BadOption, match=name):
                await begin_server(app, ServerOptions(listen="127.0.0.1:0", tls_cert=str(cert), tls_key=given))


class CuttingProxy:
    """Passes on so many bytes of what the server says on a connection, then cuts it off."""

    def __init__(self, port: int, most: int) -> None:
        self._server_port = port
        self._most = most
        self.cuts = 0

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._server_port)

        async def upwards() -> None:
            while data := await reader.read(65536):
                inner_writer.write(data)

        up = asyncio.ensure_future(upwards())
        left = self._most
        with suppress(ConnectionError):
            while left and (data := await inner_reader.read(left)):
                writer.write(data)
                left -= len(data)
                await writer.drain()
        self.cuts += not left
        up.cancel()
        for each in (writer, inner_writer):
            each.transport.abort()
        await asyncio.gather(up, return_exceptions=True)


@asynccontextmanager
async def cutting(port: int, most: int) -> AsyncIterator[tuple[str, CuttingProxy]]:
    proxy = CuttingProxy(port, most)
    server = await asyncio.start_server(proxy.pass_on, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", proxy


async def test_streams_that_a_proxy_cuts_go_on_without_gap_or_repeat(quick_path: Path) -> None:
    """In the middle of a frame, of stored ones and of live ones; what is asked meanwhile is done once."""
    async with Perdure(f"sqlite:///{quick_path / 'cut.db'}") as app:
        server, key = await begin_server(app, ServerOptions(listen="127.0.0.1:0"))
        try:
            async with cutting(int(server.url.rpartition(":")[2]), HEARD) as (url, proxy):
                async with Perdure(url, worker=False, key=key) as client:
                    run = await client.start(cut_flow.options(id="o/17"))
                    heard = list[int]()
                    async with asyncio.timeout(PATIENCE):
                        async for item in run.stream(cut_lines):
                            heard.append(item.value)
                            if len(heard) == COUNT // 2:
                                await run.signal(cut_go, True)
                    assert heard == list(range(COUNT))
                    seqs = [event.seq async for event in run.events(follow=True)]
                    assert seqs == sorted(set(seqs))
                    assert await run.result() == COUNT
                assert proxy.cuts > 3
            assert [each.id for each in await app.list()] == ["o/17"]
        finally:
            await server.end(1)


@pytest.mark.parametrize("status", [502, 504, 404])
async def test_what_a_proxy_says_by_itself_is_an_outage_and_no_riddle(status: int) -> None:
    """It answers in HTML; that is asked again, and told with its status when it does not end."""

    class Page:
        asked = 0

        async def request(self, *_: object) -> HttpAnswer:
            self.asked += 1
            clock.advance(2000)
            return HttpAnswer(status, {}, b"<html>no upstream</html>")

        async def close(self) -> None: ...

    clock, page = VirtualClock(), Page()
    connection = Connection("http://proxy", page, clock, None)  # type: ignore[arg-type]
    task = asyncio.ensure_future(connection.ask("GET", "/v1/runs", {}))
    while not task.done():
        await asyncio.sleep(0)
        clock.advance(100)
    with pytest.raises(StoreUnavailable, match=f"{status}"):
        await task
    assert page.asked > 1
