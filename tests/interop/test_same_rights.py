"""The same requests to Apache Kafka 4.4 and to kafkalite by users with random rights: nobody is let in, or learns more, here.

KAFKALITE_SAME_SEED and KAFKALITE_SAME_MORE as in test_same_answers.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalite.testing.apache_kafka import NEWEST_VERSION, KafkaCluster, server_class_path
from kafkalite.testing.processes import ProcessCluster

from . import same_logins, same_rights_walks
from .conftest import _base
from .same_answers import Case, Difference, Login, Mutation, differences, run
from .same_logins import OTHER, RAW, THIRD
from .same_rights import USER, by_user
from .test_same_answers import (
    _BETWEEN_BROKERS,
    _LEFT_OUT,
    _MORE,
    _ONLY_KAFKA,
    _ONLY_OURS,
    _SEED,
    _SETTINGS,
    ACCEPTED,
    Accepted,
    _Clusters,
    _prepared,
    _text,
)

pytestmark = [pytest.mark.timeout(3000), pytest.mark.cluster]

_AT_ONCE = 6
_WALKS = 6
_FREE = [f"user{number}" for number in range(_AT_ONCE)]
_USERS = {user + which: f"hush-{user}{which}" for user in _FREE for which in ("", "-other", "-third")}
_SECRET = "the secret of the tokens"
WALKS = same_logins.WALKS | same_rights_walks.WALKS
_NUMBERS = itertools.count()

#: Besides those of test_same_answers. The seed decides which are seen.
OF_RIGHTS = [
    Accepted(
        r"^WriteTxnMarkers ",
        "markers are for nodes, and for who may ALTER the cluster; CLUSTER_ACTION alone is not enough",
    ),
    Accepted(
        r"^(Renew|Expire)DelegationToken .*expiry_timestamp_ms",
        "no time of a token that is not there is -1; Kafka says -1 or 0",
    ),
    Accepted(
        r"^DescribeConfigs .*error_code \[.*resource_type",
        "the right to the cluster comes before the question of what it is",
    ),
    Accepted(r"^DescribeDelegationToken .*tokens \[", "a token that has ended is not shown any more"),
    Accepted(
        r"^rights_that_change CreateTopics.topics\[\d+\].configs", "of a topic that is not created null, not empty"
    ),
    Accepted(
        r"^rights_that_change CreateTopics.*topic_id", "a topic that is only validated has no id; Kafka draws one"
    ),
    Accepted(r"^rights_that_change .*GroupHeartbeat.member_epoch", "epochs are each cluster's own"),
    Accepted(r"^rights_that_change .*topology_description_required", "descriptions are kept without a plug-in"),
    Accepted(r"^tokens CreateDelegationToken.* Group\]", "the owner of a token is a user"),
    Accepted(
        r"^tokens RenewDelegationToken.error_code .*ended",
        "whose token it is comes before the question of whether it has ended",
    ),
    Accepted(
        r"^tokens .*(log in|expire) .*ended\]",
        "a token that has ended is no login; in Kafka it is one until it is removed",
    ),
    Accepted(
        r"^tokens (Renew|Expire).*expiry_timestamp_ms", "no time of a token that is not there is -1; Kafka says -1 or 0"
    ),
    Accepted(r"^StreamsGroup\w+ StreamsGroupDescribe.*changelog_topics\[1\].partitions", "as many as they have"),
    Accepted(r"^ShareFetch .*(records|acquired_records) .*hidden", "an answer with an error does not wait for records"),
    Accepted(r"^ShareFetch ShareFetch.* nope\]", "UNKNOWN_TOPIC_ID of the topic; Kafka: UNKNOWN_SERVER_ERROR"),
    Accepted(r"^Fetch .*\[.isolation_level", "refused before the topics are looked at"),
    Accepted(r"^Produce .*error_code \[.acks", "refused before the topics are looked at"),
    Accepted(r"^Produce .*error_code \[.*records", "records of a topic that one may not write to are not looked at"),
]


@contextmanager
def both(directory: Path) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """A cluster of each kind: where anybody is the super user, and where users log in."""
    server = server_class_path(_base(), NEWEST_VERSION)
    directory.mkdir(parents=True, exist_ok=True)
    passwords = directory / "plain.users"
    passwords.write_text("".join(f"{name}={password}\n" for name, password in _USERS.items()))
    passwords.chmod(0o600)
    settings = _SETTINGS | {
        "delegation.token.secret.key": _SECRET,
        "connection.failed.authentication.delay.ms": 10,
    }
    ours_only = _ONLY_OURS | {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.plain.users.location": passwords,
    }
    with (
        KafkaCluster(
            directory / "kafka",
            server,
            nodes=1,
            settings=settings | _ONLY_KAFKA,
            users=_USERS,
        ) as kafka,
        ProcessCluster(directory / "kafkalite", nodes=1, settings=settings | ours_only) as ours,
    ):
        yield (kafka.bootstrap, ours.bootstrap[0]), (kafka.logins[0], ours.nodes[1].ready["kafka.SASL_PLAINTEXT"])


class _Secured:
    """Both clusters, with users that a case has for itself."""

    def __init__(self, clusters: _Clusters, logins: tuple[str, str]) -> None:
        self.clusters = clusters
        self._logins = logins

    async def once(self, name: str, case: Callable[[str], Case], seed: int, user: str) -> list[Difference]:
        others = {OTHER: f"{user}-other", THIRD: f"{user}-third", RAW: ""}
        kafka, ours = (
            {
                connection: Login(address, who, _USERS.get(who, ""))
                for connection, who in ({USER: user} | others).items()
            }
            for address in self._logins
        )
        tag = f"n{next(_NUMBERS)}z"
        sides = await run(case(user), name, tag, seed, self.clusters.addresses, (kafka, ours))
        return [replace(each, case=f"{name} may {sides[0].rights}") for each in differences(name, *sides)]

    async def all(self, cases: list[tuple[str, Callable[[str], Case], int]]) -> list[Difference]:
        free: asyncio.Queue[str] = asyncio.Queue()
        for user in _FREE:
            free.put_nowait(user)

        async def one(name: str, case: Callable[[str], Case], seed: int) -> list[Difference]:
            user = await free.get()
            try:
                seen = await self.once(name, case, seed, user)
                for _ in range(2):
                    if any(not is_accepted(each) for each in seen):
                        groups = {each.group for each in await self.once(name, case, seed, user)}
                        seen = [each for each in seen if each.group in groups]
                return seen
            finally:
                free.put_nowait(user)

        return [each for seen in await asyncio.gather(*(one(*each) for each in cases)) for each in seen]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterable[_Secured]:
    with both(tmp_path_factory.mktemp("rights")) as (addresses, logins):
        yield _Secured(_prepared(addresses), logins)


def is_accepted(difference: Difference) -> bool:
    return any(re.search(each.of, _text(difference)) for each in (*ACCEPTED, *OF_RIGHTS))


def _maybe_changed(api: str, seed: int) -> Callable[[list[Mutation]], list[Mutation]]:
    def choose(there: list[Mutation]) -> list[Mutation]:
        source = random.Random(seed)
        kept = [each for each in there if not _LEFT_OUT.match(f"{api} {each.path} {each.what}")]
        return [source.choice(kept)] if kept and api not in _BETWEEN_BROKERS and source.random() < 0.5 else []

    return choose


#: Of each API; each has a version of its own, drawn from the seed.
_CASES = 1


def cases(offered: dict[str, range], seed: int, number: int) -> list[tuple[str, Callable[[str], Case], int]]:
    found: list[tuple[str, Callable[[str], Case], int]] = []
    for api, versions in offered.items():
        for each in range(number):
            own = zlib.crc32(f"{api} {seed} {each}".encode())
            version = random.Random(own).choice(versions)

            def case(user: str, api: str = api, version: int = version, own: int = own) -> Case:
                return by_user(api, version, user, own, _maybe_changed(api, own))

            found.append((f"{api} v{version} seed {own}", case, own))
    return found


def judge(found: list[Difference]) -> None:
    new: dict[tuple[str, ...], Difference] = {}
    for each in found:
        if not is_accepted(each):
            new.setdefault(each.group, each)
    shown = [
        f"{_text(each)} v{each.version} {each.case}\n  Kafka {each.kafka}\n  ours  {each.ours}" for each in new.values()
    ]
    assert not new, f"{len(new)} new differences\n" + "\n".join(shown)


def test_users_with_a_few_rights(secured: _Secured) -> None:
    judge(asyncio.run(secured.all(cases(secured.clusters.versions, _SEED, int(_CASES * _MORE)))))


def walks(name: str, seed: int, number: int) -> list[tuple[str, Callable[[str], Case], int]]:
    def case(user: str) -> Case:
        return WALKS[name]

    return [(f"{name} seed {each}", case, each) for each in range(seed * 1_000, seed * 1_000 + number)]


@pytest.mark.parametrize("name", sorted(WALKS))
def test_logins_and_tokens(secured: _Secured, name: str) -> None:
    judge(asyncio.run(secured.all(walks(name, _SEED, int(_WALKS * _MORE)))))
