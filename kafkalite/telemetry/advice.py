"""What each problem means for a person: what the cluster does about it, and what is left to do.

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
        "reads continue, and so do writes if another replica follows the leader; until ZooKeeper answers no leader is elected, no "
        "ISR and no setting changes, requests of administrators wait until their time-out and then fail, and a broker that stops cannot start",
        "check the ZooKeeper servers, and the network from the named brokers to them; do not restart a broker. If ZooKeeper was put back to an "
        "earlier state while they ran, stop all brokers and start all of them (docs/backup.md)",
    ),
    "zookeeper.foreign": Advice(
        "the brokers keep their data, continue to lead their partitions, and do not register there",
        "put the cluster's data back into ZooKeeper (docs/backup.md) or correct zookeeper.connect; do not restart a broker before that",
    ),
    "zookeeper.open": Advice(
        "nothing: znodes keep the ACL that they were made with. A client that reaches ZooKeeper can make itself super user",
        "when every node has zookeeper.auth: `admin zookeeper secure --config FILE`, then set other passwords for the users that it lists. If it names "
        "znodes that it may not change, and no node of this cluster has made them, delete them. If it says that znodes are open again, a node lacks zookeeper.set.acl",
    ),
    "clock.off": Advice(
        "what goes by the clock goes wrong on this node: a leader refuses records whose own time is right (message.timestamp.after.max.ms, "
        "message.timestamp.before.max.ms), and deletes by age, ends tokens and takes certificates for invalid too early or too late",
        "set the clock, and keep it right (chrony, systemd-timesyncd); no restart is needed. If every node says so, "
        "it is ZooKeeper's leader whose clock is wrong",
    ),
    "listener.open": Advice(
        "nothing: the node serves every client that reaches it",
        "secure the listener (docs/security.md), or name it in security.open.acknowledged if only the right clients can reach it",
    ),
    "tls.not_reloaded": Advice(
        "the named listeners go on with the certificate and the authorities that they had before",
        "correct the file that is named (docs/security.md): the next connection uses it. Do not restart the node before that; it would not start",
    ),
    "users.not_reloaded": Advice(
        "the node goes on with the users, tokens or keys that it read before",
        "correct the file or the address that is named (docs/security.md); it is read again within a second. Do not restart the node before that; "
        "it would not start, or would let nobody in",
    ),
    "certificate.refused": Advice(
        "nothing: connections that are open stay; no new one is made to the named listener",
        "give the node a certificate for its advertised hosts, within its dates, of an authority that the others trust (docs/security.md), at the same place: "
        "the next connection uses it, without a restart",
    ),
    "certificate.ends": Advice(
        "nothing: from then on others refuse the node's certificate",
        "put a newer certificate and its key at the same place (docs/security.md): the next connection uses it, without a restart",
    ),
    "broker.unreachable": Advice(
        "if it is dead, its leaderships move within seconds and its replicas leave the ISRs",
        "check the process, its limit of open files (a node without a free descriptor closes every new connection), and the network between "
        "the two nodes; start the broker again. If the detail names a certificate, replace that of the broker (docs/security.md)",
    ),
    "disk.offline": Advice(
        "its replicas leave their ISRs and are recreated on the node's other disks, if any has room",
        "replace or repair the disk, then `admin disk online DIR --broker N`; no restart is needed. If `replica.last_copy` names a "
        "partition on it, the disk must come back with its data",
    ),
    "replica.last_copy": Advice(
        "nothing is removed: no other in-sync replica has these records. If the disk is healthy, the node checks the files "
        "periodically, and the replica leads again when all of them are there",
        "do not remove its files and do not replace the disk. Make the files readable again, then `admin disk online DIR --broker N` "
        "(or a restart) opens them",
    ),
    "partition.offline": Advice(
        "the controller waits until a member of the ISR, or an eligible replica, comes back; this replica then leads, and nothing is lost",
        "bring back one of the brokers in the ISR or the ELR. If all of them are permanently lost: `admin elect --unclean "
        "TOPIC-P` gives the partition to the most complete replica, and loses the records that only the lost brokers had",
    ),
    "replica.doubtful": Advice(
        "the replica follows as soon as another replica leads, and may lead again when it has caught up",
        "bring back the named brokers. If they are permanently lost: `admin elect --unclean TOPIC-P` lets the most "
        "complete replica lead, and loses the records that only the lost brokers had",
    ),
    "partition.fenced": Advice(
        "its leader accepts no records until ZooKeeper answers, or until a replica fetches from it again; reads continue",
        "check ZooKeeper first, then the brokers with the other replicas",
    ),
    "topic.vanished": Advice(
        "nothing is deleted: its replicas stay on their disks, and go on where they stopped if the topic's znodes come back "
        "with the same topic id. No topic of its name can be created, unless ZooKeeper was restored from an older copy. If one is "
        "created then, these replicas are set aside (`replica.kept`)",
        "find out why /brokers/topics/TOPIC was removed, and restore it with its partitions' states from a backup of ZooKeeper; "
        "to delete the topic for good: `admin delete-topic --vanished TOPIC`",
    ),
    "partition.under_min_isr": Advice(
        "acks=all is refused until enough replicas have caught up; reads continue; replicas join the ISR when they have caught up",
        "bring back the brokers that are missing from the ISR, or move the replica to another broker: `admin reassign`",
    ),
    "partition.waits": Advice(
        "producers with acks=all wait until the replica fetches, or until it leaves the ISR: at the latest one and a half times "
        "replica.lag.time.max.ms after it last had all records",
        "if it comes again: check the network between the leader and the broker that does not fetch, and the disk of that broker",
    ),
    "replica.last_copy_damaged": Advice(
        "it stays the leader and serves the valid records; records after the damage cannot be read",
        "do not remove its files: no other in-sync replica has these records. Copy them, check the disk, and restore the "
        "missing records from a backup or from their source",
    ),
    "replica.offline": Advice(
        "the node asks the controller to take the replica out of the ISR, then opens its log again if it is sound, or "
        "recreates it from the leader",
        "see `admin disk list`: if the disk is full, make room (`disk.full` says how); if it is dead, replace it and run `admin disk "
        "online DIR --broker N`",
    ),
    "replica.damaged": Advice(
        "this replica does not serve the records after the damage; another replica is in sync",
        "if it leads, let another replica lead (`admin elect`). Then, while `admin describe` shows another replica in the ISR: "
        "stop the node, move this partition's directory away, and start it: it copies everything from the leader",
    ),
    "disk.full": Advice(
        "no new replica is placed there, and appends fail until there is room; a disk that went offline because it was full "
        "comes back when a tenth of it is free (at least 32 MiB, at most 64 MiB)",
        "make room: shorter retention (`admin config set --topic T retention.ms=…`), or move partitions away; see also "
        "`admin disk strays list`. On a disk that is offline already this frees nothing: enlarge it, or remove files of others from it; it then "
        "returns without a command",
    ),
    "disk.strays": Advice(
        "nothing: these directories are kept until their records are in sync elsewhere, or until they are removed on request",
        "see `admin disk strays list`; remove directories that are not needed with `admin disk strays remove`, and bring back missing "
        "records with `admin disk strays restore`",
    ),
    "command.unanswered": Advice(
        "the controller repeats the command until it is answered or the broker's session ends",
        "check that broker: its process may be stopped, its disk may hang, its network may be down",
    ),
    "state.put_back": Advice(
        "the replicas refuse the earlier state. The controller asks for their log ends, and lets the most complete one lead as soon as fewer "
        "than min.insync.replicas of them are missing, because each committed record is then in one of the others. It also does so when all "
        "brokers have reported what they have, and no broker outside of the replicas has more",
        "start the missing brokers. If they are lost for good: with `admin config set --topic T unclean.leader.election.enable=true` the most "
        "complete of the others leads within seconds; committed records that only the missing ones have are lost",
    ),
    "partition.records_elsewhere": Advice(
        "nobody leads, so that nothing is written beside those records. ZooKeeper was probably restored from a copy that is older than a reassignment",
        "reassign the partition to the named brokers (`admin reassign`): each takes its log into service again. If nobody leads then, "
        "`admin elect --unclean` lets the most complete one lead. To give those records up, use `admin elect --unclean` without a reassignment",
    ),
    "partition.records_missing": Advice(
        "nobody leads until the named brokers are back, because one of them may have the records",
        "start the named brokers. If one is lost for good, give its records up with `admin elect --unclean`; or unregister it (`UnregisterBroker` of any "
        "Kafka client), if it has no replicas",
    ),
    "command.refused": Advice(
        "the controller repeats the command when the broker or the partition changes",
        "check that broker's log (replica.…) and disks; after a restart the controller sends all its commands again",
    ),
    "znode.malformed": Advice(
        "the znode is left alone; the parts that cannot be read or used have no effect",
        "it was written from outside: correct or remove it; it is read again within seconds",
    ),
    "replica.strays_refused": Advice(
        "nothing: these replicas stay on the disk and are not served",
        "check that the node is in the right cluster and that its topics are not missing in ZooKeeper; if they are "
        "really to go, raise stray.max.fraction.percent and restart the node",
    ),
    "replica.kept": Advice(
        "nothing: the directory is kept until it is removed on request; its topic is not in ZooKeeper any more",
        "see `admin disk strays list`; if the records of that earlier topic are not needed: `admin disk strays remove`",
    ),
    "topic.deletion_waits": Advice(
        "the topics are deleted and their names are free; the broker removes its replicas when it, or its disk, returns",
        "start the named broker, or bring its disk back (`admin disk online`). If the broker is permanently lost, start an empty one "
        "with the same id, or remove the znodes below /admin/deleted_topics; if the disk is lost, replace it or take it out of log.dirs",
    ),
    "partition.removal_waits": Advice(
        "the partitions are removed; their numbers are not given out again while a broker or a disk may come back with replicas of them",
        "start the named broker, or bring its disk back (`admin disk online`); if the disk is lost, replace it or take it out of "
        "log.dirs. If the broker is permanently lost, start an empty one with the same id, `admin broker cordon N` at once, so that it "
        "gets no replicas, and stop it when this problem is gone",
    ),
    "broker.drain_waits": Advice(
        "the drain goes on with all other replicas, and tries this one again",
        "start another broker that can take the replica, or `admin broker uncordon` one; `admin broker decommission N --cancel` gives up",
    ),
    "topic.few_replicas": Advice(
        "the controller adds the missing replicas, some partitions at a time; until then the loss of those brokers takes the commits of "
        "groups and transactions with it",
        "nothing, if it goes away within minutes. If not: `admin broker list` shows whether the other brokers take replicas and have room "
        "(`admin broker uncordon N`), `admin reassign status` whether moves wait",
    ),
    "transaction.late": Advice(
        "a coordinator aborts its transactions at their timeout; if it does not know of this one, the transaction never ends",
        "`admin transactions find-hanging` asks the coordinators; `admin transactions abort TOPIC-P --start-offset N` ends a "
        "transaction that hangs",
    ),
    "partition.under_replicated": Advice(
        "the missing replicas fetch from the leader and join the ISR when they have caught up",
        "if it does not go away: check the broker that is not in sync (is it alive, its disk, its network), or move "
        "the replica elsewhere: `admin reassign`",
    ),
    "descriptors.short": Advice(
        "log files that were not used lately are closed; at the limit, each new connection is closed, also those of other brokers",
        "raise the process's limit of open files (LimitNOFILE= in the systemd unit). If clients open connections without closing them, "
        "limit these: max.connections.per.ip",
    ),
    "loop.held": Advice(
        "requests of all other clients of this node waited for that time; shown for five minutes",
        "if it names a client, ask its owner for smaller requests or set a quota (`request_percentage`); otherwise report it as a bug",
    ),
}

_ORDER = {what: position for position, what in enumerate(ADVICE)}
_UNKNOWN = Advice("", "see docs/operations.md")


def advice(what: str) -> Advice:
    """For the `what` of a problem; also of one that a newer node reports and this one does not know."""
    return ADVICE.get(what, _UNKNOWN)


def severity(what: str) -> tuple[int, str]:
    """A sort key: the most urgent comes first."""
    return _ORDER.get(what, len(_ORDER)), what
