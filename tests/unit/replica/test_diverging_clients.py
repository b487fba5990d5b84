"""A client that says in which epoch it has read hears where its log and the leader's part (KIP-595)."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.model import LeaderEpoch, Offset, TopicPartition
from kafkalite.replica.client_fetch import ClientFetch, FetchAnswer, FetchEntry, FetchTerms, Steps
from kafkalite.replica.decisions.follower import Divergence
from tests.support.fetching import answered

TP = TopicPartition("t", 0)
FOREVER_MS = 600_000


@pytest.fixture
async def node(make_cluster: Any) -> Any:
    """Records 0 to 2 of epoch 0, 3 and 4 of epoch 1."""
    cluster = await make_cluster(1)
    cluster.create_topic("t", {0: (1,)})
    node = cluster.node(1)
    for epoch, values in enumerate(([b"a", b"b", b"c"], [b"d", b"e"])):
        await cluster.command_all(cluster.decide(TP, leader=1, isr=(1,), epoch=epoch))
        for value in values:
            assert (await node.produce(TP, value)).error == ErrorCode.NONE
    return node


def asked(node: Any, offset: int, last_fetched_epoch: int) -> FetchEntry:
    """Its answer comes at once, whatever the client's patience is."""
    fetch = ClientFetch()
    entry = fetch.list(TP, Offset(offset), 1 << 20, LeaderEpoch(1), last_fetched_epoch=LeaderEpoch(last_fetched_epoch))
    sizes: list[int] = []
    done = answered(lambda: sizes.append(entry.records_size))
    node.manager.consuming.fetch(fetch, FetchTerms(FOREVER_MS, 1, 1 << 20), done)
    assert sizes, "it waits"
    entry.available = sizes[0]  # the records are gone with the answer
    return entry


@pytest.mark.parametrize(
    ("offset", "epoch", "part"),
    [
        (4, 0, (0, 3)),
        (7, 0, (0, 3)),  # beyond the log's end: no error, for the client has to know where to cut
        (9, 1, (1, 5)),
        (3, 0, None),
        (2, 0, None),
        (4, 1, None),
        (4, -1, None),
    ],
)
async def test_where_the_logs_part(node: Any, offset: int, epoch: int, part: tuple[int, int] | None) -> None:
    entry = asked(node, offset, epoch)
    assert entry.error == ErrorCode.NONE
    if part is None:
        assert entry.divergence is None and entry.available > 0
        return
    assert entry.divergence == Divergence(LeaderEpoch(part[0]), Offset(part[1]))
    assert entry.available == 0
    assert (entry.high_watermark, entry.last_stable_offset, entry.log_start_offset) == (5, 5, 0)


async def test_what_cannot_be_compared_is_out_of_range(node: Any) -> None:
    assert asked(node, 4, 2).error == ErrorCode.OFFSET_OUT_OF_RANGE, "an epoch that nobody knows here"
    node.partition(TP).log.advance_log_start_offset(Offset(4))
    assert asked(node, 3, 0).error == ErrorCode.OFFSET_OUT_OF_RANGE, "removed, whether it diverged or not"
    assert asked(node, 4, 0).available > 0, "retention has removed that epoch: it ends where the log begins"
    assert asked(node, 5, 0).divergence == Divergence(LeaderEpoch(0), Offset(4))


async def test_a_session_says_so_until_the_client_has_truncated(node: Any) -> None:
    fetch = ClientFetch()
    entry = fetch.list(TP, Offset(4), 1 << 20, LeaderEpoch(1), last_fetched_epoch=LeaderEpoch(0))
    sent: list[list[tuple[Divergence | None, int]]] = []

    def done() -> Steps[FetchAnswer | None]:
        sent.append([(each.divergence, each.records_size) for each in fetch.due()])
        yield from ()
        return FetchAnswer(lambda: None, opens_session=not fetch.is_session)

    for _ in range(3):
        node.manager.consuming.fetch(fetch, FetchTerms(FOREVER_MS, 1, 1 << 20), done)
    assert sent == [[(Divergence(LeaderEpoch(0), Offset(3)), 0)]] * 3
    assert fetch.list(TP, Offset(3), 1 << 20, LeaderEpoch(1), last_fetched_epoch=LeaderEpoch(0)) is entry
    node.manager.consuming.fetch(fetch, FetchTerms(FOREVER_MS, 1, 1 << 20), done)
    [(divergence, size)] = sent[-1]
    assert divergence is None and size > 0
    fetch.end()


async def test_another_last_epoch_is_noticed_in_a_fetch_that_lists_all(node: Any) -> None:
    fetch = ClientFetch()
    fetch.lists_all = True
    entry = fetch.list(TP, Offset(4), 1 << 20, LeaderEpoch(1), last_fetched_epoch=LeaderEpoch(1))
    fetch.ready.clear()
    fetch.begin_listing()
    fetch.list(TP, Offset(4), 1 << 20, LeaderEpoch(1), last_fetched_epoch=LeaderEpoch(1))
    assert entry not in fetch.ready
    fetch.begin_listing()
    fetch.list(TP, Offset(4), 1 << 20, LeaderEpoch(1), last_fetched_epoch=LeaderEpoch(0))
    assert entry in fetch.ready
