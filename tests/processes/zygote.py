"""A process that has loaded what a node needs, and forks one for every request.

Starting Python and importing the engine takes longer than most lives of a node. A fork takes
milliseconds and is a process of its own: it opens its connections, locks and threads after the fork,
since this process never opens any.

In:   on a socket, for each node: its options and environment as JSON, with four files: standard
      input, output and error, and where to write the process id and the exit code.
"""

import gc
import json
import os
import select
import signal
import socket
import sys
import traceback
from contextlib import suppress
from typing import Any

from perdure.stores.queries import migrations, queries
from tests.processes import node

LARGEST = 2**16


def serve(asked: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, files, _, _ = socket.recv_fds(asked, LARGEST, 4)
        if not message:
            return
        if os.fork() == 0:
            asked.close()
            watch(json.loads(message), files)
        for file in files:
            os.close(file)


def watch(request: dict[str, Any], files: list[int]) -> None:
    """Fork the node, and tell how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        os.close(files[3])
        become(request, files[:3])
    for file in files[:3]:
        os.close(file)
    os.write(files[3], f"{pid}\n".encode())
    _outlive_nobody(pid, files[3])
    _, status = os.waitpid(pid, 0)
    with suppress(BrokenPipeError):
        os.write(files[3], f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _outlive_nobody(pid: int, fate: int) -> None:
    """Wait until the node has ended; if those who asked for it end before, so does the node."""
    if not hasattr(os, "pidfd_open"):
        return
    node, poll = os.pidfd_open(pid), select.poll()
    poll.register(node, select.POLLIN)
    poll.register(fate, 0)
    if node not in dict(poll.poll()):
        os.kill(pid, signal.SIGKILL)


def become(request: dict[str, Any], files: list[int]) -> None:
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.update(request["environment"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False, buffering=1)
    code: int = 0
    try:
        node.main(request["options"])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - Python would print it, too
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    # Read once for all forks.
    for database in ("sqlite", "postgres"):
        migrations(database)
        queries(database)
    # Whoever interrupts the tests ends this process by closing the socket, not by its signal.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What is there already is not looked at again in every fork, so that it stays shared.
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as server:
        serve(server)
