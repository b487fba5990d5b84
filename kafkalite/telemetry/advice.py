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
    "zookeeper.away": Advice(
        "partitions whose leader is followed by another replica go on, reads go on; no leader is elected, no ISR and no setting "
        "changes, orders are refused, a broker that stops cannot start; all of that goes on when ZooKeeper answers",
        "look at the ZooKeeper servers, and at the network from the brokers named to them; restart no broker",
    ),
    "zookeeper.foreign": Advice(
        "the brokers keep their data, go on with what they lead, and do not register there",
        "put the cluster's data back into ZooKeeper (docs/backup.md) or correct zookeeper.connect; restart no broker before",
    ),
    "broker.unreachable": Advice(
        "if it is really dead, its leaderships move within seconds and its replicas leave the ISRs",
        "look at the process and at the network between here and there; start the broker again",
    ),
    "disk.offline": Advice(
        "its replicas leave their ISRs and are made anew on the node's other disks, if it has any with room",
        "replace or repair the disk, then `admin disk online DIR`; no restart is needed. If `replica.last_copy` names a "
        "partition on it, the disk has to come back with its data",
    ),
    "replica.last_copy": Advice(
        "nothing is removed: no other replica in sync has these records. Where the disk is sound, the node looks at the files "
        "again now and then, and the replica leads again when all of them are there",
        "do not remove its files and do not replace the disk. Repair what keeps it from its files, then `admin disk online "
        "DIR`, which opens them again, as a restart does",
    ),
    "partition.offline": Advice(
        "the controller waits for a member of the ISR, or an eligible replica, to come back; it then leads, and nothing is lost",
        "bring back one of the brokers in the ISR or the ELR. If all of them are lost for good: `admin elect --unclean "
        "TOPIC-P` gives the partition to the most complete replica, and loses the records that only they had",
    ),
    "replica.doubtful": Advice(
        "the replica follows as soon as another one leads, and counts again when it has caught up",
        "bring back the brokers that are named. If they are lost for good: `admin elect --unclean TOPIC-P` lets the most "
        "complete replica lead, and loses the records that only they had",
    ),
    "partition.fenced": Advice(
        "its leader takes no records until ZooKeeper answers it, or until a replica fetches from it again; reading goes on",
        "look at ZooKeeper first, then at the brokers with the other replicas",
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
    "replica.last_copy_damaged": Advice(
        "it stays the leader and serves what is sound; the records behind the damage cannot be read",
        "do not remove its files: no other replica in sync has these records. Copy them, look at the disk, and take what is "
        "missing from a backup or from who wrote it",
    ),
    "replica.offline": Advice(
        "the node asks the controller to take the replica out of the ISR, then opens its log again if it is sound, or makes "
        "it anew from the leader",
        "see `admin disk list`; if a disk is dead: replace it and run `admin disk online DIR`",
    ),
    "replica.damaged": Advice(
        "the records behind the damage are not served from this replica; another one is in sync",
        "if it leads, let another replica lead (`admin elect`). Then, while `admin describe` shows another replica in the ISR: "
        "stop the node, move this partition's directory away, and start it: the leader gives everything again",
    ),
    "disk.full": Advice(
        "no new replica is placed there, and appends fail until there is room; a disk that went offline because it was full "
        "comes back when there is room",
        "make room: shorter retention (`admin config set --topic T retention.ms=…`), or move partitions away; see also "
        "`admin disk strays list`",
    ),
    "disk.strays": Advice(
        "nothing: what was set aside is kept until its records are in sync elsewhere, or somebody orders its removal",
        "see `admin disk strays list`; what nobody needs goes with `admin disk strays remove`, what is missed comes back with "
        "`admin disk strays restore`",
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
        "nothing: what was set aside is kept until somebody orders its removal; the topic is not in ZooKeeper any more",
        "see `admin disk strays list`; if nobody misses the records of that earlier topic: `admin disk strays remove`",
    ),
    "topic.deletion_waits": Advice(
        "the topics are gone and their names are free; the broker removes its replicas when it returns",
        "start the broker named; if it is gone for good, start an empty one with the same id, or remove the znodes below "
        "/admin/deleted_topics",
    ),
    "topic.few_replicas": Advice(
        "the topic stays as it was created, when there were fewer brokers; what groups and transactions commit is lost with those few",
        "`admin reassign plan --topic TOPIC --replicas 3 --brokers 1,2,3 -o plan.json`, then `admin reassign execute plan.json "
        "--allow-rf-change`; and set its min.insync.replicas to 2",
    ),
    "transaction.late": Advice(
        "a coordinator aborts its transactions at their timeout; it seems not to know of this one, which then never ends",
        "`admin transactions find-hanging` asks the coordinators; `admin transactions abort TOPIC-P --start-offset N` ends a "
        "transaction that hangs",
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
