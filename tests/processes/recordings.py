"""Recordings: what a node wrote to its files, call by call, and the disks a loss of power would leave.

In:   a node that waits to begin; `strace` writes down its writes, syncs and acknowledgements in order.
Out:  images of the files at any moment: what was synced is there, of the rest any subset of sectors.
"""

import random
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.processes.injections import tracer_of
from tests.processes.nodes import Node, until

CALLS = "write,pwrite64,fdatasync,fsync,ftruncate"
SECTOR = 512
LONGEST = 1 << 20

# A call is on one line, or on two when another thread made one in between.
_CALL = re.compile(rb"^(\d+) +(\w+)\((.*)$")
_RESUMED = re.compile(rb"^(\d+) +<\.\.\. (\w+) resumed>(.*)$")
_FILE = re.compile(rb"^(\d+)<([^>]*)>")
_STRING = re.compile(rb'"((?:\\x[0-9a-f]{2})*)"')


class Written(NamedTuple):
    """Bytes on their way to a file."""

    file: str
    start: int
    content: bytes


class Truncated(NamedTuple):
    """A file that is cut or stretched."""

    file: str
    length: int


class Synced(NamedTuple):
    """A file whose writes are on disk."""

    file: str


class Told(NamedTuple):
    """Something the node said, and others rely on from now on."""

    words: str


Entry = Written | Truncated | Synced | Told


@contextmanager
def recorded(node: Node, log: Path) -> Iterator[None]:
    """Write down what the node does until the end of the block."""
    command = ["strace", "-f", "-qq", "-y", "-xx", "-s", str(LONGEST), "-o", str(log), f"--trace={CALLS}"]
    process = subprocess.Popen([*command, "-p", str(node.pid)], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)


async def is_recording(node: Node) -> None:
    await until(lambda: tracer_of(node.pid), "strace has the node")


def read_log(log: Path, database: Path) -> list[Entry]:
    """What happened to the files of a database, and what was told, in order."""
    entries: list[Entry] = []
    begun: dict[bytes, bytes] = {}
    with log.open("rb") as lines:
        for line in lines:
            if (resumed := _RESUMED.match(line)) is not None:
                rest = begun.pop(resumed[1], None)
                line = b"%s %s(%s%s\n" % (resumed[1], resumed[2], rest or b"", resumed[3])  # noqa: PLW2901 - joined
            call = _CALL.match(line)
            if call is None:
                continue
            if call[3].endswith(b"<unfinished ...>"):
                begun[call[1]] = call[3].removesuffix(b"<unfinished ...>").rstrip()
                continue
            entry = _entry(call[2].decode(), call[3], database)
            if entry is not None:
                entries.append(entry)
    return entries


def _entry(name: str, words: bytes, database: Path) -> Entry | None:
    found, answer = _FILE.match(words), words.rpartition(b" = ")[2].split(b" ")[0]
    if found is None or answer.startswith((b"-", b"?")):
        return None
    number, path = int(found[1]), _unescaped(found[2]).decode(errors="replace")
    if name == "write":
        return Told(_unescaped(_string(words)).decode().strip()) if number == 1 else None
    file = path.removeprefix(str(database))
    if not path.startswith(str(database)) or file not in {"", "-wal"}:
        return None
    numbers = [int(word) for word in re.findall(rb", (\d+)", words.rpartition(b'"')[2])]
    match name:
        case "pwrite64":
            content = _unescaped(_string(words))
            assert len(content) == int(answer) == numbers[0]
            return Written(file, numbers[1], content)
        case "ftruncate":
            return Truncated(file, int(re.findall(rb", (\d+)", words)[-1]))
        case _:
            return Synced(file)


def _string(words: bytes) -> bytes:
    found = _STRING.search(words)
    assert found is not None, words[:200]
    return found[1]


def _unescaped(text: bytes) -> bytes:
    if not text.startswith(b"\\x"):
        return text
    return bytes.fromhex(text.replace(b"\\x", b"").decode())


class Disk:
    """The files of a database as a loss of power would leave them."""

    def __init__(self) -> None:
        self._durable: dict[str, bytearray] = {"": bytearray(), "-wal": bytearray()}
        self._pending: dict[str, list[Written | Truncated]] = {"": [], "-wal": []}

    def take(self, entry: Entry) -> None:
        """What happens next."""
        match entry:
            case Written() | Truncated():
                self._pending[entry.file].append(entry)
            case Synced(file):
                for change in self._pending[file]:
                    _change(self._durable[file], change)
                self._pending[file].clear()
            case Told():
                pass

    def image(self, folder: Path, chance: random.Random) -> Path:
        """Cut the power: what was synced is there, of the rest any subset of sectors, whole or torn."""
        folder.mkdir(parents=True)
        kept = chance.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        for file, durable in self._durable.items():
            content = bytearray(durable)
            for change in self._pending[file]:
                for piece in _pieces(change, kept, chance):
                    _change(content, piece)
            (folder / f"site.db{file}").write_bytes(content)
        if chance.random() < 0.5:
            # The index of the log is never synced: it is gone, or anything.
            (folder / "site.db-shm").write_bytes(chance.randbytes(32768))
        return folder / "site.db"


def _change(content: bytearray, change: Written | Truncated) -> None:
    match change:
        case Written(_, start, written):
            if len(content) < start:
                content.extend(bytes(start - len(content)))
            content[start : start + len(written)] = written
        case Truncated(_, length):
            del content[length:]
            content.extend(bytes(length - len(content)))


def _pieces(change: Written | Truncated, kept: float, chance: random.Random) -> Iterator[Written | Truncated]:
    """Those sectors of a change that reach the disk."""
    if isinstance(change, Truncated):
        if chance.random() < kept:
            yield change
        return
    start, end = change.start, change.start + len(change.content)
    while start < end:
        stop = min(end, start - start % SECTOR + SECTOR)
        if chance.random() < kept:
            torn = chance.randrange(stop - start) if chance.random() < 0.05 else stop - start
            yield Written(change.file, start, change.content[start - change.start :][:torn])
        start = stop
