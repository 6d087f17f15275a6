"""An order, from the shelf to the doorstep.

Ordinary functions: every `await` of an activity, a sleep or a signal below is remembered
on disk. `python demo/run.py` kills the process in the middle of it and starts another.

Try it by hand as well:

    perdure run demo/orders.py:fulfil '{"order": "o-17", "items": ["lamp", "desk"]}' --id o-17
    perdure signal o-17 address '"12 Mill Lane"'        (in another terminal)
"""

import asyncio
import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from perdure import Signal, activity, sleep, workflow

address = Signal("address", str)


@dataclass
class Delivery:
    """What the customer is told at the end."""

    order: str
    boxes: list[str]
    sent_to: str
    tracking: str


@workflow
async def fulfil(order: str, items: list[str]) -> Delivery:
    """Reserve, pack side by side, let the glue dry, ask where to send it, ship, bill."""
    await reserve(order)
    boxes = await asyncio.gather(*(pack(item) for item in items))
    await sleep(timedelta(seconds=1.5))  # three days would do as well
    sent_to = await address.receive()
    tracking = await ship(order, sent_to)
    await bill(order)
    return Delivery(order, boxes, sent_to, tracking)


@activity
async def reserve(order: str) -> None:
    leave_trace(f"reserve {order}")
    await asyncio.sleep(0.4)


@activity
async def pack(item: str) -> str:
    leave_trace(f"pack {item}")
    await asyncio.sleep(PACKING.get(item, 0.5))
    return f"box with a {item}"


@activity
async def ship(order: str, sent_to: str) -> str:
    leave_trace(f"ship {order} to {sent_to}")
    await asyncio.sleep(0.4)
    return f"track-{order}"


@activity
def bill(order: str) -> None:  # a plain def works too: it runs in a thread
    leave_trace(f"bill {order}")


# Seconds it takes to pack; a sofa is no mug.
PACKING = {"mug": 0.3, "lamp": 0.7, "desk": 2.5, "sofa": 3.0}


def leave_trace(what: str) -> None:
    """Stand-in for a call that cannot be taken back: one line in a file for each time it is made."""
    journal = os.environ.get("DEMO_EFFECTS")
    if journal is not None:
        with Path(journal).open("a", encoding="utf-8") as file:
            file.write(f"{os.getpid()} {what}\n")
