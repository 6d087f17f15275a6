"""Plans: which faults strike a schedule, after which steps.

In:   a tape.
Out:  faults in their order, each for a node by its number; which queues each node works.

Most faults fall anywhere. But some bugs need several that fit together, such as one process that is stopped
with a commit on its way while another one takes its runs and is struck in the middle of that. Chance alone
hardly ever draws these, so some schedules are built around such a scene.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tests.simulation.programs import FAR, NEAR
from tests.simulation.simulator import AT_COMMIT, Fault, Moment, Tape

KINDS = tuple(fault for fault in Fault if fault is not Fault.CRASH_LOOP)
# Those by which no worker is lost, so that no run comes closer to being held.
HARMLESS = (
    Fault.REFUSED,
    Fault.LOST_ANSWER,
    Fault.LOST_COMMIT,
    Fault.SLOW_DISK,
    Fault.LOST_HINTS,
    Fault.CLOCK_BACK,
    Fault.CLOCK_FORWARD,
)
# What happens to whoever takes over from a process that comes back.
TO_A_RESCUER = (Fault.CRASH_AFTER, Fault.FREEZE, Fault.LOST_ANSWER, Fault.FREEZE_AT, Fault.CRASH_IN)


Queues = tuple[str, ...]
BOTH, NEAR_ONLY, FAR_ONLY = (NEAR, FAR), (NEAR,), (FAR,)
# Who works which queues; by how many there are. Each queue is worked by somebody, or nothing would ever end.
LAYOUTS: dict[int, tuple[tuple[Queues, ...], ...]] = {
    1: ((BOTH,),),
    2: ((BOTH, BOTH), (BOTH, BOTH), (BOTH, FAR_ONLY), (NEAR_ONLY, FAR_ONLY)),
    3: (
        (BOTH, BOTH, BOTH),
        (BOTH, BOTH, FAR_ONLY),
        (NEAR_ONLY, NEAR_ONLY, FAR_ONLY),
        (BOTH, NEAR_ONLY, FAR_ONLY),
        (NEAR_ONLY, FAR_ONLY, FAR_ONLY),
    ),
}


class Planned(NamedTuple):
    """A fault that strikes a node after so many steps, with a commit of that moment if it is one of those."""

    after_step: int
    fault: Fault
    number: int
    moment: Moment


class Plan(NamedTuple):
    """What is in store for a schedule; of the nodes, the first so many are servers, and the others work over them."""

    nodes: tuple[Queues, ...]
    faults: list[Planned]
    servers: int = 0
    # Whether servers are workers as well, and how many of a thousand requests to them meet with a mishap.
    serve_only: bool = False
    mishaps: int = 0


def drawn(tape: Tape) -> Plan:
    """A plan: anything anywhere, and now and then a scene."""
    match tape.choose(12):
        case 1 | 2:
            nodes, faults = tape.between(2, 3), _zombie(tape) + _some(tape, 1, 3, KINDS)
        case 3 | 4:
            nodes, faults = tape.one_of(1, 1, 2), _crash_loop(tape) + _some(tape, 0, 2, HARMLESS)
        case 5:
            nodes, faults = tape.between(1, 3), _with_rows(tape) + _some(tape, 1, 3, KINDS)
        case _:
            nodes, faults = tape.between(1, 3), _some(tape, 2, 7, KINDS)
    return Plan(tape.one_of(*LAYOUTS[nodes]), sorted(faults, key=lambda planned: planned.after_step))


def drawn_over_http(tape: Tape) -> Plan:
    """One or two servers, and one or two processes over them, which may be stopped with a request on its way."""
    servers, workers = tape.one_of(1, 2, 2), tape.one_of(1, 2, 2)
    faults = _some(tape, 1, 5, KINDS)
    if tape.choose(2) == 1:
        after_step, number = 20 + tape.choose(200), servers + tape.choose(workers)
        faults.append(Planned(after_step, Fault.FREEZE_AT, number, Moment.ANY))
    # The clocks of servers are less than a second apart; those of who works over them do not matter.
    clocks = {Fault.CLOCK_BACK, Fault.CLOCK_FORWARD}
    faults = [each._replace(number=servers) if each.fault in clocks else each for each in faults]
    faults.sort(key=lambda planned: planned.after_step)
    serve_only, mishaps = tape.choose(2) == 1, tape.one_of(0, 30, 100)
    return Plan((BOTH,) * (servers + workers), faults, servers, serve_only, mishaps)


def _some(tape: Tape, fewest: int, most: int, kinds: Sequence[Fault]) -> list[Planned]:
    return [_anything(tape, kinds) for _ in range(tape.between(fewest, most))]


def _anything(tape: Tape, kinds: Sequence[Fault]) -> Planned:
    after_step, fault, number = 10 + tape.choose(350), tape.one_of(*kinds), tape.choose(3)
    return Planned(after_step, fault, number, _moment(tape) if fault in AT_COMMIT else Moment.ANY)


def _moment(tape: Tape) -> Moment:
    return Moment.ANY if tape.choose(3) != 1 else tape.one_of(*Moment)


def _zombie(tape: Tape) -> list[Planned]:
    """A process is stopped with a commit on its way; whoever takes its runs is struck while it does."""
    after_step, number = 20 + tape.choose(150), tape.choose(3)
    scene = [Planned(after_step, Fault.FREEZE_AT, number, tape.one_of(Moment.ANY, Moment.PARK, Moment.END))]
    if tape.choose(2) == 1:
        fault = tape.one_of(*TO_A_RESCUER)
        scene.append(Planned(after_step + 1, fault, number + 1, Moment.TAKEOVER))
    return scene


def _with_rows(tape: Tape) -> list[Planned]:
    """Processes are struck with a commit that has the rows of an activity in it."""
    first, faults = 20 + tape.choose(100), [fault for fault in Fault if fault in AT_COMMIT]
    return [Planned(first + n, tape.one_of(*faults), n, Moment.CODE) for n in range(3)]


def _crash_loop(tape: Tape) -> list[Planned]:
    """A process dies again and again, with little else: one death more would be held against its runs."""
    return [Planned(20 + tape.choose(60), Fault.CRASH_LOOP, tape.choose(3), Moment.ANY)]
