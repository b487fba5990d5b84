"""What each problem means for a person: what the cluster does about it by itself, and what is left to do.

The keys are the `what` of HealthProblem. A test finds every one of them in the code and looks it up here.
"""

from __future__ import annotations

from kafkalite.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Advice:
    """`doing`: what happens without anybody; `do`: what a person should do, if anything."""

    doing: str
    do: str


#: The worst, and what causes others, first.
ADVICE = {
    "broker.unreachable": Advice(
        "if it is really dead, its leaderships move within seconds and its replicas leave the ISRs",
        "look at the process and at the network between here and there; start the broker again",
    ),
    "disk.offline": Advice(
        "its replicas leave their ISRs and are made anew on the node's other disks, if it has any with room",
        "replace or repair the disk, then `admin disk online DIR`; no restart is needed",
    ),
    "partition.offline": Advice(
        "the controller waits for a member of the ISR to come back; it then leads, and nothing is lost",
        "bring back one of the brokers in the ISR. If all of them are lost for good: `admin elect --unclean TOPIC-P` "
        "gives the partition to any replica, and loses the records that only they had",
    ),
    "topic.vanished": Advice(
        "nothing is deleted: its replicas stay on their disks, and go on where they stopped if the topic's znodes come back "
        "with the same topic id",
        "find out who removed /brokers/topics/TOPIC, and restore it with its partitions' states from a backup of ZooKeeper; "
        "if the topic is to go for good: `admin delete-topic --vanished TOPIC`",
    ),
    "partition.under_min_isr": Advice(
        "acks=all is refused until enough replicas have caught up; reading goes on; replicas join as they catch up",
        "bring back the brokers that are missing from the ISR, or move the replica elsewhere: `admin reassign`",
    ),
    "replica.offline": Advice(
        "the node asks the controller to take the replica out of the ISR, then makes it anew on another of its disks",
        "see `admin disk list`; replace the disk and run `admin disk online DIR`",
    ),
    "replica.damaged": Advice(
        "the records behind the damage are not served from this replica",
        "if it leads, let another replica lead (`admin elect`); then stop the node, remove this partition's directory, "
        "and start it: the leader gives everything again",
    ),
    "disk.full": Advice(
        "no new replica is placed there, and appends fail until there is room",
        "make room: shorter retention (`admin config set --topic T retention.ms=…`), or move partitions away",
    ),
    "command.unanswered": Advice(
        "the controller repeats the command until it is answered or the broker's session ends",
        "look at that broker: is the process stopped, its disk stuck, its network cut",
    ),
    "command.refused": Advice(
        "the controller repeats the command when the broker or the partition changes",
        "look at that broker's log (replica.…) and disks; a restart of the broker asks for all its commands again",
    ),
    "znode.malformed": Advice(
        "the znode is left alone; what cannot be read or used of it is not done",
        "somebody wrote it by hand: correct or remove it; it is read again within seconds",
    ),
    "replica.strays_refused": Advice(
        "nothing: these replicas are left on the disk, and not served",
        "check that the node is in the right cluster and that its topics are not missing in ZooKeeper; if they are "
        "really to go, raise stray.max.fraction.percent and restart the node",
    ),
    "replica.kept": Advice(
        "nothing: the directory is kept until a person removes it",
        "if nobody misses the records of that earlier topic: remove the directory named, at any time",
    ),
    "topic.deletion_waits": Advice(
        "the topics are gone and their names are free; the broker removes its replicas when it returns",
        "start the broker named; if it is gone for good, start an empty one with the same id, or remove the znodes below "
        "/admin/deleted_topics",
    ),
    "partition.under_replicated": Advice(
        "the missing replicas fetch from the leader and join the ISR when they have caught up",
        "if it does not go away: look at the broker that is not in sync (is it alive, its disk, its network), or move "
        "the replica elsewhere: `admin reassign`",
    ),
}

_ORDER = {what: position for position, what in enumerate(ADVICE)}
_UNKNOWN = Advice("", "see docs/operations.md")


def advice(what: str) -> Advice:
    """For the `what` of a problem; also of one that a newer node tells and this one does not know."""
    return ADVICE.get(what, _UNKNOWN)


def severity(what: str) -> tuple[int, str]:
    """A sort key: what should be looked at first comes first."""
    return _ORDER.get(what, len(_ORDER)), what
