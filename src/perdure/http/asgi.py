"""The application: one ASGI callable that finds the route, checks the caller, and answers.

In:   requests as ASGI gives them, from any server or mounted in another application.
Out:  JSON, problems, frames of streams. No input gives an answer above 499, and none shows a traceback.
Knows nothing of what the routes do; the handlers do that.
"""

import asyncio
import hashlib
import itertools
import logging
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias
from urllib.parse import unquote

import msgspec

from perdure.errors import (
    BadContentType,
    BadField,
    BadOption,
    BodyTooLarge,
    HeadersTooLarge,
    MethodNotAllowed,
    NotAuthenticated,
    NotOpen,
    PerdureError,
    RouteNotFound,
    StoreError,
    StoreUnavailable,
)
from perdure.http import idempotency, problems
from perdure.http.access import (
    ANYBODY,
    AsgiScope,
    Authenticate,
    AuthenticateBroke,
    Caller,
    check_scope,
    namespace_for,
)
from perdure.http.calls import Call, Service, body_of, check_text, query_of
from perdure.http.mounting.paths import located
from perdure.http.policy import Policy
from perdure.http.routes import ROUTES
from perdure.http.streaming import sse, websocket
from perdure.http.streaming.streams import OpenStreams
from perdure.http.table import Reply, Route, Scope, Tree

log = logging.getLogger("perdure.http")
access_log = logging.getLogger("perdure.access")

Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

# A sender that takes longer for its body is cut.
BODY_SECONDS = 30.0
NOT_MODIFIED = 304
SWITCHED = 101
# The code of a WebSocket that is closed while the engine is not open.
TRY_AGAIN_LATER = 1013
LARGEST_HEADERS = 32 * 1024
# So long it is believed that a namespace is there.
KNOWN_MS = 1000
# The ids of requests: that of this process, and a number. Randomness for each would cost a call of the system.
PROCESS = secrets.token_hex(8)
_numbers = itertools.count(1)


class CallerGone(ConnectionError):  # noqa: N818 - errors name the trouble
    """There is nobody to be answered any more."""


class HttpRequest:
    """What a request says, as far as the application looks at it."""

    def __init__(self, scope: AsgiScope, socket: Send | None = None) -> None:
        # What frames are sent by, when a WebSocket is wanted.
        self.socket = socket
        prefix, self._rest = located(scope)
        self.scope = scope if prefix == scope.get("root_path", "") else {**scope, "root_path": prefix}
        self.method = str(scope.get("method", "GET"))
        self.headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        self.request_id = f"{PROCESS}{next(_numbers):016x}"
        self.route: Route | None = None
        self.caller: Caller | None = None
        self.namespace = ""

    @property
    def path(self) -> str:
        return str(self.scope["path"])

    @property
    def is_nobodys(self) -> bool:
        """Whether nobody knows who asks."""
        return self.caller is None or self.route is None or self.route.scope is Scope.OPEN

    @property
    def wants_stream(self) -> bool:
        return "text/event-stream" in self.headers.get("accept", "")

    @property
    def segments(self) -> list[str]:
        """The path below the prefix that we are mounted under, split before it is decoded."""
        return [unquote(part) for part in self._rest.strip("/").split("/")]


class Application:
    """The routes over an engine, as an ASGI application."""

    def __init__(self, service: Service, authenticate: Authenticate, policy: Policy) -> None:
        self._service = msgspec.structs.replace(service, routes=ROUTES)
        self._authenticate = authenticate
        self._policy = policy
        self._tree = Tree(ROUTES)
        # The namespaces that are there, and until when that is believed.
        self._namespaces: dict[str, int] = {}
        self._streams = OpenStreams(service.engine.access_keys, service.engine.clock)

    def stop(self) -> None:
        """Answer everybody who waits, and end streams: the server is about to end."""
        self._service.stopping.stop()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "http":
            await self._answer(HttpRequest(scope), receive, send)
        elif scope["type"] == "websocket" and (await receive())["type"] == "websocket.connect":
            await self._answer(HttpRequest(scope, send), receive, websocket.answering(scope, send))

    async def _answer(self, request: HttpRequest, receive: Receive, send: Send) -> None:
        response = HttpResponse(request, send, self._policy.headers_for(request.headers))
        clock = self._service.engine.clock
        began = clock.monotonic()
        try:
            await self._respond(request, receive, response)
        finally:
            if access_log.isEnabledFor(logging.INFO):
                _note(request, response.status, clock.monotonic() - began)

    async def _respond(self, request: HttpRequest, receive: Receive, response: "HttpResponse") -> None:
        try:
            await self._serve(request, receive, response)
        except (CallerGone, sse.ReaderGone):
            # Nobody hears what is said now, and it is no trouble of ours.
            return
        except PerdureError as error:
            shown = _without_place(error) if request.is_nobodys else error
            status, body = problems.problem_of(shown, request.request_id)
            if status >= 500:  # noqa: PLR2004 - what is not the caller's fault
                told = {"event": "request_failed", "request_id": request.request_id}
                log.warning("request %s failed: %s", request.request_id, error, extra=told)
            await response.problem(status, body, error)
        except asyncio.CancelledError:
            if not self._service.stopping.is_set:
                raise
            # It was given its time.
            if not response.has_begun:
                await response.problem(*problems.problem_of(NotOpen(), request.request_id), None)
        except ConnectionError:
            raise
        except Exception as error:
            # The caller is told nothing but the id under which the log has it.
            told = {"event": "request_broke", "request_id": request.request_id}
            if isinstance(error, AuthenticateBroke):
                log.error("request broke: %s", error, extra=told, exc_info=error.__cause__)  # noqa: TRY400 - its cause alone
            else:
                log.exception("request broke", extra=told)
            status, body = problems.problem_of(PerdureError("the server could not answer this"), request.request_id)
            await response.problem(status, body, None)

    async def _serve(self, request: HttpRequest, receive: Receive, response: "HttpResponse") -> None:
        if sum(len(name) + len(value) for name, value in request.scope["headers"]) > LARGEST_HEADERS:
            raise HeadersTooLarge(LARGEST_HEADERS)
        self._policy.check(request.headers, is_socket=request.socket is not None)
        if request.method == "OPTIONS":
            await response.plain(204, b"", [])
            return
        route, values = self._found(request)
        request.route = route
        caller = request.caller = await self._caller(request, route)
        for value in values:
            check_text("the path", value)
        path = dict(zip(route.parameters, values, strict=True))
        query, namespace, run_id = query_of(request.scope.get("query_string", b""), route)
        data = b"" if route.body is None else await _body(request, receive, self._policy.max_body)
        body = None if route.body is None else body_of(data, route.body)
        meant = namespace_for(caller, namespace) if route.has_namespace else ""
        request.namespace = meant
        # To who shows no key it is not told which there are: a token of one that is not there is a wrong one.
        if meant not in {"", "main"} and route.scope is not Scope.OPEN:
            await self._check_namespace(meant)
        call: Call[Any, Any] = Call(
            self._service,
            caller,
            meant,
            path,
            query,
            body,
            run_id,
            request.headers,
            request.request_id,
            request.scope,
            partial(_gone, receive),
        )
        if request.socket is not None or (route.frames is not None and request.wants_stream):
            async with self._streams.one_more(caller) as is_over:
                await self._stream(route, call, is_over, receive, response)
            return
        if route.method != "GET" and (key := request.headers.get(idempotency.HEADER)) is not None:
            asked = (path, request.scope.get("query_string", b""), data)
            engine = self._service.engine.with_key(idempotency.key_in(key, route, caller, meant, *asked))
            answer: Any = await idempotency.answer_once(route, call.over(engine), engine)
        else:
            answer = await route.handler(call)
        reply = answer if isinstance(answer, Reply) else Reply(answer)
        await response.value(reply, route)

    async def _stream(
        self, route: Route, call: Call[Any, Any], is_over: asyncio.Event, receive: Receive, response: "HttpResponse"
    ) -> None:
        if route.frames is None:
            raise BadOption("this route is no stream; ask it by a plain request, and not by a WebSocket")
        frames, stopping = await route.frames(call), self._service.stopping
        after = getattr(call.query, "after", None)
        since = call.headers.get("last-event-id") or ("" if after is None else str(after))
        if response.socket is None:
            await sse.stream(frames, since, stopping, is_over, receive, response)
        else:
            response.has_begun, response.status = True, SWITCHED
            await websocket.stream(frames, since, stopping, is_over, receive, response.socket)

    async def _check_namespace(self, name: str) -> None:
        """NamespaceNotFound for one that nobody made; one that was found is believed for a moment."""
        now = self._service.engine.clock.monotonic()
        if now >= self._namespaces.get(name, -1):
            await self._service.engine.namespaces.find(name)
            self._namespaces[name] = now + KNOWN_MS

    def _found(self, request: HttpRequest) -> tuple[Route, list[str]]:
        found = self._tree.find(request.segments)
        if found is None:
            raise RouteNotFound(request.path)
        routes, values = found
        method = "GET" if request.method == "HEAD" else request.method
        if method not in routes:
            raise MethodNotAllowed(request.path, tuple(routes))
        return routes[method], values

    async def _caller(self, request: HttpRequest, route: Route) -> Caller:
        if route.scope is Scope.OPEN:
            return ANYBODY
        try:
            said = self._authenticate(request.scope)
            caller = await said if isinstance(said, Awaitable) else said
        except PerdureError:
            raise
        except Exception as error:
            raise AuthenticateBroke(f"authenticate raised {type(error).__name__}") from error
        if caller is None:
            raise NotAuthenticated
        if not isinstance(caller, Caller):
            raise AuthenticateBroke(
                f"authenticate gave {type(caller).__name__}; give a perdure.Caller, or None for nobody"
            )
        check_scope(caller, route.scope)
        return caller


class HttpResponse:
    """The answer to one request; begun once."""

    def __init__(self, request: HttpRequest, send: Send, headers: list[tuple[bytes, bytes]]) -> None:
        self._request = request
        self._send = send
        self._headers = [*headers, (b"x-request-id", request.request_id.encode())]
        self.has_begun = False
        self.status = 0
        self.socket = request.socket

    async def begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.has_begun = True
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, *self._headers]})

    async def part(self, data: bytes, *, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def plain(self, status: int, data: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        """An answer in one piece."""
        await self.begin(status, [*headers, (b"content-length", str(len(data)).encode())])
        await self.part(b"" if self._request.method == "HEAD" else data, more=False)

    async def problem(self, status: int, body: dict[str, Any], error: PerdureError | None) -> None:
        if self.has_begun:
            # Half an answer is out; the connection is closed, so that nobody takes it for a whole one.
            raise ConnectionError(f"the answer broke off: {body['error']}, request {body['request_id']}") from None
        headers = problems.headers_of(status)
        if isinstance(error, MethodNotAllowed):
            headers.append((b"allow", ", ".join(error.allowed).encode()))
        await self.plain(status, msgspec.json.encode(body), headers)

    async def value(self, reply: Reply, route: Route) -> None:
        """A value as JSON; with 304 where the caller has it already."""
        status = reply.status or route.status
        headers = [(name.encode(), value.encode("latin-1")) for name, value in reply.headers]
        if isinstance(reply.value, bytes):
            await self.plain(status, reply.value, headers)
            return
        data = msgspec.json.encode(reply.value)
        headers.append((b"content-type", b"application/json"))
        if route.method == "GET" and status == 200:  # noqa: PLR2004 - the number is its name
            tag = f'"{hashlib.blake2b(data, digest_size=12).hexdigest()}"'
            headers += [(b"etag", tag.encode()), (b"cache-control", b"no-cache")]
            if tag in self._request.headers.get("if-none-match", ""):
                await self.plain(NOT_MODIFIED, b"", headers)
                return
        await self.plain(status, data, headers)


async def _body(request: HttpRequest, receive: Receive, limit: int) -> bytes:
    """The body of a request; refused before it is read when it says itself that it is too large."""
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > limit:
        raise BodyTooLarge(limit)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise CallerGone("the caller left in the middle of its request")
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > limit:
                    raise BodyTooLarge(limit)
                if not message.get("more_body"):
                    break
    except TimeoutError:
        raise BadField("the body", f"it did not come within {BODY_SECONDS:.0f} seconds") from None
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if size and kind != "application/json":
        raise BadContentType(kind)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _note(request: HttpRequest, status: int, ms: int) -> None:
    """One line for each request: the route, not the path, for ids are none of the log's business."""
    route = request.method if request.route is None else f"{request.route.method} {request.route.path}"
    key_id = None if request.caller is None else request.caller.key_id
    told = {"route": route, "status": status, "key_id": key_id, "namespace": request.namespace}
    access_log.info(
        "%s %d %d ms key=%s namespace=%s request=%s",
        *(route, status, ms, key_id or "-", request.namespace or "-", request.request_id),
        extra={"event": "request", "ms": ms, "request_id": request.request_id, **told},
    )


def _without_place(error: PerdureError) -> PerdureError:
    """The same trouble, without where the database is."""
    if not isinstance(error, StoreError):
        return error
    kind = StoreUnavailable if isinstance(error, StoreUnavailable) else StoreError
    return kind("the database", "it cannot be used right now")


async def _gone(receive: Receive) -> None:
    """Until the caller has gone; what it sent was read before."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _live(receive: Receive, send: Send) -> None:
    """The engine is opened by whoever made the application; a server may ask all the same."""
    with suppress(asyncio.CancelledError):
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return


async def refuse(error: PerdureError, scope: AsgiScope, receive: Receive, send: Send) -> None:
    """Answer a request with a problem alone."""
    if scope["type"] != "http":
        await receive()
        await send({"type": "websocket.close", "code": TRY_AGAIN_LATER})
        return
    request = HttpRequest(scope)
    status, body = problems.problem_of(error, request.request_id)
    await HttpResponse(request, send, Policy().headers_for(request.headers)).problem(status, body, error)
