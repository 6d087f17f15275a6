"""Problems: errors as `application/problem+json`, and back.

In:   an error, and the id of the request.
Out:  a status, and a body with the class of the error and its fields; a client makes the same error of it.
"""

import inspect
from typing import Any

import msgspec

from perdure import errors
from perdure.errors import PerdureError

CONTENT_TYPE = "application/problem+json"
# By class, the nearest one counts; what is not here is the server's own trouble.
STATUSES: dict[type[BaseException], int] = {
    errors.BadInput: 422,
    errors.ValueTooLarge: 413,
    errors.BadToken: 404,
    errors.NotAuthenticated: 401,
    errors.NotAllowed: 403,
    errors.RouteNotFound: 404,
    errors.MethodNotAllowed: 405,
    errors.BadJson: 400,
    errors.BodyTooLarge: 413,
    errors.HeadersTooLarge: 431,
    errors.BadContentType: 415,
    errors.TooManyRequests: 429,
    errors.InboxFull: 429,
    errors.RunNotFound: 404,
    errors.QueryNotFound: 404,
    errors.NamespaceNotFound: 404,
    errors.NamespaceExists: 409,
    errors.NamespaceNotEmpty: 409,
    errors.ScheduleNotFound: 404,
    errors.ScheduleExists: 409,
    errors.SinkNotFound: 404,
    errors.SinkExists: 409,
    errors.SinkNotReady: 409,
    errors.SinkFailed: 409,
    errors.CursorExpired: 410,
    errors.KeyNotFound: 404,
    errors.LastAdminKey: 409,
    errors.RunClosed: 409,
    errors.RunOpen: 409,
    errors.RunNotHeld: 409,
    errors.IdConflict: 409,
    errors.KeyConflict: 422,
    errors.KeyInProgress: 409,
    errors.KeyAlreadyMade: 409,
    errors.LeaseLost: 409,
    errors.RunNotOwned: 409,
    errors.OutOfStep: 409,
    errors.AlreadyResolved: 409,
    errors.RequestRefused: 409,
    errors.NotAnswered: 409,
    errors.RunUnreadable: 500,
    errors.StoreUnavailable: 503,
    errors.NotOpen: 503,
    errors.IssuerUnavailable: 503,
    PerdureError: 500,
}
# Fields of errors that are called something else in a problem, where the name has a meaning of its own.
BESIDE = {"status": "run_status"}
# After so many seconds the same may be asked again.
RETRY_AFTER = {429: "1", 503: "2"}


def status_of(error: type[BaseException]) -> int:
    """The status that tells of this error."""
    return next((STATUSES[base] for base in error.__mro__ if base in STATUSES), 500)


def problem_of(error: PerdureError, request_id: str) -> tuple[int, dict[str, Any]]:
    """The status and the body that tell of an error."""
    kind = type(error)
    status = status_of(kind)
    fields = {BESIDE.get(name, name): value for name, value in vars(error).items() if _is_plain(value)}
    return status, {
        **fields,
        "type": f"urn:perdure:{kind.__name__}",
        "title": (kind.__doc__ or kind.__name__).strip().splitlines()[0],
        "status": status,
        "detail": str(error),
        "error": kind.__name__,
        "request_id": request_id,
    }


def headers_of(status: int) -> list[tuple[bytes, bytes]]:
    """What stands in the head of such an answer."""
    found = [(b"content-type", CONTENT_TYPE.encode())]
    if status in RETRY_AFTER:
        found.append((b"retry-after", RETRY_AFTER[status].encode()))
    if status == 401:  # noqa: PLR2004 - the number is its name
        found.append((b"www-authenticate", b"Bearer"))
    return found


def error_of(problem: dict[str, Any]) -> PerdureError:
    """The error that a problem tells of, of its own class where that is one of ours."""
    kind = getattr(errors, str(problem.get("error")), None)
    if not isinstance(kind, type) or not issubclass(kind, PerdureError):
        return PerdureError(str(problem.get("detail") or problem.get("title") or "the server said nothing more"))
    names = list(inspect.signature(kind.__init__).parameters)[1:]
    fields = [BESIDE.get(name, name) for name in names]
    if any(name in {"args", "kwargs"} for name in names) or not all(name in problem for name in fields):
        return kind(str(problem.get("detail", "")))
    return kind(*(_tuples(problem[name]) for name in fields))


def _is_plain(value: object) -> bool:
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError):
        return False
    return True


def _tuples(value: object) -> object:
    """Lists as tuples, which is what errors hold."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
