"""The keys that callers of a server show: what `app.keys` offers."""

from collections.abc import Sequence

from perdure.app.open_apps import Home
from perdure.authoring.durations import Duration
from perdure.authoring.options import milliseconds
from perdure.engine.ports import MadeKey
from perdure.http.access import key_request
from perdure.views.access_keys import KeyInfo, key_view


class Keys:
    """The keys of a database; each is shown once, when it is made."""

    def __init__(self, home: Home) -> None:
        self._home = home

    async def create(
        self,
        label: str,
        *,
        role: str | None = None,
        scopes: Sequence[str] = (),
        namespaces: Sequence[str] = (),
        queues: Sequence[str] = (),
        entity_id: str | None = None,
        expires: Duration | None = None,
    ) -> MadeKey:
        """Make a key, by a role (reader, operator, worker, admin) or scope by scope; no namespaces mean every one."""
        expires_in_ms = None if expires is None else milliseconds(expires, "expires", least=1)
        rights = (role, tuple(scopes), tuple(namespaces), tuple(queues), entity_id)
        return await self._home.engine.access_keys.create(key_request(label, *rights, expires_in_ms))

    async def list(self) -> list[KeyInfo]:
        """All keys, those that are revoked as well, the oldest first."""
        return [key_view(row) for row in await self._home.engine.access_keys.all()]

    async def revoke(self, key_id: str) -> None:
        """End a key, everywhere within a second; KeyNotFound, or LastAdminKey when nobody could make another one."""
        await self._home.engine.access_keys.revoke(key_id)
