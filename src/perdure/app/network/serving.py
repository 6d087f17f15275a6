"""An opened Perdure as an ASGI application, and as a server of its own.

In:   an opened Perdure, an address, who may call.
Out:  an application to mount; a server that listens, and the first key of a database that had none.
"""

import ipaddress

import msgspec

from perdure.clock import Clock
from perdure.engine.ports import Engine, KeyRequest
from perdure.errors import BadOption
from perdure.http.access import ROLES, Authenticate, anybody
from perdure.http.asgi import Application
from perdure.http.callers.authentication import KeyAuthentication
from perdure.http.calls import Service
from perdure.http.catalog import Catalog
from perdure.http.policy import LOOPBACK, MAX_BODY, Policy, name_in
from perdure.http.server import Listening, Server
from perdure.http.server_stop import ServerStop

HIGHEST_PORT = 65535


class ServerOptions(msgspec.Struct, frozen=True):
    """How a server listens, and to whom."""

    listen: str = "127.0.0.1:7373"
    tls_cert: str | None = None
    tls_key: str | None = None
    behind_proxy: bool = False
    allow_hosts: tuple[str, ...] = ()
    allow_origins: tuple[str, ...] = ()
    no_auth: bool = False
    prefix: str = ""
    reuse_port: bool = False
    max_body: int = MAX_BODY
    # An issuer of tokens, and for whom they must be.
    oidc: str | None = None
    audience: str | None = None


def application(
    engine: Engine,
    catalog: Catalog,
    authenticate: Authenticate | None = None,
    policy: Policy | None = None,
    stopping: ServerStop | None = None,
    tokens: tuple[str, str] | None = None,
) -> Application:
    """The routes over an engine; without `authenticate` callers show keys of the database, or tokens of an issuer."""
    keys = None if authenticate is not None else KeyAuthentication(engine.access_keys, engine.clock)
    service = Service(engine, catalog, stopping or ServerStop(), keys)
    if keys is not None and tokens is not None:
        authenticate = _by_token(*tokens, keys, engine.clock)
    return Application(service, authenticate or keys or anybody, policy or Policy())


def _by_token(issuer: str, audience: str, keys: KeyAuthentication, clock: Clock) -> Authenticate:
    try:
        from perdure.http.callers.issuers import Issuer  # noqa: PLC0415 - most servers need no cryptography
        from perdure.http.callers.tokens import TokenAuthentication  # noqa: PLC0415 - as above
    except ImportError as error:
        raise BadOption(f"tokens are read with {error.name}; install it: pip install 'perdure[server]'") from None

    return TokenAuthentication(Issuer(issuer, clock), audience, keys, clock)


def checked_address(options: ServerOptions) -> tuple[str, int]:
    """The host and the port to listen on; BadOption for what would be open to others without TLS or keys."""
    host, _, port = options.listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > HIGHEST_PORT:
        raise BadOption(f"--listen is {options.listen!r}; give an address and a port, such as 127.0.0.1:7373")
    if (options.tls_cert is None) != (options.tls_key is None):
        raise BadOption("--tls-cert and --tls-key go together; give both")
    if options.prefix and (not options.prefix.startswith("/") or options.prefix.endswith("/")):
        raise BadOption(f"--prefix is {options.prefix!r}; it begins with a slash and does not end with one")
    if strange := [origin for origin in options.allow_origins if not _is_origin(origin)]:
        raise BadOption(f"--allow-origin is {strange[0]!r}; give it as browsers send it, such as https://app.example")
    if (options.oidc is None) != (options.audience is None):
        raise BadOption("--oidc and --audience go together: tokens of an issuer are for many services, name ours")
    if options.oidc is not None and options.no_auth:
        raise BadOption("--no-auth asks for nothing, and --oidc for tokens; leave one out")
    if not _is_loopback(host):
        if options.no_auth:
            raise BadOption(
                f"a server without keys is for this machine alone, and {host} can be reached from others; `perdure "
                "serve` without --no-auth asks for keys"
            )
        if options.tls_cert is None and not options.behind_proxy:
            raise BadOption(
                f"{host} can be reached from other machines, and keys would travel unencrypted; give --tls-cert and "
                "--tls-key, or --behind-proxy when a proxy in front of it speaks TLS"
            )
    return host.strip("[]"), int(port)


def _is_origin(text: str) -> bool:
    scheme, _, rest = text.rstrip("/").partition("://")
    return bool(scheme and rest) and "/" not in rest


def _is_loopback(host: str) -> bool:
    try:
        return host in LOOPBACK or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def server_for(engine: Engine, catalog: Catalog, options: ServerOptions) -> Server:
    """A server over an engine; it listens once it has begun."""
    host, port = checked_address(options)
    own = {f"[{host}]" if ":" in host else host} if host not in {"0.0.0.0", "::"} else set()  # noqa: S104 - compared
    policy = Policy(
        hosts=LOOPBACK | {name_in(host) for host in (*own, *options.allow_hosts)},
        origins=frozenset(origin.lower().rstrip("/") for origin in options.allow_origins),
        checks_origin=options.no_auth,
        max_body=options.max_body,
        is_always_tls=options.behind_proxy or (options.tls_cert is not None and not _is_loopback(host)),
    )
    stopping = ServerStop()
    tokens = None if options.oidc is None or options.audience is None else (options.oidc, options.audience)
    served = application(engine, catalog, anybody if options.no_auth else None, policy, stopping, tokens)
    listening = Listening(
        host, port, options.tls_cert, options.tls_key, reuse_port=options.reuse_port, behind_proxy=options.behind_proxy
    )
    return Server(served, listening, stopping, options.prefix)


async def first_key(engine: Engine) -> str | None:
    """The key of an admin for a database that has none; None when it has had one."""
    if await engine.access_keys.all():
        return None
    made = await engine.access_keys.create(KeyRequest("first", tuple(sorted(ROLES["admin"]))))
    return made.key
