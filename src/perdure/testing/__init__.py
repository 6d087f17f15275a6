"""The testing kit: virtual time, faults around the real store, and an environment that uses both."""

from perdure.testing.clock import VirtualClock
from perdure.testing.environment import Environment
from perdure.testing.faults import Crash, Fault, FaultyStore

__all__ = ["Crash", "Environment", "Fault", "FaultyStore", "VirtualClock"]
