"""Views become JSON without help: in FastAPI, which asks pydantic, and wherever a dict is wanted."""

import json
from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter

from perdure import FailedAttempt, Page, Retry, RunEvent, RunInfo, Signal, UnreadMessage, activity, workflow
from perdure.testing import Environment

shown = Signal("shown", list[int])


@activity(retry=Retry(max_attempts=3, initial_interval=3600))
async def cannot_be_shown(times: int = 1) -> int:
    raise ValueError(times)


@workflow
async def to_be_shown(text: str) -> int:
    return await cannot_be_shown()


async def views(env: Environment) -> dict[Any, Any]:
    """One view of each kind, of a run in the middle of its work, by its type."""
    async with env:
        run = await env.start(to_be_shown.options(id="seen", attributes={"tier": 1}), "x")
        await run.signal(shown, [1, 2])
        await env.pass_time(60)
        return {
            RunInfo: await run.describe(),
            Page: await env.app.list(),
            list[RunEvent]: [event async for event in run.events()],
            list[FailedAttempt]: await run.attempts(),
            list[UnreadMessage]: await run.unread(),
        }


async def test_views_are_json_where_pydantic_writes_them(env: Environment) -> None:
    """FastAPI does so, and describes them in its schema: `return await run.describe()` is all there is to write."""
    for kind, view in (await views(env)).items():
        adapter: TypeAdapter[Any] = TypeAdapter(kind)
        assert json.loads(adapter.dump_json(view))
        assert adapter.json_schema()


async def test_views_are_dicts_of_plain_values_where_those_are_wanted(env: Environment) -> None:
    """`JsonResponse(info.to_dict())` in Django, `json.dumps` anywhere."""
    for view in (await views(env)).values():
        for each in view if isinstance(view, list) else [view]:
            assert json.loads(json.dumps(each.to_dict())) == json.loads(
                json.dumps(asdict(each), default=moment_as_text)
            )


def moment_as_text(moment: Any) -> str:
    return str(moment.isoformat()).replace("+00:00", "Z")


async def test_a_view_says_as_json_what_it_says(env: Environment) -> None:
    seen = await views(env)
    told = seen[RunInfo].to_dict()
    assert (told["workflow_id"], told["status"], told["attributes"]) == ("seen", "SUSPENDED", {"tier": 1})
    assert [wait["kind"] for wait in told["waiting_for"]] == ["activity"]
    page = seen[Page].to_dict()
    assert ([run["run_id"] for run in page["runs"]], page["cursor"], page["errors"]) == ([told["run_id"]], None, [])
