"""Parts of the Kafka side that are made when something needs them."""

from __future__ import annotations

import pytest

from kafkalite.extension.messages.topics import CreateTopicsRequest, NewTopic
from kafkalite.kafka import broker_apis
from kafkalite.kafka.apis import OFFERED
from kafkalite.kafka.broker_apis import KafkaSide
from kafkalite.kafka.handlers.extension import COORDINATED
from kafkalite.model import GROUP_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC
from kafkalite.protocol import wire
from tests.support.waiting import until


def _made(side: KafkaSide) -> set[str]:
    return {"groups", "shares", "transactions"} & set(vars(side))


def test_each_maker_makes_the_handlers_of_the_apis_that_it_stands_for(broker, monkeypatch) -> None:
    makers, real = [], broker_apis.later

    def kept(names, make):
        makers.append((names, make))
        return real(names, make)

    monkeypatch.setattr(broker_apis, "later", kept)
    side = KafkaSide(broker.services)
    assert {api.name for api in side.apis.values()} == set(OFFERED)
    assert makers
    for names, make in makers:
        assert sorted(make()) == sorted(names)
    assert set(side._coordinated()) == COORDINATED


@pytest.mark.parametrize(
    ("topic", "made"), [(GROUP_TOPIC, "groups"), (TRANSACTION_TOPIC, "transactions"), (SHARE_TOPIC, "shares")]
)
async def test_a_coordinator_is_made_when_its_topic_exists(broker, topic, made) -> None:
    client = await broker.client()
    await client.ask(wire.MetadataRequest([]), 4)
    assert _made(broker.side) == set()
    assert broker.side.coordinated_groups() is None
    await broker.services.create_topics(CreateTopicsRequest((NewTopic(topic, 2, 1),), 1_000))
    await until(lambda: made in _made(broker.side))
    assert (broker.side.coordinated_groups() is None) == (topic == SHARE_TOPIC)  # transactions have offsets of groups


async def test_what_is_deleted_makes_no_coordinator_where_there_are_no_groups(broker) -> None:
    broker.side.topics_deleted(["topic"])
    broker.side.partitions_removed([])
    assert _made(broker.side) == set()
