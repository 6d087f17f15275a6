"""Announced workflows: how they are read, whatever the database."""

from perdure.stores.rules.questions import Ask, Query, Steps


class AnnouncementReads:
    """What can be read of announced workflows."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def digests(self, namespace: str) -> dict[str, str]:
        """What each of them was when it was written last, by name."""

        def ask() -> Steps[dict[str, str]]:
            return dict((yield Query("announced_digests", {"namespace": namespace})).rows)

        return await self._ask(ask)

    async def body(self, namespace: str, name: str) -> str | None:
        """One of them, as JSON."""

        def ask() -> Steps[str | None]:
            found = (yield Query("announced", {"namespace": namespace, "name": name})).rows
            return found[0][0] if found else None

        return await self._ask(ask)
