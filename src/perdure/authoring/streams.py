"""Streams: what workflows and activities publish, one value after the other."""

from typing import ClassVar, Generic, TypeVar

from perdure.authoring.activity_context import running
from perdure.authoring.channels import Channel
from perdure.authoring.runtime import current
from perdure.errors import NotInActivity

T = TypeVar("T")


class Stream(Channel[T], Generic[T]):
    """A named series of typed values that a run publishes: `Stream("tokens", str)` or `Stream[str]("tokens")`.

    Outside, `run.stream(tokens)` gives them in the order in which they were published, those to come as well.
    """

    what: ClassVar[str] = "stream"

    def publish(self, value: T) -> None:
        """Publish a value; it is on disk a moment later.

        Of a workflow each value comes once, replay or not. StreamFull when too many are not on disk yet; in a thread
        it waits for those instead.
        """
        data, _ = self.payload.record(value, f"the stream {self.name!r}")
        runtime = current()
        if runtime is not None:
            runtime.outputs.publish(self.name, data.decode())
            return
        source = running.get()
        if source is None:
            what = f"publishing in the stream {self.name!r}"
            raise NotInActivity(what, "elsewhere there is no run to publish for", "a workflow or an activity")
        source.publish(self.name, data.decode())
