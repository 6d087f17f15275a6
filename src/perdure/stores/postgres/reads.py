"""Asks Postgres on connections that only read, so that no read waits for a write."""

from collections.abc import Callable
from typing import TypeVar

from perdure.stores.postgres.address import Address
from perdure.stores.postgres.connections import READS, Links
from perdure.stores.postgres.errors import LOST, is_about_database, unavailable
from perdure.stores.postgres.executor import answer
from perdure.stores.postgres.scan_floor import Floors
from perdure.stores.rows import Garbled
from perdure.stores.rules.questions import Steps

T = TypeVar("T")

# So many reads go on at once.
READERS = 3


class Readers:
    """A few connections that read."""

    def __init__(self, address: Address, floors: Floors) -> None:
        self._floors = floors
        self.equip(address)

    def equip(self, address: Address) -> None:
        """Connect there from now on."""
        self._address = address
        self.links = Links(address, READS, READERS)

    async def ask(self, quickly: Callable[[], Steps[T]], slowly: Callable[[], Steps[T]] | None = None) -> T:
        """Ask; when the answer cannot be read, row by row."""
        try:
            return await self._read(quickly)
        except Garbled:
            return await self._read(slowly or quickly)

    async def _read(self, steps: Callable[[], Steps[T]]) -> T:
        schema = self._address.schema
        async with self.links.one() as link:
            try:
                try:
                    return await answer(await link.connection(), schema, steps(), self._floors)
                except LOST:
                    # It may have been lost while nobody needed it.
                    link.drop()
                    return await answer(await link.connection(), schema, steps(), self._floors)
            except Exception as error:
                if not is_about_database(error):
                    raise
                link.drop()
                raise unavailable(self._address.shown, error) from None
