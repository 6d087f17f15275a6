"""Requests that schemathesis makes from our own openapi.json, good and bad ones, and what each answer must be like."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.transport import Response
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from perdure import Signal, expose, workflow
from perdure.testing import Environment
from tests.server.in_process import Answer, Caller
from tests.server.keyed import caller_with, key_for

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
BASE = "http://localhost"
fuzzed = Signal("fuzzed", int)


@workflow
async def fuzz_flow(number: int = 0) -> int:
    expose("number", lambda: number)
    return number + await fuzzed.receive()


class Fuzzing:
    """A server with something in it, and requests to it one after the other."""

    def __init__(self, runner: asyncio.Runner, env: Environment, call: Caller, known: dict[str, list[Any]]) -> None:
        self._runner = runner
        self._env = env
        self._call = call
        self._known = known
        self.count = 0
        self.statuses: Counter[int] = Counter()

    def document(self) -> Any:
        return self._runner.run(self._call.get("/openapi.json")).json

    def run(self, cases: int, first_seed: int = 0) -> None:
        """So many cases, the same number of each operation; what an answer must not be raises."""
        schema = schemathesis.openapi.from_dict(self.document())
        operations = [cast("Any", found).ok() for found in schema.get_all_operations()]
        for number, operation in enumerate(operations):
            each = max(1, cases // (2 * len(operations)))
            for mode in GenerationMode:
                try:
                    self._try(operation.as_strategy(mode), each, first_seed + number)
                except Unsatisfiable:
                    # A route that takes nothing can be given nothing wrong.
                    continue
                except Exception as error:
                    error.add_note(f"{mode}: {operation.label}")
                    raise

    def _try(self, cases: st.SearchStrategy[Case[Any]], count: int, first: int) -> None:
        @seed(first)
        @settings(
            max_examples=count,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=cases, is_known=st.booleans())
        def one(case: Case[Any], is_known: bool) -> None:
            self._ask(case, is_known=is_known)

        one()

    def _ask(self, case: Case[Any], *, is_known: bool) -> None:
        for told in (case.path_parameters, case.body) if is_known else ():
            if isinstance(told, dict):
                # What is there: most texts that are made up lead to no more than a 404.
                draw = random.Random(self.count)
                told |= {name: draw.choice(self._known[name]) for name in told if name in self._known}
        words = case.as_transport_kwargs(base_url=BASE)
        words = {name: words[name] for name in ("method", "url", "headers", "params", "data", "json") if name in words}
        request = requests.Request(**words).prepare()
        self.count += 1
        answer = self._runner.run(self._answer(request))
        self.statuses[answer.status] += 1
        headers = {name: [value] for name, value in answer.headers.items()}
        response = Response(answer.status, headers, answer.body, request, 0.0, verify=False)
        case.validate_response(response, checks=CHECKS)

    async def _answer(self, request: requests.PreparedRequest) -> Answer:
        body = request.body.encode() if isinstance(request.body, str) else cast("bytes", request.body or b"")
        kind = request.headers.get("content-type")
        headers = {} if kind is None else {"content-type": str(kind)}
        return await self._call(str(request.method), request.path_url, raw=body, **headers)


@contextmanager
def fuzzing(path: Path) -> Iterator[Fuzzing]:
    """A server over a database with runs, a schedule, a worker and a key."""
    with asyncio.Runner() as runner:
        env = Environment(str(path / "test.db"))
        runner.run(env.__aenter__())
        try:
            call, known = runner.run(_filled(env))
            yield Fuzzing(runner, env, call, known)
        finally:
            runner.run(env.__aexit__(None, None, None))


async def _filled(env: Environment) -> tuple[Caller, dict[str, list[Any]]]:
    call = caller_with(env, await key_for(env))
    for id in ("open", "o/17", "done"):
        assert (await call.post("/v1/runs", {"workflow": "fuzz_flow", "id": id})).status == 201
    await env.settle()
    await call.post("/v1/runs/done/signals", {"name": "fuzzed", "payload": 1})
    when = {"type": "cron", "expression": "0 3 * * *"}
    body = {"name": "nightly", "call": {"workflow": "fuzz_flow"}, "when": when}
    assert (await call.post("/v1/schedules", body)).status == 201
    worker = (await call.post("/v1/workers", {"name": "w", "queues": ["q"], "workflows": {"fuzz_flow": {}}})).json
    await env.settle()
    known = {
        "id": ["open", "o/17", "done", "-"],
        "name": ["nightly", "number", "main", "fuzzed"],
        "worker_id": [worker["worker_id"]],
        "epoch": [worker["epoch"]],
        "workflow": ["fuzz_flow"],
        "where": ["status = 'pending'", "status != 'completed'"],
    }
    return call, known
