"""Over TLS, with a server that takes nobody without it. PyPI's server has no TLS, so one of the machine's is used."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import asyncpg
import pytest

from perdure import Perdure, workflow
from perdure.errors import StoreUnavailable
from tools import servers

BINARIES = max(Path("/usr/lib/postgresql").glob("*/bin/postgres"), default=Path("none")).parent
ONLY_ENCRYPTED = "local all all trust\nhostssl all all 127.0.0.1/32 trust\n"


class Encrypted(NamedTuple):
    """A server, the certificate that it shows, which is its own root, and others that have nothing to do with it."""

    port: int
    root: Path
    stranger: Path
    missing: Path
    garbage: Path

    def url(self, host: str, **options: object) -> str:
        said = "".join(f"&{name}={value}" for name, value in options.items())
        return f"postgresql://postgres@{host}:{self.port}/postgres?schema=tls{said}"


def certify(folder: Path, name: str) -> Path:
    """A certificate for localhost, with its key beside it."""
    path = folder / f"{name}.crt"
    subject = ["-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost", "-days", "2"]
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", str(path.with_suffix(".key"))]
    command = ["openssl", "req", "-x509", *key, "-out", str(path), *subject]
    subprocess.run(command, check=True, capture_output=True)
    return path


@pytest.fixture(scope="module")
def encrypted() -> Iterator[Encrypted]:
    if not BINARIES.is_dir() or shutil.which("openssl") is None:
        pytest.skip("no Postgres with TLS, or no openssl, is installed")
    folder = servers.folder(in_memory=True)
    server = servers.Server(folder, BINARIES, ssl="on", ssl_cert_file="server.crt", ssl_key_file="server.key").make()
    try:
        root, stranger = certify(server.data, "server"), certify(server.data, "stranger")
        root.with_suffix(".key").chmod(0o600)
        servers.give_away(root.with_suffix(".key"), root)
        (server.data / "pg_hba.conf").write_text(ONLY_ENCRYPTED)
        server.start()
        yield Encrypted(server.port, root, stranger, folder / "none", server.data / "PG_VERSION")
    finally:
        server.end()


@workflow
async def says_hello_safely(name: str) -> str:
    return f"hello {name}"


async def hello(url: str) -> set[bool]:
    """Let a run come to its end; whether the connections that are open then are encrypted."""
    async with Perdure(url) as app:
        assert await app.run(says_hello_safely, "you") == "hello you"
        db = await asyncpg.connect(url.partition("?")[0], ssl="require")
        found = await db.fetch(
            "select ssl from pg_stat_ssl join pg_stat_activity using (pid) where application_name like 'perdure%'"
        )
        await db.close()
        return {ssl for (ssl,) in found}


async def test_every_connection_is_encrypted_and_the_server_known(encrypted: Encrypted) -> None:
    """One that goes another way, the one that listens or the one that renews, would be the hole."""
    assert await hello(encrypted.url("127.0.0.1", sslmode="require")) == {True}
    assert await hello(encrypted.url("localhost", sslmode="verify-full", sslrootcert=encrypted.root)) == {True}


async def test_the_variables_of_postgres_say_it_as_well(encrypted: Encrypted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    monkeypatch.setenv("PGSSLROOTCERT", str(encrypted.root))
    assert await hello(encrypted.url("localhost")) == {True}
    monkeypatch.setenv("PGSSLROOTCERT", str(encrypted.stranger))
    with pytest.raises(StoreUnavailable, match="certificate of the server is not accepted"):
        await hello(encrypted.url("localhost"))


@pytest.mark.parametrize(
    ("host", "mode", "root", "told"),
    [
        ("127.0.0.1", "disable", "root", "no encryption"),
        ("localhost", "verify-ca", "stranger", "is not accepted: self.signed certificate; name the host as"),
        (
            "127.0.0.1",
            "verify-full",
            "root",
            "is not accepted: IP address mismatch, .* is not valid for '127.0.0.1'; name",
        ),
        ("localhost", "verify-full", "missing", "No such file or directory; check the socket and the files"),
        ("localhost", "verify-full", "garbage", "no encrypted connection: .*; name the host as its certificate does"),
    ],
)
async def test_a_server_that_is_not_the_right_one_is_not_talked_to(
    encrypted: Encrypted, host: str, mode: str, root: str, told: str
) -> None:
    url = encrypted.url(host, sslmode=mode, sslrootcert=getattr(encrypted, root))
    with pytest.raises(StoreUnavailable, match=told):
        await hello(url)
