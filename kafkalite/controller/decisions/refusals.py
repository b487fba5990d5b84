"""What a broker has refused of the controller's commands, per partition, for `admin health`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from kafkalite.errors import ErrorCode
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import NO_LEADER, BrokerId, LeaderAndIsr, TopicPartition
from kafkalite.rpc.messages.control import PartitionState, StopPartition

#: Kept per broker.
MAX_REFUSALS = 100

#: The broker has done what the command says, or more.
_IS_DONE = (ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH)


@dataclass(frozen=True, slots=True)
class Refusal:
    """`partition_epoch` and `leader_epoch` are the commanded state's; -1: the command was to stop the replica."""

    code: int
    since_ms: int
    partition_epoch: int
    leader_epoch: int = -1


@dataclass(slots=True)
class Refusals:
    """One broker's, each until the next command for the partition succeeds."""

    broker_id: BrokerId
    found: dict[TopicPartition, Refusal] = field(default_factory=dict)

    def record(self, entry: PartitionState | StopPartition, code: int, now_ms: int) -> None:
        """Take the broker's response for one partition."""
        partition = TopicPartition(entry.topic, entry.partition)
        # A replica of another topic with this name: the command does not apply to it.
        is_other = isinstance(entry, StopPartition) and code == ErrorCode.INCONSISTENT_TOPIC_ID
        is_stale_stop = isinstance(entry, StopPartition) and code == ErrorCode.STALE_CONTROLLER_EPOCH
        if code in _IS_DONE or is_other or is_stale_stop:
            self.found.pop(partition, None)
        elif partition in self.found or len(self.found) < MAX_REFUSALS:
            since_ms = self.found[partition].since_ms if partition in self.found else now_ms
            epochs = (entry.partition_epoch, entry.leader_epoch) if isinstance(entry, PartitionState) else (-1, -1)
            self.found[partition] = Refusal(code, since_ms, *epochs)

    def current(self, states: Mapping[TopicPartition, LeaderAndIsr]) -> Iterator[tuple[TopicPartition, Refusal]]:
        """What is still refused, by partition.

        A follower whose disk is back takes its role from the state znode, without a command. When another leader has it in
        the ISR of a later state, nothing is refused any longer. A command that a later one has overtaken is refused rightly; one that
        is still the latest shows that the znode was put back, and that the broker knows more than the controller (ADR 74).
        """
        for partition, refusal in sorted(self.found.items()):
            state = states.get(partition)
            if refusal.code == ErrorCode.STALE_CONTROLLER_EPOCH and (
                state is None or state.leader_epoch > refusal.leader_epoch
            ):
                continue
            if state is None or not self._follows_since(refusal, state):
                yield partition, refusal

    def _follows_since(self, refusal: Refusal, state: LeaderAndIsr) -> bool:
        return (
            0 <= refusal.partition_epoch < state.partition_epoch
            and state.leader not in (NO_LEADER, self.broker_id)
            and self.broker_id in state.isr
        )
