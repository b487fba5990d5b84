"""A follower whose log is cut: the idempotent producers at the cut are found off the loop, whatever happens meanwhile."""

import asyncio
import threading

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.log import past_producers, recovery
from kafkalite.model import Offset, TopicPartition
from kafkalite.record.reader import read_records
from tests.support.logs import batch, everything

TP = TopicPartition("t", 0)


def idempotent(sequence: int, producer_id: int = 7) -> bytes:
    return batch(["x"], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


class Gate:
    """Stops each search for producers until it is opened, and notes its threads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = threading.Event()
        self.threads: list[threading.Thread] = []
        real = recovery.replay

        def replay(*given, **named):
            self.threads.append(threading.current_thread())
            assert self.opened.wait(60)
            return real(*given, **named)

        monkeypatch.setattr(past_producers, "replay", replay)


@pytest.fixture
def gate(monkeypatch):
    made = Gate(monkeypatch)
    yield made
    made.opened.set()


@pytest.fixture
async def parted(make_cluster):
    """Leader 1 had six batches, of which 2, the leader from now on, has three; 1 is not told yet."""
    cluster = await make_cluster(2, **{"replica.lag.time.max.ms": 60_000})
    cluster.create_topic("t", {0: (1, 2)})
    await cluster.command_all(cluster.decide(TP, leader=1, isr=(1, 2), epoch=0))
    for sequence in range(3):
        assert (await cluster.node(1).produce(TP, batch=idempotent(sequence))).error == ErrorCode.NONE
    await cluster.command(2, cluster.decide(TP, leader=-1, isr=(1, 2), epoch=1))
    for sequence in range(3, 6):
        await cluster.node(1).produce(TP, batch=idempotent(sequence), acks=1)
    await cluster.node(1).produce(TP, batch=idempotent(0, producer_id=8), acks=1)
    await cluster.command(2, cluster.decide(TP, leader=2, isr=(1, 2), epoch=2))
    return cluster


def last_sequences(node) -> dict[int, int]:
    return {key: entry.last_sequence for key, entry in node.partition(TP).log.active_producers().items()}


async def test_the_producers_at_the_cut_are_found_off_the_loop(parted, gate, until):
    """Headers of up to a segment are read: about 4 s for a GB of batches of 1 kB."""
    node = parted.node(1)
    await parted.command(1, parted.decide(TP, leader=2, isr=(1, 2), epoch=3))
    await parted.command(2, parted.decide(TP, leader=2, isr=(1, 2), epoch=3))
    await until(lambda: gate.threads != [])
    log = node.partition(TP).log
    assert (log.log_end_offset, last_sequences(node)) == (7, {7: 5, 8: 0}), "nothing has changed yet"
    gate.opened.set()
    assert (await parted.node(2).produce(TP, batch=idempotent(3))).error == ErrorCode.NONE
    assert (log.log_end_offset, last_sequences(node)) == (4, {7: 3})
    assert threading.main_thread() not in gate.threads
    assert len(gate.threads) == 1


async def test_who_leads_meanwhile_cuts_nothing(parted, gate, until):
    node = parted.node(1)
    await parted.command(1, parted.decide(TP, leader=2, isr=(1, 2), epoch=2))
    await until(lambda: gate.threads != [])
    await parted.command(1, parted.decide(TP, leader=1, isr=(1, 2), epoch=3))
    gate.opened.set()
    await until(lambda: not any("truncation" in task.get_name() for task in asyncio.all_tasks()))
    assert (node.partition(TP).log.log_end_offset, last_sequences(node)) == (7, {7: 5, 8: 0})


async def test_a_log_that_changes_meanwhile_is_asked_about_again(parted, gate, until):
    node = parted.node(1)
    log = node.partition(TP).log
    log.roll()
    await parted.command(1, parted.decide(TP, leader=2, isr=(1, 2), epoch=3))
    await parted.command(2, parted.decide(TP, leader=2, isr=(1, 2), epoch=3))
    await until(lambda: gate.threads != [])
    log.truncate_to(5)
    gate.opened.set()
    assert (await parted.node(2).produce(TP, batch=idempotent(3))).error == ErrorCode.NONE
    assert (log.log_end_offset, last_sequences(node)) == (4, {7: 3})
    assert len(gate.threads) == 2


@pytest.mark.parametrize("deleted_to", [4, 6], ids=["some are left", "none is left"])
async def test_what_the_leader_wrote_before_the_start_of_the_own_log_is_copied_too(make_cluster, until, deleted_to):
    """An unclean election, of a replica that ends before the others' start. The log began again where it began before, and joined the ISR without
    what had been acknowledged since below that; once it led, the others began there, too."""
    cluster = await make_cluster(2)
    cluster.create_topic("t", {0: (1, 2)})
    await cluster.command_all(cluster.decide(TP, leader=1, isr=(1, 2), epoch=0))
    for value in (b"a", b"b"):
        await cluster.node(1).produce(TP, value)
    await cluster.command(2, cluster.decide(TP, leader=-1, isr=(1, 2), epoch=1))
    await cluster.command(1, cluster.decide(TP, leader=1, isr=(1,), epoch=2, replicas=(1, 2)))
    for value in (b"c", b"d", b"e", b"f"):
        await cluster.node(1).produce(TP, value)
    one, two = (cluster.node(number).partition(TP) for number in (1, 2))
    cluster.node(1).manager.hosted.delete_records(one, Offset(deleted_to))
    later = cluster.decide(TP, leader=2, isr=(2,), epoch=3, replicas=(1, 2))
    await cluster.command(2, later)
    for value in (b"t", b"u", b"v", b"w", b"x", b"y"):
        await cluster.node(2).produce(TP, value)
    await cluster.command(1, later)
    await until(lambda: one.log.log_end_offset == 8)
    found = [each.value for each in read_records(everything(one.log))]
    assert found == [b"a", b"b", b"t", b"u", b"v", b"w", b"x", b"y"]
    assert one.log.log_start_offset == two.log.log_start_offset == 0
