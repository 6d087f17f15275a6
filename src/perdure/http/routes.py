"""All routes of the server, from the files of `handlers/`."""

from perdure.http.handlers import (
    access_keys,
    bulk,
    changes,
    history,
    messages,
    meta,
    namespaces,
    remote_runs,
    remote_workers,
    runs,
    schedules,
    sessions,
    steering,
    tasks,
    workers,
)
from perdure.http.table import Route

ROUTES: tuple[Route, ...] = (
    *meta.ROWS.all,
    *runs.ROWS.all,
    *history.ROWS.all,
    *messages.ROWS.all,
    *steering.ROWS.all,
    *bulk.ROWS.all,
    *changes.ROWS.all,
    *schedules.ROWS.all,
    *workers.ROWS.all,
    *remote_workers.ROWS.all,
    *tasks.ROWS.all,
    *remote_runs.ROWS.all,
    *namespaces.ROWS.all,
    *access_keys.ROWS.all,
    *sessions.ROWS.all,
)
