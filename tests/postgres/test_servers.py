"""The servers that tests and benchmarks make for themselves."""

import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.cli.shell import until
from tools import servers

# Crashes the server once, since tests do, and then waits to be killed.
MAKER = """
import sys
from tools import servers
folder = servers.folder(in_memory=True)
server = servers.Server(folder).make().start()
server.stop("immediate")
server.start()
print(server.port, folder, flush=True)
sys.stdin.read()
"""


def is_answering(port: int) -> bool:
    with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def test_a_server_does_not_outlive_the_process_that_made_it() -> None:
    """Whoever killed the tests found their servers still there, with all they take, and had to end them by hand."""
    root = Path(servers.__file__).parents[1]
    words = [sys.executable, "-c", MAKER]
    with subprocess.Popen(words, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as maker:
        assert maker.stdout is not None
        port, folder = maker.stdout.readline().split()
        assert is_answering(int(port))

        maker.kill()

        until(lambda: not is_answering(int(port)))
        until(lambda: not Path(folder).exists())
