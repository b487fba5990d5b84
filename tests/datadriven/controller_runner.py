"""Scenario files for the controller's decisions: one command per line, then `----`, then what was decided.

Commands (arguments are key=value; `1@7` is broker 1 with epoch 7, plain `1` has epoch 1; `1@7?` says that all of its logs may
lack committed records, `1@7!` that they are gone, `1@7-` runs code that knows no eligible leader replicas):

    brokers 1 2@7 3                         all live brokers now
    topics t=1,2,3/2,3,1 u#2=1              all topics now: the AR of each partition; #2 is in the topic's id, #none: it has none
    take-office deletions=t suspects=2      the cluster as set by `state` lines is read by a new controller
    suspect 2 | clear 2                     a broker is registered, but silent; it answers again
    state t-0 leader=1 epoch=3 isr=1,2 zk=5 modified=9     a state znode, as it stands in ZooKeeper
    no-state t-0                            the znode is gone
    isr-changed t-0 t-1
    shutdown 1 | shutdown 1@9               a broker asks for a controlled shutdown
    preferred t-0 t-1 unclean=yes           the order in /admin/preferred_replica_election
    delete t u                              the orders in and below /admin/delete_topics
    stopped 1 t-0 failed=t-1 id=id-t        a broker's answer to StopReplica (id: of the topic; else that of the name);
                                            away=t-0: a disk of it is offline
    lost 2                                  a broker's queue overflowed
    restart 2 t-0 t-1 made=9                a broker's request in /restart_partitions (online=yes: the replicas are back)
    refuses 2 t-0                           a broker refuses to lead: it may lack committed records
    ends t-0 1=5:100 2=6:40?                how far the logs of t-0 go, when they are asked (leader epoch:end; ?: it may lack records)
    elsewhere t-0 3=9:100 | known-brokers 1,2,3    logs of t-0 on brokers that are no replicas; the brokers that have ever started
    incomplete 3                            these brokers answer, and have a disk that is offline
    problems                                what `admin health` says
    silent 2,3 | leads t-0 6                these brokers do not answer that question; a replica says that it leads in this epoch
    knows-epoch t-0 5 by=1                  a replica (by: this one) says that it knows this leader epoch, in which it does not lead
    min-insync 2                            min.insync.replicas of all topics
    dead 2 t-0                              a broker refuses a command with KAFKA_STORAGE_ERROR
    limits replicas=1 partitions=2 leaders=1               for reassignments; what is left out is not limited
    reassign t-0=4,5,6 t-1=                 the order in /admin/reassign_partitions (nothing: call it off)
    add t-1=1,2                             the orders in /admin/partitions_add
    remove t-1 t-2=drain                    the orders in /admin/partitions_remove
    drained t-2                             its leader says that nothing is left
    copied t-0                              every assigned live replica joins the ISR, and the leader tells
    race t-0 leader=1 epoch=3 isr=1 zk=6    the next write to this partition meets this state instead
    unclean t                               from now on unclean elections are allowed
    tick

A broker that a write newly elects has to be alive, not silent, and without a dead disk under the partition.
Writes are applied to an imitation of ZooKeeper, so that a scenario shows what is durable, what is sent to whom, and
in which order. Run with KAFKALITE_REWRITE=1 to rewrite the expectations; explain every change in the commit.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from kafkalite.controller.decisions.decide import decide
from kafkalite.controller.decisions.effects import (
    AdvanceReassignments,
    AskLogEnds,
    CloseChannel,
    CountLosses,
    DropLeftover,
    DropRestartRequests,
    DropVanished,
    Effect,
    KeepVanished,
    Note,
    OpenChannel,
    Post,
    ReadStates,
    RemoveAdminRequest,
    RemoveDeletionRequests,
    RemovePartitionRequests,
    RemovePartitions,
    RemoveReassignmentRequests,
    RemoveTopics,
    ReplyShutdown,
    RereadTopics,
    Resign,
    Send,
    WriteStates,
    WriteTopics,
)
from kafkalite.controller.decisions.elections import NOT_CREATED
from kafkalite.controller.decisions.eligible import LogEnd
from kafkalite.controller.decisions.events import (
    UNLIMITED,
    BrokerCleared,
    BrokersChanged,
    BrokerSuspected,
    Claim,
    ClusterRead,
    ControlledShutdownReceived,
    DeletionsRequested,
    Event,
    InitialisationDue,
    IsrsChanged,
    MovesDue,
    PartitionRequests,
    PartitionsDrained,
    PartitionsRemoved,
    PreferredElectionRequested,
    Purpose,
    ReassignmentLimits,
    ReassignmentRequested,
    ReplicasDoubtful,
    ReplicasFailed,
    ReplicasStopped,
    RestartRequested,
    RestartsRequested,
    StatesRead,
    StatesWritten,
    Ticked,
    TopicChange,
    TopicsChanged,
    TopicsRemoved,
    TopicsWritten,
)
from kafkalite.controller.decisions.partition_changes import with_unknown_epochs
from kafkalite.controller.decisions.problems import find_problems
from kafkalite.controller.decisions.state import ControllerState, Leftover, Topic, Vanished
from kafkalite.coordination import paths
from kafkalite.coordination.admin_znodes import PartitionRemoval
from kafkalite.env.turns import at_once
from kafkalite.model import (
    NO_LEADER,
    BrokerId,
    BrokerInfo,
    ControllerEpoch,
    LeaderAndIsr,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
    TopicPartition,
)
from tests.datadriven.controller_words import (
    broker_of,
    command_text,
    ends_of,
    ids_of,
    move_text,
    partition_of,
    state_of,
    state_text,
    topic_of,
)

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
        self.limits = ReassignmentLimits()
        self.min_insync = 1
        self.ends: dict[TopicPartition, dict[BrokerId, LogEnd]] = {}
        self.doubtful: dict[TopicPartition, set[BrokerId]] = {}
        self.leading: dict[TopicPartition, LeaderEpoch] = {}
        self.unanswered: frozenset[BrokerId] = frozenset()
        self.elsewhere: dict[TopicPartition, dict[BrokerId, LogEnd]] = {}
        self.incomplete: frozenset[BrokerId] = frozenset()
        self.known_brokers: frozenset[BrokerId] = frozenset()
        self.order: dict[TopicPartition, tuple[BrokerId, ...]] = {}
        self.adds: dict[TopicPartition, tuple[BrokerId, ...]] = {}
        self.removals: dict[TopicPartition, PartitionRemoval] = {}
        self.leftovers: dict[TopicId, Leftover] = {}
        self.vanished: dict[str, Vanished] = {}
        #: Topics whose next write fails.
        self.topic_races: set[str] = set()
        #: Topics whose next write is not answered, and is applied by `arrives`; and those writes.
        self.unanswered_topics: set[str] = set()
        self.under_way: list[TopicChange] = []
        self._look = self._reread = False
        self.in_office = False
        self.output: list[str] = []

    # --- commands --------------------------------------------------------------------------------------------

    def run(self, line: str) -> None:
        verb, *rest = line.split()
        options = dict(each.split("=", 1) for each in rest if "=" in each)
        words = [each for each in rest if "=" not in each]
        match verb:
            case "brokers":
                every = frozenset(TopicPartition(n, p) for n, t in self.topics.items() for p in t.assignment)
                self.brokers = {info.broker_id: info for info in (broker_of(word, every) for word in words)}
                if self.in_office:
                    self.handle(BrokersChanged(self.brokers))
            case "topics":
                self.topics = {name.partition("#")[0]: topic_of(name, each) for name, each in options.items()}
                if self.in_office:
                    self.handle(TopicsChanged(self.topics))
            case "take-office":
                self.in_office = True
                ordered = tuple(options["deletions"].split(",")) if "deletions" in options else ()
                silent = ids_of(options["suspects"]) if "suspects" in options else ()
                unclean = frozenset(self.unclean)
                states, modified = dict(self.znodes), dict(self.modified)
                self.handle(
                    ClusterRead(
                        {id_: info for id_, info in self.brokers.items() if id_ not in silent},
                        self.topics,
                        states,
                        modified,
                        deletions=ordered,
                        unclean_topics=unclean,
                        removals=dict(self.removals),
                        leftovers=dict(self.leftovers),
                        vanished=dict(self.vanished),
                        min_insync=dict.fromkeys(self.topics, self.min_insync),
                        suspects={id_: info for id_, info in self.brokers.items() if id_ in silent},
                    )
                )
            case "suspect":
                info = self.brokers[BrokerId(int(words[0]))]
                self.handle(BrokerSuspected(info.broker_id, info.broker_epoch, "no response"))
            case "clear":
                info = self.brokers[BrokerId(int(words[0]))]
                self.handle(BrokerCleared(info.broker_id, info.broker_epoch))
            case "min-insync":
                self.min_insync = int(words[0])
            case "ends":
                self.doubtful[partition_of(words[0])] = {
                    BrokerId(int(name)) for name, value in options.items() if value.endswith("?")
                }
                self.ends[partition_of(words[0])] = ends_of(options)
            case "elsewhere":
                self.elsewhere[partition_of(words[0])] = ends_of(options)
            case "incomplete":
                self.incomplete = frozenset(ids_of(words[0])) if words else frozenset()
            case "known-brokers":
                self.known_brokers = frozenset(ids_of(words[0]))
            case "problems":
                found = at_once(find_problems(self.state, {}, {}))
                self.output += [f"problem {what} {detail}" for what, _, detail in found]
            case "refuses":
                info = broker_of(words[0])
                self.handle(ReplicasDoubtful(info.broker_id, info.broker_epoch, tuple(map(partition_of, words[1:]))))
            case "state":
                partition = partition_of(words[0])
                self.znodes[partition] = state_of(options)
                self.modified[partition] = int(options.get("modified", self.zxid))
            case "no-state":
                del self.znodes[partition_of(words[0])]
            case "race":
                self.races[partition_of(words[0])] = state_of(options)
            case "unclean":
                self.unclean |= set(words)
            case "isr-changed":
                self.handle(IsrsChanged(tuple(map(partition_of, words))))
            case "knows-epoch":
                self._knows_epoch(
                    partition_of(words[0]), LeaderEpoch(int(words[1])), BrokerId(int(options.get("by", -1)))
                )
            case "leads":
                self.leading[partition_of(words[0])] = LeaderEpoch(int(words[1]))
            case "silent":
                self.unanswered = frozenset(ids_of(words[0])) if words else frozenset()
            case "shutdown":
                info = broker_of(words[0])
                self.handle(ControlledShutdownReceived(info.broker_id, info.broker_epoch, token=1))
            case "preferred":
                ordered_now = tuple(map(partition_of, words))
                self.handle(PreferredElectionRequested(ordered_now, version=0, unclean="unclean" in options))
            case "delete":
                self.handle(DeletionsRequested(tuple(words)))
            case "stopped":
                info = broker_of(words[0])
                failed = tuple(partition_of(each) for each in options.get("failed", "").split(",") if each)
                done = tuple(map(partition_of, words[1:]))
                ids = tuple(TopicId(options.get("id", "")) for _ in done)
                away = frozenset(partition_of(each) for each in options.get("away", "").split(",") if each)
                self.handle(ReplicasStopped(info.broker_id, info.broker_epoch, done, failed, ids, away))
            case "lost":
                info = broker_of(words[0])
                self.handle(InitialisationDue({info.broker_id: info.broker_epoch}, "queue.overflow"))
            case "restart":
                made_at = int(options.get("made", self.zxid))
                asked = tuple(map(partition_of, words[1:]))
                order = RestartRequested("req-0", BrokerId(int(words[0])), asked, made_at, "online" in options)
                self.handle(RestartsRequested((order,)))
            case "dead":
                info = broker_of(words[0])
                self.handle(ReplicasFailed(info.broker_id, info.broker_epoch, tuple(map(partition_of, words[1:]))))
            case "limits":
                values = {name: int(options[name]) for name in sorted(options)}
                self.limits = ReassignmentLimits(
                    values.get("replicas", UNLIMITED),
                    values.get("partitions", UNLIMITED),
                    values.get("leaders", UNLIMITED),
                )
            case "reassign":
                self.order |= {partition_of(name): ids_of(value) if value else () for name, value in options.items()}
                self.handle(ReassignmentRequested(dict(self.order)))
            case "add":
                self.adds |= {partition_of(name): ids_of(value) for name, value in options.items()}
                self.handle(PartitionRequests(dict(self.adds), dict(self.removals)))
            case "remove":
                self.removals |= {partition_of(each): PartitionRemoval() for each in words}
                self.removals |= {partition_of(name): PartitionRemoval(drain=True) for name in options}
                self.handle(PartitionRequests(dict(self.adds), dict(self.removals)))
            case "drained":
                self.handle(PartitionsDrained(tuple(map(partition_of, words))))
            case "unanswered":
                self.unanswered_topics |= set(words)
            case "arrives":
                for change in self.under_way:
                    self._apply(change)
                self.under_way.clear()
            case "copied":
                self._copied(partition_of(words[0]))
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
            if not pending and self._reread:
                self._reread = False
                pending = [PartitionRequests(dict(self.adds), dict(self.removals))]
            elif not pending and self._look and not self.under_way:  # else other news comes first
                self._look = False
                names = {partition.topic for partition, _ in self.state.moves()}
                pending = [MovesDue(self.limits, dict.fromkeys(sorted(names), self.min_insync))]

    def _knows_epoch(self, partition: TopicPartition, epoch: LeaderEpoch, by: BrokerId) -> None:
        """A replica says that it knows this leader epoch, in which it does not lead."""
        known = dataclasses.replace(self.znodes[partition], leader=by, leader_epoch=epoch)
        self.handle(IsrsChanged((partition,), {partition: Claim(known, has_resigned=True, is_epoch_only=True)}))

    def _copied(self, partition: TopicPartition) -> None:
        known, replicas = self.znodes[partition], self.topics[partition.topic].assignment[partition.partition]
        joining = [each for each in replicas if each in self.brokers and each not in known.isr]
        self.zxid += 1
        self.modified[partition] = self.zxid
        self.znodes[partition] = self.with_isr(known, (*known.isr, *joining))
        self.handle(IsrsChanged((partition,)))

    def with_isr(self, known: LeaderAndIsr, isr: tuple[BrokerId, ...]) -> LeaderAndIsr:
        """What a leader writes: who joins is not only eligible any more, and nobody is once there are enough."""
        elr = tuple(each for each in known.elr if each not in isr) if len(isr) < self.min_insync else ()
        version = PartitionEpoch(known.partition_epoch + 1)
        return dataclasses.replace(known, isr=isr, elr=elr, last_known_elr=(), partition_epoch=version)

    def perform(self, effect: Effect) -> Event | None:
        """An imitation of the shells, which prints."""
        say = self.output.append
        match effect:
            case ReadStates(partitions, purpose, chunk):
                say(f"read {' '.join(map(str, partitions))}")
                return self._read(partitions, purpose, chunk)
            case AskLogEnds(replicas, purpose, chunk, everywhere):
                asked = [
                    f"{each}:{','.join(map(str, replicas[each]))}{'+' if each in everywhere else ''}"
                    for each in replicas
                ]
                say("ask " + " ".join(asked))
                live = self.state.brokers
                ends = {
                    each: {id_: end for id_, end in self.ends.get(each, {}).items() if id_ in replicas[each]}
                    for each in replicas
                }
                elsewhere = {
                    each: {id_: end for id_, end in self.elsewhere.get(each, {}).items() if id_ in live}
                    for each in everywhere
                }
                read = self._read(tuple(replicas), purpose, chunk)
                leading = dict(self.leading)
                return dataclasses.replace(
                    read, log_ends=ends, leading=leading, unanswered=self.unanswered, doubtful=self.doubtful,
                    elsewhere=elsewhere, incomplete=self.incomplete, known_brokers=self.known_brokers if everywhere else frozenset(),
                )  # fmt: skip
            case WriteStates():
                return self._write(effect)
            case CountLosses(partitions):
                say(f"losses {' '.join(map(str, partitions))}")
            case Send(broker_id, command):
                say(f"send {broker_id} {command_text(command)}")
            case OpenChannel(broker):
                say(f"open {broker.broker_id}@{broker.broker_epoch}")
            case CloseChannel(broker_id):
                say(f"close {broker_id}")
            case RemoveTopics(ended):
                for each in ended:
                    say(
                        f"remove {each.topic}"
                        + "".join(f" {each.topic}-{number}@{id_}" for number, id_ in each.leftover)
                    )
                    if each.leftover:
                        self.leftovers[each.topic_id] = Leftover(each.topic, frozenset(each.leftover))
                names = tuple(each.topic for each in ended)
                self.topics = {name: each for name, each in self.topics.items() if name not in names}
                self.znodes = {p: s for p, s in self.znodes.items() if p.topic not in names}
                return TopicsRemoved(names)
            case DropLeftover(topic_id):
                say(f"drop-leftover {topic_id}")
                del self.leftovers[topic_id]
            case KeepVanished(topic, vanished):
                numbers = ",".join(map(str, vanished.states))
                say(f"keep-vanished {topic} {vanished.topic_id} partitions={numbers} since={vanished.since}")
                self.vanished[topic] = vanished
            case DropVanished(topic_id):
                say(f"drop-vanished {topic_id}")
                self.vanished = {name: each for name, each in self.vanished.items() if each.topic_id != topic_id}
            case RemoveDeletionRequests(topics):
                say(f"drop-deletions {' '.join(topics)}")
            case RemoveAdminRequest(path, version):
                assert path == paths.PREFERRED_REPLICA_ELECTION
                say(f"drop-preferred version={version}")
            case DropRestartRequests(names):
                say(f"drop-restarts {' '.join(names)}")
            case ReplyShutdown(_, response):
                remaining = " ".join(f"{each.topic}-{each.partition}" for each in response.remaining)
                say(f"reply error={response.error} remaining=[{remaining}]{' last' if response.is_last else ''}")
            case WriteTopics(changes):
                return self._write_topics(changes)
            case RereadTopics(topics):
                say(f"reread {' '.join(topics)}")
                self._reread = True
                return TopicsChanged(self.topics)
            case AdvanceReassignments():
                self._look = True
            case RemoveReassignmentRequests(done):
                say(f"settle {' '.join(map(str, done))}")
                self.order = {p: target for p, target in self.order.items() if done.get(p) != target}
            case RemovePartitionRequests(adds, removals):
                say(f"drop-orders add=[{' '.join(map(str, adds))}] remove=[{' '.join(map(str, removals))}]")
                self.adds = {p: each for p, each in self.adds.items() if p not in adds}
                self.removals = {p: each for p, each in self.removals.items() if p not in removals}
            case RemovePartitions(partitions):
                for partition in partitions:
                    say(f"remove {partition}")
                    self.znodes.pop(partition, None)
                    self.removals.pop(partition, None)
                return PartitionsRemoved(partitions)
            case Post(event):
                return event
            case Note(name, subject, detail):
                say(f"note {name} {subject}" + (f": {detail}" if detail else ""))
            case Resign(reason):
                say(f"resign: {reason}")
        return None

    def _read(self, partitions: tuple[TopicPartition, ...], purpose: Purpose, chunk: int) -> StatesRead:
        states = {partition: self.znodes.get(partition) for partition in partitions}
        minimum = dict.fromkeys(self.topics, self.min_insync)
        suspects = with_unknown_epochs(self.state, states)
        changed = tuple(name for name in suspects if self.topics.get(name) != self.state.topics[name])
        unclean = frozenset(self.unclean)
        return StatesRead(states, purpose, dict(self.modified), {}, unclean, chunk, minimum, changed_topics=changed)

    def _write_topics(self, changes: tuple[TopicChange, ...]) -> TopicsWritten:
        written: list[TopicChange] = []
        failed: list[str] = []
        for change in changes:
            now = self.topics.get(change.name)
            stale = [p for p, state in change.states.items() if self.znodes[p].partition_epoch != state.partition_epoch]
            if now is None or now.version != change.topic.version or stale or change.name in self.topic_races:
                self.topic_races.discard(change.name)
                self.output.append(f"conflict {change.name}")
                failed.append(change.name)
                continue
            if change.name in self.unanswered_topics:
                self.unanswered_topics.discard(change.name)
                self.under_way.append(change)
                failed.append(change.name)
                continue
            written.append(self._apply(change))
        return TopicsWritten(tuple(written), tuple(failed))

    def _apply(self, change: TopicChange) -> TopicChange:
        self.zxid += 1
        topic = dataclasses.replace(change.topic, version=change.topic.version + 1)
        self.topics = {**self.topics, change.name: topic}
        states: dict[TopicPartition, LeaderAndIsr] = {}
        for partition, state in change.states.items():
            check_election(self.state, partition, self.znodes.get(partition), state)
            new = dataclasses.replace(state, partition_epoch=PartitionEpoch(state.partition_epoch + 1))
            states[partition] = self.znodes[partition] = new
            self.modified[partition] = self.zxid
        for partition in change.partitions:
            self.output.append(f"write-topic {partition} {move_text(topic, partition, states.get(partition))}")
        self.adds = {p: each for p, each in self.adds.items() if p not in change.added}
        self.removals |= change.removed
        return dataclasses.replace(change, topic=topic, states=states)

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
            check_election(self.state, partition, known, wanted)
            self.zxid += 1
            new = dataclasses.replace(wanted, partition_epoch=PartitionEpoch(version + 1))
            self.output.append(f"write {partition} {state_text(new)}")
            written[partition] = self.znodes[partition] = new
            self.modified[partition] = self.zxid
        return StatesWritten(written, tuple(conflicts), effect.purpose, effect.chunk)


def check_invariants(state: ControllerState) -> None:
    """What ControllerState promises."""
    assert state.shutting_down <= state.brokers.keys() | state.suspects.keys()
    for partition, known in state.partitions.items():
        assert partition.topic not in state.deletions
        assert partition.partition in state.topics[partition.topic].assignment
        assert known.isr and (known.leader == -1 or known.leader in known.isr)
        assert not set(known.isr) & set(known.elr)


def check_election(
    state: ControllerState, partition: TopicPartition, found: LeaderAndIsr | None, now: LeaderAndIsr
) -> None:
    """Only who is there is elected; a broker that is silent keeps what it leads."""
    if now.leader == NO_LEADER or now.leader in state.live(partition):
        return
    assert found is not None, f"{partition}: {now.leader} is not alive"
    assert now.leader == found.leader, f"{partition}: {now.leader} is not alive and was elected after {found.leader}"
    assert now.leader in state.suspects, f"{partition}: {now.leader} is not registered and keeps its leadership"


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
