"""Tokens of an OpenID issuer: the caller behind a signed JWT.

In:   the headers of a request; the issuer and the audience that the server was started with.
Out:  a Caller by the claim `perdure: {scopes, namespaces, entity_id}`; NotAuthenticated with what is wrong with the
      token, NotAllowed with what is wrong with the claim.
What looks like a JWT is taken for one and nothing else; all else is a key of the database.
"""

import jwt
import msgspec
from jwt.exceptions import InvalidAudienceError, InvalidIssuerError, InvalidSignatureError, PyJWTError
from jwt.types import Options

from perdure.clock import Clock
from perdure.errors import BadInput, NotAllowed, NotAuthenticated
from perdure.http.access import ALL_SCOPES, AsgiScope, Caller
from perdure.http.callers.authentication import KeyAuthentication, key_in
from perdure.http.callers.issuers import ALGORITHMS, Issuer
from perdure.ids import checked_id

CLAIM = "perdure"
EXAMPLE = '{"perdure": {"scopes": ["read"], "namespaces": ["main"]}}'
# Clocks of two machines are not the same.
LEEWAY_SECONDS = 60
DOTS = 2
# What is about time is compared with the time of the engine, below.
OPTIONS: Options = {
    "require": ["exp", "iss", "aud"],
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
}


class _Times(msgspec.Struct):
    exp: float
    nbf: float = 0.0
    iat: float = 0.0


class _Rights(msgspec.Struct, forbid_unknown_fields=True):
    """What the claim says. Null is refused: a rule of an issuer that finds nothing must not mean everything."""

    scopes: list[str]
    namespaces: list[str] | msgspec.UnsetType = msgspec.UNSET
    entity_id: str | msgspec.UnsetType = msgspec.UNSET


class TokenAuthentication:
    """Finds callers by tokens of an issuer; who shows no token is left to the keys of the database."""

    def __init__(self, issuer: Issuer, audience: str, keys: KeyAuthentication, clock: Clock) -> None:
        self._issuer = issuer
        self._audience = audience
        self._keys = keys
        self._clock = clock

    async def __call__(self, scope: AsgiScope) -> Caller | None:
        text = key_in(scope)
        if text is None or text.startswith("pdk_") or text.count(".") != DOTS:
            return await self._keys(scope)
        try:
            claims = await self._claims(text)
        except NotAuthenticated:
            self._keys.count_wrong(scope)
            raise
        return _caller(claims)

    async def _claims(self, text: str) -> dict[str, object]:
        """What a token says, once it is known who signed it, for whom and until when; NotAuthenticated."""
        try:
            header = jwt.get_unverified_header(text)
        except PyJWTError:
            raise NotAuthenticated("the token cannot be read") from None
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            raise NotAuthenticated(f"the token is signed by {algorithm!r}; {', '.join(ALGORITHMS)} are accepted")
        if not isinstance(key_id, str):
            raise NotAuthenticated("the token does not say by `kid` which key has signed it")
        key = await self._issuer.key(key_id, algorithm)
        if key is None:
            raise NotAuthenticated(f"{self._issuer.url} has no key {key_id!r} for {algorithm}")
        try:
            claims: dict[str, object] = jwt.decode(
                text,
                key,
                algorithms=[algorithm],
                audience=self._audience,
                issuer=self._issuer.url,
                options=OPTIONS,
            )
        except PyJWTError as error:
            raise NotAuthenticated(self._why(error)) from None
        self._check_times(claims)
        return claims

    def _why(self, error: PyJWTError) -> str:
        match error:
            case InvalidSignatureError():
                return "the token was changed, or signed by another key"
            case InvalidAudienceError():
                return f"the token is not for {self._audience!r}"
            case InvalidIssuerError():
                return f"the token is not from {self._issuer.url!r}"
            case _:
                return f"the token is not good here: {error}"

    def _check_times(self, claims: dict[str, object]) -> None:
        now = self._clock.now() / 1000
        try:
            times = msgspec.convert(claims, _Times)
        except msgspec.ValidationError as error:
            raise NotAuthenticated(f"a time of the token cannot be read: {error}") from None
        if times.exp <= now - LEEWAY_SECONDS:
            raise NotAuthenticated("the token has expired; get a new one")
        if max(times.nbf, times.iat) > now + LEEWAY_SECONDS:
            raise NotAuthenticated("the token is not good yet; compare the clocks of this server and of the issuer")


def _caller(claims: dict[str, object]) -> Caller:
    """The caller that a token stands for; NotAllowed when its claim makes no sense."""
    label = str(claims.get("sub") or "a token")
    if CLAIM not in claims:
        raise NotAllowed(f"the token of {label!r} has no claim {CLAIM!r}", f"let the issuer add one: {EXAMPLE}")
    try:
        rights = _checked(msgspec.convert(claims[CLAIM], _Rights))
    except (msgspec.ValidationError, BadInput) as error:
        raise NotAllowed(f"the claim {CLAIM!r} of {label!r} makes no sense: {error}", f"such as {EXAMPLE}") from None
    return Caller(
        label,
        frozenset(rights.scopes),
        () if rights.namespaces is msgspec.UNSET else tuple(rights.namespaces),
        None if rights.entity_id is msgspec.UNSET else rights.entity_id,
        expires_at=round(msgspec.convert(claims, _Times).exp * 1000),
    )


def _checked(rights: _Rights) -> _Rights:
    if unknown := sorted(set(rights.scopes) - ALL_SCOPES):
        raise BadInput(f"no scope is named {unknown[0]!r}; there are {', '.join(sorted(ALL_SCOPES))}")
    if rights.namespaces is not msgspec.UNSET:
        if not rights.namespaces:
            raise BadInput("it has no namespaces; leave the field out when all are meant")
        for name in rights.namespaces:
            checked_id("namespace", name)
    if rights.entity_id is not msgspec.UNSET:
        checked_id("entity id", rights.entity_id)
    return rights
