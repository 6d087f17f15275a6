"""All routes of the server, from the files of `handlers/`."""

from perdure.http.handlers import access_keys, history, messages, meta, namespaces, runs, steering
from perdure.http.table import Route

ROUTES: tuple[Route, ...] = (
    *meta.ROWS.all,
    *runs.ROWS.all,
    *history.ROWS.all,
    *messages.ROWS.all,
    *steering.ROWS.all,
    *namespaces.ROWS.all,
    *access_keys.ROWS.all,
)
