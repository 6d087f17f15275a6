"""Tokens of an OpenID issuer: who is let in by one, and every way in which one is forged."""

import base64
import hmac
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from perdure import sleep, workflow
from perdure.app.internals import engine_of
from perdure.app.network.serving import ServerOptions, application, checked_address
from perdure.errors import BadOption
from perdure.http.callers.issuers import KEPT_MS, PAUSE_MS, checked_url
from perdure.testing import Environment
from tests.server.in_process import Answer, Caller
from tests.server.keyed import key_for

RSA, OTHER_RSA = (rsa.generate_private_key(65537, 2048) for _ in range(2))
EC, ED = ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()
PUBLIC = [
    json.loads(RSAAlgorithm.to_jwk(RSA.public_key())) | {"kid": "rsa", "use": "sig"},
    json.loads(RSAAlgorithm.to_jwk(OTHER_RSA.public_key())) | {"kid": "other", "alg": "RS256"},
    json.loads(ECAlgorithm.to_jwk(EC.public_key())) | {"kid": "ec"},
    json.loads(OKPAlgorithm.to_jwk(ED.public_key())) | {"kid": "ed"},
    {"kty": "oct", "kid": "shared", "k": "c2VjcmV0"},
    {"kty": "RSA", "kid": "broken"},
]
RIGHTS = {"scopes": ["read", "start"], "namespaces": ["main"]}


@workflow
async def token_flow() -> None:
    await sleep(3600)


class LocalIssuer(ThreadingHTTPServer):
    """An issuer on this machine, which may be away, and counts who asks."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.keys, self.calls_itself, self.is_away, self.asked = PUBLIC, self.url, False, 0


class Answering(BaseHTTPRequestHandler):
    server: LocalIssuer

    def do_GET(self) -> None:
        issuer = self.server
        told: Any = {"keys": issuer.keys}
        if self.path == "/.well-known/openid-configuration":
            issuer.asked += 1
            told = {"issuer": issuer.calls_itself, "jwks_uri": f"{issuer.url}/keys"}
        self.send_response(503 if issuer.is_away else 200)
        self.end_headers()
        self.wfile.write(json.dumps(told).encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def issuers() -> Iterator[LocalIssuer]:
    with LocalIssuer() as issuer:
        thread = threading.Thread(target=issuer.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield issuer
        issuer.shutdown()
        thread.join()


@pytest.fixture
def issuer(issuers: LocalIssuer) -> LocalIssuer:
    issuers.keys, issuers.calls_itself, issuers.is_away, issuers.asked = PUBLIC, issuers.url, False, 0
    return issuers


class World:
    """A server that takes tokens of the issuer, for `shop`."""

    def __init__(self, env: Environment, issuer: LocalIssuer) -> None:
        engine = engine_of(env.app)
        assert engine is not None
        self.env, self.issuer = env, issuer
        self.api = application(engine, env.app._catalog, tokens=(issuer.url, "shop"))

    def token(self, key: Any = RSA, algorithm: str = "RS256", kid: str | None = "rsa", **claims: Any) -> str:
        now = self.env.clock.now() / 1000
        said = {"iss": self.issuer.url, "aud": "shop", "sub": "ann", "exp": now + 600, "iat": now, "perdure": RIGHTS}
        said = {name: value for name, value in (said | claims).items() if value is not None}
        return jwt.encode(said, key, algorithm, headers={} if kid is None else {"kid": kid})

    def caller(self, token: str) -> Caller:
        return Caller(self.api, authorization=f"Bearer {token}")

    async def get(self, token: str) -> Answer:
        return await self.caller(token).get("/v1/runs")


@asynccontextmanager
async def world(path: Path, issuer: LocalIssuer) -> AsyncIterator[World]:
    async with Environment(str(path / "test.db")) as env:
        yield World(env, issuer)


async def test_a_token_of_the_issuer_is_good_for_what_its_claim_says(quick_path: Path, issuer: LocalIssuer) -> None:
    async with world(quick_path, issuer) as server:
        for key, algorithm, kid in (
            (RSA, "RS256", "rsa"),
            (RSA, "RS512", "rsa"),
            (EC, "ES256", "ec"),
            (ED, "EdDSA", "ed"),
        ):
            assert (await server.get(server.token(key, algorithm, kid))).status == 200
        ann = server.caller(server.token(aud=["shop", "mail"], perdure=RIGHTS | {"entity_id": "npc-42"}))
        assert (await ann.post("/v1/runs", {"workflow": "token_flow"})).json["entity_id"] == "npc-42"
        for method, url in (("GET", "/v1/runs?namespace=other"), ("GET", "/v1/keys"), ("POST", "/v1/bulk/cancel")):
            answer = await ann(method, url, {} if method == "POST" else None)
            assert (answer.status, answer.json["error"]) == (403, "NotAllowed")
        assert (await server.get(await key_for(server.env))).status == 200
        assert issuer.asked == 1


def forged(server: World) -> dict[str, str]:
    """Every way to make a token without being the issuer, or to use one that is not meant for this."""
    secret = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head, body, signature = server.token().split(".")
    other_body = server.token(sub="root").split(".")[1]
    return {
        "the signature is left out": f"{_part(alg='none', kid='rsa')}.{body}.",
        "none in other letters": f"{_part(alg='nOnE', kid='rsa')}.{body}.",
        "no algorithm": f"{_part(kid='rsa')}.{body}.{signature}",
        "signed with the public key as a secret": _by_secret(secret, body, "rsa"),
        "signed with the shared key of the set": _by_secret(b"secret", body, "shared"),
        "an asymmetric name over the shared key": _by_secret(b"secret", body, "shared", "RS256"),
        "another body": f"{head}.{other_body}.{signature}",
        "another audience": server.token(aud="mail"),
        "no audience": server.token(aud=None),
        "another issuer": server.token(iss="https://evil.example"),
        "an issuer that begins alike": server.token(iss=f"{server.issuer.url}.evil.example"),
        "no issuer": server.token(iss=None),
        "expired": server.token(exp=server.env.clock.now() / 1000 - 61),
        "without an end": server.token(exp=None),
        "an end that is no time": _raw_claim(server, exp="never"),
        "not yet": server.token(nbf=server.env.clock.now() / 1000 + 3600),
        "from the future": server.token(iat=server.env.clock.now() / 1000 + 3600),
        "the kid of another": server.token(kid="other"),
        "a key that the issuer does not have": server.token(OTHER_RSA, kid="rsa"),
        "a kid that nobody has": server.token(kid="nobody"),
        "no kid": server.token(kid=None),
        "a key for another algorithm": server.token(OTHER_RSA, "RS512", "other"),
        "a kind of key that does not fit": server.token(RSA, "RS256", "ec"),
        "a key that cannot be read": server.token(kid="broken"),
        "a key that the token brings along": _with_header(server, jwk=PUBLIC[1], jku="https://evil.example/keys"),
        "a certificate that it names": _with_header(server, x5u="https://evil.example/cert", x5c=["MII"]),
        "what must be understood and is not": _with_header(server, crit=["exp"]),
        "nonsense": "a.b.c",
        "empty parts": "..",
    }


def _with_header(server: World, **more: Any) -> str:
    """A token of another key that says where its own key is to be found."""
    body = server.token().split(".")[1]
    text = f"{_part(alg='RS256', kid='rsa', **more)}.{body}"
    return f"{text}.{_b64(jwt.get_algorithm_by_name('RS256').sign(text.encode(), OTHER_RSA))}"


def _raw_claim(server: World, **claims: Any) -> str:
    """A token whose library would not have let such a claim be written."""
    head, body, _ = server.token().split(".")
    said = json.loads(base64.urlsafe_b64decode(body + "==")) | claims
    text = f"{head}.{_part(**said)}"
    return f"{text}.{_b64(jwt.get_algorithm_by_name('RS256').sign(text.encode(), RSA))}"


def _by_secret(secret: bytes, body: str, kid: str, algorithm: str = "HS256") -> str:
    text = f"{_part(alg=algorithm, kid=kid)}.{body}"
    return f"{text}.{_b64(hmac.digest(secret, text.encode(), 'sha256'))}"


def _part(**said: Any) -> str:
    return _b64(json.dumps(said).encode())


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


async def test_no_forged_token_is_let_in(quick_path: Path, issuer: LocalIssuer) -> None:
    """Each is answered by 401 and a word about it; a table, so that the next trick is a line."""
    async with world(quick_path, issuer) as server:
        assert (await server.get(server.token())).status == 200
        for trick, token in forged(server).items():
            server.env.clock.advance(7_000)
            answer = await server.get(token)
            assert (answer.status, answer.json["error"]) == (401, "NotAuthenticated"), trick
            assert "token" in answer.json["detail"] or "no key" in answer.json["detail"], trick
            assert token not in answer.body.decode(), trick
        assert (await server.get(server.token())).status == 200


@pytest.mark.parametrize(
    "claim",
    [
        None,
        "admin",
        ["read"],
        {},
        {"scopes": "read"},
        {"scopes": [1]},
        {"scopes": ["root"]},
        {"scopes": ["open"]},
        {"scopes": ["read"], "namespaces": "main"},
        {"scopes": ["read"], "namespaces": []},
        {"scopes": ["read"], "namespaces": None},
        {"scopes": ["read"], "namespaces": [""]},
        {"scopes": ["read"], "entity_id": None},
        {"scopes": ["read"], "entity_id": 7},
        {"scopes": ["read"], "entity_id": ""},
        {"scopes": ["read"], "namespace": ["main"]},
    ],
)
async def test_a_claim_that_makes_no_sense_gives_no_right(quick_path: Path, issuer: LocalIssuer, claim: Any) -> None:
    """Above all not every right, as a field that is misspelt or empty would mean."""
    async with world(quick_path, issuer) as server:
        answer = await server.get(server.token(perdure=claim))
        assert (answer.status, answer.json["error"]) == (403, "NotAllowed")
        assert '"scopes"' in answer.json["detail"]


async def test_new_keys_are_asked_for_and_old_ones_outlive_an_outage(quick_path: Path, issuer: LocalIssuer) -> None:
    async with world(quick_path, issuer) as server:
        clock = server.env.clock
        issuer.keys = PUBLIC[:1]
        assert (await server.get(server.token())).status == 200
        # Nobody makes us ask the issuer for every token with a kid of its own.
        for _ in range(3):
            assert (await server.get(server.token(EC, "ES256", "ec"))).status == 401
        assert issuer.asked == 1
        issuer.keys = PUBLIC
        clock.advance(PAUSE_MS)
        assert (await server.get(server.token(EC, "ES256", "ec"))).status == 200
        assert issuer.asked == 2
        issuer.is_away = True
        clock.advance(KEPT_MS - 1000)
        assert (await server.get(server.token())).status == 200
        clock.advance(PAUSE_MS)
        gone = await server.get(server.token())
        assert (gone.status, gone.json["error"], gone.headers["retry-after"]) == (503, "IssuerUnavailable", "2")
        issuer.is_away = False
        clock.advance(PAUSE_MS)
        assert (await server.get(server.token())).status == 200


async def test_an_issuer_that_calls_itself_something_else_is_not_believed(
    quick_path: Path, issuer: LocalIssuer
) -> None:
    async with world(quick_path, issuer) as server:
        issuer.calls_itself = "https://evil.example"
        assert (await server.get(server.token())).status == 503


async def test_a_stream_ends_when_its_token_does(quick_path: Path, issuer: LocalIssuer) -> None:
    async with world(quick_path, issuer) as server:
        ann = server.caller(server.token(exp=server.env.clock.now() / 1000 + 5))
        await ann.post("/v1/runs", {"workflow": "token_flow", "id": "z"})
        async with aclosing(ann.raw_frames("/v1/runs/z/events")) as frames:
            assert b"RunStarted" in await anext(frames)
            await server.env.pass_time(7)
            assert b"event: stop" in b"".join([frame async for frame in frames])


@pytest.mark.parametrize(
    "url", ["http://login.example", "ftp://login.example", "login.example", "file:///etc/passwd", ""]
)
def test_an_issuer_is_reached_by_https_alone(url: str) -> None:
    with pytest.raises(BadOption, match="https://"):
        checked_url(url)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (ServerOptions(oidc="https://login.example"), "--audience"),
        (ServerOptions(audience="shop"), "--oidc"),
        (ServerOptions(oidc="https://login.example", audience="shop", no_auth=True), "--no-auth"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: ServerOptions, told: str) -> None:
    with pytest.raises(BadOption, match=told):
        checked_address(options)
