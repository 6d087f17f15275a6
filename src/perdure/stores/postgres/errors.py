"""What the errors of Postgres and of its driver mean: what is wrong, who is to blame, and what to do about it."""

import asyncio
import socket
import ssl

import asyncpg

from perdure.errors import StoreUnavailable

AGAIN = "nothing was changed, try again"
# What helps, by the code of an error.
REMEDIES = {
    "08P01": "a pooler in between may want settings; see docs/postgres.md; nothing was changed",
    "25006": "name the primary; nothing was changed",
    "28000": "name a role that may log in, or see to pg_hba.conf; nothing was changed",
    "28P01": "check the user and the password: in the URL, in PGPASSWORD or in ~/.pgpass; nothing was changed",
    "3D000": "create it (createdb), or name another one in the URL; nothing was changed",
    "42501": "`perdure migrate --print-roles` shows what a role must be granted; nothing was changed",
    "42704": "correct the options of the URL, see docs/postgres.md; nothing was changed",
    "53300": "give the server or the role more connections, or use fewer processes; nothing was changed, try again",
    "57P03": "it starts, stops or recovers; nothing was changed, try again",
}

# What goes wrong on the way to the server, on it, or because it cannot take more.
LOST = (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError, asyncio.TimeoutError)
_OF_THE_DATA = ("22", "23", "54")


# The server ends the connection, and whatever was under way on it may have been done before.
_ENDS = ("08", "57P01", "57P02", "57P03", "57P05")


def is_lost(error: asyncpg.PostgresError) -> bool:
    """Whether the server says farewell, and not what became of what it was told."""
    return (error.sqlstate or "").startswith(_ENDS)


def is_of_the_data(error: BaseException) -> bool:
    """Whether what was to be written is to blame, and not the database."""
    # The driver itself finds numbers that are too large; what it says of a URL or a certificate is something else.
    is_unfit = isinstance(error, ValueError) and not isinstance(error, (asyncpg.ClientConfigurationError, OSError))
    return is_unfit or (isinstance(error, asyncpg.PostgresError) and (error.sqlstate or "")[:2] in _OF_THE_DATA)


def is_about_database(error: BaseException) -> bool:
    """Whether the database is to blame: it cannot be reached, or does not do now what it is told."""
    return isinstance(error, (*LOST, asyncpg.PostgresError)) and not is_of_the_data(error)


def trouble(error: BaseException) -> str:
    """What is wrong, in words."""
    match error:
        case TimeoutError():
            said = "the server does not answer"
        case socket.gaierror():
            said = "the host is not known here"
        case ConnectionRefusedError():
            said = "nobody listens there: the server is not running, or its host or port is another"
        case ssl.SSLCertVerificationError():
            said = f"the certificate of the server is not accepted: {error.verify_message.rstrip('.')}"
        case ssl.SSLError():
            said = f"no encrypted connection: {error.reason or error}"
        case ConnectionError() if "connection_lost" in str(error):
            said = "whoever listens there closed the connection, and may be no Postgres"
        case asyncpg.InternalClientError():
            # Of the driver's own states people know nothing.
            said = "the connection was lost in the middle of something"
        case OSError() if error.strerror:
            said = error.strerror if error.filename is None else f"{error.strerror}: {error.filename}"
        case _:
            said = (str(error).strip() or type(error).__name__).splitlines()[0]
    return said


def remedy(error: BaseException) -> str:
    """What to do about it."""
    match error:
        case asyncpg.PostgresError():
            helps = REMEDIES.get(error.sqlstate or "", AGAIN)
        case asyncpg.InterfaceError() if "password" in str(error):
            helps = REMEDIES["28P01"]
        case asyncpg.ClientConfigurationError() if "root certificate" in str(error):
            helps = "name a file with it in sslrootcert, or use another sslmode; nothing was changed"
        case asyncpg.ClientConfigurationError():
            helps = "correct the URL or the PG* variables; nothing was changed"
        case socket.gaierror():
            helps = "correct the host in the URL or in PGHOST; nothing was changed"
        case ssl.SSLError():
            helps = (
                "name the host as its certificate does, and a file with its root in sslrootcert; nothing was changed"
            )
        case ConnectionError() if "SSL" in str(error):
            helps = "let the server speak TLS, correct the port, or use another sslmode; nothing was changed"
        case FileNotFoundError() | PermissionError():
            helps = "check the socket and the files that the URL or the PG* variables name; nothing was changed"
        case _:
            helps = AGAIN
    return helps


def unavailable(shown: str, error: BaseException) -> StoreUnavailable:
    return StoreUnavailable(shown, f"{trouble(error)}; {remedy(error)}")
