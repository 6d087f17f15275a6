"""Reloading: the process starts anew when a source file changes.

In:   the modules as they were typed; what was imported with them.
Out:  the same process, running the same command with the new code.
Looks at the files every moment; knows nothing of what the worker does.
"""

import asyncio
import contextlib
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from perdure.cli.input.modules import PERDURE

LOOK_EVERY = 0.25
RELOADED = "PERDURE_RELOADED"
LIBRARIES = [PERDURE, *(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib"))]


class Stamp(NamedTuple):
    """What differs when a file has been written anew."""

    modified_ns: int
    size: int
    inode: int


class Reloader:
    """Watches the files of the user's modules, and restarts the process."""

    def __init__(self, places: list[str]) -> None:
        # The file whose change led to this incarnation of the process, and the one that ends it.
        self.came_after = os.environ.pop(RELOADED, None)
        self.changed: str | None = None
        # What the next incarnation is to know of this one.
        self.kept = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(f"{RELOADED}_")}
        # The user's code may move and change the environment; the next incarnation begins where this one did.
        self._folder = Path.cwd()
        self._environment = dict(os.environ)
        # Those that are known beforehand are looked at before they are read, so that no change is missed.
        self._stamps = {path: _stamp(path) for place in places for path in self._candidates(place)}
        # Python takes a file of the same second and size for the same; then old code would be loaded.
        sys.dont_write_bytecode = True

    def note_sources(self) -> None:
        """Watch what has been imported, from now on."""
        self._stamps |= {path: _stamp(path) for path in set(_sources()) - set(self._stamps)}

    def notes_files_of(self, error: BaseException) -> bool:
        """Watch the files that an error came from, too; False when there is nothing to watch."""
        cause = error.__cause__ or error
        paths = {frame.filename for frame in traceback.extract_tb(cause.__traceback__)}
        if isinstance(cause, SyntaxError) and cause.filename:
            paths.add(cause.filename)
        found = {Path(path) for path in paths if _is_theirs(path)}
        if isinstance(cause, ModuleNotFoundError) and cause.name:
            found |= set(self._candidates(cause.name))
        self._stamps |= {path: _stamp(path) for path in found - set(self._stamps)}
        is_any_there = any(stamp is not None for stamp in self._stamps.values())
        self.note_sources()
        return is_any_there

    def _candidates(self, place: str) -> list[Path]:
        """Where a module may be, as far as its name tells."""
        if place.endswith(".py") or "/" in place:
            return [Path(place).resolve()]
        path = self._folder / place.replace(".", "/")
        return [path.with_name(f"{path.name}.py"), path / "__init__.py"]

    async def changed_before(self, stop: asyncio.Event) -> None:
        """Until a file has changed, and then no more for a moment; or until told to stop."""
        while not stop.is_set():
            news = self._look()
            if news is None and self.changed is not None:
                return
            # Another look: a checkout changes many files, and an editor may write one in pieces.
            self.changed = news
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), LOOK_EVERY)

    def _look(self) -> str | None:
        """The name of a file that has changed since the last look."""
        self.note_sources()
        found = None
        for path, before in self._stamps.items():
            stamp = _stamp(path)
            # A file that is gone may be about to be replaced; until then its code is still the newest.
            if stamp is not None and stamp != before:
                found = os.path.relpath(path, self._folder)
                self._stamps[path] = stamp
        return found

    def restart(self) -> None:
        """Become a new process with the same number, the same words and nothing of the old code."""
        os.chdir(self._folder)
        sys.stdout.flush()
        sys.stderr.flush()
        command = [sys.executable, *sys.orig_argv[1:]]
        told = {RELOADED: self.changed or "", **self.kept}
        os.execve(sys.executable, command, self._environment | told)  # noqa: S606 - ourselves


def _sources() -> Iterator[Path]:
    """The files of all modules that are the user's own."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name != "__main__" and isinstance(file, str) and _is_theirs(file):
            yield Path(file)


@cache
def _is_theirs(file: str) -> bool:
    return file.endswith(".py") and not any(Path(file).is_relative_to(library) for library in LIBRARIES)


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return Stamp(found.st_mtime_ns, found.st_size, found.st_ino)
