"""Watches over the ISRs of the partitions led here: proposes changes, takes in their outcome, notifies the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random

from kafkalite.coordination.coordinator import SessionState
from kafkalite.coordination.session import SessionKeeper
from kafkalite.env.own_time import OwnTime
from kafkalite.errors import ErrorCode
from kafkalite.model import BrokerId, LeaderEpoch
from kafkalite.replica.decisions import isr as rules
from kafkalite.replica.decisions.isr import ProposalOutcome
from kafkalite.replica.decisions.leader import NEVER_MS, PartitionLeader, on_idle_fetch
from kafkalite.replica.hosted import HostedPartitions
from kafkalite.replica.isr_writer import IsrWriter, Settled, Task
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.replica.partition import Partition
from kafkalite.rpc.messages.control import IsrChange
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: Partitions checked before the loop gets its turn.
SLICE = 500


class IsrKeeper:
    """`run` checks every led partition at half the lag time, with or without traffic (invariant F12).

    Args:
        notify: called all changes of one round at once (invariant F7).
    """

    def __init__(
        self,
        hosted: HostedPartitions,
        metadata: MetadataCache,
        session: SessionKeeper,
        random: Random,
        *,
        own_time: OwnTime,
        lag_time_max_ms: int,
        notify: Callable[[list[IsrChange]], None],
    ) -> None:
        self._hosted = hosted
        self._own_time = own_time
        self._metadata = metadata
        self._session = session
        self.writer = IsrWriter(session, random, metadata, self)
        self._lag_ms = lag_time_max_ms
        self._notify = notify
        self._check_scheduled = asyncio.Event()

    def schedule_check(self) -> None:
        """Something that may let followers join has changed (brokers were registered)."""
        self._check_scheduled.set()

    async def run(self, expire_sessions: Callable[[int], None]) -> None:
        """Until cancelled.

        Args:
            expire_sessions: called at each tick with the age (ms) at which a silent fetch session is forgotten.
        """
        interval_ms = max(self._lag_ms // 2, 1)
        due_ms = self._hosted.now_ms() + interval_ms
        looked_ms, looked = self._hosted.now_ms(), self._own_time.now()
        while True:
            try:
                async with asyncio.timeout(max(due_ms - self._hosted.now_ms(), 0) / 1000):
                    await self._check_scheduled.wait()
                self._check_scheduled.clear()
                await self._check_all(may_shrink=False)
                continue
            except TimeoutError:
                pass
            before_ms, before = looked_ms, looked
            looked_ms, looked = self._hosted.now_ms(), self._own_time.now()
            due_ms = looked_ms + interval_ms
            # While this process was stopped, the fetches of its followers waited in the sockets: that time is not held against them.
            stopped_ms = max(looked_ms - before_ms - int((looked - before) * 1000), 0)
            if stopped_ms > interval_ms:
                _log.warning("isr.tick_late", stopped_ms=stopped_ms)
            expire_sessions(self._lag_ms * 2 + stopped_ms)
            await self._check_all(may_shrink=True, stopped_ms=stopped_ms)

    async def _check_all(self, *, may_shrink: bool, stopped_ms: int = 0) -> None:
        for position, partition in enumerate(self._hosted.all()):
            if partition.leader is not None:
                self.maybe_alter_isr(partition, may_shrink=may_shrink, stopped_ms=stopped_ms)
            if position % SLICE == SLICE - 1:
                await asyncio.sleep(0)
        self._notify_drained()

    def _notify_drained(self) -> None:
        """Again and again, until the controller has taken the partition away: a notice can be lost."""
        drained: list[IsrChange] = []
        for partition in self._hosted.all():
            if partition.is_drained and partition.leader is not None:
                leader, (topic, number) = partition.leader, partition.topic_partition
                isr, epoch = leader.committed_isr, leader.partition_epoch
                drained.append(IsrChange(topic, number, leader.leader_epoch, isr, epoch, is_drained=True))
        if drained:
            self._notify(drained)

    def maybe_alter_isr(self, partition: Partition, *, may_shrink: bool = True, stopped_ms: int = 0) -> None:
        """Propose the ISR that the partition should have now, if it is another one.

        Args:
            stopped_ms: for how long this process was stopped since the last look.
        """
        leader = partition.leader
        if leader is None or leader.proposed_isr is not None:
            return
        for replica_id, entry in partition.entries.items():
            on_idle_fetch(leader, leader.followers[replica_id], entry.session.last_fetch_ms)
        proposed = rules.propose_isr(
            leader,
            live_epochs=self._metadata.broker_epochs,
            at_ms=self._hosted.now_ms() - stopped_ms,
            lag_time_max_ms=self._lag_ms,
        )
        is_same = rules.must_clear(leader)
        if proposed is None:
            if not is_same:
                return
            proposed = leader.committed_isr
        elif not may_shrink:
            proposed = tuple(m for m in leader.replicas if m in proposed or m in leader.committed_isr)
            if set(proposed) == set(leader.committed_isr) and not is_same:
                return
        coordinator = self._session.current
        if coordinator is None or coordinator.state is not SessionState.CONNECTED or not self._session.usable():
            return  # isolated: whom we do not hear may be well (invariant F13)
        self._record_proposal(partition, leader, proposed)
        rules.begin_proposal(leader, proposed)
        _log.info(
            "isr.propose",
            partition=str(partition.topic_partition),
            isr=list(proposed),
            committed=list(leader.committed_isr),
            partition_epoch=leader.partition_epoch,
        )
        proposal = rules.propose(leader, proposed)
        self.writer.submit(Task(partition.topic_partition, proposal, partition.controller_epoch))

    def _record_proposal(self, partition: Partition, leader: PartitionLeader, proposed: tuple[BrokerId, ...]) -> None:
        """Why members leave or join: for `admin why`; the result is logged as `isr.changed`."""
        now_ms = self._hosted.now_ms()
        reasons: list[str] = []
        for replica_id, follower in leader.followers.items():
            if replica_id in leader.committed_isr and replica_id not in proposed:
                last = follower.last_caught_up_ms
                lag = "never" if last == NEVER_MS else f"{max(now_ms - last, 0)} ms ago"
                behind = leader.log_end_offset - follower.log_end_offset
                reasons.append(f"{replica_id} leaves: caught up {lag}, {behind} records behind")
            elif replica_id in proposed and replica_id not in leader.committed_isr:
                reasons.append(f"{replica_id} joins: at {follower.log_end_offset} of {leader.log_end_offset}")
        detail = f"{list(leader.committed_isr)} -> {list(proposed)}; {'; '.join(reasons)}"
        self._hosted.record(partition, "isr.propose", detail)

    def on_follower_fetch(self, partition: Partition) -> None:
        """A follower outside the maximal ISR has fetched: it may be ready to join."""
        leader = partition.leader
        if leader is None or leader.proposed_isr is not None:
            return
        now_ms = self._hosted.now_ms()
        for replica in leader.followers:
            if rules.may_join(
                leader,
                replica,
                live_epochs=self._metadata.broker_epochs,
                at_ms=now_ms,
                lag_time_max_ms=self._lag_ms,
            ):
                self.maybe_alter_isr(partition, may_shrink=False)
                return

    # --- outcomes ------------------------------------------------------------------------------

    def is_current(self, task: Task) -> bool:
        """Whether the leadership under which `task` was proposed still stands, with this very proposal."""
        partition = self._hosted.get(task.topic_partition)
        leader = partition.leader if partition is not None else None
        return (
            leader is not None
            and leader.leader_epoch == task.proposal.leader_epoch
            and leader.partition_epoch == task.proposal.partition_epoch
            and leader.proposed_isr == task.proposal.isr
        )

    def on_settled(self, settled: Sequence[Settled]) -> None:
        """Take in what the writer found out."""
        changes: list[IsrChange] = []
        for one in settled:
            partition = self._hosted.get(one.task.topic_partition)
            leader = partition.leader if partition is not None else None
            if partition is None or leader is None:
                continue
            match one.outcome:
                case ProposalOutcome.RETRY:
                    rules.withdraw_proposal(leader)
                    self._hosted.counters.failed_isr_updates += 1
                    self._hosted.record(partition, "isr.not_written", "ZooKeeper did not answer")
                    self._hosted.advance(partition)  # it need not wait for those who were to join
                case ProposalOutcome.RESIGN:
                    self._hosted.counters.failed_isr_updates += 1
                    self._hosted.resign(partition, "the state znode names another leadership")
                case ProposalOutcome.PUT_BACK:
                    self._hosted.counters.failed_isr_updates += 1
                    self.report_ahead(partition, has_resigned=True)
                    self._hosted.resign(partition, "the state znode is an earlier one")
                case ProposalOutcome.ADOPT:
                    self._adopt(partition, one, changes)
        if changes:
            self._notify(changes)

    def report_ahead(self, partition: Partition, *, has_resigned: bool = False) -> None:
        """ZooKeeper, or a command, has an earlier state of a partition that is led here: the controller has to read the znode, and to
        choose a leader in a new epoch if that is true. Nobody else knows."""
        leader, (topic, number) = partition.leader, partition.topic_partition
        assert leader is not None
        change = IsrChange(
            topic,
            number,
            leader.leader_epoch,
            leader.committed_isr,
            leader.partition_epoch,
            topic_id=partition.topic_id,
            is_ahead=True,
            has_resigned=has_resigned,
        )
        self._notify([change])

    def report_epoch(self, partition: Partition, latest_epoch: LeaderEpoch) -> None:
        """This node knows a later leader epoch than the command's, in which it has not led: as `report_ahead`, but who was in sync in
        that epoch is not known."""
        topic, number = partition.topic_partition
        change = IsrChange(
            topic,
            number,
            latest_epoch,
            partition.isr,
            partition.partition_epoch,
            topic_id=partition.topic_id,
            is_ahead=True,
            has_resigned=True,
            is_epoch_only=True,
        )
        self._notify([change])

    def _adopt(self, partition: Partition, one: Settled, changes: list[IsrChange]) -> None:
        leader = partition.leader
        assert leader is not None
        before = leader.committed_isr
        if leader.broker_id not in one.isr:  # somebody wrote an ISR without its leader: not a state to lead with
            self._hosted.resign(partition, "the state znode has this leader outside of the ISR")
            return
        members = tuple(BrokerId(member) for member in one.isr)
        rules.adopt(leader, members, one.partition_epoch, one.elr, one.last_known_elr)
        partition.partition_epoch = one.partition_epoch
        partition.isr = leader.committed_isr
        self._hosted.settle_starts(partition)
        for member, epoch in one.task.proposal.joining.items():
            follower = leader.followers.get(member)
            if follower is not None and self._metadata.broker_epochs.get(member) != epoch == follower.broker_epoch:
                follower.last_caught_up_ms = NEVER_MS  # it has restarted since it joined: it has to catch up again
        self._hosted.counters.isr_shrinks += len(leader.committed_isr) < len(before)
        self._hosted.counters.isr_expands += len(leader.committed_isr) > len(before)
        self._hosted.record(
            partition,
            "isr.changed",
            f"{list(before)} -> {list(leader.committed_isr)}, high watermark {leader.high_watermark}"
            + (f", eligible {list(leader.elr)}" if leader.elr else ""),
        )
        _log.info(
            "isr.changed",
            partition=str(partition.topic_partition),
            before=list(before),
            isr=list(leader.committed_isr),
            elr=list(leader.elr),
            partition_epoch=leader.partition_epoch,
        )
        topic, number = partition.topic_partition
        changes.append(IsrChange(topic, number, leader.leader_epoch, leader.committed_isr, leader.partition_epoch))
        if leader.is_under_min_isr:
            # Nothing more is committed now; waiting requests get an error instead of a timeout (invariant F26).
            self._hosted.fail_produce_waiters(partition, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        else:
            self._hosted.advance(partition)
        if partition.leader is leader:
            self.maybe_alter_isr(partition, may_shrink=False)
