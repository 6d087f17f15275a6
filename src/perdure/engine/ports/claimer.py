"""What a worker asks for: ripe runs, and what other workers have code for."""

from typing import Protocol


class Claimer(Protocol):
    """What a worker asks for."""

    async def claim(
        self, namespace: str, queues: tuple[str, ...], workflows: tuple[str, ...], limit: int, suspects: int
    ) -> list[str]:
        """Take ripe runs, at most so many suspects among them, and hand them to the host; answers their ids."""

    async def claim_one(self, namespace: str, run_id: str, workflows: tuple[str, ...]) -> bool:
        """Take this run and hand it to the host; False when it is not due, or somebody else has it."""

    async def next_wake(
        self, namespace: str, queues: tuple[str, ...], workflows: tuple[str, ...], *, suspects: bool = False
    ) -> int | None:
        """When the next free run becomes ripe, suspects among them or not."""

    def is_worked(self, namespace: str, queue: str) -> bool:
        """Whether a worker that was alive a moment ago works this queue."""

    def has_code(self, namespace: str, queue: str, workflow: str) -> bool:
        """Whether a worker that was alive a moment ago has this workflow on this queue."""

    async def tell_missing(self, namespace: str, queues: tuple[str, ...]) -> None:
        """Warn of what free runs of these queues wait for and no living worker has, as far as that is quickly seen."""

    async def free_mismatches(self, namespace: str, queues: tuple[str, ...], workflows: tuple[str, ...]) -> None:
        """Give runs of these queues that are held for a mismatch another try; the code may be back."""

    async def read_messages_of(self, run_id: str, after: int = 0) -> None:
        """Tell the host what is unread in one run's inbox after a number."""
