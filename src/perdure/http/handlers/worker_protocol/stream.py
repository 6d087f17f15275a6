"""The stream of a worker over HTTP: hints that save it looking, and a sign that it lives."""

from collections.abc import Sequence

import msgspec

from perdure.engine.ports import RemoteWorker
from perdure.engine.ports.remote_registry import WorkerHints
from perdure.errors import BadField, BadOption, LeaseLost
from perdure.http.calls import Call, frame_number
from perdure.http.handlers.worker_protocol.workers import worker_of
from perdure.http.streaming.sse import Frame
from perdure.http.table import RouteRows, Scope

ROWS = RouteRows()


class StreamQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The worker's epoch; `after` takes the id of the last frame that was seen."""

    epoch: int = 0
    after: int = 0


class WorkerHint(msgspec.Struct, frozen=True, omit_defaults=True):
    """The run or the task that it is about, if it is about one."""

    run_id: str | None = None


class HintFrames:
    """Hints as frames, until the worker leaves or has lost its lease."""

    def __init__(self, call: Call[StreamQuery, None], worker: RemoteWorker, hints: WorkerHints) -> None:
        self._call = call
        self._worker = worker
        self._hints = hints
        self._is_over = False

    @property
    def cursor(self) -> str:
        return str(self._hints.after)

    def __aiter__(self) -> "HintFrames":
        return self

    async def __anext__(self) -> Frame:
        if self._is_over:
            raise StopAsyncIteration
        try:
            hint = await self._hints.next()
        except LeaseLost:
            self._is_over = True
            return Frame(self.cursor, WorkerHint(), "lost")
        return Frame(self.cursor, WorkerHint(hint.run_id), hint.kind)

    def farewell(self) -> Sequence[Frame]:
        return (Frame(self.cursor, WorkerHint(), "drain"),)

    def left(self) -> None:
        self._call.engine.remote.stream_broke(self._worker)

    async def aclose(self) -> None:
        self._hints.close()


async def hint_frames(call: Call[StreamQuery, None]) -> HintFrames:
    """What the worker may want to know, as it happens."""
    worker, last = worker_of(call, call.query.epoch), call.headers.get("last-event-id")
    after = call.query.after if last is None else frame_number(last)
    return HintFrames(call, worker, await call.engine.remote.hints(worker, after))


@ROWS.add(
    "GET",
    "/v1/workers/{worker_id}/stream",
    Scope.WORK,
    query=StreamQuery,
    answer=WorkerHint,
    errors=(LeaseLost, BadOption, BadField),
    frames=hint_frames,
)
async def stream(_: Call[StreamQuery, None]) -> WorkerHint:
    """Hints for a worker, as a stream: ask for `text/event-stream`.

    `work`: there may be something to claim. `message`: something has come for a run that it has; `cancel`: a run or a
    task that it has is to stop. `drain`: this server is about to end. `lost`: its lease is lost. When the stream breaks
    and the worker is silent for two seconds more, others go on with its work.
    """
    raise BadOption("hints are a stream; send the header Accept: text/event-stream")
