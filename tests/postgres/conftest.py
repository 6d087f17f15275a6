"""Every test of real processes gets a site of its own, on a server that it may kill."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres.sites import PostgresSite
from tools import servers


@pytest.fixture(scope="session")
def mortal() -> Iterator[servers.Server]:
    """A server of our own; what is killed cannot be somebody else's."""
    server = servers.Server(servers.folder(in_memory=True)).make().start()
    try:
        yield server
    finally:
        server.end()


@pytest.fixture
def site(tmp_path: Path, mortal: servers.Server) -> Iterator[PostgresSite]:
    """A schema that nobody has used yet, and its worker processes."""
    if not mortal.is_running():
        mortal.start()
    site = PostgresSite(tmp_path, mortal)
    try:
        yield site
    finally:
        site.end()
