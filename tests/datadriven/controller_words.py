"""Words of the controller's scenario files: brokers, topics, states and commands, read and shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafkalite.controller.decisions.eligible import LogEnd
from kafkalite.controller.decisions.state import Topic
from kafkalite.model import (
    NO_TOPIC_ID,
    BrokerEpoch,
    BrokerId,
    BrokerInfo,
    ControllerEpoch,
    Endpoint,
    LeaderAndIsr,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    TopicId,
    TopicPartition,
)
from kafkalite.rpc.messages.control import (
    LeaderAndIsrRequest,
    PartitionState,
    StopReplicaRequest,
    UpdateMetadataRequest,
)


def broker_of(text: str, partitions: frozenset[TopicPartition] = frozenset()) -> BrokerInfo:
    number, _, epoch = text.rstrip("?!-*").partition("@")
    at = Endpoint("host", int(number))
    doubtful = partitions if text.endswith("?") else frozenset()
    missing = partitions if text.endswith("!") else frozenset()
    keeps_elr = not text.endswith("-")
    return BrokerInfo(
        BrokerId(int(number)), BrokerEpoch(int(epoch or 1)), at, at,
        missing=missing, doubtful=doubtful, keeps_elr=keeps_elr, is_empty=text.endswith("*"),
    )  # fmt: skip


def ids_of(text: str) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(int(each)) for each in text.split(","))


def ends_of(options: Mapping[str, str]) -> dict[BrokerId, LogEnd]:
    """2=6:40? is leader epoch 6, end 40; the question mark says something else."""
    found = {}
    for name, value in options.items():
        epoch, end = value.rstrip("?").split(":")
        found[BrokerId(int(name))] = (LeaderEpoch(int(epoch)), Offset(int(end)))
    return found


def topic_of(name: str, replicas: str) -> Topic:
    name, _, life = name.partition("#")
    topic_id = NO_TOPIC_ID if life == "none" else TopicId(f"id-{name}{life}")
    return Topic(topic_id, {number: ids_of(each) for number, each in enumerate(replicas.split("/"))})


def partition_of(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


def state_of(options: dict[str, str]) -> LeaderAndIsr:
    return LeaderAndIsr(
        BrokerId(int(options["leader"])),
        LeaderEpoch(int(options.get("epoch", 0))),
        ids_of(options["isr"]),
        ControllerEpoch(int(options.get("controller", 1))),
        PartitionEpoch(int(options.get("zk", 0))),
        ids_of(options["elr"]) if "elr" in options else (),
        ids_of(options["last"]) if "last" in options else (),
    )


def state_text(state: LeaderAndIsr | PartitionState) -> str:
    text = f"leader={state.leader} epoch={state.leader_epoch} isr={','.join(map(str, state.isr))}"
    text += f" elr={','.join(map(str, state.elr))}" if state.elr else ""
    return text + (f" last={','.join(map(str, state.last_known_elr))}" if state.last_known_elr else "")


def move_text(topic: Topic, partition: TopicPartition, state: LeaderAndIsr | None) -> str:
    def ids(brokers: Iterable[int]) -> str:
        return ",".join(map(str, brokers))

    number = partition.partition
    if number not in topic.assignment:
        return "gone"
    text = f"AR={ids(topic.assignment[number])}"
    move = topic.moves.get(number)
    if move is not None:
        text += f" target={ids(move.target)}"
        text += f" step={ids(move.step)}" if move.step else ""
        text += f" dropping={ids(move.dropping)}" if move.dropping else ""
        text += " moves-leader" if move.moves_leader else ""
    return text + (f" {state_text(state)}" if state is not None else "")


def command_text(command: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest) -> str:
    match command:
        case LeaderAndIsrRequest():
            name = "LeaderAndIsr" + (" INIT" if command.is_init else "")
            parts = [
                f"{each.topic}-{each.partition}:{each.leader}/{each.leader_epoch}{'*' if each.is_new else ''}"
                f"{'!' * max(0, each.accepts_loss)}"
                for each in command.partitions
            ]
        case UpdateMetadataRequest():
            name = "UpdateMetadata" + (" FULL" if command.is_full else "")
            name += f" brokers={','.join(str(each.broker_id) for each in command.brokers)}"
            parts = [f"{each.topic}-{each.partition}:{each.leader}/{each.leader_epoch}" for each in command.partitions]
            parts += [f"deleted={','.join(command.deleted_topics)}"] if command.deleted_topics else []
            gone = [f"{topic}-{number}" for topic, number in command.deleted_partitions]
            parts += [f"deleted-partitions={','.join(gone)}"] if gone else []
        case StopReplicaRequest():
            name = "StopReplica"
            parts = [
                f"{each.topic}-{each.partition}{' delete' if each.delete_files else f'/{each.leader_epoch}'}"
                + (f" ({each.topic_id})" if each.topic_id != f"id-{each.topic}" else "")
                for each in command.partitions
            ]
    return " ".join([name, *parts])
