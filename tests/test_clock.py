"""Time: a millisecond is over only when it is."""

from pathlib import Path

from perdure import activity, workflow
from perdure.clock import LONGEST_WAIT_MS, SystemClock
from perdure.testing import Environment, VirtualClock
from perdure.testing.simulation.loop import NodeLoop


def test_a_moment_is_not_over_within_its_own_millisecond() -> None:
    """A timer set late within one would else fire early within another."""
    clock = SystemClock()
    looks = [(at := clock.now(), clock.is_over(at), clock.now()) for _ in range(2000)]
    # Only those looks tell that began and ended within one millisecond.
    within = [is_over for began, is_over, ended in looks if began == ended]
    assert within
    assert not any(within)
    assert clock.is_over(clock.now() - 1)
    assert not clock.is_over(clock.now() + 60_000)


def test_virtual_time_has_no_moments_between() -> None:
    clock = VirtualClock()
    assert clock.is_over(clock.now())
    assert not clock.is_over(clock.now() + 1)


class Machine:
    """Two clocks that a test moves: one on the wall, and one that nobody sets."""

    def __init__(self) -> None:
        self.wall_ms, self.steady_ms = 1_800_000_000_000, 0
        self.clock = SystemClock(lambda: self.wall_ms * 1_000_000, lambda: self.steady_ms * 1_000_000)
        self.loop = NodeLoop(lambda: self.steady_ms, lambda: None)  # type: ignore[abstract]  # as much as a clock needs
        self.calls: list[int] = []

    def call_at(self, at: int) -> None:
        self.loop.run(lambda: self.clock.call_at(at, lambda: self.calls.append(self.clock.now())))

    def pass_time(self, ms: int) -> None:
        for _ in range(ms):
            self.wall_ms += 1
            self.steady_ms += 1
            self.loop.fire()


def test_a_call_far_away_is_made_soon_after_the_wall_clock_was_set_past_it() -> None:
    """Or the machine slept: a loop's own timers know nothing of either, and an approval would be late by hours."""
    machine = Machine()
    machine.call_at(machine.wall_ms + 6 * 3_600_000)
    machine.pass_time(100)
    assert machine.calls == []

    machine.wall_ms += 7 * 3_600_000
    machine.pass_time(LONGEST_WAIT_MS)

    assert len(machine.calls) == 1


def test_a_call_far_away_is_made_when_its_millisecond_is_over_and_not_before() -> None:
    machine = Machine()
    at = machine.wall_ms + 3 * LONGEST_WAIT_MS + 17
    machine.call_at(at)
    machine.pass_time(4 * LONGEST_WAIT_MS)
    assert machine.calls == [at + 1]


def test_a_call_far_away_can_be_called_off_at_any_time() -> None:
    machine = Machine()
    alarms = []
    machine.loop.run(
        lambda: alarms.append(machine.clock.call_at(machine.wall_ms + 9000, lambda: machine.calls.append(0)))
    )
    machine.pass_time(5000)
    alarms[0].cancel()
    machine.pass_time(10_000)
    assert machine.calls == []


def test_a_wall_clock_set_back_and_put_right_leaves_engine_time_where_it_is() -> None:
    """Set back by a day and corrected, it must not be a day ahead: everything planned for that day would happen."""
    machine = Machine()
    began = machine.clock.now()
    machine.wall_ms -= 86_400_000
    seen = [machine.clock.now()]
    machine.pass_time(5000)
    seen.append(machine.clock.now())
    machine.wall_ms += 86_400_000
    seen.append(machine.clock.now())
    machine.pass_time(1)
    seen.append(machine.clock.now())
    assert seen == [began, began + 5000, began + 5000, began + 5001]


def test_engine_time_follows_the_wall_again_once_that_has_caught_up() -> None:
    machine = Machine()
    began = machine.clock.now()
    machine.wall_ms -= 1000
    machine.pass_time(400)
    assert machine.clock.now() == began
    machine.pass_time(1)
    assert machine.clock.now() == began + 1
    machine.wall_ms += 5000
    assert machine.clock.now() == began + 4401


@activity
async def ticked() -> str:
    return "tick"


@workflow
async def ticks_once() -> str:
    return await ticked()


async def test_nothing_happens_to_a_run_before_it_was_started_though_its_workers_clock_is_behind(
    tmp_path: Path,
) -> None:
    """A history that begins with its end makes no sense to anybody."""
    path, ahead = str(tmp_path / "behind.db"), VirtualClock()
    async with Environment(path, clock=ahead, worker=False) as sender:
        await sender.app.start(ticks_once.options(id="ahead"))
    async with Environment(path, clock=VirtualClock(ahead.now() - 3_600_000)) as worker:
        # By its own clock the run is not ripe yet; somebody who writes to it makes it so.
        await (await worker.app.get("ahead")).signal("wake up", "now")
        await worker.pass_time(1)
        events = await worker.events("ahead")
    assert [event.kind for event in events] == ["RunStarted", "ActivityCompleted", "RunCompleted"]
    assert [event.at for event in events] == sorted(event.at for event in events)
