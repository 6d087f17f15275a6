"""The client over a server: starts runs, writes to them and stops them.

In:   requests of callers in this process.
Out:  answers of the server, after its commit; or the error that speaks against it.
"""

from collections.abc import Callable
from typing import NoReturn
from urllib.parse import quote

import msgspec

from perdure.authoring.options import AttributesPatch
from perdure.engine.ports import Ending, OwnedRun, StartRequest
from perdure.errors import BadOption, BadToken, NotAnswered, RequestRefused
from perdure.http.remote.connection import Connection, run_path
from perdure.kernel.failure import Failure
from perdure.kernel.messages import DeferredFailure, DeferredResult, RequestSent, Sent, SignalSent
from perdure.kernel.requests import Answered, LeftUnanswered, Refused, RequestAnswer
from perdure.kernel.status import OPEN, Status
from perdure.tokens import Meant

# So many seconds one request waits for an end, then it is asked again.
POLL_SECONDS = 20


class RemoteRun(msgspec.Struct, frozen=True):
    """A run as a start answers it."""

    run_id: str
    workflow_id: str
    workflow: str


class RemoteClient:
    """Asks a server for what people ask for; the Client of an engine."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def start(self, namespace: str, request: StartRequest) -> RemoteRun:
        """Start a run; when its id is taken, what the policy says."""
        traits = request.traits
        body = {
            "workflow": request.workflow,
            "input": msgspec.Raw(request.input.encode()),
            "id": request.workflow_id,
            "queue": request.queue,
            "priority": request.priority,
            "timeout": None if traits.timeout_ms is None else traits.timeout_ms / 1000,
            "delay": request.delay_ms / 1000 or None,
            "entity_id": traits.entity_id,
            "correlation_id": traits.correlation_id,
            "attributes": None if traits.attributes is None else msgspec.Raw(traits.attributes.encode()),
            "on_conflict": request.on_conflict.value,
        }
        found = await self._connection.post("/v1/runs", body, namespace=namespace)
        return msgspec.json.decode(found, type=RemoteRun)

    async def start_within(self, *_: object, **__: object) -> NoReturn:
        """There is no transaction of the caller's on a server."""
        raise BadOption("a run cannot be started inside a transaction over a server; open the database itself")

    async def post(
        self,
        namespace: str,
        run_id: str,
        id: str,
        sent: Sent,
        message_id: str | None = None,
        *,
        within: object = None,
        to_heir: bool = False,
        delay_ms: int = 0,
    ) -> None:
        """Send a signal, or resolve a deferred."""
        _refuse_connection(within)
        at = {"namespace": namespace, "run_id": run_id}
        match sent:
            case SignalSent(name, payload):
                given = None if message_id is None else message_id.removeprefix("signal:")
                body = {"name": name, "payload": payload, "id": given, "delay": delay_ms / 1000 or None, "force": True}
                await self._connection.post(run_path(id, "signals"), body, **at)
            case DeferredResult(name, value):
                await self._connection.post(run_path(id, "deferreds", name), {"value": value}, **at)
            case DeferredFailure(name, error):
                await self._connection.post(run_path(id, "deferreds", name), {"error": error}, **at)
            case _:
                raise BadOption(f"{type(sent).__name__} is not sent over a server")

    async def ask(self, namespace: str, run_id: str, id: str, sent: RequestSent, message_id: str) -> RequestAnswer:
        """Send a request, and wait for its answer; the same message_id again gets the same answer."""
        body = {
            "name": sent.name,
            "value": sent.value,
            "id": message_id.removeprefix("request:"),
            "timeout": POLL_SECONDS,
        }
        while True:
            try:
                data = await self._connection.post(run_path(id, "requests"), body, namespace=namespace, run_id=run_id)
            except RequestRefused as refused:
                return Refused(refused.reason)
            except NotAnswered:
                return LeftUnanswered()
            found = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
            if "answer" in found:
                return Answered(found["answer"])

    async def read_token(self, namespace: str, token: str) -> Meant:
        """The server alone knows what a token is for."""
        raise BadOption("a token is read by the server; use app.resolve(token, ...)")

    async def resolve_token(
        self, namespace: str, token: str, resolution: Callable[[str], DeferredResult | DeferredFailure], within: object
    ) -> None:
        """Resolve the deferred that a token is for."""
        _refuse_connection(within)
        sent = resolution("of the token")
        body = {"error": sent.error} if isinstance(sent, DeferredFailure) else {"value": sent.value}
        if not token.isascii() or not token:
            raise BadToken
        await self._connection.post(f"/v1/deferreds/{quote(token, safe='')}", body, namespace=namespace)

    async def cancel(self, namespace: str, run_id: str, id: str, reason: str | None, deadline_ms: int | None) -> None:
        """Ask a run to stop."""
        deadline = None if deadline_ms is None else deadline_ms / 1000
        body = {"reason": reason, "deadline": deadline, "force": deadline_ms == 0}
        await self._connection.post(run_path(id, "cancel"), body, namespace=namespace, run_id=run_id)

    async def terminate(self, namespace: str, run_id: str, id: str, reason: str | None) -> None:
        """End a run at once, without clean-up."""
        await self._connection.post(run_path(id, "terminate"), {"reason": reason}, namespace=namespace, run_id=run_id)

    async def resume(self, namespace: str, run_id: str, id: str) -> None:
        """Let a held run go on."""
        await self._connection.post(run_path(id, "resume"), {}, namespace=namespace, run_id=run_id)

    async def pause(self, namespace: str, run_id: str, id: str, reason: str | None) -> None:
        """Have a run begin nothing more."""
        await self._connection.post(run_path(id, "pause"), {"reason": reason}, namespace=namespace, run_id=run_id)

    async def set_attributes(self, namespace: str, run_id: str, change: Callable[[str | None], str]) -> None:
        """Merge into a run's attributes."""
        assert isinstance(change, AttributesPatch)
        kept = msgspec.json.decode(change(None), type=dict[str, object])
        body = msgspec.json.encode({"attributes": {name: kept.get(name) for name in change.patch}})
        at = {"namespace": namespace, "run_id": run_id}
        await self._connection.ask("PATCH", run_path("-", "attributes"), at, body)

    async def wait(self, namespace: str, run_id: str, owned: OwnedRun | None = None) -> Ending:
        """Until the run has ended, or the last of those that continue it."""
        while True:
            data = await self._connection.get(
                run_path("-", "result"), namespace=namespace, run_id=run_id, wait=POLL_SECONDS
            )
            found = msgspec.json.decode(data, type=RemoteResult)
            if found.status not in OPEN:
                return _ending(found)


class RemoteError(msgspec.Struct, frozen=True):
    """Why a run ended without a result, as the server tells it."""

    type: str
    message: str
    reason: str | None = None
    notes: tuple[str, ...] = ()
    failure: Failure | None = None


class RemoteResult(msgspec.Struct, frozen=True):
    """How a run ended, as the server tells it."""

    status: Status
    result: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    error: RemoteError | None = None


def _refuse_connection(within: object) -> None:
    if within is not None:
        raise BadOption("connection= is for a Perdure that is open on the database itself; leave it away")


def _ending(found: RemoteResult) -> Ending:
    if found.error is None:
        return Ending(found.status, result=found.result)
    error = found.error
    if found.status == Status.FAILED:
        return Ending(found.status, failure=error.failure or Failure(error.type, error.message))
    return Ending(found.status, reason=error.reason, notes=error.notes)
