"""A process that has loaded the command line once, and forks a fresh one for every command.

Starting Python and importing the engine takes longer than most commands; a fork takes
milliseconds, and is a real process with streams, a folder, an environment and signals of its own.

In:   on a socket, for each command: its words, folder and environment as JSON, with four files:
      standard input, output and error, and where to write the process id and the exit code.
"""

import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import sys
import traceback
from importlib.resources import files
from typing import Any

import perdure
from perdure.cli import main
from perdure.cli.entry import outcome
from perdure.stores import audit
from perdure.stores.queries import migrations, named, queries

LARGEST = 2**20


def serve(server: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, files, _, _ = socket.recv_fds(server, LARGEST, 4)
        if not message:
            return
        if os.fork() == 0:
            server.close()
            watch(json.loads(message), files)
        for file in files:
            os.close(file)


def watch(request: dict[str, Any], files: list[int]) -> None:
    """Fork the command, and tell how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        os.close(files[3])
        become(request, files[:3])
    for file in files[:3]:
        os.close(file)
    os.write(files[3], f"{pid}\n".encode())
    _, status = os.waitpid(pid, 0)
    os.write(files[3], f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def become(request: dict[str, Any], files: list[int]) -> None:
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding=encoding, closefd=False, buffering=1 if os.isatty(1) else -1)
    sys.stderr = os.fdopen(2, "w", encoding=encoding, closefd=False, buffering=1)
    sys.argv = ["perdure", *request["words"]]
    if "AS_USER" in os.environ:
        os.setuid(int(os.environ["AS_USER"]))
    code: int = 1
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except BaseException:  # noqa: BLE001 - Python would print it, too
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    # All of it: a command that becomes another user may not be able to enter the folder that it lies in.
    for module in pkgutil.walk_packages(perdure.__path__, "perdure."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for sql in files("perdure.stores").joinpath("sql").iterdir():
        if sql.name.endswith(".sql"):
            named(sql.name.removesuffix(".sql"))
    queries("sqlite")
    audit._asked()
    # Typer and Python load the rest of themselves when they are first used.
    outcome(["list", "--limit", "0"])
    migrations("sqlite")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    # What is there already is not looked at again in every fork, so that it stays shared.
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
