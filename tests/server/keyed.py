"""Callers who show a key."""

from typing import Any

from perdure.app.internals import engine_of
from perdure.engine.ports import KeyRequest
from perdure.http.access import ROLES
from perdure.testing import Environment
from tests.server.in_process import Caller


async def key_for(env: Environment, **rights: Any) -> str:
    engine = engine_of(env.app)
    assert engine is not None
    scopes = tuple(sorted(ROLES[rights.pop("role", "admin")]))
    return (await engine.access_keys.create(KeyRequest("test", scopes, **rights))).key


def caller_with(env: Environment, key: str) -> Caller:
    return Caller(env.app.asgi(), authorization=f"Bearer {key}")
