"""Groups of transactions at their coordinator: one decision, all or nothing, once; what survives a move; what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass

import pytest

from kafkalite.coordinators.transactions import coordinator, decisions
from kafkalite.coordinators.transactions.decisions import Decision
from kafkalite.coordinators.transactions.state import TransactionState
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.extension.messages.transactions import EndTxnGroupRequest, EndTxnGroupResponse, TransactionMember
from kafkalite.extension.transaction_groups import coordinator_key, group_of, transactional_id
from kafkalite.model import TRANSACTION_TOPIC, ProducerId, TopicPartition
from kafkalite.partition_values import ProducedPartition
from kafkalite.record.reader import read_records
from tests.support.failing import fails_with

from .conftest import Broker, batch
from .coordinator_requests import move

E = ErrorCode
T0 = TopicPartition("t", 0)
RETRIED = (E.CONCURRENT_TRANSACTIONS, E.NOT_COORDINATOR, E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE)


@dataclass
class Group:
    """A query's view of its group."""

    broker: Broker
    owner: str = "q"
    group: str = "app:1"

    async def begin(self, name: str, version: int, timeout_ms: int = 60_000) -> TransactionMember | None:
        full = transactional_id(self.group, name)
        async with asyncio.timeout(150):
            while True:
                try:
                    granted = await self.broker.side.transaction_groups.begin(full, timeout_ms, self.owner, version)
                except ApiError as error:
                    if error.code not in RETRIED:
                        raise
                    await asyncio.sleep(0)
                else:
                    return None if isinstance(granted, Decision) else TransactionMember(full, *granted)

    async def write(self, member: TransactionMember, value: bytes) -> None:
        await self.broker.side.transactions.add_partitions(
            member.transactional_id, member.producer_id, member.producer_epoch, [T0]
        )
        producer = {"producer_id": member.producer_id, "producer_epoch": member.producer_epoch, "base_sequence": 0}
        records = batch(value, **producer, transactional=True)
        answers: list[ProducedPartition] = []
        self.broker.services.partitions.produce(-1, 1000, [(T0, records)], answers.extend)
        assert answers[0].error == 0

    async def prepared(self, name: str, version: int, value: bytes, **timeout: int) -> TransactionMember:
        member = await self.begin(name, version, **timeout)
        assert member is not None
        await self.write(member, value)
        return member

    async def end(self, version: int, *members: TransactionMember, is_commit: bool = True) -> EndTxnGroupResponse:
        request = EndTxnGroupRequest(self.group, self.owner, version, members, is_commit, wait_ms=5_000)
        async with asyncio.timeout(150):
            while True:
                try:
                    return await self.broker.side.transaction_groups.end(request)
                except ApiError as error:
                    if error.code not in RETRIED:
                        raise
                    await asyncio.sleep(0)


@pytest.fixture
async def group(broker: Broker) -> Group:
    await broker.create("t")
    made = Group(broker)
    await broker.side.transactions.coordinator_of(transactional_id(made.group, "0"))
    return made


async def committed(group: Group) -> list[bytes | None]:
    """The values outside of aborted transactions, when nothing is open any more."""
    log = group.broker.services.partitions.logs[T0]
    async with asyncio.timeout(150):
        while log.open:
            await asyncio.sleep(0)
    found = []
    for header, piece in log.batches:
        spans = [(first, last) for producer, first, last in log.aborted if producer == header.producer_id]
        if not header.is_control and not any(first <= header.base_offset < last for first, last in spans):
            found += [record.value for record in read_records(piece)]
    return found


def test_ids_of_a_group_have_one_coordinator() -> None:
    names = [transactional_id("a:b", member) for member in ("0-0", "1-0")]
    assert {group_of(name) for name in names} == {"a:b"} == {coordinator_key(name) for name in names}
    assert group_of("of-its-own") is None and coordinator_key("of-its-own") == "of-its-own"
    with pytest.raises(ValueError):
        transactional_id("a", "b:c")


def test_a_decision_s_record_can_be_read_back() -> None:
    decision = decisions.Decision("g", "q", 7, 1234)
    assert decisions.parse(decisions.key_of("g"), decisions.value_of(decision)) == ("g", decision)
    assert decisions.parse(decisions.key_of("g"), None) == ("g", None)


async def granted(
    begun: Awaitable[tuple[ProducerId, int] | Decision],
) -> tuple[ProducerId, int]:
    answer = await begun
    assert not isinstance(answer, Decision)
    return answer


@pytest.mark.checklist("F27")
async def test_all_members_are_committed_and_the_rest_is_aborted(group: Group) -> None:
    first, second = await group.prepared("0-0", 0, b"a"), await group.prepared("1-1", 0, b"b")
    twin = await group.prepared("1-0", 0, b"lost twin")
    answer = await group.end(0, first, second)
    assert answer.is_complete and not answer.was_decided
    # the twin's abort has markers of its own
    states = {
        member.transactional_id: group.broker.side.transactions.describe(member.transactional_id)
        for member in (first, second, twin)
    }
    assert [states[m.transactional_id].producer_epoch for m in (first, second, twin)] == [0, 0, 1]
    while group.broker.services.partitions.logs[T0].open:
        await asyncio.sleep(0)
    log = group.broker.services.partitions.logs[T0]
    assert [producer for producer, _, _ in log.aborted] == [twin.producer_id]
    with fails_with(E.PRODUCER_FENCED):
        await group.write(twin, b"lost too")


@pytest.mark.checklist("F27")
async def test_another_attempt_of_the_same_writer_leaves_an_open_transaction_alone(group: Group) -> None:
    """Spark repeats a stage under the same names: the one that fenced made the commit of the other impossible."""
    begin = group.broker.side.transaction_groups.begin
    full = transactional_id(group.group, "0-0")
    first = TransactionMember(full, *await granted(begin(full, 60_000, group.owner, 0, "w")))
    again = TransactionMember(full, *await granted(begin(full, 60_000, group.owner, 0, "w")))
    assert again.producer_epoch == first.producer_epoch + 1, "nothing was written: its answer may have been lost"
    await group.write(again, b"a")
    with fails_with(E.INVALID_TXN_STATE):
        await begin(full, 60_000, group.owner, 0, "w")
    with fails_with(E.INVALID_REQUEST):
        await begin(full, 60_000, group.owner, 0, "w" * 65)
    await group.end(0, again)
    assert await committed(group) == [b"a"]
    left = TransactionMember(full, *await granted(begin(full, 60_000, group.owner, 1, "w")))
    await group.write(left, b"b")
    other = await group.prepared("0-0", 1, b"c")
    assert other.producer_epoch > left.producer_epoch, "a driver that was started again has another name as writer"
    await group.end(1, other)
    assert await committed(group) == [b"a", b"c"]


@pytest.mark.checklist("F27")
async def test_an_attempt_that_has_not_written_yet_is_fenced_by_the_decision(group: Group) -> None:
    """A speculative twin that still collects its rows opened a transaction afterwards: readers waited for its timeout."""
    first, twin = await group.prepared("0-0", 0, b"a"), await group.begin("0-1", 0)
    assert twin is not None
    await group.end(0, first)
    with pytest.raises(ApiError) as refused:
        await group.write(twin, b"late")
    assert refused.value.code in (E.PRODUCER_FENCED, E.CONCURRENT_TRANSACTIONS)
    assert await committed(group) == [b"a"]
    transactions = group.broker.side.transactions
    async with asyncio.timeout(150):
        while (described := transactions.describe(twin.transactional_id)).state is TransactionState.PREPARE_ABORT:
            await asyncio.sleep(0)
    await group.end(1, await group.prepared("0-0", 1, b"b"))  # which leaves it alone
    assert transactions.describe(twin.transactional_id).producer_epoch == described.producer_epoch == 1


@pytest.mark.checklist("F27")
async def test_a_version_that_is_decided_while_an_attempt_gets_its_producer_id(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The id comes from ZooKeeper, which may take long. The attempt was given a transaction of a version that was decided."""
    first = await group.prepared("0-0", 0, b"a")
    ids = group.broker.side.transactions._ids
    asked, answer, take = asyncio.Event(), asyncio.Event(), ids.take

    async def slow() -> ProducerId:
        asked.set()
        await answer.wait()
        return await take()

    monkeypatch.setattr(ids, "take", slow)
    late = asyncio.create_task(group.begin("0-1", 0))
    await asked.wait()
    await group.end(0, first)
    answer.set()
    assert await late is None


@pytest.mark.checklist("F27")
async def test_decided_once_whoever_asks_again(group: Group) -> None:
    first = await group.prepared("0-0", 3, b"a")
    await group.end(3, first)
    assert (await group.end(3, first)).was_decided
    assert (await group.end(2)).was_decided
    # an attempt of a decided version gets nothing to write to; one that was begun before is not committed
    assert await group.begin("0-1", 3) is None
    late = await group.prepared("0-2", 4, b"lost")
    answer = await group.end(3, late)
    assert answer.was_decided and answer.is_complete
    assert [producer for producer, _, _ in group.broker.services.partitions.logs[T0].aborted] == [late.producer_id]
    assert not (await group.end(4, await group.prepared("0-0", 4, b"b"))).was_decided
    assert await committed(group) == [b"a", b"b"]


@pytest.mark.checklist("F27")
async def test_nothing_is_committed_when_one_member_was_fenced(group: Group) -> None:
    first, second = await group.prepared("0-0", 0, b"lost"), await group.prepared("1-0", 0, b"lost")
    again = await group.prepared("1-0", 0, b"b")
    with pytest.raises(ApiError, match="another attempt has taken its place") as refused:
        await group.end(0, first, second)
    assert refused.value.code is E.PRODUCER_FENCED
    assert await group.begin("2-0", 0) is not None  # not decided
    await group.end(0, first, is_commit=False)
    third = await group.prepared("0-0", 0, b"a")
    assert not (await group.end(0, third, again)).was_decided
    assert await committed(group) == [b"b", b"a"]


@pytest.mark.checklist("F27")
async def test_an_abort_does_not_touch_what_is_decided(group: Group) -> None:
    first = await group.prepared("0-0", 0, b"a")
    await group.end(0, first)
    await group.end(0, first, is_commit=False)
    assert await committed(group) == [b"a"]
    assert not group.broker.services.partitions.logs[T0].aborted


@pytest.mark.checklist("F27")
async def test_prepared_and_left_it_times_out_decided_it_does_not(group: Group, monkeypatch) -> None:
    left = await group.prepared("0-0", 0, b"lost", timeout_ms=1)
    while not group.broker.services.partitions.logs[T0].aborted:
        await group.broker.side.transactions.abort_overdue()
        await asyncio.sleep(0.001)
    with pytest.raises(ApiError, match="longer than"):
        await group.end(0, left)
    # decided: its markers cannot be written for a while, its time passes, and it is committed all the same
    again = await group.prepared("0-0", 0, b"a", timeout_ms=50)

    async def unreachable(*_) -> None:
        raise TimeoutError("a leader is away")

    with monkeypatch.context() as away:
        away.setattr(group.broker.side._channels, "send", unreachable)
        request = EndTxnGroupRequest(group.group, group.owner, 0, (again,), is_commit=True, wait_ms=100)
        assert not (await group.broker.side.transaction_groups.end(request)).is_complete
        await group.broker.side.transactions.abort_overdue()
    assert (await group.end(0, again)).is_complete
    assert await committed(group) == [b"a"]


@pytest.mark.checklist("F27")
async def test_the_decision_survives_a_move(group: Group) -> None:
    first, second = await group.prepared("0-0", 0, b"a"), await group.prepared("1-0", 0, b"b")
    await move(group.broker, TRANSACTION_TOPIC)
    await group.end(0, first, second)
    await move(group.broker, TRANSACTION_TOPIC)
    assert await group.begin("0-0", 0) is None
    assert (await group.end(0, first, second)).was_decided
    assert await committed(group) == [b"a", b"b"]


async def test_a_request_that_waits_for_markers_returns_when_another_node_coordinates(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited until its limit before, since the markers' task had ended without a word."""
    monkeypatch.setattr(coordinator, "_RETRY_S", 0.001)
    asked = asyncio.Event()

    async def unreachable(*_: object) -> None:
        asked.set()
        raise OSError("unreachable")

    member = await group.prepared("0-0", 0, b"a")
    monkeypatch.setattr(group.broker.side.transactions._channels, "send", unreachable)
    ending = asyncio.create_task(group.end(0, member))
    await asked.wait()
    await move(group.broker, TRANSACTION_TOPIC)
    assert not (await ending).is_complete


@pytest.mark.checklist("F27")
async def test_an_append_that_fails_is_repeated_before_anything_else_happens_to_the_group(group: Group) -> None:
    """It may be in the log after all: an abort in between would lie beside the decision there."""
    first = await group.prepared("0-0", 0, b"a")
    partitions = group.broker.services.partitions
    partitions.fail_appends = E.REQUEST_TIMED_OUT
    request = EndTxnGroupRequest(group.group, group.owner, 0, (first,), is_commit=True, wait_ms=5_000)
    async with asyncio.TaskGroup() as tasks:
        ending = tasks.create_task(group.broker.side.transaction_groups.end(request))
        while not any(state.deciding for state in group.broker.side.transactions.log.states()):
            await asyncio.sleep(0)
        for refused in (
            group.broker.side.transaction_groups.begin(first.transactional_id, 1000, "q", 0),
            group.broker.side.transaction_groups.end(request),
            group.broker.side.transactions.init_producer(first.transactional_id, 1000, (-1, -1)),
        ):
            with fails_with(E.CONCURRENT_TRANSACTIONS):
                await refused
        partitions.fail_appends = None
        assert (await ending).is_complete
    assert await committed(group) == [b"a"]


async def test_another_owner_begins_anew(group: Group) -> None:
    await group.end(9, await group.prepared("0-0", 9, b"a"))
    other = Group(group.broker, owner="r")
    assert not (await other.end(0, await other.prepared("0-0", 0, b"b"))).was_decided
    assert await committed(group) == [b"a", b"b"]


async def test_a_decision_outlives_the_transactions_that_it_was_about(
    make_broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query that was stopped for weeks before it had recorded its batch asks whether that is decided."""
    broker = await make_broker(transactional_id_expiration_ms=60_000)
    await broker.create("t")
    group = Group(broker)
    await broker.side.transactions.coordinator_of(transactional_id(group.group, "0"))
    await group.end(0, await group.prepared("0-0", 0, b"a"))
    later = broker.services.clock.wall_ms() + 60 * 86_400_000
    monkeypatch.setattr(broker.services.clock, "wall_ms", lambda: later)
    await broker.side.transactions.expire()
    assert not any(state.slots for state in broker.side.transactions.log.states())
    await move(broker, TRANSACTION_TOPIC)
    assert await group.begin("0-0", 0) is None


def test_which_decisions_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "KEPT", 2)
    made = [decisions.Decision(f"g{at}", "q", 1, at) for at in (30, 10, 50, 20, 40)]
    for limit, forgotten in ((9, []), (10, [10]), (25, [20, 10]), (60, [30, 20, 10])):
        assert [each.updated_ms for each in decisions.expired(made, limit)] == forgotten
    assert decisions.expired(made[:2], 60) == []


async def test_old_decisions_are_forgotten(make_broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "KEPT", 0)
    broker = await make_broker(transactional_id_expiration_ms=60_000)
    await broker.create("t")
    group = Group(broker)
    await broker.side.transactions.coordinator_of(transactional_id(group.group, "0"))
    await group.end(0, await group.prepared("0-0", 0, b"a"))
    await broker.side.transactions.expire()
    assert any(state.decisions for state in broker.side.transactions.log.states())
    later = broker.services.clock.wall_ms() + 60_001
    monkeypatch.setattr(broker.services.clock, "wall_ms", lambda: later)
    await broker.side.transactions.expire()
    assert not any(state.decisions or state.slots for state in broker.side.transactions.log.states())
    await move(broker, TRANSACTION_TOPIC)
    assert await group.begin("0-0", 0) is not None


async def test_requests_that_make_no_sense(group: Group) -> None:
    stranger = TransactionMember(transactional_id("other", "0"), ProducerId(1), 0)
    for request in (
        EndTxnGroupRequest("", "q", 0, (), is_commit=True),
        EndTxnGroupRequest(group.group, "", 0, (), is_commit=True),
        EndTxnGroupRequest(group.group, "q", -1, (), is_commit=True),
        EndTxnGroupRequest(group.group, "q", 0, (stranger,), is_commit=True),
    ):
        with fails_with(E.INVALID_REQUEST):
            await group.broker.side.transaction_groups.end(request)
    unknown = TransactionMember(transactional_id(group.group, "0"), ProducerId(1), 0)
    with pytest.raises(ApiError, match="unknown"):
        await group.end(0, unknown)


async def test_a_member_that_is_named_twice_is_aborted_once(group: Group) -> None:
    """Two tasks sent its markers, and the later one met a transaction that was complete: an assertion, which a node reports as its own error."""
    member = await group.prepared("1-0", 1, b"no")
    answer = await group.end(1, member, member, is_commit=False)
    assert answer.error == E.NONE and answer.is_complete
    assert await committed(group) == []
    assert len(group.broker.services.partitions.logs[T0].aborted) == 1
