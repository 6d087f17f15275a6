"""`perdure serve`: everything over HTTP, until told to stop.

In:   an address, and the modules whose workflows it also works.
Out:  one line with the address, and with the first key of a database that had none; then answers.
"""

import asyncio
import gc
import logging
import signal
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

import perdure
from perdure.cli.input.database import refuse_memory, refuse_server
from perdure.cli.input.modules import load
from perdure.cli.input.options import DEFAULT_NAMESPACE, DEFAULT_QUEUE, DEFAULT_URL, AsJson, Namespace, Url
from perdure.cli.input.values import duration
from perdure.cli.output.errors import Mistake
from perdure.cli.output.tables import LogFormatter, is_for_people, print_json_line, screen

if TYPE_CHECKING:
    from perdure.app.network.serving import ServerOptions

GRACE_SECONDS = 10
# Of a worker that only sees to schedules, sinks and the like.
QUEUE_OF_DUTIES = "perdure-duties"
EXAMPLES = {
    "serve": """\
perdure serve --url postgresql://db/shop
perdure serve shop --listen 127.0.0.1:8080
perdure serve --listen 0.0.0.0:7373 --tls-cert cert.pem --tls-key key.pem --allow-host shop.example"""
}

Modules = Annotated[
    list[str] | None,
    typer.Argument(metavar="[MODULE]...", help="Work the queues of these, too.", show_default=False),
]
Listen = Annotated[str, typer.Option("--listen", metavar="ADDRESS", help="Where to listen; port 0 picks one.")]
Cert = Annotated[str | None, typer.Option("--tls-cert", metavar="FILE", help="The certificate for https.")]
TlsKey = Annotated[str | None, typer.Option("--tls-key", metavar="FILE", help="Its key.")]
Proxy = Annotated[bool, typer.Option("--behind-proxy", help="A proxy in front of it speaks TLS.")]
Hosts = Annotated[list[str] | None, typer.Option("--allow-host", metavar="NAME", help="Answer to this name, too.")]
Origins = Annotated[list[str] | None, typer.Option("--allow-origin", metavar="URL", help="Let these pages call it.")]
NoAuth = Annotated[bool, typer.Option("--no-auth", help="Ask for no key; on this machine alone.")]
Oidc = Annotated[str | None, typer.Option("--oidc", metavar="ISSUER", help="Take tokens of this issuer, too.")]
Audience = Annotated[str | None, typer.Option("--audience", metavar="NAME", help="For whom such tokens must be.")]
Prefix = Annotated[str, typer.Option("--prefix", metavar="/PATH", help="The path that all routes are under.")]
ReusePort = Annotated[bool, typer.Option("--reuse-port", help="Share the port with other servers.")]
MaxBody = Annotated[int, typer.Option("--max-body", metavar="BYTES", min=1024, help="The largest body of a request.")]
Grace = Annotated[
    float | None,
    typer.Option(
        "--grace",
        metavar="DURATION",
        parser=duration,
        help="How long what is under way may finish.",
        show_default="10s",
    ),
]
Queues = Annotated[list[str] | None, typer.Option("--queue", metavar="NAME", help="A queue to work, not `default`.")]
# A request of a worker makes thousands of values that live for a moment: to look through them by the hundred takes a
# quarter of the processor time.
GC_THRESHOLDS = (20_000, 20, 50)


def serve(
    modules: Modules = None,
    *,
    listen: Listen = "127.0.0.1:7373",
    tls_cert: Cert = None,
    tls_key: TlsKey = None,
    behind_proxy: Proxy = False,
    allow_host: Hosts = None,
    allow_origin: Origins = None,
    oidc: Oidc = None,
    audience: Audience = None,
    no_auth: NoAuth = False,
    prefix: Prefix = "",
    reuse_port: ReusePort = False,
    max_body: MaxBody = 8 * 1024 * 1024,
    grace: Grace = None,
    queue: Queues = None,
    url: Url = DEFAULT_URL,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Serve runs over HTTP until Ctrl-C or SIGTERM."""
    refuse_memory(url)
    refuse_server(url)
    options = loaded_server(
        listen,
        tls_cert=tls_cert,
        tls_key=tls_key,
        behind_proxy=behind_proxy,
        allow_hosts=tuple(allow_host or ()),
        allow_origins=tuple(allow_origin or ()),
        oidc=oidc,
        audience=audience,
        no_auth=no_auth,
        prefix=prefix,
        reuse_port=reuse_port,
        max_body=max_body,
    )
    for module in modules or ():
        load(module)
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler])
    logging.getLogger("perdure.access").setLevel(logging.INFO)
    queues, patience = queue or [DEFAULT_QUEUE], GRACE_SECONDS if grace is None else grace
    app = perdure.Perdure(url, namespace=namespace, worker=bool(modules), queues=queues, grace=patience)

    from perdure.app.network.server import begin_server, end_server  # noqa: PLC0415 - it needs the extra `server`

    async def work() -> None:
        async with app, AsyncExitStack() as beside:
            if not modules:
                # Schedules and sinks need a worker, and all others may be remote: this one does nothing else. It is no
                # worker of the server's own engine, so that a lease it loses is no concern of any request.
                duties = perdure.Perdure(url, namespace=namespace, queues=[QUEUE_OF_DUTIES], grace=GRACE_SECONDS)
                await beside.enter_async_context(duties)
            stop = _until_signal()
            server, key = await begin_server(app, options)
            try:
                _say(server.url, key, as_json=as_json)
                await stop.wait()
            finally:
                await end_server(app, server, patience)

    gc.set_threshold(*GC_THRESHOLDS)
    asyncio.run(work())


def loaded_server(listen: str, **how: Any) -> "ServerOptions":
    """How to listen, checked; Mistake where what a server needs is not installed."""
    try:
        import perdure.app.network.server  # noqa: F401, PLC0415 - it needs the extra `server`
        from perdure.app.network.serving import ServerOptions, checked_address  # noqa: PLC0415 - as above
    except ImportError as error:
        raise Mistake(f"the server needs {error.name}; install it with: pip install 'perdure[server]'") from None
    options = ServerOptions(listen, **how)
    checked_address(options)
    return options


def _until_signal() -> asyncio.Event:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stop.set)
    return stop


def _say(url: str, key: str | None, *, as_json: bool) -> None:
    if not is_for_people(as_json=as_json):
        print_json_line({"url": url} | ({} if key is None else {"first_key": key}))
    else:
        console = screen()
        console.print(Text(f"serving on {url}; routes: {url}/docs; Ctrl-C stops it", style="bold"), soft_wrap=True)
        if key is not None:
            console.print(Text(f"  the first key, shown this once: {key}"), soft_wrap=True)
    sys.stdout.flush()
