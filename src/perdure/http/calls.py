"""A call of a route: who calls, what about, with what; checked before a handler sees it.

In:   the parts of a request.
Out:  query and body as the structs of the route; the run that the path names, if this caller may see it.
"""

import asyncio
import copy
import re
from collections.abc import Awaitable, Callable, Hashable, Mapping
from functools import cache
from typing import Any, Generic, TypeVar, cast
from urllib.parse import parse_qsl

import msgspec

from perdure.engine.ports import Engine
from perdure.errors import BadField, BadJson, NotAuthenticated, RunNotFound
from perdure.http.access import AsgiScope, Caller
from perdure.http.callers.authentication import KeyAuthentication
from perdure.http.catalog import Catalog
from perdure.http.server_stop import ServerStop
from perdure.http.table import Route
from perdure.ids import checked_id
from perdure.stores.records import RunRow

Q = TypeVar("Q")
B = TypeVar("B")

# In the place of an id, where a proxy spoils slashes: `?run_id=` says which run is meant.
ANY_ID = "-"


class Service(msgspec.Struct):
    """What the routes of a server work with."""

    engine: Engine
    catalog: Catalog
    stopping: ServerStop
    # Where keys of the database are what callers show.
    authentication: KeyAuthentication | None = None
    routes: tuple[Route, ...] = ()


class Call(Generic[Q, B]):
    """One call of a route, checked."""

    __slots__ = (
        "body",
        "caller",
        "gone",
        "headers",
        "namespace",
        "path",
        "query",
        "request_id",
        "run_id",
        "scope",
        "service",
    )

    def __init__(
        self,
        service: Service,
        caller: Caller,
        namespace: str,
        path: Mapping[str, str],
        query: Q,
        body: B,
        run_id: str | None,
        headers: Mapping[str, str],
        request_id: str,
        scope: AsgiScope,
        gone: Callable[[], Awaitable[None]],
    ) -> None:
        self.service = service
        self.caller = caller
        self.namespace = namespace
        self.path = path
        self.query = query
        self.body = body
        self.run_id = run_id
        self.headers = headers
        self.request_id = request_id
        self.scope = scope
        # Waits until the caller has gone.
        self.gone = gone

    async def unless_gone(self, waiting: Awaitable[bool], seconds: float) -> bool:
        """Wait for something, for so long at most; whether it has come, and the caller is still there.

        NotAuthenticated when the caller's key was revoked meanwhile.
        """
        gone = asyncio.ensure_future(self.gone())
        wanted = asyncio.ensure_future(waiting)
        try:
            await self.service.stopping.within(asyncio.wait({gone, wanted}, return_when="FIRST_COMPLETED"), seconds)
            await self.check_key()
            return wanted.done() and wanted.result() and not gone.done()
        finally:
            for task in (gone, wanted):
                task.cancel()
            await asyncio.gather(gone, wanted, return_exceptions=True)

    async def check_key(self) -> None:
        """NotAuthenticated when the caller's key is good no more: who waits for long is not answered as if it were."""
        key_id = self.caller.key_id
        if key_id is not None and await self.engine.access_keys.good(key_id) is None:
            raise NotAuthenticated

    def over(self, engine: Engine) -> "Call[Q, B]":
        """The same call, of another engine."""
        twin = copy.copy(self)
        twin.service = msgspec.structs.replace(self.service, engine=engine)
        return twin

    @property
    def engine(self) -> Engine:
        return self.service.engine

    async def run(self) -> RunRow:
        """The run that the path names; RunNotFound as well when the caller may not see it."""
        id = self.path["id"]
        if self.run_id is None:
            row = await self.engine.reader.find(self.namespace, checked_id("workflow id", id))
        else:
            row = await self.engine.reader.read(self.namespace, checked_id("run id", self.run_id))
        if (self.run_id is not None and id not in {ANY_ID, row.workflow_id}) or not self.may_see(row):
            # What was asked for, as if it were not there: the words must not tell another's run from none.
            raise RunNotFound(self.run_id or id, self.namespace)
        return row

    def may_see(self, row: RunRow) -> bool:
        """Whether the caller may see a run; one of an entity sees its own alone."""
        return self.caller.entity_id is None or row.entity_id == self.caller.entity_id


def common_of(route: Route) -> tuple[str, ...]:
    """The parameters that a route takes besides its own: the exact run where the path names one."""
    if not route.has_namespace:
        return ()
    return ("namespace", "run_id") if "id" in route.parameters else ("namespace",)


def query_of(text: bytes, route: Route) -> tuple[Any, str | None, str | None]:
    """The parameters of a route, the namespace and the exact run that are named; BadField."""
    kind: Any = route.query
    if not text and (none := _none_given(cast("Hashable", kind))) is not None:
        return none, None, None
    given: dict[str, Any] = {}
    for name, value in parse_qsl(text.decode("latin-1"), keep_blank_values=True):
        check_text("the query", value)
        given.setdefault(name, []).append(value)
    beside = {name: given.pop(name)[-1] for name in common_of(route) if name in given}
    lists = _lists_of(cast("Hashable", kind))
    plain = {name: values if name in lists else values[-1] for name, values in given.items()}
    try:
        query = msgspec.convert(plain, kind, strict=False)
    except msgspec.ValidationError as error:
        raise BadField("the query", _trouble(error, kind)) from None
    check_numbers(query, "the query")
    return query, beside.get("namespace"), beside.get("run_id")


@cache
def _none_given(kind: Hashable) -> object:
    """The parameters of a route without any; None where some are needed."""
    try:
        return msgspec.convert({}, cast("Any", kind))
    except msgspec.ValidationError:
        return None


@cache
def _lists_of(kind: Any) -> frozenset[str]:
    """The parameters that may be given again and again; looked up once, since that takes longer than all the rest."""
    return frozenset(field.name for field in msgspec.structs.fields(kind) if "tuple" in str(field.type))


def check_text(where: str, text: str) -> None:
    """BadField for a text that no database has room for."""
    if "\0" in text:
        raise BadField(where, "it has a zero byte (%00)")


def body_of(data: bytes, kind: type[B]) -> B:
    """The body of a request; BadJson or BadField."""
    try:
        body = msgspec.json.decode(data or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise BadField("the body", _trouble(error, kind)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadJson(str(error)) from None
    except RecursionError:
        raise BadJson("it is nested too deeply") from None
    if MAY_BE_LARGE.search(data):
        check_numbers(body, "the body")
    return body


def _trouble(error: msgspec.ValidationError, kind: Any) -> str:
    """What is wrong with a field, and which texts it takes where those are few."""
    named = re.search(r"^Invalid enum value .* - at `\$\.(\w+)`$", str(error))
    texts = [] if named is None else next(f.type for f in msgspec.structs.fields(kind) if f.name == named[1]).__args__
    return f"{error}, which is one of {', '.join(map(repr, texts))}" if texts else str(error)


# What JavaScript can count to; databases have room for more.
LARGEST_NUMBER = 2**53 - 1
# Without so many digits, or an exponent, no number of a body is larger; to look at each takes much longer.
MAY_BE_LARGE = re.compile(rb"\d{16}|\d[eE]")


def frame_number(given: str) -> int:
    """The number of the last frame that a caller has seen, as `Last-Event-ID` has it; BadField."""
    # So many digits first: to read a text of thousands is refused by Python itself.
    if not (given.isascii() and given.isdigit() and len(given) <= len(str(LARGEST_NUMBER))):
        raise BadField("the header Last-Event-ID", f"{given[:20]!r} is no number of a frame of this stream")
    return min(int(given), LARGEST_NUMBER)


# A request may have thousands of values: most are seen to hold no others at once.
PLAIN = frozenset({str, int, float, bool, type(None), msgspec.Raw})
NESTED = (msgspec.Struct, list, tuple)


def check_numbers(given: object, where: str) -> None:
    """BadField for a whole number that no database has room for, wherever it stands in a struct."""
    if isinstance(given, msgspec.Struct):
        for name in given.__struct_fields__:
            value = getattr(given, name)
            kind = type(value)
            if kind is int and abs(value) > LARGEST_NUMBER:
                raise BadField(where, f"{name} is {value}; the largest number is {LARGEST_NUMBER}")
            if kind not in PLAIN and isinstance(value, NESTED):
                check_numbers(value, where)
    elif isinstance(given, list | tuple):
        for each in given:
            check_numbers(each, where)
