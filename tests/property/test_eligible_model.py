"""Random lives of one partition whose hosts also lose their power, against an oracle of what each replica has (ADR 16).

`decide` is the controller, the leader's rules are the real ones; brokers refuse to lead as the real ones do. A replica that leads has
every committed record, unless nobody is left that surely has.
"""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.controller.decisions.effects import AskLogEnds, Effect, Send, WriteStates
from kafkalite.controller.decisions.eligible import members
from kafkalite.controller.decisions.events import (
    BrokersChanged,
    ClusterRead,
    Event,
    IsrsChanged,
    ReplicasDoubtful,
    Ticked,
)
from kafkalite.controller.decisions.state import ControllerState
from kafkalite.model import BrokerId, ControllerEpoch, LeaderAndIsr, LeaderEpoch, Offset, PartitionEpoch, TopicPartition
from kafkalite.replica.decisions import isr as rules
from kafkalite.replica.decisions.leader import PartitionLeader
from kafkalite.rpc.messages.control import LeaderAndIsrRequest
from tests.datadriven.controller_runner import Script
from tests.datadriven.controller_words import broker_of, topic_of

T0 = TopicPartition("t", 0)
REPLICAS = tuple(map(BrokerId, (1, 2, 3)))


class Model(Script):
    """What ZooKeeper has, who lives, and how many committed records each replica has."""

    def __init__(self) -> None:
        super().__init__()
        self.zxid = 1_000
        self.min_insync = self.leader_min = 2
        self.topics = {"t": topic_of("t", "1,2,3")}
        self.committed = 0
        self.level = dict.fromkeys(REPLICAS, 0)
        self.doubt = dict.fromkeys(REPLICAS, False)
        #: Broker -> the leader epoch in which it has begun to lead.
        self.leads: dict[BrokerId, int] = {}
        self.refusals: list[ReplicasDoubtful] = []
        self.losses = 0
        for each in REPLICAS:
            self.register(each)

    def register(self, broker: BrokerId) -> None:
        self.zxid += 1
        info = broker_of(f"{broker}@{self.zxid}{'?' if self.doubt[broker] else ''}", frozenset({T0}))
        self.brokers = dict(sorted({**self.brokers, broker: info}.items()))

    # --- the controller's effects ------------------------------------------------------------------------------

    def perform(self, effect: Effect) -> Event | None:
        if isinstance(effect, WriteStates):
            self.check_write(effect.writes.get(T0))
        if isinstance(effect, AskLogEnds):
            self.ends[T0] = {each: (LeaderEpoch(0), Offset(self.level[each])) for each in self.brokers}
            self.doubtful[T0] = {each for each in self.brokers if self.doubt[each]}
        if isinstance(effect, Send) and isinstance(effect.command, LeaderAndIsrRequest):
            self.deliver(effect.broker_id, effect.command)
        return super().perform(effect)

    def check_write(self, wanted: LeaderAndIsr | None) -> None:
        found = self.znodes.get(T0)
        if found is None or wanted is None or wanted.partition_epoch != found.partition_epoch:
            return
        if not self.state.accepts_loss(T0, wanted):
            assert set(members(wanted)) <= set(members(found)) | set(found.last_known_elr)
        else:
            sound = [each for each in members(found) if not self.doubt[each]]
            assert not sound, f"{sound} have everything, and {wanted.leader} is to lead with a loss"
            most = max(self.level[each] for each in {*members(found), *self.brokers})  # whoever it is (ADR 78)
            assert self.level[wanted.leader] >= most, (
                f"{wanted.leader} is to lead with a loss, and another one has more"
            )

    def deliver(self, broker: BrokerId, command: LeaderAndIsrRequest) -> None:
        info = self.brokers.get(broker)
        if info is None or info.broker_epoch != command.broker_epoch:
            return
        for entry in command.partitions:
            if entry.leader != broker or self.leads.get(broker, -1) >= entry.leader_epoch:
                continue
            if self.doubt[broker] and entry.accepts_loss == 0:
                self.refusals.append(ReplicasDoubtful(broker, info.broker_epoch, (T0,)))
                continue
            if self.doubt[broker]:
                self.losses += self.level[broker] < self.committed
                self.doubt[broker] = False
                self.committed = self.level[broker]
            self.leads[broker] = entry.leader_epoch

    def settle(self) -> None:
        """Refusals reach the controller."""
        for _ in range(20):
            if not self.refusals:
                return
            self.handle(self.refusals.pop(0))
        pytest.fail("refused for ever")

    # --- the leader -----------------------------------------------------------------------------------------------

    def leader(self) -> PartitionLeader | None:
        """The one that leads by the state znode, alive, and knows it."""
        found = self.znodes.get(T0)
        if found is None or found.leader not in self.brokers or self.leads.get(found.leader) != found.leader_epoch:
            return None
        return PartitionLeader(
            broker_id=found.leader,
            leader_epoch=found.leader_epoch,
            epoch_start_offset=Offset(0),
            replicas=REPLICAS,
            committed_isr=found.isr,
            partition_epoch=found.partition_epoch,
            min_insync_replicas=self.leader_min,
            log_end_offset=Offset(0),
            high_watermark=Offset(0),
            elr=found.elr,
            last_known_elr=found.last_known_elr,
        )

    def may_join(self, leader: PartitionLeader, broker: BrokerId) -> bool:
        return self.is_known(broker) and broker not in leader.committed_isr

    def is_known(self, broker: BrokerId) -> bool:
        """A replica that has come back follows, and is taken in, only after the controller has named its present incarnation."""
        info = self.brokers.get(broker)
        return info is not None and info == self.state.brokers.get(broker)

    def write_isr(self, leader: PartitionLeader, isr: tuple[BrokerId, ...], *, is_seen: bool) -> None:
        elr, last = rules.eligible_after(leader, isr)
        found = self.znodes[T0]
        version = PartitionEpoch(found.partition_epoch + 1)
        self.zxid += 1
        self.modified[T0] = self.zxid
        self.znodes[T0] = dataclasses.replace(found, isr=isr, elr=elr, last_known_elr=last, partition_epoch=version)
        if is_seen:
            self.handle(IsrsChanged((T0,)))

    # --- what happens ---------------------------------------------------------------------------------------------

    def step(self, action: str, subject: int) -> None:
        broker = REPLICAS[subject % 3]
        leader = self.leader()
        match action:
            case "commit" if leader is not None and not leader.is_frozen:
                if all(self.is_known(each) for each in leader.committed_isr):
                    self.committed += 1
                    for each in leader.committed_isr:
                        self.level[each], self.doubt[each] = self.committed, False
            case "shrink" if leader is not None and len(leader.committed_isr) > 1:
                gone = next(each for each in leader.committed_isr if each != leader.broker_id)
                rest = tuple(each for each in leader.committed_isr if each != gone)
                self.write_isr(leader, rest, is_seen=subject % 2 == 0)
            case "join" if leader is not None and self.may_join(leader, broker):
                self.level[broker], self.doubt[broker] = self.committed, False
                self.write_isr(leader, (*leader.committed_isr, broker), is_seen=subject % 2 == 0)
            case "clear" if leader is not None and rules.must_clear(leader):
                self.write_isr(leader, leader.committed_isr, is_seen=True)
            case "leader's min":
                self.leader_min = 1 + subject % 3
            case "controller's min":
                self.min_insync = 1 + subject % 3
            case "kill" | "power" | "bounce" | "power bounce":
                self.brokers = {id_: info for id_, info in self.brokers.items() if id_ != broker}
                self.leads.pop(broker, None)
                if "power" in action:
                    self.level[broker], self.doubt[broker] = max(0, self.level[broker] - subject // 3), True
                if "bounce" in action:
                    self.register(broker)
                if subject % 2:
                    self.handle(BrokersChanged(self.brokers))
            case "return" if broker not in self.brokers:
                self.register(broker)
                if subject % 2:
                    self.handle(BrokersChanged(self.brokers))
            case "hear":
                self.handle(BrokersChanged(self.brokers))
            case "failover":
                self.state = ControllerState(BrokerId(1), ControllerEpoch(self.state.epoch + 1))
                states = {T0: self.znodes[T0]} if T0 in self.znodes else {}
                minimum = {"t": self.min_insync}
                self.handle(ClusterRead(self.brokers, self.topics, states, dict(self.modified), min_insync=minimum))
        self.settle()
        self.check()

    def check(self) -> None:
        found = self.znodes.get(T0)
        if found is None:
            return
        leader = self.leader()
        if leader is not None:
            assert self.level[leader.broker_id] == self.committed, (
                f"{leader.broker_id} leads without everything: {found}"
            )
        for each in members(found):
            assert self.level[each] >= self.committed or self.doubt[each], f"{each} has not everything: {found}"

    def check_settled(self) -> None:
        """Everybody is back, and all has been heard: somebody leads."""
        for each in REPLICAS:
            if each not in self.brokers:
                self.register(each)
        self.step("hear", 0)
        self.handle(Ticked())
        self.settle()
        self.check()
        assert self.leader() is not None, self.znodes[T0]


ACTIONS = (
    "commit", "commit", "shrink", "join", "join", "clear", "leader's min", "controller's min", "kill", "power", "bounce",
    "power bounce", "return", "return", "hear", "failover",
)  # fmt: skip
STEPS = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 11)), min_size=5, max_size=60)


@pytest.mark.checklist("F14")
@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_whoever_leads_has_every_committed_record(steps: list[tuple[str, int]]) -> None:
    model = Model()
    model.step("failover", 0)
    for action, subject in steps:
        model.step(action, subject)
    model.check_settled()
