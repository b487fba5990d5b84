"""The decisions of a leader about its followers, one boundary at a time (`make mutate`)."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.model import NO_BROKER_EPOCH, NO_OFFSET, BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionEpoch
from kafkalite.replica.decisions import isr as isr_rules
from kafkalite.replica.decisions.leader import (
    NEVER_MS,
    FollowerProgress,
    PartitionLeader,
    low_watermark,
    new_leader,
    next_high_watermark,
    on_append,
    on_flushed,
    on_follower_fetch,
    on_idle_fetch,
)

ONE, TWO, THREE, FOUR = map(BrokerId, (1, 2, 3, 4))
LIVE = {TWO: BrokerEpoch(20), THREE: BrokerEpoch(30)}
LAG_MS = 100


def leader(*, isr: tuple[BrokerId, ...] = (ONE, TWO), **fields: Any) -> PartitionLeader:
    made = PartitionLeader(
        broker_id=ONE,
        leader_epoch=LeaderEpoch(5),
        epoch_start_offset=Offset(10),
        replicas=(ONE, TWO, THREE),
        committed_isr=isr,
        partition_epoch=PartitionEpoch(7),
        min_insync_replicas=1,
        log_end_offset=Offset(20),
        high_watermark=Offset(10),
        **fields,
    )
    for replica, epoch in LIVE.items():
        made.followers[replica] = FollowerProgress(Offset(20), epoch, 1_000, 1_000)
    return made


def may_join(one: PartitionLeader, replica: BrokerId = THREE, *, at_ms: int = 1_000) -> bool:
    return isr_rules.may_join(one, replica, live_epochs=LIVE, at_ms=at_ms, lag_time_max_ms=LAG_MS)


# --- joining and leaving ---------------------------------------------------------------------------


@pytest.mark.checklist("C10", "F9")
def test_a_follower_joins_at_the_high_watermark_and_the_start_of_the_epoch() -> None:
    one = leader()
    assert may_join(one)
    one.followers[THREE].log_end_offset = Offset(10)
    assert may_join(one), "the high watermark and the epoch's start are both 10"
    one.followers[THREE].log_end_offset = Offset(9)
    assert not may_join(one)
    one.followers[THREE].log_end_offset = Offset(12)
    one.high_watermark = Offset(13)
    assert not may_join(one), "behind the high watermark alone"
    one.high_watermark, one.epoch_start_offset = Offset(12), Offset(13)
    assert not may_join(one), "before the start of the epoch alone"
    one.epoch_start_offset = Offset(12)
    assert may_join(one)


def test_a_proposal_knows_what_to_write_if_the_joining_one_restarts() -> None:
    """KIP-903: the members stay, and nobody joins."""
    one = leader()
    proposal = isr_rules.propose(one, (ONE, TWO, THREE))
    assert (proposal.isr, proposal.joining) == ((ONE, TWO, THREE), {THREE: LIVE[THREE]})
    assert isr_rules.still_joining(proposal, LIVE) is proposal
    instead = isr_rules.still_joining(proposal, {**LIVE, THREE: BrokerEpoch(31)})
    assert (instead.isr, dict(instead.joining), instead.without_joining) == ((ONE, TWO), {}, None)
    shrunk = isr_rules.propose(one, (ONE,))
    assert (shrunk.isr, dict(shrunk.joining), shrunk.without_joining) == ((ONE,), {}, None)
    assert isr_rules.still_joining(shrunk, {}) is shrunk


def test_a_member_and_a_stranger_do_not_join() -> None:
    one = leader()
    assert not may_join(one, TWO), "it is a member"
    assert not may_join(one, FOUR), "it is no replica"
    isr_rules.begin_proposal(one, (ONE, TWO, THREE))
    assert not may_join(one), "it is being proposed"
    one.committed_isr = (ONE, FOUR)
    isr_rules.withdraw_proposal(one)
    assert not may_join(one, FOUR), "a member that is no replica any more"


def test_a_follower_joins_as_long_as_its_last_fetch_is_within_the_lag_time() -> None:
    one = leader()
    assert may_join(one, at_ms=1_000 + LAG_MS)
    assert not may_join(one, at_ms=1_001 + LAG_MS)


@pytest.mark.checklist("F15", "F16")
def test_a_follower_of_another_life_does_not_join() -> None:
    one = leader()
    one.followers[THREE].broker_epoch = BrokerEpoch(29)
    assert not may_join(one)


def propose(one: PartitionLeader, at_ms: int) -> tuple[BrokerId, ...] | None:
    return isr_rules.propose_isr(one, live_epochs=LIVE, at_ms=at_ms, lag_time_max_ms=LAG_MS)


def test_a_member_leaves_when_it_lags_for_more_than_the_lag_time() -> None:
    one = leader(isr=(ONE, TWO, THREE))
    assert propose(one, 1_000 + LAG_MS) is None
    assert propose(one, 1_001 + LAG_MS) == (ONE,)
    one.followers[TWO].last_caught_up_ms = 1_050
    assert propose(one, 1_001 + LAG_MS) == (ONE, TWO)
    one.proposed_isr = (ONE, TWO)
    assert propose(one, 5_000) is None, "one proposal at a time"


def test_the_proposed_isr_is_in_the_order_of_the_assignment() -> None:
    one = leader(isr=(TWO, ONE))
    assert propose(one, 1_000) == (ONE, TWO, THREE)


# --- eligible replicas -----------------------------------------------------------------------------


def test_who_leaves_as_the_isr_falls_below_its_minimum_is_eligible() -> None:
    one = leader(isr=(ONE, TWO, THREE), last_known_elr=(TWO, FOUR))
    one.min_insync_replicas = 2
    assert isr_rules.eligible_after(one, (ONE, TWO)) == ((), ())
    assert isr_rules.eligible_after(one, (ONE,)) == ((TWO, THREE), (FOUR,))
    one.committed_isr, one.elr = (ONE,), (THREE,)
    assert isr_rules.eligible_after(one, (ONE,)) == ((THREE,), (TWO, FOUR))
    one.last_known_elr = (ONE, TWO)
    assert isr_rules.eligible_after(one, (ONE,)) == ((THREE,), (TWO,)), "a member is not known as eligible"


def test_eligible_replicas_are_cleared_when_the_isr_is_large_enough() -> None:
    one = leader()
    assert not isr_rules.must_clear(one)
    one.elr = (THREE,)
    assert isr_rules.must_clear(one)
    one.elr, one.last_known_elr = (), (THREE,)
    assert isr_rules.must_clear(one)
    one.min_insync_replicas = 3
    assert not isr_rules.must_clear(one)


def test_an_adopted_isr_has_replicas_only() -> None:
    one = leader()
    isr_rules.begin_proposal(one, (ONE, TWO, THREE))
    isr_rules.adopt(one, (TWO, ONE, FOUR), PartitionEpoch(7), (THREE,), (FOUR,))
    assert (one.committed_isr, one.maximal_isr, one.proposed_isr) == ((TWO, ONE), (TWO, ONE), None)
    assert (one.partition_epoch, one.elr, one.last_known_elr) == (7, (THREE,), (FOUR,))


# --- watermarks --------------------------------------------------------------------------------------


@pytest.mark.checklist("F8")
def test_the_high_watermark_is_the_least_end_of_the_maximal_isr() -> None:
    one = leader(isr=(ONE, TWO))
    one.followers[TWO].log_end_offset, one.followers[THREE].log_end_offset = Offset(15), Offset(12)
    assert next_high_watermark(one) == 15
    isr_rules.begin_proposal(one, (ONE, TWO, THREE))
    assert next_high_watermark(one) == 12
    one.durable_end_offset = Offset(11)
    assert next_high_watermark(one) == 11, "the leader's own log counts as far as it is durable"
    one.followers[THREE].log_end_offset = Offset(9)
    assert next_high_watermark(one) == 10, "it does not go back"


def test_the_high_watermark_stands_still_under_min_isr_and_while_replicas_are_eligible() -> None:
    one = leader()
    one.min_insync_replicas = 2
    assert next_high_watermark(one) == 20
    one.min_insync_replicas = 3
    assert next_high_watermark(one) == 10
    one.replicas = (ONE, TWO)
    assert next_high_watermark(one) == 20, "never more than there are replicas"
    one.high_watermark = Offset(20)
    assert next_high_watermark(one) == 20, "all of the log is committed"
    one.elr, one.high_watermark = (THREE,), Offset(10)
    assert next_high_watermark(one) == 10


def test_an_append_counts_at_once_or_when_it_is_flushed() -> None:
    one = leader()
    on_append(one, Offset(22), is_flush_needed=False)
    assert (one.log_end_offset, one.durable_end_offset) == (22, 22)
    on_append(one, Offset(22), is_flush_needed=False)
    assert one.log_end_offset == 22, "a repetition of what is there"
    on_append(one, Offset(25), is_flush_needed=True)
    assert (one.log_end_offset, one.durable_end_offset) == (25, 22)
    on_flushed(one, Offset(21))
    assert one.durable_end_offset == 22
    on_flushed(one, Offset(30))
    assert one.durable_end_offset == 25


def test_the_low_watermark_is_the_least_log_start_of_those_that_may_lead_next() -> None:
    one = leader()
    one.followers[TWO].log_start_offset, one.followers[THREE].log_start_offset = Offset(4), Offset(2)
    assert low_watermark(one, Offset(9)) == 4
    assert low_watermark(one, Offset(3)) == 3
    one.elr = (THREE, FOUR)
    assert low_watermark(one, Offset(9)) == 2
    one.committed_isr = (ONE,)
    isr_rules.withdraw_proposal(one)
    one.elr = ()
    assert low_watermark(one, Offset(9)) == 9


# --- followers -----------------------------------------------------------------------------------------


def fetch(one: PartitionLeader, offset: int, at_ms: int, epoch: int = 20) -> FollowerProgress:
    return on_follower_fetch(
        one, TWO, fetch_offset=Offset(offset), broker_epoch=BrokerEpoch(epoch), at_ms=at_ms, log_start_offset=Offset(1)
    )


def test_a_follower_was_caught_up_when_it_asked_for_the_end_then_or_now() -> None:
    one = leader()
    two = fetch(one, 19, 2_000)
    assert (two.last_caught_up_ms, two.log_end_offset, two.last_fetch_leader_end_offset) == (1_000, 19, 20)
    on_append(one, Offset(30), is_flush_needed=False)
    assert fetch(one, 20, 3_000).last_caught_up_ms == 2_000, "it has what was the end at its fetch before"
    assert fetch(one, 29, 4_000).last_caught_up_ms == 2_000
    assert fetch(one, 30, 5_000).last_caught_up_ms == 5_000
    assert (two.last_fetch_ms, two.log_start_offset) == (5_000, 1)


def test_a_late_answer_does_not_make_a_follower_older() -> None:
    one = leader()
    fetch(one, 20, 2_000)
    one.followers[TWO].last_caught_up_ms = 9_000
    on_append(one, Offset(30), is_flush_needed=False)
    assert fetch(one, 20, 3_000).last_caught_up_ms == 9_000


@pytest.mark.checklist("F15")
def test_a_new_life_of_a_follower_has_to_catch_up() -> None:
    one = leader()
    fetch(one, 20, 2_000)
    on_append(one, Offset(30), is_flush_needed=False)
    assert fetch(one, 20, 3_000, epoch=21).last_caught_up_ms == NEVER_MS
    one.followers[TWO] = FollowerProgress(last_caught_up_ms=500)
    assert one.followers[TWO].broker_epoch == NO_BROKER_EPOCH
    assert fetch(one, 20, 3_000).last_caught_up_ms == 500, "its first life is no new one: it keeps the leader's grace"


def test_a_session_without_changes_keeps_a_follower_caught_up() -> None:
    one = leader()
    two = one.followers[TWO]
    on_idle_fetch(one, two, 1_500)
    assert (two.last_caught_up_ms, two.last_fetch_ms) == (1_500, 1_500)
    two.last_fetch_ms = 1_800
    on_idle_fetch(one, two, 1_600)
    assert (two.last_caught_up_ms, two.last_fetch_ms) == (1_600, 1_800)
    on_idle_fetch(one, two, 1_400)
    assert two.last_caught_up_ms == 1_600
    two.last_fetch_ms = 1_000
    on_idle_fetch(one, two, 1_600)
    assert two.last_fetch_ms == 1_000
    on_append(one, Offset(21), is_flush_needed=False)
    on_idle_fetch(one, two, 1_700)
    assert two.last_caught_up_ms == 1_600


@pytest.mark.parametrize(("epoch", "keeps"), [(5, False), (6, True), (7, False)])
def test_a_leader_that_goes_on_keeps_what_it_knows_only_without_an_epoch_between(epoch: int, *, keeps: bool) -> None:
    previous = leader()
    made = new_leader(
        previous,
        broker_id=ONE,
        leader_epoch=LeaderEpoch(epoch),
        replicas=(ONE, TWO, THREE, FOUR),
        isr=(ONE, TWO),
        partition_epoch=PartitionEpoch(8),
        min_insync_replicas=1,
        log_end_offset=Offset(20),
        durable_end_offset=Offset(18),
        high_watermark=Offset(25),
        at_ms=7_000,
    )
    assert (made.high_watermark, made.epoch_start_offset, made.durable_end_offset) == (20, 20, 18)
    two, three, four = (made.followers[each] for each in (TWO, THREE, FOUR))
    assert (two.log_end_offset, two.last_caught_up_ms) == (20 if keeps else NO_OFFSET, 7_000)
    assert two.broker_epoch == (20 if keeps else NO_BROKER_EPOCH)
    for outside in (three, four):  # may have been recreated empty
        assert (outside.log_end_offset, outside.last_caught_up_ms) == (NO_OFFSET, NEVER_MS)
        assert outside.broker_epoch == NO_BROKER_EPOCH
