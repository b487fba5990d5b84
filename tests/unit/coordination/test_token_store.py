"""Delegation tokens in ZooKeeper: Kafka's layout and JSON, known to every node, and gone from all when they end."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.admin import tokens
from kafkalite.admin.tokens import TokenAdmin
from kafkalite.config import BrokerConfig
from kafkalite.coordination import paths
from kafkalite.coordination.coordinator import Coordinator, Create, Op
from kafkalite.coordination.token_znodes import decode_token, encode_token
from kafkalite.coordination.zk_acl_codec import is_private
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.errors import ApiError, ConfigError, ErrorCode
from kafkalite.kafka.handlers.tokens import TokenHandlers
from kafkalite.protocol import wire
from kafkalite.rpc.messages.changes import TOKENS
from kafkalite.security.principal import Principal
from kafkalite.security.tokens import SecretToken, Token
from kafkalite.testing.simulated.clock import SimClock
from kafkalite.testing.simulated.zookeeper import Fate
from tests.support.failing import fails_with
from tests.support.fetching import run_to_end

from .conftest import World, in_world

ALICE, BOB, CAROL = (Principal("User", name) for name in ("alice", "bob", "carol"))
#: What one user may have in the tests of that bound: with a thousand each takes ten seconds.
A_FEW = 30
SETTINGS = {
    "delegation_token_secret_key": "a secret of the cluster",
    "delegation_token_expiry_time_ms": 60_000,
    "delegation_token_max_lifetime_ms": 300_000,
    "delegation_token_expiry_check_interval_ms": 600_000,
}


class Node:
    """One node's tokens, and those that it reports as gone."""

    def __init__(self, world: World, *, is_controller: bool = False, **settings: object) -> None:
        self.world = world
        self.session: Coordinator | None = None
        self.gone: list[str] = []
        self.clock = SimClock(world.loop)
        config = BrokerConfig(**{**SETTINGS, **settings})  # type: ignore[arg-type]
        entropy = random.Random(world.random.random()).randbytes
        self.admin = TokenAdmin(
            config, self.clock, self._session, entropy, is_controller=lambda: is_controller, on_gone=self.gone.append
        )

    async def _session(self) -> Coordinator:
        assert self.session is not None
        return self.session

    async def start(self, host: str) -> Node:
        self.session = await self.world.connect(host)
        await self.admin.load(self.session)
        for work in (self.admin.follow(self.session), self.admin.run()):
            self.world.loop.create_task(work)
        return self

    def services(self) -> Any:
        """What the handlers of the requests need."""

        async def known_everywhere(what: str) -> None:
            assert what == TOKENS

        return SimpleNamespace(
            tokens=self.admin,
            clock=self.clock,
            run_blocking=None,
            rights=SimpleNamespace(access=None),
            node_principals=frozenset(),
            known_everywhere=known_everywhere,
        )

    def ids(self) -> list[str]:
        return [each.token.token_id for each in run_to_end(self.admin.describe(ALICE, None, lambda token: True))]


async def pair(world: World) -> tuple[Node, Node]:
    return await Node(world, is_controller=True).start("a"), await Node(world).start("b")


# --- bytes -----------------------------------------------------------------------------------------


def test_a_token_as_kafka_writes_it() -> None:
    odd = Principal("User", "CN=a b,O=c/d")
    token = Token("id", odd, ALICE, (BOB,), 1, 2, 3)
    data = encode_token(token)
    assert json.loads(data) == {
        "version": 3,
        "owner": "User%3ACN%3Da%20b%2CO%3Dc%2Fd",
        "tokenRequester": "User%3Aalice",
        "renewers": ["User%3Abob"],
        "issueTimestamp": 1,
        "maxTimestamp": 3,
        "expiryTimestamp": 2,
        "tokenId": "id",
    }
    assert decode_token(data, "id") == token
    assert is_private(paths.token("id")) and not is_private(paths.TOKEN_CHANGES)


def test_versions_before_the_requester() -> None:
    value = json.loads(encode_token(Token("id", ALICE, BOB, (), 1, 2, 3))) | {"version": 1}
    del value["tokenRequester"]
    assert decode_token(json.dumps(value).encode(), "id").requester == ALICE


@pytest.mark.parametrize(
    "change", [{"version": 4}, {"owner": "nobody"}, {"renewers": [3]}, {"tokenId": "x"}, {"expiryTimestamp": "1"}]
)
def test_what_is_no_token(change: dict[str, object]) -> None:
    value = json.loads(encode_token(Token("id", ALICE, BOB, (), 1, 2, 3))) | change
    with pytest.raises(ZnodeError):
        decode_token(json.dumps(value).encode(), "id")


# --- nodes -----------------------------------------------------------------------------------------


@in_world
async def test_every_node_hears_of_a_token_and_of_its_end(world: World) -> None:
    one, other = await pair(world)
    made = await one.admin.create(ALICE, ALICE, [BOB], -1)
    await asyncio.sleep(1)
    assert other.ids() == [made.token.token_id]
    assert other.admin.delegated("SCRAM-SHA-512", made.token.token_id) is not None
    assert await other.admin.expire(BOB, made.hmac, -1) == other.clock.wall_ms()
    await asyncio.sleep(1)
    assert one.ids() == other.ids() == []
    assert one.gone == other.gone == [made.token.token_id]


@in_world
async def test_a_node_that_was_away_learns_what_has_changed(world: World) -> None:
    one, other = await pair(world)
    kept, ended = [await one.admin.create(ALICE, ALICE, [], -1) for _ in range(2)]
    await asyncio.sleep(1)
    assert other.session is not None
    await other.session.close()
    await one.admin.expire(ALICE, ended.hmac, -1)
    other.session = await world.connect("b")
    await other.admin.load(other.session)
    assert other.ids() == [kept.token.token_id] and other.gone == [ended.token.token_id]


@in_world
async def test_times_are_those_of_the_request_within_those_of_the_configuration(world: World) -> None:
    one, _ = await pair(world)

    async def times(asked_ms: int) -> tuple[int, int]:
        token = (await one.admin.create(ALICE, ALICE, [], asked_ms)).token
        return token.expires_ms - token.issued_ms, token.max_ms - token.issued_ms

    assert await times(-1) == (60_000, 300_000)
    assert await times(10_000) == (10_000, 10_000)
    assert await times(10**15) == (60_000, 300_000)
    made = await one.admin.create(ALICE, ALICE, [], -1)
    for change, period_ms, expected_ms in (
        (one.admin.renew, 5_000, 5_000),
        (one.admin.renew, 10**15, 60_000),
        (one.admin.expire, 7_000, 7_000),
    ):
        before = one.clock.wall_ms()
        end = await change(ALICE, made.hmac, period_ms)
        assert before <= end - expected_ms <= one.clock.wall_ms()
    assert await one.admin.expire(ALICE, made.hmac, 10**15) == made.token.max_ms


@in_world
async def test_refusals(world: World) -> None:
    one, other = await pair(world)
    made = await one.admin.create(ALICE, CAROL, [BOB], -1)
    await asyncio.sleep(1)
    for principal, value, code in (
        (CAROL, made.hmac, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH),
        (ALICE, b"other", ErrorCode.DELEGATION_TOKEN_NOT_FOUND),
    ):
        for work in (one.admin.renew(principal, value, -1), other.admin.expire(principal, value, -1)):
            with fails_with(code):
                await work
    with fails_with(ErrorCode.INVALID_PRINCIPAL_TYPE):
        await one.admin.create(ALICE, ALICE, [Principal("Group", "g")], -1)
    with fails_with(ErrorCode.INVALID_REQUEST):
        await one.admin.create(ALICE, ALICE, [Principal("User", "x" * 1_000 + str(n)) for n in range(99)], -1)


@in_world
async def test_a_token_ends_on_every_node_at_its_time_and_is_removed_by_the_controller(world: World) -> None:
    one, other = await pair(world)
    made = await other.admin.create(ALICE, ALICE, [], -1)
    await asyncio.sleep(59)
    assert one.ids() == other.ids() == [made.token.token_id]
    await asyncio.sleep(2)
    assert one.ids() == other.ids() == []
    assert one.gone == other.gone == [made.token.token_id]
    assert one.session is not None
    path = paths.token(made.token.token_id)
    assert await one.session.exists(path) is not None
    await asyncio.sleep(600)
    assert await one.session.exists(path) is None


@in_world
async def test_the_controller_outlives_a_sweep_while_zookeeper_is_away(world: World) -> None:
    """A request that waits for ZooKeeper is refused with an ApiError in the end; the task of the tokens waits as well."""
    one = await Node(world, is_controller=True).start("n1")
    made = await one.admin.create(ALICE, ALICE, (), -1)
    session = one.admin._session

    async def refused() -> Coordinator:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "ZooKeeper has not answered")

    one.admin._session = refused
    await asyncio.sleep(700)
    assert one.gone == [made.token.token_id]
    one.admin._session = session
    await asyncio.sleep(600)
    assert one.session is not None
    assert (await one.session.children(paths.TOKENS))[0] == []


@in_world
async def test_a_token_is_valid_again_when_a_clock_that_was_wrong_is_set_right(world: World) -> None:
    one, other = await pair(world)
    made = await one.admin.create(ALICE, ALICE, [BOB], -1)
    await asyncio.sleep(1)
    other.clock.jump(3_600_000)
    extra = await one.admin.create(ALICE, ALICE, [], -1)  # the other node looks at its tokens
    await asyncio.sleep(1)
    ids = sorted([made.token.token_id, extra.token.token_id])
    assert other.ids() == [] and sorted(other.gone) == ids
    assert other.admin.delegated("SCRAM-SHA-512", made.token.token_id) is None
    other.clock.jump(-3_600_000)
    assert other.admin.delegated("SCRAM-SHA-512", made.token.token_id) is not None
    assert other.ids() == ids
    assert await other.admin.renew(BOB, made.hmac, -1) > made.token.expires_ms
    await asyncio.sleep(700)
    assert other.ids() == one.ids() == [] and sorted(one.gone) == ids


@in_world
async def test_a_renewal_that_was_not_heard_yet_outlives_the_sweep(world: World) -> None:
    one, other = await pair(world)
    made = await other.admin.create(ALICE, ALICE, [], -1)
    await asyncio.sleep(1)
    assert one.session is not None
    data, stat = await one.session.get(paths.token(made.token.token_id))
    renewed = decode_token(data, made.token.token_id)
    longer = Token(
        renewed.token_id, ALICE, ALICE, (), renewed.issued_ms, renewed.max_ms + 10**7, renewed.max_ms + 10**7
    )
    await one.session.set(paths.token(renewed.token_id), encode_token(longer), stat.version)  # no notification
    await asyncio.sleep(700)
    assert one.ids() == [made.token.token_id]


@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_REPLY])
@in_world
async def test_a_write_whose_outcome_is_lost_makes_one_token(world: World, fate: Fate) -> None:
    one, other = await pair(world)
    world.zk.lose_next("a", Fate.SERVE, 1)  # the read
    world.zk.lose_next("a", fate, 1)
    made = await one.admin.create(ALICE, ALICE, [], -1)
    await asyncio.sleep(10)
    assert one.ids() == other.ids() == [made.token.token_id]


@in_world
async def test_nobody_logs_in_with_what_cannot_be_read(world: World) -> None:
    one, _ = await pair(world)
    assert one.session is not None
    await one.session.multi([Create(paths.token("bad"), b"{}")])
    await one.session.multi([Create(f"{paths.TOKEN_CHANGES}/token_change_", b"bad", sequential=True)])
    await asyncio.sleep(1)
    assert one.admin.delegated("SCRAM-SHA-256", "bad") is None
    assert list(one.admin.malformed) == [paths.token("bad")]


@in_world
async def test_the_tokens_of_one_user_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MAX_TOKENS_OF_ONE", A_FEW)
    one, _ = await pair(world)
    for _ in range(A_FEW):
        await one.admin.create(ALICE, ALICE, [], -1)
    with fails_with(ErrorCode.POLICY_VIOLATION):
        await one.admin.create(ALICE, ALICE, [], -1)
    assert isinstance(await one.admin.create(ALICE, BOB, [], -1), SecretToken)


@in_world
async def test_tokens_that_have_expired_count_until_they_are_removed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one user could fill ZooKeeper with tokens of a millisecond."""
    monkeypatch.setattr(tokens, "MAX_TOKENS_OF_ONE", A_FEW)
    one, _ = await pair(world)
    for _ in range(A_FEW):
        await one.admin.create(ALICE, ALICE, [], 1)
    await asyncio.sleep(1)
    assert one.ids() == [] and len(one.gone) == A_FEW
    with fails_with(ErrorCode.POLICY_VIOLATION):
        await one.admin.create(ALICE, ALICE, [], -1)
    await asyncio.sleep(700)
    assert isinstance(await one.admin.create(ALICE, ALICE, [], -1), SecretToken)


@in_world
async def test_tokens_that_are_asked_for_at_the_same_time_are_bounded_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "MAX_TOKENS_OF_ONE", A_FEW)
    one, _ = await pair(world)
    asked = [one.admin.create(ALICE, ALICE, [], -1) for _ in range(A_FEW + 20)]
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(isinstance(each, SecretToken) for each in outcomes) == A_FEW
    # One that has ended makes room for another one.
    await one.admin.expire(ALICE, next(each for each in outcomes if isinstance(each, SecretToken)).hmac, -1)
    assert isinstance(await one.admin.create(ALICE, ALICE, [], -1), SecretToken)


@in_world
async def test_a_description_for_many_owners_compares_each_token_once(world: World) -> None:
    """Anybody may ask: 10,000 owners and 1,000 tokens took the loop four seconds."""
    hashed = 0

    class Counted(Principal):
        def __hash__(self) -> int:
            nonlocal hashed
            hashed += 1
            return hash((self.kind, self.name))

        def __eq__(self, other: object) -> bool:
            raise AssertionError("an owner is compared with each token")

    one, _ = await pair(world)
    for _ in range(100):
        await one.admin.create(ALICE, ALICE, [BOB], -1)
    steps = one.admin.describe(ALICE, [Counted("User", f"nobody {number}") for number in range(1000)], lambda _: True)
    turns = sum(1 for _ in steps)
    assert hashed == 1000
    assert turns == 5
    assert len(run_to_end(one.admin.describe(CAROL, [BOB], lambda _: False))) == 0
    assert len(run_to_end(one.admin.describe(BOB, [ALICE, CAROL], lambda _: False))) == 100


@in_world
async def test_renewals_of_one_token_at_once_write_once_each(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each lost against all before it and was tried again: 60 of them were 1,800 transactions, and a client may have thousands under way."""
    one, _ = await pair(world)
    made = await one.admin.create(ALICE, ALICE, [], -1)
    assert one.session is not None
    multi = one.session.multi
    writes: list[Sequence[Op]] = []

    async def counted(ops: Sequence[Op]) -> object:
        writes.append(ops)
        return await multi(ops)

    monkeypatch.setattr(one.session, "multi", counted)
    handlers = TokenHandlers(one.services())
    renewals = [wire.RenewDelegationTokenRequest(made.hmac, 10_000 + number) for number in range(60)]
    connections = [
        SimpleNamespace(login=None, owner=(("alice", "h"), number % 3), is_closed=number > 50) for number in range(60)
    ]
    asked: list[Any] = [SimpleNamespace(principal=ALICE, connection=each) for each in connections]
    answers = await asyncio.gather(*(handlers.renew(*each) for each in zip(asked, renewals, strict=True)))
    assert [each.error_code for each in answers] == [0] * 51 + [ErrorCode.NETWORK_EXCEPTION] * 9
    assert len(writes) == 51


@in_world
async def test_without_a_secret_there_are_none(world: World) -> None:
    node = await Node(world, delegation_token_secret_key="").start("a")
    assert not node.admin.is_enabled and node.admin.delegated("SCRAM-SHA-256", "id") is None
    with fails_with(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED):
        await node.admin.create(ALICE, ALICE, [], -1)


def test_a_short_secret_is_refused(world: World) -> None:
    with pytest.raises(ConfigError, match=r"delegation\.token\.secret\.key: .*16 bytes"):
        Node(world, delegation_token_secret_key="short")
