"""A replica moves between disks of one node while it is used: nothing is lost, whatever else happens."""

from __future__ import annotations

from functools import partial

import pytest

from kafkalite.errors import ApiError, ErrorCode, StorageError
from kafkalite.log import appendable_log
from kafkalite.log.appending import AppendInfo
from kafkalite.log.room import MIN_ROOM_BYTES
from kafkalite.model import TopicId, TopicPartition
from kafkalite.record.builder import end_transaction_marker
from tests.support.log_host import host_of
from tests.support.logs import batch, config
from tests.support.moving import T0, Host, fill, values
from tests.support.waiting import until


async def test_a_replica_moves_while_records_come() -> None:
    host = Host()
    manager = await host.start()
    log = host.create(config(segment_bytes=4_096))
    exchanged: list[tuple[str, str]] = []
    host_of(manager).on_exchanged = lambda old, new: exchanged.append((old.path, new.path))
    fill(log, 100)
    move = manager.moves.start(T0, "/d2", throttle=80_000)
    assert move is not None
    await until(lambda: move.copied_bytes > 4_000)
    assert 0 < move.lag < 100 and any(name.endswith("-future") for name in host.names("/d2"))
    assert "t-0" in host.names("/d1") and T0 in manager.moves
    move.throttle = 0
    fill(log, 20, start=100)
    await until(lambda: move.state == "done" and host.names("/d1") and "t-0" not in host.names("/d1"))
    assert exchanged == [("/d1/t-0", "/d2/t-0")] and host.log.directory == "/d2"
    assert [value.split()[0] for _, value in values(host.log)] == [b"%d" % number for number in range(120)]
    assert host.names("/d2") == ["t-0"] and host.names("/d1")[0].endswith("-delete")
    assert host.log.synced_offset == 120, "the old one went when the new one was durable"
    fill(host.log, 5, start=120)
    host.log.roll()
    assert [d.log_count for d in manager.pool.dirs.values()] == [0, 1]
    await manager.close()
    again = await host.restart()
    assert len(values(host.log)) == 125 and again.get(T0) is host.log and host.log.directory == "/d2"


async def test_producers_and_epochs_go_along() -> None:
    host = Host()
    manager = await host.start()
    log = host.create()
    log.append_as_leader(batch(["a"], producer_id=7, producer_epoch=0, base_sequence=0), 1)
    log.assign_epoch_start(3, 1)
    manager.moves.start(T0, "/d2")
    await until(lambda: host.log is not log)
    again = host.log.append_as_leader(batch(["a"], producer_id=7, producer_epoch=0, base_sequence=0), 3)
    assert again.duplicate and host.log.latest_epoch == 3
    assert host.log.epoch_and_end_offset_for(1) == (1, 1)


@pytest.mark.parametrize("is_empty", [True, False])
async def test_producers_whose_records_are_gone_go_along_and_outlive_a_kill(*, is_empty: bool) -> None:
    """The files that go along have only what their records say."""
    host = Host()
    manager = await host.start()
    log = host.create(config(retention_ms=1))
    log.append_as_leader(batch(["old"], producer_id=7, producer_epoch=0, base_sequence=0), 1)
    log.roll()
    if not is_empty:
        log.append_as_leader(batch(["new"], producer_id=8, producer_epoch=0, base_sequence=0), 1)
    log.delete_old_segments(1, 10**9)
    manager.moves.start(T0, "/d2")
    await until(lambda: host.log is not log and not manager.moves.under_way())
    await until(lambda: host.log.synced_offset == host.log.log_end_offset)
    await manager.offsets.save_offsets()
    await host.restart()
    assert (host.log.directory, host.log.first_offset) == ("/d2", 1)
    assert sorted(host.log.active_producers()) == ([7] if is_empty else [7, 8])


async def test_a_copy_does_not_remember_each_transaction_that_has_ended() -> None:
    host = Host()
    manager = await host.start()
    log = host.create()
    for number in range(100):
        log.append_as_leader(batch(["a"], producer_id=7, producer_epoch=0, base_sequence=number, transactional=True), 1)
        log.append_as_leader(
            end_transaction_marker(7, 0, commit=True, coordinator_epoch=0, timestamp_ms=1), 1, origin="coordinator"
        )
    move = manager.moves.start(T0, "/d2", throttle=4_096)
    assert move is not None
    await until(lambda: move.copied_bytes)
    future = move.future
    assert future is not None and 1 < future.log_end_offset < 200
    if future.log_end_offset % 2 == 0:
        assert future.first_unstable_offset is None
    else:
        assert future.first_unstable_offset == future.log_end_offset - 1


async def test_a_cut_of_a_log_with_producers_is_followed_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The producers at the cut are in the headers of up to a segment."""

    def write(value: str, sequence: int, epoch: int) -> AppendInfo:
        made = batch([value * 100], producer_id=7, producer_epoch=0, base_sequence=sequence)
        return host.log.append_as_leader(made, epoch)

    host = Host()
    manager = await host.start()
    log = host.create()
    for sequence in range(200):
        write("a", sequence, 1)
    move = manager.moves.start(T0, "/d2", throttle=4_096)
    assert move is not None
    await until(lambda: move.copied_bytes)
    executor = manager.cold.executor("/d1")
    future = move.future
    assert future is not None and 10 < future.log_end_offset < 200
    producers = await log.producers_at(10, executor, ("test", 1))
    monkeypatch.setattr(appendable_log, "replay", lambda *_: pytest.fail("on the loop"))
    log.truncate_to(10, producers)
    for sequence in range(10, 30):
        write("b", sequence, 2)
    move.throttle = 0
    await until(lambda: move.state == "done")
    assert host.log is not log and [value[:1] for _, value in values(host.log)] == [b"a"] * 10 + [b"b"] * 20
    assert write("b", 29, 2).duplicate and write("c", 30, 2).first_offset == 30


async def test_orders_that_cannot_be_carried_out() -> None:
    host = Host()
    manager = await host.start()

    def refused(directory: str, key: TopicPartition = T0) -> ErrorCode:
        with pytest.raises(ApiError) as caught:
            manager.moves.start(key, directory)
        return caught.value.code

    assert refused("/d2") is ErrorCode.REPLICA_NOT_AVAILABLE
    log = host.create()
    assert refused("/elsewhere") is ErrorCode.LOG_DIR_NOT_FOUND
    assert manager.moves.start(T0, "/d1") is None
    assert manager.moves.start(T0, "/d1/") is None, "completion on a command line adds a slash"
    host.disk.free_bytes = lambda path: MIN_ROOM_BYTES - 1  # type: ignore[method-assign]
    assert refused("/d2") is ErrorCode.KAFKA_STORAGE_ERROR
    manager.failures.dir_failed(StorageError("dead", directory="/d2", path="/d2"))
    assert refused("/d2") is ErrorCode.KAFKA_STORAGE_ERROR
    assert host.log is log and manager.moves.all() == []


async def test_another_order_replaces_the_first_and_one_for_home_ends_it() -> None:
    host = Host()
    manager = await host.start()
    fill(host.create(), 50)
    first = manager.moves.start(T0, "/d2//", throttle=4_096)
    assert first is not None and first.target == "/d2" and manager.moves.start(T0, "/d2/") is first
    await until(lambda: first.copied_bytes)
    assert manager.moves.start(T0, "/d1") is None
    assert first.state == "failed" and T0 not in manager.moves
    assert 0 < first.copied_bytes < first.ended_bytes == host.log.size_bytes, "it was shown as copied in full"
    await until(lambda: not any(name.endswith("-future") for name in host.names("/d2")))
    await manager.removals.run_due()
    assert host.names("/d2") == [] and host.log.directory == "/d1"


@pytest.mark.parametrize("what", ["deleted", "stray", "source dies", "target dies", "no room", "other topic"])
async def test_what_ends_a_move(what: str) -> None:
    host = Host()
    manager = await host.start()
    log = host.create()
    fill(log, 50)
    move = manager.moves.start(T0, "/d2", throttle=4_096)
    assert move is not None
    await until(lambda: move.copied_bytes)
    if what == "deleted":
        manager.delete(T0)
    elif what in ("stray", "other topic"):
        manager.set_stray(T0)
        if what == "other topic":
            host.manager.placing.create(T0, TopicId("BBBBBBBBBBBBBBBBBBBBBQ"), config(), directory="/d1")
    elif what == "source dies":
        manager.failures.dir_failed(StorageError("dead", directory="/d1", path="/d1"))
    elif what == "target dies":
        host.disk.broken = {"/d2"}
        manager.failures.dir_failed(StorageError("dead", directory="/d2", path="/d2"))
    else:
        host.disk.free_bytes = lambda path: MIN_ROOM_BYTES  # type: ignore[method-assign]
    await until(lambda: move.is_over)
    assert move.state == "failed" and move.reason, move
    assert manager.moves.under_way() == []
    if what in ("target dies", "no room"):
        assert host.log is log and len(values(log)) == 50
        assert host.dead == (["/d2"] if what == "target dies" else []), (
            "a copy that finds no room is not the disk's fault"
        )
    if what != "target dies":
        await manager.removals.run_due()
        assert not any(name.endswith("-future") for name in host.names("/d2"))


async def test_truncation_and_log_start_are_followed() -> None:
    host = Host()
    manager = await host.start()
    log = host.create(config(segment_bytes=2_048))
    fill(log, 60)
    move = manager.moves.start(T0, "/d2", throttle=80_000)
    assert move is not None
    await until(lambda: move.future is not None and move.future.log_end_offset > 30)
    log.truncate_to(20)
    fill(log, 60, epoch=2, start=1_000)
    log.advance_log_start_offset(10)
    move.throttle = 0
    await until(lambda: move.state == "done")
    assert [int(value.split()[0]) for _, value in values(host.log)] == [*range(10, 20), *range(1_000, 1_060)]
    assert host.log.epoch_entries == [(1, 10), (2, 20)] and host.log.log_start_offset == 10


async def test_a_restart_goes_on_with_what_was_copied() -> None:
    host = Host(replica_alter_log_dirs_io_max_bytes_per_second=4_096)
    manager = await host.start()
    log = host.create()
    fill(log, 200)
    move = manager.moves.start(T0, "/d2", throttle=80_000)
    assert move is not None
    await until(lambda: move.copied_bytes > 10_000)
    await log.flush()
    manager = await host.restart()
    (again,) = manager.moves.under_way()
    await until(lambda: again.future is not None)
    assert again.future is not None and again.copied_bytes < again.future.size_bytes < log.size_bytes
    again.throttle = 0
    await until(lambda: again.state == "done")
    assert host.log.directory == "/d2" and len(values(host.log)) == 200


async def test_the_nodes_rate_changes_for_moves_under_way_that_have_none_of_their_own() -> None:
    host = Host(replica_alter_log_dirs_io_max_bytes_per_second=1)
    manager = await host.start()
    log = host.create()
    fill(log, 200)
    move = manager.moves.start(T0, "/d2")
    assert move is not None and move.throttle == 1
    await until(lambda: move.copied_bytes > 0)
    manager.moves.change_rate(5_000_000)
    await until(lambda: move.state == "done")
    assert move.throttle == 5_000_000 and len(values(host.log)) == 200
    own = manager.moves.start(T0, "/d1", throttle=80_000)
    assert own is not None
    manager.moves.change_rate(0)
    assert own.throttle == 80_000
    assert manager.moves.start(T0, "/d1", throttle=90_000) is own and own.throttle == 90_000
    await until(lambda: own.state == "done")


async def test_futures_that_stand_for_nothing_are_removed() -> None:
    host = Host()
    manager = await host.start()
    host.create()
    for name in ("t-0." + "a" * 32 + "-future", "u-0." + "b" * 32 + "-future", "nonsense-future"):
        host.disk.makedirs(f"/d1/{name}")
        host.disk.makedirs(f"/d2/{name}") if name.startswith("u") else None
    manager = await host.restart()
    await manager.removals.run_due()
    assert [n for d in ("/d1", "/d2") for n in host.disk.listdir(d) if n.endswith("-future")] == []


@pytest.mark.parametrize("is_killed", [True, False])
async def test_a_replica_in_doubt_that_has_moved_is_still_in_doubt_after_a_restart(*, is_killed: bool) -> None:
    """The doubt was written with the next high watermark that moved, and none does while nobody leads: the replica led, without what it
    had lost."""
    host = Host()
    manager = await host.start()
    log = host.create()
    fill(log, 10)
    manager.pool.doubt(T0, is_doubtful=True)
    manager.offsets.save_high_watermarks({T0: 5})
    manager.moves.start(T0, "/d2")
    await until(lambda: host.log is not log)
    assert manager.pool.doubtful() == [T0]
    if not is_killed:
        await manager.close()
    assert (await host.restart()).pool.doubtful() == [T0] and host.log.directory == "/d2"


@pytest.mark.parametrize("is_killed", [True, False])
async def test_an_unfinished_copy_that_has_moved_is_still_one_after_a_restart(*, is_killed: bool) -> None:
    """ADR 76. Also the other way round: one that is finished."""
    host = Host()
    manager = await host.start()
    log = host.create()
    log.record_copying(3)
    fill(log, 10)
    for directory, epoch in (("/d2", 3), ("/d1", -1)):
        log = host.log
        log.record_copying(epoch)
        manager.moves.start(T0, directory)
        await until(partial(lambda before: host.log is not before, log))
        if not is_killed:
            await manager.close()
        manager = await host.restart()
        assert (host.log.directory, host.log.copying_in, host.log.log_end_offset) == (directory, epoch, 10)


async def test_a_doubt_that_is_over_does_not_come_back_with_a_move_home() -> None:
    """The disk that it had left still had its name in the list."""
    host = Host()
    manager = await host.start()
    fill(host.create(), 10)
    manager.pool.doubt(T0, is_doubtful=True)
    manager.moves.start(T0, "/d2")
    await until(lambda: host.log.directory == "/d2")
    assert manager.pool.doubtful() == [T0]
    manager.pool.doubt(T0, is_doubtful=False)
    manager.moves.start(T0, "/d1")
    await until(lambda: host.log.directory == "/d1")
    assert manager.pool.doubtful() == []
