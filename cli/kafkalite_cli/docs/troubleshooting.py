"""docs/troubleshooting.md: each problem that `admin health` can report, from the same table that the command prints."""

from __future__ import annotations

from kafkalite.telemetry.advice import ADVICE

#: What each problem means. A problem without an entry here fails `make docs`.
MEANS = {
    "zookeeper.away": "The named brokers have had no answer from ZooKeeper for a third of the session timeout.",
    "zookeeper.foreign": "ZooKeeper answers, but has no data of this cluster, or those of another one.",
    "zookeeper.open": "`zookeeper.set.acl` or `zookeeper.auth` is set, but the named znodes can be changed by any client of ZooKeeper, or belong to somebody else's identity.",
    "clock.off": "A node's clock and that of ZooKeeper differ by more than 60 seconds. Each node compares them once a minute.",
    "listener.open": "Clients on other machines can use a listener without authentication, and nobody has said that this is on purpose.",
    "tls.not_reloaded": "The files of a listener's certificates were replaced by some that cannot be used.",
    "users.not_reloaded": "A file of users, tokens or keys, or the address of the keys for OAUTHBEARER, cannot be read any more.",
    "certificate.refused": "Other nodes or clients refuse the certificate of a listener: it is for another host, is out of its dates, or has an authority that they do not trust.",
    "certificate.ends": "A listener's certificate has less than a tenth of its life left, and less than a week.",
    "broker.unreachable": "The node that answers cannot connect to the named broker, or got no response from it.",
    "disk.offline": "A log directory failed: its device reported an error, or did not answer in time.",
    "replica.last_copy": "An offline replica is the only one that was in sync: no other broker has all committed records.",
    "partition.offline": "A partition has no leader: no replica that may lead is alive.",
    "replica.doubtful": "A replica's host lost its power, so its log may lack the last seconds, and it does not lead before the others.",
    "partition.fenced": "A leader accepts no records, because it cannot exclude that another one was elected without its knowledge.",
    "topic.vanished": "A topic's znodes disappeared although nobody requested its deletion.",
    "partition.under_min_isr": "The ISR is smaller than `min.insync.replicas`.",
    "partition.waits": "A member of the ISR has not fetched the newest records for a third of `replica.lag.time.max.ms`, and acks=all waits for it; the controller reaches its broker.",
    "replica.last_copy_damaged": "A read found damaged records in the only replica that is in sync.",
    "replica.offline": "A replica's log is not in service; its broker continues without it.",
    "replica.damaged": "A read found records with a wrong checksum in a replica; another one is in sync.",
    "disk.full": "A log directory has too little free space.",
    "disk.strays": "Directories that were set aside are older than `stray.delete.delay.ms`, and their records are not known to be elsewhere.",
    "command.unanswered": "The controller sent a command to a broker and has no response.",
    "partition.records_elsewhere": "No replica of a partition has its records, and other brokers have them: ZooKeeper was restored from a copy older than a reassignment.",
    "partition.records_missing": "All replicas of a partition have lost their logs, and some brokers that may have its records are not there.",
    "state.put_back": "A partition's znode is from an earlier time than what its replicas know: ZooKeeper was restored from a backup.",
    "command.refused": "A broker refused a command of the controller.",
    "znode.malformed": "A znode holds bytes that nodes would not write.",
    "replica.strays_refused": "When the node started, more of its replicas than `stray.max.fraction.percent` seemed to belong to no topic.",
    "replica.kept": "A directory was set aside whose topic was not deleted by a request: no other copy of the records is known.",
    "topic.deletion_waits": "A topic was deleted while a broker with replicas of it was not alive, or while a disk was offline.",
    "partition.removal_waits": "Partitions were removed while a broker with replicas of them was not alive, or while a disk was offline.",
    "broker.drain_waits": "A broker is being drained, and no other broker can take one of its replicas.",
    "topic.few_replicas": "An internal topic was created when there were fewer brokers, and has fewer replicas than its setting says.",
    "transaction.late": "A transaction is open for longer than any producer may ask for; readers of committed records wait at it.",
    "partition.under_replicated": "A replica is not in the ISR: its broker is away, or it is behind the leader.",
    "descriptors.short": "A node's process uses nine tenths of the file descriptors that it may have.",
    "loop.held": "A request held a node's event loop for half a second or longer.",
}
_HEAD = """# Troubleshooting

`kafkalite admin health` lists what is wrong in the cluster and exits with 1 if there is anything; the console and `/healthz` show the same.
`kafkalite admin why TOPIC-P` has the events that led to it. The commands below stand after `kafkalite`. First the problems by name, the
worst and what causes others first (written by `make docs` from the table that `health` prints); then [symptoms](#symptoms-without-a-problem)
for which there is no name.

<!-- cluster: --nodes 3 -->
<!-- soon -->
```console
$ kafkalite admin health
healthy: 3 brokers, no problems
```
"""
_SYMPTOMS = """## Symptoms without a problem

| symptom | cause | what to do |
|---|---|---|
| a client connects to the bootstrap address, then times out | it gets addresses from the cluster at which it cannot reach the brokers | set `advertised.listeners` ([addresses](operations.md#addresses-for-clients)) |
| NOT_ENOUGH_REPLICAS | the ISR is smaller than `min.insync.replicas`, or the leader is fenced | see `partition.under_min_isr` and `partition.fenced` above |
| TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED | no ACL allows the request | the log line `acl.denied` names user, operation and resource; [permissions](security.md#permissions) |
| a login fails | the log line `authentication.failed` has the reason; after 10 failures an address has one attempt every 6 seconds | correct the password, wait |
| a consumer with `read_committed` stops, others go on | an open transaction | `admin transactions find-hanging`; [transactions that hang](operations.md#transactions-that-hang) |
| requests are slow | see where the time goes: own work, followers, quota | `admin trace`; [where a request spends its time](operations.md#where-does-a-request-spend-its-time) |
| an idempotent or transactional producer stops for a minute when a broker hangs | librdkafka waits for its own time-out | set `socket.timeout.ms` ([performance](performance.md#a-leader-dies-or-hangs)) |
| a transactional producer of librdkafka stands still in `send_offsets_to_transaction`, longer than its time limit, after a broker was away | errors of librdkafka ([5511](https://github.com/confluentinc/librdkafka/issues/5511), [5456](https://github.com/confluentinc/librdkafka/issues/5456)): it waits for a coordinator that Metadata does not name any more (from 2.10 on); or it was answered three times within half a second that the group's coordinator is not available yet, and does not ask again while its connections stay as they are. Its own mock cluster shows the same. The cluster has aborted the transaction at its timeout | end the process after `transaction.timeout.ms` without progress, and start it again; Java's client is not concerned |
| the log line `producers.dropped` | more idempotent producers write to a partition than it remembers; a batch that one of them repeats later may be in the log twice. `newest_of` names the client that brought the last one | a program that makes a producer for each batch: have it keep one. An intruder: take its rights. Many producers that should be there: raise the topic's `max.producer.ids` (1 KiB each) |
| `serve` does not become ready | it waits for ZooKeeper (it says so within two seconds), or reads its logs after a crash | check `--zookeeper`; wait |
| `serve` ends at once | the configuration is invalid, a port is in use, or the data belongs to another cluster or node | its last line says which |
| a group's lag grows, members come and go | members take longer than `max.poll.interval.ms`, or their sessions end | `admin groups describe G` shows members and states |
| the load is uneven | replicas or leaders are | `admin balance status`; [balancing](balancing.md) |
"""


def _sentence(text: str) -> str:
    text = text.rstrip(".")
    return text[:1].upper() + text[1:] + "."


def troubleshooting_page() -> str:
    """The whole page. Raises KeyError if a problem has no entry in MEANS."""
    lines = [_HEAD]
    for what, advice in ADVICE.items():
        lines += [f"## {what}", "", MEANS[what], ""]
        lines += [f"**The cluster:** {_sentence(advice.doing)}", "", f"**You:** {_sentence(advice.do)}", ""]
    return "\n".join([*lines, _SYMPTOMS])
