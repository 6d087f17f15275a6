"""An engine under a key: each of its commands is done once, and answered alike each time.

In:   commands, as any engine takes them, and the key they are asked under.
Out:  what they answer; KeyConflict when the key was used with other arguments, KeyInProgress while it is under way.

A command of one transaction writes its key, its effect and its answer in that one. One of several takes the key first,
and says what came of it last; a caller that died in between is followed by another one after a while.
Nothing is read before: who comes second is refused by the key, and told what is kept under it.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple, cast

import msgspec

from perdure.clock import Clock
from perdure.engine.committer import CallbackGroup, Committer, refusal_of
from perdure.engine.keys.commands import COMMANDS, START, Command, answer_of, digest_of
from perdure.engine.keys.writing import KeyedCommitter, KeyTaken, over
from perdure.engine.ports import (
    Broadcast,
    BulkAction,
    CommandKey,
    Engine,
    MadeKey,
    OwnedRun,
    ServerReply,
    StartedRun,
    StartRequest,
    Steering,
)
from perdure.errors import BadOption, KeyAlreadyMade, KeyConflict, KeyInProgress, PerdureError
from perdure.ids import Ids
from perdure.stores.answers import Applied, KeptKey, Moved
from perdure.stores.operations import FinishKey, NoteReply, ReleaseKey, TakeKey
from perdure.stores.port import Store
from perdure.stores.records import KeyRow

NOUNS = frozenset(noun for noun, _ in COMMANDS)


class Base(NamedTuple):
    """The engine that does the commands, and what it writes with."""

    engine: Engine
    store: Store
    committer: Committer
    clock: Clock
    ids: Ids


class Twin:
    """The parts of an engine that `start` asks, for one command."""

    once = None

    def __init__(self, client: object, reader: object) -> None:
        self.client = client
        self.reader = reader


class KeyedEngine:
    """The engine itself, but for its commands."""

    def __init__(self, base: Base, key: CommandKey, root: "KeyedEngine | None" = None) -> None:
        self._base = base
        self._key = key
        self._root = root
        self.is_replayed = self.replies = False
        # The first key that was taken here.
        self._taken: TakeKey | None = None

    @property
    def once(self) -> "KeyedEngine":
        return self

    def __getattr__(self, name: str) -> Any:
        return KeyedNoun(self, name) if name in NOUNS else getattr(self._base.engine, name)

    def about(self, *given: object) -> "KeyedEngine":
        """The engine for a command with these arguments, which it cannot tell from what it gets itself."""
        digest = self._key.digest or digest_of(given)
        return self._part(digest=digest)

    def numbered(self, number: int) -> "KeyedEngine":
        """The engine for one of the commands that are asked together under the key."""
        command = f"{self._key.command or 'start_many'}#{number}"
        return self._part(command=command)

    def _part(self, **changes: str) -> "KeyedEngine":
        made = KeyedEngine(self._base, msgspec.structs.replace(self._key, **changes), self)
        made.replies = self.replies
        return made

    def plain(self, noun: str, verb: str) -> Any:
        """What does a command without a key."""
        return getattr(getattr(self._base.engine, noun), verb)

    # What a server answers

    def keep_reply(self, text: str) -> None:
        """Keep what a server answers, beside what was done; not waited for."""
        key = self._taken
        if key is not None:
            self._base.committer.submit(CallbackGroup([NoteReply(*key.identity, key.holder, text)], lambda _: None))

    async def kept_reply(self) -> str | None:
        """What a server answered under the key; KeyConflict when that was to something else."""
        key = self._key
        assert key.command is not None
        row = await self._base.store.reads.keys.kept(key.namespace, key.command, key.text)
        if row is None or row.keep_until <= self._base.clock.now():
            return None
        if row.digest != key.digest:
            raise KeyConflict(key.text, key.command, row.digest, str(key.digest))
        return row.reply

    # Commands

    async def start(
        self, request: StartRequest, within: object, begin: Callable[[Any], Awaitable[StartedRun]]
    ) -> StartedRun:
        """Start a run once, by this function of an engine."""
        _refuse_connection(within)
        key = self._taking("start", digest_of(START.given(request)))

        async def do(committer: KeyedCommitter) -> StartedRun:
            return await begin(Twin(over(self._base.engine.client, committer), self._base.engine.reader))

        return cast("StartedRun", await self._in_one(START, key, do))

    async def do(self, noun: str, verb: str, *args: Any, **rest: Any) -> object:
        """A command of a noun."""
        command = COMMANDS[noun, verb]
        _refuse_connection(args[-1] if verb == "resolve_token" else rest.get("within"))
        asked = args[1:] if command.has_namespace else args
        if isinstance(asked[0], Broadcast | Steering):
            asked = (_under_key(asked[0], self._key.text), *asked[1:])
            args = (args[0], *asked)
        more = {name: value for name, value in rest.items() if name != "within"}
        key = self._taking(command.name(*asked), digest_of(command.given(*asked), more))
        if command.is_long:
            return await self._in_several(command, key, partial(self.plain(noun, verb), *args, **rest))
        part = getattr(self._base.engine, noun)
        return await self._in_one(command, key, lambda writer: getattr(over(part, writer), verb)(*args, **rest))

    async def _in_one(
        self, command: Command, key: TakeKey, do: Callable[[KeyedCommitter], Awaitable[object]]
    ) -> object:
        """Key, effect and answer in one transaction."""
        committer = KeyedCommitter(self._base.committer, key, only_inserts=command.is_run)
        try:
            found = await do(committer)
            # A run that was started here has its key with it; else there was nothing to be written.
            if not committer.is_taken and not isinstance(found, OwnedRun):
                await self._take(key._replace(answer=answer_of(found).decode()))
        except KeyTaken as taken:
            return self._kept(command, key, taken.row)
        except PerdureError:
            # What is refused now may be what was done before.
            row = await self._base.store.reads.keys.kept(*key.identity)
            if row is None or row.keep_until <= key.at:
                raise
            return self._kept(command, key, row)
        self._took(key)
        return found

    def _took(self, key: TakeKey) -> None:
        """A command was done here under a key."""
        self._taken = self._taken or key
        if self._root is not None:
            self._root._took(key)

    async def _in_several(self, command: Command, key: TakeKey, do: Callable[[], Awaitable[object]]) -> object:
        """The key first, the answer last; what is done in between is done once however often it is begun."""
        try:
            await self._take(key)
        except KeyTaken as taken:
            if taken.row.holder != key.holder:
                return self._kept(command, key, taken.row)
        try:
            found = await do()
        except BaseException:
            # Not waited for: whoever asks again may go on at once, or after a while.
            self._base.committer.submit(CallbackGroup([ReleaseKey(*key.identity, key.holder)], lambda _: None))
            raise
        keep_until = self._base.clock.now() + self._key.keep_ms
        answer = await self._base.committer.apply(
            FinishKey(*key.identity, key.holder, answer_of(found).decode(), keep_until)
        )
        if not isinstance(answer, Applied | Moved):
            raise refusal_of(answer, self._base.engine.url)
        self._took(key)
        return found

    async def _take(self, key: TakeKey) -> None:
        """Take a key by itself; KeyTaken."""
        answer = await self._base.committer.apply(key)
        if isinstance(answer, KeptKey):
            raise KeyTaken(answer)
        if not isinstance(answer, Applied):
            raise refusal_of(answer, self._base.engine.url)

    def _taking(self, command: str, digest: str) -> TakeKey:
        key, now = self._key, self._base.clock.now()
        return TakeKey(
            self._base.ids.token(),
            key.namespace,
            key.command or command,
            key.text,
            key.digest or digest,
            None,
            now,
            now + key.stale_ms,
            now + key.keep_ms,
        )

    def _kept(self, command: Command, key: TakeKey, row: KeyRow) -> object:
        """What was answered under the key."""
        if row.digest != key.digest:
            raise KeyConflict(key.key, key.command, row.digest, key.digest) from None
        if row.answer is None:
            raise KeyInProgress(key.key, key.command, key.at - row.taken_at) from None
        if command.answer is MadeKey:
            raise KeyAlreadyMade(key.key, msgspec.json.decode(row.answer, type=MadeKey).key_id) from None
        if row.holder == key.holder:
            # Written twice, as its answer was lost.
            self._took(key)
        elif self.replies and row.reply is not None:
            raise ServerReply(row.reply)
        else:
            self._replayed()
        return msgspec.json.decode(row.answer, type=command.answer)

    def _replayed(self) -> None:
        self.is_replayed = True
        if self._root is not None:
            self._root._replayed()


class KeyedNoun:
    """A noun of an engine under a key: its commands are done once, the rest is as without."""

    def __init__(self, engine: KeyedEngine, noun: str) -> None:
        self._engine = engine
        self._noun = noun

    def __getattr__(self, verb: str) -> Any:
        if (self._noun, verb) in COMMANDS:
            return partial(self._engine.do, self._noun, verb)
        return self._engine.plain(self._noun, verb)


def _under_key(action: BulkAction, key: str) -> BulkAction:
    """A message that counts once in each run, also when the command is taken over by another caller."""
    if isinstance(action, Steering):
        return Steering(action.verb, action.reason, f"{action.verb}:key:{key}")
    if action.message_id.startswith("signal:"):
        return action
    return Broadcast(action.sent, f"signal:key:{key}", action.delay_ms)


def _refuse_connection(within: object) -> None:
    if within is not None:
        raise BadOption("a key does not go with connection=: what is in your transaction is done when you commit")
