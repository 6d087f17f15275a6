"""All routes of the server, from the files of `handlers/`."""

from perdure.http.handlers import (
    access_keys,
    bulk,
    changes,
    history,
    messages,
    meta,
    namespaces,
    outbox,
    runs,
    schedules,
    sessions,
    steering,
    workers,
)
from perdure.http.handlers.worker_protocol import owners, stream, tasks
from perdure.http.handlers.worker_protocol import runs as worker_runs
from perdure.http.handlers.worker_protocol import workers as remote_workers
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
    *outbox.ROWS.all,
    *workers.ROWS.all,
    *remote_workers.ROWS.all,
    *tasks.ROWS.all,
    *worker_runs.ROWS.all,
    *stream.ROWS.all,
    *owners.ROWS.all,
    *namespaces.ROWS.all,
    *access_keys.ROWS.all,
    *sessions.ROWS.all,
)
