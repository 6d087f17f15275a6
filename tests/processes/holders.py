"""A schedule of every second on three workers, whose holder of the duty is killed again and again."""

from perdure import Every
from tests.processes.grounds import Ground
from tests.processes.nodes import Node, until
from tests.processes.workflows import plain

WORKERS = 3
HOLDER = "select pid from duties join workers on worker_id = holder where name = 'schedules'"
TIMES = "select scheduled_for from runs where schedule = 'secondly' order by 1"


async def kill_holders(ground: Ground, kills: int) -> None:
    """Every second has one run in the end, however often the process that starts them dies."""
    nodes = {node.pid: node for node in [await ground.worker() for _ in range(WORKERS)]}
    async with ground.client() as app:
        when = Every(1, overlap="allow_all", catch_up="all")
        await app.schedules.create("secondly", plain.call("secondly"), when)
        for _ in range(kills):
            started = len(ground.rows(TIMES))
            await until(lambda: _holder(ground, nodes) is not None, "a living worker has the duty")
            holder = _holder(ground, nodes)
            assert holder is not None
            await until(lambda before=started: len(ground.rows(TIMES)) > before, "runs are started")  # type: ignore[misc]  # bound at once
            holder.kill()
            del nodes[holder.pid]
            fresh = await ground.worker()
            nodes[fresh.pid] = fresh
        after = len(ground.rows(TIMES))
        await until(lambda: len(ground.rows(TIMES)) > after, "another worker goes on")
        await app.schedules.pause("secondly")
        told = await app.schedules.get("secondly")
        assert {decision.kind for decision in told.decisions} <= {"started", "caught_up"}
        await ground.until_all_ended()
    times = [time for (time,) in ground.rows(TIMES)]
    assert times == list(range(times[0], times[-1] + 1, 1000))
    assert len(times) > kills


def _holder(ground: Ground, nodes: dict[int, Node]) -> Node | None:
    return next((nodes[pid] for (pid,) in ground.rows(HOLDER) if pid in nodes), None)
