"""Commands behind PgBouncer in transaction mode, one that refuses the settings of connections or swallows them."""

from collections.abc import Iterator
from itertools import count

import pytest

from tests.cli.shell import Shell
from tests.postgres import poolers
from tools import servers

SWALLOWS = """
ignore_startup_parameters = default_transaction_isolation,default_transaction_read_only,\
idle_in_transaction_session_timeout,lock_timeout,jit
"""
_schemas = count()


@pytest.fixture(scope="module", params=["refuses", "swallows"])
def pooler(request: pytest.FixtureRequest, postgres: str) -> Iterator[str]:
    if poolers.PROGRAM is None:
        pytest.skip("pgbouncer is not installed")
    more = SWALLOWS.replace("\\\n", "") if request.param == "swallows" else ""
    pooler = poolers.Pooler(postgres, servers.folder(), more).start()
    try:
        yield pooler.url
    finally:
        pooler.end()


def test_commands_work_behind_a_pooler(shell: Shell, pooler: str) -> None:
    """Each is a process of its own, which gets the connections that others have left."""
    url = f"{pooler}?schema=pooled_{next(_schemas)}"
    assert shell("migrate", PERDURE_URL=url).json == {"from": 0, "to": 1}
    with shell.at_work(PERDURE_URL=url):
        for number in range(3):
            done = shell("start", "shop:checkout", '["o"]', "--id", f"o-{number}", PERDURE_URL=url)
            assert (done.code, done.err) == (0, "")
            assert shell("signal", f"o-{number}", "approved", "true", PERDURE_URL=url).code == 0
            assert shell("wait", f"o-{number}", PERDURE_URL=url).json["ok"] is True
        looked = shell("doctor", PERDURE_URL=url).json
        found = {check["check"]: check for check in looked["checks"]}
        assert found["workers"]["found"].startswith("1 worker alive")
        assert "a pooler is in between" in found["notify"]["found"]
        assert "worker" not in found
        assert shell("audit", PERDURE_URL=url).json["ok"]
