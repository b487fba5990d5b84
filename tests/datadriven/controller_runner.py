"""Scenario files for the controller's decisions: one command per line, then `----`, then what was decided.

Commands (arguments are key=value; `1@7` is broker 1 with epoch 7, plain `1` has epoch 1):

    brokers 1 2@7 3                         all live brokers now
    topics t=1,2,3/2,3,1 u=1                all topics now: the AR of each partition
    take-office deletions=t                 the cluster as set by `state` lines is read by a new controller
    state t-0 leader=1 epoch=3 isr=1,2 zk=5 modified=9     a state znode, as it stands in ZooKeeper
    no-state t-0                            the znode is gone
    isr-changed t-0 t-1
    shutdown 1 | shutdown 1@9               a broker asks for a controlled shutdown
    preferred t-0 t-1                       the order in /admin/preferred_replica_election
    delete t u                              the order in /admin/delete_topics
    stopped 1 t-0 failed=t-1                a broker's answer to StopReplica
    lost 2                                  a broker's queue overflowed
    restart 2 t-0 t-1 made=9                a broker's request in /restart_partitions (online=yes: the replicas are back)
    dead 2 t-0                              a broker refuses a command with KAFKA_STORAGE_ERROR
    race t-0 leader=1 epoch=3 isr=1 zk=6    the next write to this partition meets this state instead
    unclean t                               from now on unclean elections are allowed
    tick

Writes are applied to an imitation of ZooKeeper, so that a scenario tells what is durable, what is sent to whom, and
in which order. Run with KAFKALITE_REWRITE=1 to rewrite the expectations; explain every change in the commit.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from kafkalite.controller.decide import decide
from kafkalite.controller.elections import NOT_CREATED
from kafkalite.controller.events import (
    BrokersChanged,
    CloseChannel,
    ClusterRead,
    ControlledShutdownReceived,
    DeletionsRequested,
    DropDeletionOrders,
    DropPreferredElection,
    DropRestartRequests,
    Effect,
    Event,
    InitialisationDue,
    IsrsChanged,
    Note,
    OpenChannel,
    Post,
    PreferredElectionRequested,
    ReadStates,
    RemoveTopic,
    ReplicasFailed,
    ReplicasStopped,
    ReplyShutdown,
    Resign,
    RestartOrder,
    RestartsRequested,
    Send,
    StatesRead,
    StatesWritten,
    Ticked,
    TopicRemoved,
    TopicsChanged,
    WriteStates,
)
from kafkalite.controller.state import ControllerState, Topic
from kafkalite.model import (
    BrokerEpoch,
    BrokerId,
    BrokerInfo,
    ControllerEpoch,
    Endpoint,
    LeaderAndIsr,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
    TopicPartition,
)
from kafkalite.rpc.messages import LeaderAndIsrRequest, PartitionState, StopReplicaRequest, UpdateMetadataRequest

SEPARATOR = "----"


class Script:
    """Runs one scenario."""

    def __init__(self) -> None:
        self.state = ControllerState(BrokerId(1), ControllerEpoch(5))
        self.brokers: dict[BrokerId, BrokerInfo] = {}
        self.topics: dict[str, Topic] = {}
        self.znodes: dict[TopicPartition, LeaderAndIsr] = {}
        self.modified: dict[TopicPartition, int] = {}
        self.zxid = 100
        self.races: dict[TopicPartition, LeaderAndIsr] = {}
        self.unclean: set[str] = set()
        self.in_office = False
        self.output: list[str] = []

    # --- commands --------------------------------------------------------------------------------------------

    def run(self, line: str) -> None:
        verb, *rest = line.split()
        options = dict(each.split("=", 1) for each in rest if "=" in each)
        words = [each for each in rest if "=" not in each]
        match verb:
            case "brokers":
                self.brokers = {info.broker_id: info for info in map(_broker, words)}
                if self.in_office:
                    self.handle(BrokersChanged(self.brokers))
            case "topics":
                self.topics = {name: _topic(name, replicas) for name, replicas in options.items()}
                if self.in_office:
                    self.handle(TopicsChanged(self.topics))
            case "take-office":
                self.in_office = True
                ordered = tuple(options["deletions"].split(",")) if "deletions" in options else ()
                unclean = frozenset(self.unclean)
                states, modified = dict(self.znodes), dict(self.modified)
                self.handle(
                    ClusterRead(self.brokers, self.topics, states, modified, deletions=ordered, unclean_topics=unclean)
                )
            case "state":
                partition = _partition(words[0])
                self.znodes[partition] = _state(options)
                self.modified[partition] = int(options.get("modified", self.zxid))
            case "no-state":
                del self.znodes[_partition(words[0])]
            case "race":
                self.races[_partition(words[0])] = _state(options)
            case "unclean":
                self.unclean |= set(words)
            case "isr-changed":
                self.handle(IsrsChanged(tuple(map(_partition, words))))
            case "shutdown":
                info = _broker(words[0])
                self.handle(ControlledShutdownReceived(info.broker_id, info.broker_epoch, token=1))
            case "preferred":
                self.handle(PreferredElectionRequested(tuple(map(_partition, words)), version=0))
            case "delete":
                self.handle(DeletionsRequested(tuple(words)))
            case "stopped":
                info = _broker(words[0])
                failed = tuple(_partition(each) for each in options.get("failed", "").split(",") if each)
                done = tuple(map(_partition, words[1:]))
                self.handle(ReplicasStopped(info.broker_id, info.broker_epoch, done, failed))
            case "lost":
                info = _broker(words[0])
                self.handle(InitialisationDue({info.broker_id: info.broker_epoch}, "queue.overflow"))
            case "restart":
                made_at = int(options.get("made", self.zxid))
                asked = tuple(map(_partition, words[1:]))
                order = RestartOrder("req-0", BrokerId(int(words[0])), asked, made_at, "online" in options)
                self.handle(RestartsRequested((order,)))
            case "dead":
                info = _broker(words[0])
                self.handle(ReplicasFailed(info.broker_id, info.broker_epoch, tuple(map(_partition, words[1:]))))
            case "tick":
                self.handle(Ticked())
            case _:
                raise ValueError(f"no such command: {line}")

    def handle(self, event: Event) -> None:
        """As the shell does: outcomes depth first."""
        pending = [event]
        while pending:
            self.state, effects = decide(self.state, pending.pop(0))
            pending[:0] = [outcome for effect in effects if (outcome := self.perform(effect)) is not None]
            check_invariants(self.state)

    def perform(self, effect: Effect) -> Event | None:
        """An imitation of the shells, which prints."""
        say = self.output.append
        match effect:
            case ReadStates(partitions, purpose, chunk):
                say(f"read {' '.join(map(str, partitions))}")
                states = {partition: self.znodes.get(partition) for partition in partitions}
                return StatesRead(states, purpose, dict(self.modified), {}, frozenset(self.unclean), chunk)
            case WriteStates():
                return self._write(effect)
            case Send(broker_id, command):
                say(f"send {broker_id} {_command(command)}")
            case OpenChannel(broker):
                say(f"open {broker.broker_id}@{broker.broker_epoch}")
            case CloseChannel(broker_id):
                say(f"close {broker_id}")
            case RemoveTopic(topic):
                say(f"remove {topic}")
                self.topics.pop(topic, None)
                self.znodes = {p: s for p, s in self.znodes.items() if p.topic != topic}
                return TopicRemoved(topic, removed=True)
            case DropDeletionOrders(topics):
                say(f"drop-deletions {' '.join(topics)}")
            case DropPreferredElection(version):
                say(f"drop-preferred version={version}")
            case DropRestartRequests(names):
                say(f"drop-restarts {' '.join(names)}")
            case ReplyShutdown(_, response):
                remaining = " ".join(f"{each.topic}-{each.partition}" for each in response.remaining)
                say(f"reply error={response.error} remaining=[{remaining}]")
            case Post(event):
                return event
            case Note(name, subject, detail):
                say(f"note {name} {subject}" + (f": {detail}" if detail else ""))
            case Resign(reason):
                say(f"resign: {reason}")
        return None

    def _write(self, effect: WriteStates) -> StatesWritten:
        written: dict[TopicPartition, LeaderAndIsr] = {}
        conflicts: list[TopicPartition] = []
        for partition, wanted in effect.writes.items():
            if partition in self.races:
                self.znodes[partition] = self.races.pop(partition)
            known = self.znodes.get(partition)
            version = NOT_CREATED if known is None else known.partition_epoch
            if version != wanted.partition_epoch:
                self.output.append(f"conflict {partition}")
                conflicts.append(partition)
                continue
            self.zxid += 1
            new = dataclasses.replace(wanted, partition_epoch=PartitionEpoch(version + 1))
            self.output.append(f"write {partition} {_text(new)}" + (" unclean" if effect.unclean else ""))
            written[partition] = self.znodes[partition] = new
            self.modified[partition] = self.zxid
        return StatesWritten(written, tuple(conflicts), effect.purpose, effect.chunk)


def check_invariants(state: ControllerState) -> None:
    """What ControllerState promises."""
    assert state.shutting_down <= state.brokers.keys()
    for partition, known in state.partitions.items():
        assert partition.topic not in state.deletions
        assert partition.partition in state.topics[partition.topic].assignment
        assert known.isr and (known.leader == -1 or known.leader in known.isr)


def _broker(text: str) -> BrokerInfo:
    number, _, epoch = text.partition("@")
    at = Endpoint("host", int(number))
    return BrokerInfo(BrokerId(int(number)), BrokerEpoch(int(epoch or 1)), at, at)


def _ids(text: str) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(int(each)) for each in text.split(","))


def _topic(name: str, replicas: str) -> Topic:
    name, _, life = name.partition("#")
    return Topic(TopicId(f"id-{name}{life}"), {number: _ids(each) for number, each in enumerate(replicas.split("/"))})


def _partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


def _state(options: dict[str, str]) -> LeaderAndIsr:
    return LeaderAndIsr(
        BrokerId(int(options["leader"])),
        LeaderEpoch(int(options.get("epoch", 0))),
        _ids(options["isr"]),
        ControllerEpoch(int(options.get("controller", 1))),
        PartitionEpoch(int(options.get("zk", 0))),
    )


def _text(state: LeaderAndIsr | PartitionState) -> str:
    return f"leader={state.leader} epoch={state.leader_epoch} isr={','.join(map(str, state.isr))}"


def _command(command: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest) -> str:
    match command:
        case LeaderAndIsrRequest():
            name = "LeaderAndIsr" + (" INIT" if command.is_init else "")
            parts = [
                f"{each.topic}-{each.partition}:{each.leader}/{each.leader_epoch}{'*' if each.is_new else ''}"
                for each in command.partitions
            ]
        case UpdateMetadataRequest():
            name = "UpdateMetadata" + (" FULL" if command.is_full else "")
            name += f" brokers={','.join(str(each.broker_id) for each in command.brokers)}"
            parts = [f"{each.topic}-{each.partition}:{each.leader}/{each.leader_epoch}" for each in command.partitions]
            parts += [f"deleted={','.join(command.deleted_topics)}"] if command.deleted_topics else []
        case StopReplicaRequest():
            name = "StopReplica"
            parts = [
                f"{each.topic}-{each.partition}{' delete' if each.delete_files else f'/{each.leader_epoch}'}"
                for each in command.partitions
            ]
    return " ".join([name, *parts])


def run_scenario(path: Path, *, rewrite: bool) -> tuple[str, str]:
    """(expected, actual) output of the file."""
    text = path.read_text()
    head, _, expected = text.partition(f"{SEPARATOR}\n")
    script = Script()
    for line in head.splitlines():
        if line.strip() and not line.startswith("#"):
            script.output.append(f"> {line}")
            script.run(line)
    actual = "\n".join(script.output) + "\n"
    if rewrite:
        path.write_text(f"{head}{SEPARATOR}\n{actual}")
    return expected, actual
