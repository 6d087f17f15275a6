"""PgBouncer in transaction mode before a server: every transaction may get another connection.

    python -m tests.postgres.poolers [PYTEST OPTIONS]

runs the contract of stores, and what else is given, through it.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

from tools import servers

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
SETTINGS = """
[databases]
postgres = host={host} port={port} user=postgres dbname=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 300
default_pool_size = 4
logfile = {folder}/log
pidfile = {folder}/pid
"""
CONTRACT = [f"tests/test_store_{name}.py" for name in ("contract", "families", "groups", "order")]


class Pooler:
    """A pooler before the server of a URL."""

    def __init__(self, url: str, folder: Path, more: str = "") -> None:
        self._server = urlsplit(url)
        self._folder = folder
        self._more = more
        self._port = servers.free_port()

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self._port}/postgres"

    def start(self) -> "Pooler":
        assert PROGRAM is not None, "install pgbouncer"
        file = self._folder / "settings"
        host, port = self._server.hostname, self._server.port
        file.write_text(SETTINGS.format(host=host, port=port, own_port=self._port, folder=self._folder) + self._more)
        servers.give_away(self._folder, file)
        self._process = subprocess.Popen(
            [PROGRAM, "-q", str(file)],
            stderr=subprocess.DEVNULL,
            **servers.as_somebody(),  # type: ignore[call-overload]  # a user, or nothing
        )
        deadline = time.monotonic() + servers.PATIENCE_SECONDS
        while not (self._folder / "pid").exists():
            assert time.monotonic() < deadline, "the pooler does not start"
            time.sleep(0.02)
        return self

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def main() -> int:
    server = servers.Server(servers.folder(in_memory=True)).make().start()
    pooler = Pooler(server.url, servers.folder()).start()
    try:
        environment = os.environ | {servers.ENVIRONMENT: pooler.url}
        command = [sys.executable, "-m", "pytest", "-k", "postgres", *CONTRACT, *sys.argv[1:]]
        return subprocess.run(command, env=environment, check=False).returncode
    finally:
        pooler.end()
        server.end()


if __name__ == "__main__":
    raise SystemExit(main())
