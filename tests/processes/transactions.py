"""kill -9 during transactional activities: at every moment there are as many rows of theirs as recorded outcomes.

In:   a ground, on either database.
Out:  nothing; an assertion fails when rows and outcomes differ.
"""

import asyncio
import os
import random

from tests.processes.grounds import Ground
from tests.processes.nodes import until
from tests.processes.workflows import STEPS, keeps

MANY_KILLS = int(os.environ.get("KILLS") or 200)
# So many runs are in flight at every kill.
RUNS = 20

TABLE = "create table kept (key text, number int, unique (key, number))"
# In one statement, which sees one state of the database.
BOTH = "select (select count(*) from {kept}), (select count(*) from events where kind = 'ActivityCompleted')"


async def kill_during_transactions(ground: Ground, kills: int, *, on_postgres: bool = False) -> None:
    """Kill one worker after the other while they book, and compare each time."""
    seed = int(os.environ.get("SEED") or random.SystemRandom().getrandbits(32))
    print(f"seed {seed}")
    chance = random.Random(seed)
    worker, started = await ground.worker(), 0

    def compared() -> int:
        """How many rows there are, which is how many outcomes there are."""
        [(kept, recorded)] = ground.rows(BOTH.format(kept="public.kept" if on_postgres else "kept"))
        assert kept == recorded
        return int(kept)

    async with ground.client() as app:
        for _ in range(kills):
            for _ in range(RUNS):
                await app.start(keeps.options(id=f"keeps-{started}"), f"keeps-{started}", on_postgres=on_postgres)
                started += 1
            successor = await ground.node().prepare()
            enough = compared() + 1
            await until(lambda enough=enough: compared() >= enough, "something is booked")  # type: ignore[misc]
            # The moment of the kill is chance, not synchronisation.
            await asyncio.sleep(chance.uniform(0.0, 0.05))
            worker.kill()
            compared()
            worker = successor
            worker.go()
            await worker.hears("ready")
        for number in range(started):
            run = await app.get(f"keeps-{number}")
            assert await run.result() == [f"keeps-{number}:{step}" for step in range(STEPS)]
    assert await worker.leave() == 0
    assert compared() == started * STEPS
