"""No request that can be made from openapi.json is answered by a 5xx, or by something that is not in it."""

import os
from pathlib import Path

import pytest

from perdure.http.handlers import messages, runs
from perdure.http.handlers.worker_protocol import tasks
from tests.server.fuzzing import fuzzing

CASES = int(os.environ.get("PERDURE_HTTP_CASES", "2400"))


def test_every_answer_is_one_of_the_schema(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two thousand requests, good ones and bad ones; `make fuzz-http` asks fifty thousand."""
    for each in (messages, runs, tasks):
        monkeypatch.setattr(each, "LONGEST_WAIT", 0.01)
    with fuzzing(quick_path) as server:
        server.run(CASES)
        assert server.count >= CASES * 0.6
        # All of it was reached, not the check of requests alone.
        assert min(server.statuses[status] for status in (200, 201, 404, 409, 422)) > 0
        print(server.count, server.statuses)
