"""Verdicts on a node that worked through runs while its disk failed."""

from tests.processes.node import REFUSED
from tests.processes.nodes import Node, until
from tests.processes.sites import Site, steps


async def check_typed(node: Node) -> str:
    """Callers got answers or errors of ours; a node that could not open said so."""
    assert node.heard("raw") == []
    assert node.heard("hung") == []
    assert {refusal.split(" ")[-1] for refusal in node.heard("refused")} <= {"StoreUnavailable"}
    if not node.is_running():
        assert await node.ends() == REFUSED, node.log.read_text()
        return "refused to open"
    return "went on"


async def check_clean_start(site: Site, node: Node) -> None:
    """The next process opens the file, finds all that was acknowledged, and ends it."""
    started = set(node.heard("started"))
    heir = await site.worker()
    await until(lambda: site.open_runs() == 0, "all runs end")
    assert await heir.leave() == 0
    outcomes = site.outcomes()
    assert started <= outcomes.keys()
    assert outcomes == {key: ("COMPLETED", steps(key)) for key in outcomes}
    # What was refused may be there or not; what was neither said nor refused must be the last one.
    assert len(outcomes.keys() - started - {line.split(" ")[0] for line in node.heard("refused")}) <= 1
    assert node.troubles() == [], node.log.read_text()
    site.check()
