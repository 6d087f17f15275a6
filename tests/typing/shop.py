"""A shop to write right and wrong lines against; type checkers read it, nobody runs it."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from perdure import Retry, Signal, activity, resource, sleep, workflow


@dataclass
class Line:
    """A line of an order."""

    sku: str
    pieces: int


class Pool:
    """A pool of connections."""

    async def fetch(self, sku: str) -> float:
        return 1.0


approved = Signal("approved", bool)
shipped = Signal[Line]("shipped")


@activity
async def reserve(order: str) -> str:
    return f"hold-{order}"


@activity(retry=Retry(max_attempts=5), timeout=timedelta(minutes=1))
def charge(order: str, cents: int, currency: str = "EUR") -> str:
    return f"receipt-{order}"


@activity
async def price(sku: str) -> float:
    return await resource(Pool).fetch(sku)


@workflow
async def pick(order: str, shelf: int) -> int:
    return shelf


@workflow(name="the-checkout")
async def checkout(order: str, cents: int, *, gift: bool = False) -> str:
    await reserve(order)
    await approved.receive(timeout=timedelta(days=1))
    await asyncio.gather(*(pick(order, shelf) for shelf in range(10)))
    await sleep(timedelta(days=3))
    return await charge(order, cents)


@workflow
async def notify(lines: list[Line]) -> None:
    await sleep(1)


def plain(order: str) -> str:
    return order
