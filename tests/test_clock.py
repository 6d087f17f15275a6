"""Time: a millisecond is over only when it is."""

import asyncio
import random
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import pytest

from perdure import Retry, RunCancelled, RunTimedOut, activity, attempt, continue_as_new, sleep, workflow
from perdure.clock import DRIFT, LONGEST_WAIT_MS, SharedClock, SystemClock, ToldTime
from perdure.testing import Environment, VirtualClock
from tests.simulation.simulator.loop import NodeLoop


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


MS = 1_000_000
FIRST_NS = 1_800_000_000_000 * MS


class Host:
    """A process on a machine of its own, whose clock nobody sets runs a little too fast or too slow."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._rate = 1 + chance.uniform(-0.9, 0.9) / DRIFT
        self.real_ns = 0
        self._time = ToldTime(self._steady_ns)
        self.clock = SharedClock(self._time, self._steady_ns)
        self.ask(0)

    def _steady_ns(self) -> int:
        return round(self.real_ns * self._rate)

    def ask(self, at_ns: int) -> None:
        """Ask the server for its time: either way over the network may take long, and so may the answer to be read."""
        self.real_ns = at_ns
        asked_ns = self._steady_ns()
        there, back = (self._chance.choice((20_000, MS, 60 * MS)) * self._chance.random() for _ in "ab")
        said_us = (FIRST_NS + at_ns + round(there)) // 1000
        self.real_ns += round(there + back)
        self._time.tell(said_us * 1000, asked_ns)


class SetTimer(NamedTuple):
    """A timer, and when it was really set."""

    fire_at: int
    set_ns: int
    ms: int


def test_of_a_hundred_thousand_timers_none_is_early_though_the_servers_answers_are_late() -> None:
    """A worker that knew the time badly sets a timer, one that knows it well fires it, in another process or the same.

    By the time since the answer alone the first is behind by as long as its answer was on its way, and the second is
    not: the timer would be that much too short. Counted from the latest that it may be and fired at the earliest, it
    lasts as long as it should, by the server's clock.
    """
    chance = random.Random(8)
    hosts = [Host(chance) for _ in range(20)]
    early, waits_ns = 0, []
    now_ns = max(host.real_ns for host in hosts)
    for number in range(100_000):
        setter, firer, asker = (chance.choice(hosts) for _ in range(3))
        asker.ask(now_ns)
        now_ns = setter.real_ns = asker.real_ns + round(chance.expovariate(1 / MS))
        timer = SetTimer(setter.clock.latest() + (ms := chance.randrange(1, 1000)), now_ns, ms)
        due_ns = now_ns + ms * MS
        if chance.random() < 0.2:
            firer.ask(now_ns + chance.randrange(ms * MS))
        # Some answers come when the timer is over already.
        firer.real_ns = max(firer.real_ns, due_ns - 1)
        early += firer.real_ns < due_ns and firer.clock.is_over(timer.fire_at)
        if number % 10 == 0:
            waits_ns.append(_until_over(firer, timer) - due_ns)
        now_ns = max(now_ns, firer.real_ns)

    assert early == 0
    # And they are not late for it by more than what is not known of the time.
    assert sorted(waits_ns)[len(waits_ns) // 2] < 5 * MS


def _until_over(host: Host, timer: SetTimer) -> int:
    while not host.clock.is_over(timer.fire_at):
        host.real_ns += 100_000
    return host.real_ns


def test_engine_time_is_never_ahead_of_the_server_and_its_latest_never_behind() -> None:
    """Neither when an answer took long, nor a while after it, nor by a rounded millisecond."""
    chance = random.Random(9)
    host = Host(chance)
    for _ in range(20_000):
        if chance.random() < 0.3:
            host.ask(host.real_ns)
        host.real_ns += round(chance.expovariate(1 / (20 * MS)))
        server_ms = (FIRST_NS + host.real_ns) // MS
        assert host.clock.now() <= server_ms <= host.clock.latest()


def test_a_server_whose_clock_was_set_is_followed() -> None:
    """What it said before does not fit to what it says now, and only that counts; back, engine time does not go."""
    steady = [0]
    time = ToldTime(lambda: steady[0])
    clock = SharedClock(time, lambda: steady[0])
    for hour, seen in ((1, 1), (2, 2), (0, 2)):
        time.tell(FIRST_NS + hour * 3_600_000 * MS, steady[0])
        now, latest = clock.now(), clock.latest()
        assert now == FIRST_NS // MS + seen * 3_600_000 - 1
        assert latest == now + (hour == seen)


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
        await worker.pass_time(1)
        events = await worker.events("ahead")
    assert [event.kind for event in events] == ["RunStarted", "ActivityCompleted", "RunCompleted"]
    assert [event.at for event in events] == sorted(event.at for event in events)


UNSURE_MS = 60


class UnsureClock(VirtualClock):
    """A clock that may be behind that of the database's server, by so much at most."""

    def latest(self) -> int:
        return self.now() + UNSURE_MS


@activity(retry=Retry(initial_interval=1))
async def ticks_the_second_time() -> None:
    if attempt().number == 1:
        raise ValueError("not yet")


@workflow
async def takes_a_second(how: str) -> None:
    match how:
        case "a timer":
            await sleep(1)
        case "a timer after another":
            await sleep(1)
            await sleep(1)
        case "a timer of a child":
            await takes_a_second("a timer")
        case "a timer of a successor":
            continue_as_new("a timer")
        case "another attempt":
            await ticks_the_second_time()
        case "a timeout":
            await asyncio.Event().wait()


@workflow
async def cleans_up_for_too_long() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        await sleep(3600)


@pytest.mark.parametrize(
    "how",
    [
        *("a timer", "a timer after another", "a timer of a child", "a timer of a successor"),
        *("another attempt", "a delay", "a timeout"),
    ],
)
async def test_whatever_lasts_is_counted_from_the_latest_that_it_may_be(env: Environment, how: str) -> None:
    """Whoever ends it may know the time better, and would end it too early."""
    env.clock = UnsureClock()
    options = {"a delay": takes_a_second.options(delay=1), "a timeout": takes_a_second.options(timeout=1)}
    async with env:
        began = env.clock.now()
        run = await env.start(options.get(how, takes_a_second), how)
        with pytest.raises(RunTimedOut) if how == "a timeout" else nullcontext():
            await env.result(run)
        times = 2 if how == "a timer after another" else 1
        assert env.clock.now() - began == times * (1000 + UNSURE_MS)


async def test_a_deadline_is_counted_from_the_latest_that_it_may_be(env: Environment) -> None:
    """As all that lasts: clean-up gets the time that it was given."""
    env.clock = UnsureClock()
    async with env:
        run = await env.start(cleans_up_for_too_long)
        await env.settle()
        began = env.clock.now()
        await run.cancel("enough", deadline=1)
        with pytest.raises(RunCancelled):
            await env.result(run)
        assert env.clock.now() - began == 1000 + UNSURE_MS
