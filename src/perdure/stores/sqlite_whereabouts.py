"""Where a run was when its worker was lost, read in the transaction that puts it into quarantine."""

import sqlite3

import msgspec

from perdure.kernel.whereabouts import LastEvent, Tried, places_of, where_it_was
from perdure.stores.queries import queries


def whereabouts(db: sqlite3.Connection, run_id: str) -> str:
    """What the run was doing, in words."""
    asked, run = queries("writes"), {"run_id": run_id}
    (waiting,) = db.execute(asked["noted_waiting"], run).fetchone()
    tried = [Tried(*row) for row in db.execute(asked["tried"], run)]
    places = msgspec.json.encode(places_of(waiting, tried)).decode()
    ended = {place for (place,) in db.execute(asked["ended_places"], run | {"places": places})}
    last = db.execute(asked["last_recorded"], run).fetchone()
    return where_it_was(waiting, tried, ended, None if last is None else LastEvent(*last))
