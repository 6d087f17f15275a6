"""A database in memory whose transactions overlap one statement at a time, for simulating several processes."""

from perdure.testing.memory.store import MemoryStore
from perdure.testing.memory.tables import Tables
from perdure.testing.memory.transaction import Done, Transaction
from perdure.testing.memory.view import Blocked, Progress

__all__ = ["Blocked", "Done", "MemoryStore", "Progress", "Tables", "Transaction"]
