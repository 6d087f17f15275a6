"""`perdure fork`: go on from a point of a run, in a new run under its id or another one."""

import asyncio
from typing import Annotated

import msgspec
import typer

from perdure.cli.input.database import client, found
from perdure.cli.input.options import DEFAULT_NAMESPACE, DEFAULT_URL, AsJson, Key, Namespace, Reason, RunName, Url
from perdure.cli.input.values import json_given
from perdure.cli.output.errors import Mistake
from perdure.cli.output.forked import print_forked
from perdure.cli.output.unworked import warn_if_nobody_works
from perdure.views.run import RunInfo

EXAMPLES = {
    "fork": """\
perdure fork o-17 --at charge --result 'charge="receipt-by-hand"' --reason "paid by phone"
perdure fork o-17 --at 17 --id o-17-trial --input '{"cents": 100}'"""
}

At = Annotated[
    str,
    typer.Option("--at", metavar="SEQ|PLACE", help="The last event to keep, or the place to go on before."),
]
Id = Annotated[str | None, typer.Option("--id", metavar="ID", help="Another id; an open run keeps its own.")]
Input = Annotated[
    str | None,
    typer.Option("--input", metavar="JSON", help="Arguments by name, in place of those of the run; @file, or -."),
]
Results = Annotated[
    list[str] | None,
    typer.Option("--result", metavar="PLACE=JSON", help="The result of the call that waits at this place."),
]


def fork(
    name: RunName,
    *,
    at: At,
    id: Id = None,
    input: Input = None,
    result: Results = None,
    reason: Reason = None,
    key: Key = None,
    url: Url = DEFAULT_URL,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Go on from a point of a run, in another run."""
    point = int(at) if at.isdecimal() else at
    arguments = None if input is None else _arguments(input)
    results = dict(_result(word) for word in result or ())

    async def request() -> RunInfo:
        async with client(url, namespace) as app:
            run = await found(app, name, key)
            made = await run.fork(point, id=id, input=arguments, results=results, reason=reason)
            return await made.describe()

    info = asyncio.run(request())
    print_forked(info, "forked", as_json=as_json)
    asyncio.run(warn_if_nobody_works(url, info))


def _arguments(given: str) -> dict[str, object]:
    arguments = msgspec.json.decode(json_given(given, "--input", """'{"cents": 100}'"""))
    if not isinstance(arguments, dict):
        raise Mistake("""--input takes arguments by name; for example: --input '{"cents": 100}'""")
    return arguments


def _result(word: str) -> tuple[str, object]:
    """A place and the value behind it; the place of a call with a key may hold the sign as well."""
    place, is_there, value = word.partition(")=" if ")=" in word else "=")
    place += is_there[:-1]
    if not is_there or not place:
        raise Mistake(f"""--result takes PLACE=JSON, not {word!r}; for example: --result 'charge="receipt"'""")
    return place, msgspec.json.decode(json_given(value, f"the result of {place}", """'charge="receipt"'"""))
