"""An order with a signal and a timer, each invocation a process of its own: as on Lambda, Cloud Run or cron.

    python serverless.py start o-1          prints the run_id; an upload or a form would do this
    python serverless.py handle RUN_ID      what the function that the cloud invokes does
    python serverless.py pay RUN_ID 4200    a webhook of the bank
    python serverless.py tick               once a minute, by the cloud's own cron

`DATABASE_URL` is where it is kept, `sqlite:///serverless.db` if it is not set.
"""

import asyncio
import os
import sys
from datetime import timedelta

from perdure import Perdure, Signal, activity, sleep, workflow

paid = Signal("paid", int)
# How long an order may be sent back.
RETURNS = timedelta(seconds=float(os.environ.get("RETURN_SECONDS", "3")))


@activity
async def reserve(order: str) -> str:
    return f"hold-{order}"


@activity
async def ship(hold: str, cents: int) -> str:
    return f"{hold} shipped for {cents} cents"


@workflow
async def take_order(order: str) -> str:
    hold = await reserve(order)
    cents = await paid.receive()
    shipped = await ship(hold, cents)
    await sleep(RETURNS)
    return shipped


async def main(command: str, *words: str) -> None:
    url = os.environ.get("DATABASE_URL", "sqlite:///serverless.db")
    async with Perdure(url, worker=False) as app:
        match command, *words:
            case "start", order:
                run = await app.start(take_order.options(id=order), order)
                print(run.run_id)
            case "handle", run_id:
                print((await app.handle({"run_id": run_id}, budget=20)).status)
            case "pay", run_id, cents:
                run = await app.get(run_id=run_id, workflow=take_order)
                await run.signal(paid, int(cents), id=f"payment-of-{run.id}")
            case "tick", *_:
                print(await app.tick(budget=10))
                print(await app.process_available(max_jobs=10, budget=10))
            case _:
                sys.exit(__doc__)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:] or ["help"]))
