"""A deleted key of a compacted topic does not come back with a replica that was copied from two leaders (ADR 76).

Each replica compacts its own log. The one that leads may still have the record that a tombstone deletes, another one neither of the two.
A replica that copies the record from the first, and goes on with the second behind the place of the tombstone, has the key again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from kafkalite.model import BrokerId, Offset, TopicPartition
from kafkalite.record.reader import read_records
from kafkalite.replica.throttle import NO_RATE
from kafkalite.rpc.messages.control import PartitionState, UpdateMetadataRequest
from tests.support.logs import build_batch, everything

TP = TopicPartition("t", 0)
LEADER, COMPACTED, NEW = 1, 2, 3
COMPACT = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.0, "delete_retention_ms": 0}


def is_there(cluster: Any, number: int, key: bytes) -> bool:
    """Whether the key has a value for those who read the whole log."""
    last = {record.key: record.value for record in read_records(everything(cluster.node(number).partition(TP).log))}
    return last.get(key) is not None


async def announce(cluster: Any, state: PartitionState, numbers: Sequence[int]) -> None:
    for number in numbers:
        node = cluster.node(number)
        head = (BrokerId(99), cluster.controller_epoch, node.broker_epoch)
        node.manager.metadata.apply(
            UpdateMetadataRequest(*head, is_full=True, brokers=cluster.brokers(), partitions=(state,))
        )


async def half_copied(make_cluster: Any, until: Any) -> Any:
    """The key was deleted while the first two replicas were in sync, and the second has compacted its log twice. The third has copied
    the first record from the first."""
    cluster = await make_cluster(3, **{"replica.fetch.max.bytes": 1, "replica.fetch.response.max.bytes": 1})
    for node in cluster.nodes.values():
        node.topic_overrides = dict(COMPACT)
    cluster.create_topic("t", {0: (LEADER, COMPACTED)})
    state = cluster.decide(TP, leader=LEADER, isr=(LEADER, COMPACTED), epoch=0)
    await cluster.command_all(state)
    await announce(cluster, state, (LEADER, COMPACTED))
    leader, compacted = cluster.node(LEADER), cluster.node(COMPACTED)
    for number, (key, value) in enumerate(((b"deleted", b"secret"), (b"deleted", None), (b"a", b"1"), (b"b", b"2")), 1):
        await leader.produce(TP, batch=build_batch([(key, value)]))
        await until(lambda end=number: compacted.partition(TP).high_watermark == end)
        compacted.partition(TP).log.roll()
        await compacted.logs.housekeeping.cleaning_pass()
    kept = [record.key for record in read_records(everything(compacted.partition(TP).log))]
    assert kept == [b"a", b"b"], "neither the record nor its tombstone"
    cluster.node(NEW).manager.following.throttled_rate = 1
    cluster.node(NEW).topic_overrides["follower_replication_throttled_replicas"] = "*"
    moving = cluster.decide(TP, leader=LEADER, isr=(LEADER, COMPACTED), epoch=1, replicas=(LEADER, COMPACTED, NEW))
    moving = dataclasses.replace(moving, adding_replicas=(BrokerId(NEW),))
    await cluster.command_all(moving)
    await announce(cluster, moving, (LEADER, COMPACTED, NEW))
    await until(lambda: cluster.node(NEW).partition(TP).log.log_end_offset == 1)
    return cluster


async def go_on(cluster: Any, until: Any, epoch: int = 2) -> None:
    """The second replica leads, and the new one copies the rest from it."""
    new = cluster.node(NEW)
    new.manager.following.throttled_rate = NO_RATE
    state = cluster.decide(TP, leader=COMPACTED, isr=(COMPACTED,), epoch=epoch, replicas=(LEADER, COMPACTED, NEW))
    for number in (COMPACTED, NEW):
        await cluster.command(number, state)
    await until(lambda: new.partition(TP).log.log_end_offset == 4)


def strays(cluster: Any) -> int:
    return len(cluster.node(NEW).logs.removals.strays())


async def test_a_replica_whose_leader_changes_while_it_is_copied_begins_again(make_cluster: Any, until: Any) -> None:
    cluster = await half_copied(make_cluster, until)
    await go_on(cluster, until)
    assert not is_there(cluster, COMPACTED, b"deleted")
    assert not is_there(cluster, NEW, b"deleted")
    assert is_there(cluster, NEW, b"a")
    assert strays(cluster) == 1, "it may be all that is left one day"


async def test_also_if_it_was_away_meanwhile(make_cluster: Any, until: Any) -> None:
    cluster = await half_copied(make_cluster, until)
    new = cluster.node(NEW)
    await new.stop()
    await new.start()
    await go_on(cluster, until)
    assert not is_there(cluster, NEW, b"deleted")
    assert strays(cluster) == 1


async def test_also_if_nothing_of_its_log_continued_the_leaders(make_cluster: Any, until: Any) -> None:
    """Then it was cut to nothing, and copied from the beginning, too."""
    cluster = await half_copied(make_cluster, until)
    new = cluster.node(NEW)
    new.partition(TP).log.truncate_fully_and_start_at(0)
    new.partition(TP).log.record_copying(-1)
    new.manager.fetchers.follow(new.partition(TP), BrokerId(LEADER))
    await until(lambda: new.partition(TP).log.log_end_offset == 1)
    await go_on(cluster, until)
    assert not is_there(cluster, NEW, b"deleted")


async def test_a_stray_that_is_put_back_begins_again_when_another_replica_leads(make_cluster: Any, until: Any) -> None:
    """Tombstones may have gone since it was set aside (ADR 78)."""
    cluster = await half_copied(make_cluster, until)
    new = cluster.node(NEW)
    new.partition(TP).log.record_copying(-1)
    new.manager.roles.stop(new.partition(TP))
    new.logs.set_stray(TP)
    members = (LEADER, COMPACTED, NEW)
    nobody = cluster.decide(TP, leader=-1, isr=(LEADER, COMPACTED), epoch=2, replicas=members)
    await cluster.command(NEW, nobody)
    await new.logs.opening.bring_online(str(new.directory), "AAAAAAAAAAAAAAAAAAAAAA", NEW, {})
    await new.manager.commands.retry_offline()
    assert new.partition(TP).log.log_end_offset == 1
    await go_on(cluster, until, epoch=3)
    assert not is_there(cluster, NEW, b"deleted")
    assert strays(cluster) == 1


async def test_who_leads_with_an_unfinished_copy_keeps_it(make_cluster: Any, until: Any) -> None:
    """There is no better one. It was copied again as soon as another one led."""
    cluster = await half_copied(make_cluster, until)
    members = (LEADER, COMPACTED, NEW)
    lead = cluster.decide(TP, leader=NEW, isr=(NEW,), epoch=2, replicas=members)
    assert not (await cluster.command(NEW, dataclasses.replace(lead, accepts_loss=1))).partitions
    assert cluster.node(NEW).partition(TP).log.copying_in == -1


async def test_a_complete_copy_goes_on_with_the_next_leader(make_cluster: Any, until: Any) -> None:
    """It has all tombstones, and no more go while it is outside of the ISR."""
    cluster = await half_copied(make_cluster, until)
    new = cluster.node(NEW)
    assert new.partition(TP).log.copying_in == 1
    new.manager.following.throttled_rate = NO_RATE
    new.manager.fetchers.follow(new.partition(TP), BrokerId(LEADER))
    await until(lambda: new.partition(TP).log.copying_in == -1)
    assert new.partition(TP).log.log_end_offset == 4
    await go_on(cluster, until)
    assert (strays(cluster), is_there(cluster, NEW, b"deleted")) == (0, False)


async def test_a_copy_goes_on_if_its_leader_leads_again_in_the_next_epoch(make_cluster: Any, until: Any) -> None:
    """As each step of a move does. Behind that another leader is another leader."""
    cluster = await half_copied(make_cluster, until)
    new = cluster.node(NEW)
    members = (LEADER, COMPACTED, NEW)
    await cluster.command_all(
        cluster.decide(TP, leader=LEADER, isr=(LEADER, COMPACTED), epoch=2, replicas=members),
    )
    assert (new.partition(TP).log.copying_in, new.partition(TP).log.log_end_offset, strays(cluster)) == (2, 1, 0)
    await go_on(cluster, until, epoch=3)
    assert (strays(cluster), is_there(cluster, NEW, b"deleted")) == (1, False)


async def test_the_same_leader_goes_on_with_an_unfinished_copy(make_cluster: Any, until: Any) -> None:
    cluster = await half_copied(make_cluster, until)
    new = cluster.node(NEW)
    await new.stop()
    await new.start()
    assert new.logs.get(TP).copying_in == 1
    state = dataclasses.replace(cluster.decide(TP, leader=LEADER, isr=(LEADER, COMPACTED), epoch=1))
    state = dataclasses.replace(state, replicas=tuple(map(BrokerId, (LEADER, COMPACTED, NEW))))
    await cluster.command(NEW, state)
    await until(lambda: new.partition(TP).log.log_end_offset == 4)
    assert (strays(cluster), is_there(cluster, NEW, b"deleted")) == (0, False)


async def test_a_leader_knows_at_once_of_a_replica_that_is_added(make_cluster: Any) -> None:
    """It may begin to copy before the leader hears UpdateMetadata."""
    cluster = await make_cluster(2)
    cluster.create_topic("t", {0: (1, 2)})
    state = cluster.decide(TP, leader=1, isr=(1,), epoch=0)
    await cluster.command(1, state)
    await announce(cluster, state, (1,))
    assert cluster.node(1).manager.all_in_sync(TP)
    await cluster.command(1, cluster.decide(TP, leader=1, isr=(1,), epoch=1, replicas=(1, 2)))
    assert not cluster.node(1).manager.all_in_sync(TP)


async def test_what_a_compaction_has_removed_is_not_given_to_the_next_follower(make_cluster: Any, until: Any) -> None:
    """The leader keeps the last answer for a second follower that asks for the same."""
    cluster = await half_copied(make_cluster, until)
    leader = cluster.node(LEADER)
    log = leader.partition(TP).log

    def first_key() -> bytes | None:
        info = leader.manager.serving._read_once(log, Offset(0), 1, is_first=True, verify=True, may_wait=True)
        return next(read_records(b"".join(info.records))).key

    assert first_key() == b"deleted"
    end = log.log_end_offset
    for epoch in (2, 3):  # all are in sync again
        log.roll()
        state = cluster.decide(TP, leader=LEADER, isr=(LEADER,), epoch=epoch)
        await cluster.command(LEADER, state)
        await announce(cluster, state, (LEADER,))
        await leader.logs.housekeeping.cleaning_pass()
        leader.logs.pool.dirs[log.directory].cleaned_to.clear()
    assert log.log_end_offset == end
    assert first_key() == b"a"
