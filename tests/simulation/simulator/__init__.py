"""The simulator: real engines on a shared database, in a world where everything that can go wrong does, by seed."""

from tests.simulation.simulator.database import Database, MemoryDatabase, SqliteDatabase
from tests.simulation.simulator.faults import AT_COMMIT, Fault, Moment
from tests.simulation.simulator.node import Node, State
from tests.simulation.simulator.remote_node import RemoteNode
from tests.simulation.simulator.tape import Tape
from tests.simulation.simulator.world import World

__all__ = [
    "AT_COMMIT",
    "Database",
    "Fault",
    "MemoryDatabase",
    "Moment",
    "Node",
    "RemoteNode",
    "SqliteDatabase",
    "State",
    "Tape",
    "World",
]
