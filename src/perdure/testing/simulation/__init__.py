"""The simulator: real engines on a shared database, in a world where everything that can go wrong does, by seed."""

from perdure.testing.simulation.database import Database, MemoryDatabase, SqliteDatabase
from perdure.testing.simulation.faults import AT_COMMIT, Fault, Moment
from perdure.testing.simulation.node import Node, State
from perdure.testing.simulation.tape import Tape
from perdure.testing.simulation.world import World

__all__ = [
    "AT_COMMIT",
    "Database",
    "Fault",
    "MemoryDatabase",
    "Moment",
    "Node",
    "SqliteDatabase",
    "State",
    "Tape",
    "World",
]
