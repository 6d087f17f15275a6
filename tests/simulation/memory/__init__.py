"""A database in memory whose transactions overlap one statement at a time, for simulating several processes."""

from tests.simulation.memory.activity_transactions import CodeTransaction, MemoryActivityTransactions, UserTable
from tests.simulation.memory.store import MemoryStore
from tests.simulation.memory.tables import Tables
from tests.simulation.memory.transaction import Done, Transaction
from tests.simulation.memory.view import Blocked, Progress

__all__ = [
    "Blocked",
    "CodeTransaction",
    "Done",
    "MemoryActivityTransactions",
    "MemoryStore",
    "Progress",
    "Tables",
    "Transaction",
    "UserTable",
]
