"""The replica rules against obviously right twins and against an oracle of what was committed."""

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.model import BrokerEpoch, BrokerId, ControllerEpoch, LeaderAndIsr, LeaderEpoch, Offset, PartitionEpoch
from kafkalite.replica.decisions import isr as rules
from kafkalite.replica.decisions.follower import Divergence, OutOfRange, find_divergence, truncation_offset
from kafkalite.replica.decisions.leader import (
    PartitionLeader,
    new_leader,
    next_high_watermark,
    on_append,
    on_follower_fetch,
    update_maximal_isr,
)


@st.composite
def leaders(draw: st.DrawFn) -> PartitionLeader:
    """Only states that satisfy PartitionLeader's invariants."""
    replicas = tuple(BrokerId(number) for number in range(1, draw(st.integers(1, 5)) + 1))
    others = st.lists(st.sampled_from(replicas), unique=True)
    committed = tuple(r for r in replicas if r == 1 or r in draw(others))
    end = draw(st.integers(0, 40))
    leader = PartitionLeader(
        broker_id=BrokerId(1),
        leader_epoch=LeaderEpoch(1),
        epoch_start_offset=Offset(draw(st.integers(0, end))),
        replicas=replicas,
        committed_isr=committed,
        partition_epoch=PartitionEpoch(0),
        min_insync_replicas=draw(st.integers(1, 4)),
        log_end_offset=Offset(end),
        high_watermark=Offset(draw(st.integers(0, end))),
        durable_end_offset=Offset(draw(st.integers(0, end))),
    )
    for follower in leader.followers.values():
        follower.log_end_offset = Offset(draw(st.integers(-1, 40)))
    leader.elr = tuple(r for r in replicas if r not in committed and r in draw(others))
    if draw(st.booleans()):
        leader.proposed_isr = tuple(r for r in replicas if r == 1 or r in draw(others))
        update_maximal_isr(leader)
    return leader


def naive_high_watermark(leader: PartitionLeader) -> int:
    """Walk up while every member of the ISR, settled or proposed, has the record."""
    ends = {member: follower.log_end_offset for member, follower in leader.followers.items()}
    ends[leader.broker_id] = leader.durable_end_offset
    members = set(leader.committed_isr) | set(leader.proposed_isr or ())
    mark: int = leader.high_watermark
    needed = min(leader.min_insync_replicas, len(leader.replicas))
    while len(leader.committed_isr) >= needed and not leader.elr and all(ends[member] > mark for member in members):
        mark += 1
    return mark


@pytest.mark.checklist(46)
@pytest.mark.checklist("F8")
@pytest.mark.checklist("F14")
@settings(max_examples=500, deadline=None)
@given(leaders())
def test_high_watermark_agrees_with_the_naive_twin(leader: PartitionLeader) -> None:
    assert next_high_watermark(leader) == naive_high_watermark(leader)


Step = tuple[str, int, int]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5), st.just(0)),
        st.tuples(st.just("fetch"), st.integers(2, 4), st.integers(0, 6)),
        st.tuples(st.just("tick"), st.sampled_from([0, 100, 400, 700]), st.just(0)),
        st.tuples(st.just("min_isr"), st.integers(1, 4), st.just(0)),
        st.tuples(st.sampled_from(["written", "lost", "lost_applied", "not_sent"]), st.just(0), st.just(0)),
    ),
    min_size=5,
    max_size=60,
)


@pytest.mark.checklist(46)
@pytest.mark.checklist(47)
@pytest.mark.checklist(49)
@pytest.mark.checklist("F6")
@pytest.mark.checklist("F8")
@settings(max_examples=300, deadline=None)
@given(STEPS, st.integers(1, 3))
def test_what_is_committed_is_on_every_replica_that_may_be_elected(steps: list[Step], min_isr: int) -> None:
    """Whatever happens to the writes, and to min.insync.replicas: every member of the ISR, and every eligible replica, in
    ZooKeeper holds all below the high watermark."""
    replicas = tuple(map(BrokerId, (1, 2, 3, 4)))
    leader = new_leader(
        None,
        broker_id=BrokerId(1),
        leader_epoch=LeaderEpoch(1),
        replicas=replicas,
        isr=replicas,
        partition_epoch=PartitionEpoch(0),
        min_insync_replicas=min_isr,
        log_end_offset=Offset(0),
        durable_end_offset=Offset(0),
        high_watermark=Offset(0),
        at_ms=0,
    )
    live = {replica: BrokerEpoch(1) for replica in replicas}
    ends = dict.fromkeys(replicas[1:], 0)
    now_ms, znode_isr, version = 0, replicas, 0
    znode_elr: tuple[BrokerId, ...] = ()
    proposal: rules.Proposal | None = None
    is_in_flight = False
    mark = 0
    for what, first, second in steps:
        now_ms += 10
        if what == "append":
            on_append(leader, Offset(leader.log_end_offset + first), is_flush_needed=False)
        elif what == "fetch":
            ends[BrokerId(first)] = min(ends[BrokerId(first)] + second, leader.log_end_offset)
            on_follower_fetch(
                leader,
                BrokerId(first),
                fetch_offset=Offset(ends[BrokerId(first)]),
                broker_epoch=BrokerEpoch(1),
                at_ms=now_ms,
            )
        elif what == "tick":
            now_ms += first
            isr = rules.propose_isr(leader, live_epochs=live, at_ms=now_ms, lag_time_max_ms=500)
            if isr is None and leader.proposed_isr is None and rules.must_clear(leader):
                isr = leader.committed_isr
            if isr is not None:
                elr, last = rules.eligible_after(leader, isr)
                proposal = rules.Proposal(BrokerId(1), LeaderEpoch(1), leader.partition_epoch, isr, elr, last)
                rules.begin_proposal(leader, isr)
                is_in_flight = False
        elif what == "min_isr":
            leader.min_insync_replicas = first
        elif proposal is not None:
            is_applied = what in ("written", "lost_applied") and version == proposal.partition_epoch
            if is_applied:
                znode_isr, znode_elr, version = proposal.isr, proposal.elr, version + 1
            if what == "written" and is_applied:
                rules.adopt(leader, proposal.isr, PartitionEpoch(version), proposal.elr)
                proposal = None
            elif what == "not_sent" and not is_in_flight:
                rules.withdraw_proposal(leader)
                proposal = None
            else:
                is_in_flight = True
                current = LeaderAndIsr(
                    BrokerId(1), LeaderEpoch(1), znode_isr, ControllerEpoch(1), PartitionEpoch(version)
                )
                if rules.outcome_of(proposal, current) is rules.ProposalOutcome.ADOPT:
                    rules.adopt(leader, znode_isr, PartitionEpoch(version), znode_elr)
                    proposal = None
        leader.high_watermark = next_high_watermark(leader)
        assert leader.high_watermark >= mark
        mark = leader.high_watermark
        assert not set(znode_elr) & set(znode_isr)
        for member in (*znode_isr, *znode_elr):
            assert member == 1 or ends[member] >= mark, f"{member} may be elected with {ends[member]} of {mark}"
        assert set(leader.committed_isr) <= set(replicas)
        assert 1 in leader.maximal_isr


def agreement(one: list[int], other: list[int]) -> int:
    """Up to where two logs, as the epochs of their records, are the same."""
    common = 0
    while common < min(len(one), len(other)) and one[common] == other[common]:
        common += 1
    return common


@st.composite
def replicas_logs(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Two logs as they can be after leaders came and went: each copies from a leader or stays behind.

    What a leader writes is named by its epoch; a replica that copies from it first drops what the leader has not.
    """
    logs: list[list[int]] = [[], [], []]
    for epoch in range(draw(st.integers(1, 7))):
        leader = logs[draw(st.integers(0, 2))]
        leader.extend([epoch] * draw(st.integers(0, 4)))
        for log in logs:
            if log is not leader and draw(st.booleans()):
                common = agreement(log, leader)
                del log[common:]
                log.extend(leader[common : common + draw(st.integers(0, 6))])
    return logs[0], logs[1]


def epoch_end(records: list[int], requested: int) -> tuple[LeaderEpoch, Offset]:
    known = [epoch for epoch in records if epoch <= requested]
    if not known:
        return LeaderEpoch(-1), Offset(-1)
    return LeaderEpoch(known[-1]), Offset(len(known))


@pytest.mark.checklist("F1")
@pytest.mark.checklist("F2")
@settings(max_examples=500, deadline=None)
@given(replicas_logs())
def test_truncation_ends_with_a_prefix_and_cuts_no_more_than_it_must(logs: tuple[list[int], list[int]]) -> None:
    """A record is named by (offset, epoch): one leader per epoch. Logs agree as far as these agree."""
    leader, follower = logs
    common = agreement(leader, follower)
    records = list(follower)
    for _ in range(20):
        answer = find_divergence(
            partial(epoch_end, leader),
            latest_epoch=LeaderEpoch(leader[-1] if leader else -1),
            log_start_offset=Offset(0),
            log_end_offset=Offset(len(leader)),
            fetch_offset=Offset(len(records)),
            last_fetched_epoch=LeaderEpoch(records[-1] if records else -1),
        )
        if answer is None:
            break
        if isinstance(answer, OutOfRange):
            records = []
            continue
        assert isinstance(answer, Divergence)
        cut = truncation_offset(
            partial(epoch_end, records),
            log_start_offset=Offset(0),
            log_end_offset=Offset(len(records)),
            divergence=answer,
        )
        assert cut is not None and cut < len(records), "no progress"
        records = records[:cut]
    else:
        raise AssertionError("does not end")
    assert records == leader[: len(records)]
    assert len(records) == common
