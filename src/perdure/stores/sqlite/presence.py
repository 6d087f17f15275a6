"""Which workers are alive on a SQLite file: a lock per worker, which the system frees when its process dies."""

from collections.abc import Sequence

from perdure.stores.queries import queries
from perdure.stores.sqlite.connection import SqliteFile
from perdure.stores.sqlite.locks import FileLock, is_held
from perdure.stores.sqlite.writer import FileRenewals

LONGEST_FILE_NAME = 200


class SqlitePresence:
    """The locks of this process's workers, and the connection that renews their leases."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._locks: dict[str, FileLock] = {}
        self._renewals: FileRenewals | None = None

    @property
    def is_held_up(self) -> bool:
        """Whether a renewal has been waiting for the write lock for long."""
        return self._renewals is not None and self._renewals.is_held_up

    def renew(self, worker_id: str, epoch: int, lease_until: int) -> bool:
        if self._file.path is None:
            return True
        renewals = self._renewals
        if renewals is None:
            lock = self._file.lock("write")
            renewals = self._renewals = FileRenewals(self._file.connect(), lock, queries("sqlite")["renew_worker"])
        return renewals.renew(worker_id, epoch, lease_until)

    async def keep_alive(self, worker_id: str) -> None:
        if self._file.path is not None:
            self._hold_lock(worker_id)

    def _hold_lock(self, worker_id: str) -> None:
        lock = self._file.lock(worker_id)
        lock.acquire(wait=True)
        self._locks[worker_id] = lock

    async def let_die(self, worker_id: str) -> None:
        lock = self._locks.pop(worker_id, None)
        if lock is not None:
            lock.close(remove=True)

    async def dead_among(self, worker_ids: Sequence[str]) -> set[str]:
        if self._file.path is None:
            return set()
        known = [worker_id for worker_id in worker_ids if _is_file_name(worker_id)]
        return {worker_id for worker_id in known if is_held(self._file.lock_path(worker_id)) is False}

    def forget(self, worker_id: str) -> None:
        """Remove what a dead worker left beside the database."""
        if self._file.path is not None and _is_file_name(worker_id):
            self._file.lock_path(worker_id).unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of all of it; a worker that could not give its row back leaves its lock behind, free."""
        for lock in self._locks.values():
            lock.close()
        self._locks.clear()
        if self._renewals is not None:
            self._renewals.close()
            self._renewals = None


def _is_file_name(worker_id: str) -> bool:
    """Whether it can be one of ours; a row that is spoilt must lead to no other file."""
    return worker_id.isalnum() and len(worker_id) < LONGEST_FILE_NAME
