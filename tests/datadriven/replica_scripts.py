"""The verbs of the scenario files under tests/datadriven/replica: the pure rules, driven line by line."""

from __future__ import annotations

from kafkalite.coordination.topic_znodes import TopicZnode
from kafkalite.model import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderAndIsr,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    TopicId,
    TopicPartition,
)
from kafkalite.replica.decisions import isr as isr_rules
from kafkalite.replica.decisions import strays
from kafkalite.replica.decisions.follower import (
    Divergence,
    OutOfRange,
    find_divergence,
    follower_high_watermark,
    high_watermark_after_truncation,
    truncation_offset,
)
from kafkalite.replica.decisions.leader import (
    PartitionLeader,
    new_leader,
    next_high_watermark,
    on_append,
    on_flushed,
    on_follower_fetch,
    on_idle_fetch,
)


def _ids(text: str) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(int(part)) for part in text.split(",")) if text else ()


class LeaderScript:
    """One partition led by broker 1; `lag` is replica.lag.time.max.ms (default 500)."""

    def __init__(self) -> None:
        self.leader: PartitionLeader | None = None
        self.lag_ms = 500
        self.live: dict[BrokerId, BrokerEpoch] = {}
        self.flush = False
        self.proposal: isr_rules.Proposal | None = None

    def handle(self, verb: str, args: dict[str, str]) -> str:
        method = getattr(self, "do_" + verb.replace("-", "_"))
        result = method(args)
        return result if isinstance(result, str) else self.show()

    def show(self) -> str:
        leader = self._leader()
        leader.high_watermark = next_high_watermark(leader)
        text = f"LEO={leader.log_end_offset} HW={leader.high_watermark} ISR={list(leader.committed_isr)}"
        if leader.elr:
            text += f" ELR={list(leader.elr)}"
        if leader.proposed_isr is not None:
            text += f" proposed={list(leader.proposed_isr)}"
        return text

    def _leader(self) -> PartitionLeader:
        assert self.leader is not None, "become-leader first"
        return self.leader

    def do_become_leader(self, args: dict[str, str]) -> None:
        isr = _ids(args["isr"])
        replicas = _ids(args.get("replicas", args["isr"]))
        self.lag_ms = int(args.get("lag", "500"))
        self.flush = "flush" in args
        previous = self.leader if "again" in args else None
        end = previous.log_end_offset if previous else Offset(int(args.get("leo", "0")))
        self.leader = new_leader(
            previous,
            broker_id=BrokerId(1),
            leader_epoch=LeaderEpoch(int(args.get("epoch", "0"))),
            replicas=replicas,
            isr=isr,
            partition_epoch=PartitionEpoch(int(args.get("version", "0"))),
            min_insync_replicas=int(args.get("min_isr", "1")),
            log_end_offset=end,
            durable_end_offset=end,
            high_watermark=previous.high_watermark if previous else Offset(int(args.get("hw", "0"))),
            at_ms=int(args.get("at", "0")),
            elr=_ids(args.get("elr", "")),
        )
        self.live = {replica: BrokerEpoch(100 + replica) for replica in replicas}

    def do_append(self, args: dict[str, str]) -> None:
        leader = self._leader()
        on_append(leader, Offset(leader.log_end_offset + int(args["records"])), is_flush_needed=self.flush)

    def do_min_isr(self, args: dict[str, str]) -> None:
        self._leader().min_insync_replicas = int(args["to"])

    def do_flushed(self, args: dict[str, str]) -> None:
        on_flushed(self._leader(), Offset(int(args["up_to"])))

    def do_fetch(self, args: dict[str, str]) -> None:
        replica = BrokerId(int(args["from"]))
        on_follower_fetch(
            self._leader(),
            replica,
            fetch_offset=Offset(int(args["offset"])),
            broker_epoch=BrokerEpoch(int(args.get("broker_epoch", 100 + replica))),
            at_ms=int(args["at"]),
        )

    def do_idle_fetch(self, args: dict[str, str]) -> None:
        leader = self._leader()
        on_idle_fetch(leader, leader.followers[BrokerId(int(args["from"]))], int(args["at"]))

    def do_register(self, args: dict[str, str]) -> str:
        self.live[BrokerId(int(args["broker"]))] = BrokerEpoch(int(args["epoch"]))
        return "ok"

    def do_tick(self, args: dict[str, str]) -> str:
        leader = self._leader()
        isr = isr_rules.propose_isr(leader, live_epochs=self.live, at_ms=int(args["at"]), lag_time_max_ms=self.lag_ms)
        if isr is None and isr_rules.must_clear(leader):
            isr = leader.committed_isr
        if isr is None:
            return "nothing to propose"
        elr, last = isr_rules.eligible_after(leader, isr)
        self.proposal = isr_rules.Proposal(
            leader.broker_id, leader.leader_epoch, leader.partition_epoch, isr, elr, last
        )
        isr_rules.begin_proposal(leader, isr)
        eligible = f" ELR {list(elr)}" if elr else ""
        return f"propose ISR {list(isr)}{eligible} on version {leader.partition_epoch}"

    def do_written(self, args: dict[str, str]) -> None:
        proposal = self.proposal
        assert proposal is not None
        version = PartitionEpoch(proposal.partition_epoch + 1)
        isr_rules.adopt(self._leader(), proposal.isr, version, proposal.elr, proposal.last_known_elr)

    def do_not_sent(self, args: dict[str, str]) -> None:
        isr_rules.withdraw_proposal(self._leader())

    def do_reread(self, args: dict[str, str]) -> str:
        """The write failed or was not answered; the state znode now reads so."""
        assert self.proposal is not None
        current = None
        if "gone" not in args:
            current = LeaderAndIsr(
                leader=BrokerId(int(args.get("leader", "1"))),
                leader_epoch=LeaderEpoch(int(args["epoch"])),
                isr=_ids(args["isr"]),
                controller_epoch=ControllerEpoch(1),
                partition_epoch=PartitionEpoch(int(args["version"])),
            )
        verdict = isr_rules.outcome_of(self.proposal, current)
        if verdict is isr_rules.ProposalOutcome.ADOPT:
            assert current is not None
            isr_rules.adopt(self._leader(), current.isr, current.partition_epoch, current.elr)
        return f"{verdict.value}: {self.show()}"


class LogsScript:
    """Epoch histories of two logs, as (epoch, start) entries and an end, and the dance that makes them one."""

    def __init__(self) -> None:
        self.logs: dict[str, tuple[list[tuple[int, int]], int, int]] = {}
        self.hw = 0

    def handle(self, verb: str, args: dict[str, str]) -> str:
        return str(getattr(self, "do_" + verb.replace("-", "_"))(args))

    def do_log(self, args: dict[str, str]) -> str:
        entries = [tuple(map(int, part.split("@"))) for part in args["epochs"].split(",")] if args.get("epochs") else []
        self.logs[args["of"]] = (
            [(epoch, start) for epoch, start in entries],
            int(args.get("start", "0")),
            int(args["leo"]),
        )
        self.hw = int(args.get("hw", self.hw))
        return self.show(args["of"])

    def show(self, name: str) -> str:
        entries, start, end = self.logs[name]
        return f"{name}: {' '.join(f'{epoch}@{begin}' for epoch, begin in entries) or 'empty'} start={start} LEO={end}"

    def epoch_end(self, name: str, requested: int) -> tuple[LeaderEpoch, Offset]:
        entries, _, end = self.logs[name]
        found = (-1, -1)
        for index, (epoch, _) in enumerate(entries):
            if epoch <= requested:
                found = (epoch, entries[index + 1][1] if index + 1 < len(entries) else end)
        return LeaderEpoch(found[0]), Offset(found[1])

    def do_reconcile(self, args: dict[str, str]) -> str:
        """The follower fetches until its log continues the leader's."""
        told: list[str] = []
        for _ in range(20):
            entries, start, end = self.logs["follower"]
            leader_entries, leader_start, leader_end = self.logs["leader"]
            last = entries[-1][0] if entries else -1
            answer = find_divergence(
                lambda epoch: self.epoch_end("leader", epoch),
                latest_epoch=LeaderEpoch(leader_entries[-1][0] if leader_entries else -1),
                log_start_offset=Offset(leader_start),
                log_end_offset=Offset(leader_end),
                fetch_offset=Offset(end),
                last_fetched_epoch=LeaderEpoch(last),
            )
            if answer is None:
                told.append(f"fetch {end} epoch {last}: continues; HW={self.hw}")
                return "\n".join(told)
            if isinstance(answer, OutOfRange):
                self.logs["follower"] = ([], leader_start, leader_start)
                self.hw = leader_start
                told.append(f"fetch {end} epoch {last}: out of range; starts over at {leader_start}")
                continue
            assert isinstance(answer, Divergence)
            cut = truncation_offset(
                lambda epoch: self.epoch_end("follower", epoch),
                log_start_offset=Offset(start),
                log_end_offset=Offset(end),
                divergence=answer,
            )
            if cut is None:
                self.logs["follower"] = ([], leader_start, leader_start)
                self.hw = leader_start
                told.append(f"fetch {end} epoch {last}: parts before its start; starts over at {leader_start}")
                continue
            self.hw = high_watermark_after_truncation(Offset(self.hw), cut)
            self.logs["follower"] = ([(epoch, begin) for epoch, begin in entries if begin < cut], start, cut)
            told.append(
                f"fetch {end} epoch {last}: diverges, leader has {answer.epoch} to {answer.end_offset}; truncate to {cut}"
            )
        return "\n".join([*told, "does not end"])

    def do_answer(self, args: dict[str, str]) -> str:
        """An answer brings records up to `leo` and the leader's high watermark `hw`."""
        self.hw = follower_high_watermark(
            Offset(self.hw), leader_high_watermark=Offset(int(args["hw"])), log_end_offset=Offset(int(args["leo"]))
        )
        return f"HW={self.hw}"


class StraysScript:
    """Logs without a replica on one node, and the znodes of their topics."""

    def __init__(self) -> None:
        self.broker_id = BrokerId(-1)
        self.logs: dict[TopicPartition, TopicId] = {}
        self.topics: dict[str, TopicZnode | None] = {}

    def handle(self, verb: str, args: dict[str, str]) -> str:
        return str(getattr(self, "do_" + verb)(args))

    def do_node(self, args: dict[str, str]) -> str:
        self.__init__()  # type: ignore[misc]
        self.broker_id = BrokerId(int(args["id"]))
        return f"broker {self.broker_id}"

    def do_log(self, args: dict[str, str]) -> str:
        topic, _, number = args["of"].rpartition("-")
        self.logs[TopicPartition(topic, int(number))] = TopicId(args["topic_id"])
        return f"{args['of']} of {args['topic_id']}"

    def do_topic(self, args: dict[str, str]) -> str:
        name, topic_id = args.pop("name"), args.pop("topic_id", None)
        if topic_id is None:
            self.topics[name] = None
            return f"{name}: none"
        self.topics[name] = TopicZnode(TopicId(topic_id), {int(number): _ids(ids) for number, ids in args.items()})
        return f"{name}: {topic_id} {' '.join(f'{number}={ids}' for number, ids in args.items())}"

    def do_judge(self, args: dict[str, str]) -> str:
        judged = strays.classify(self.broker_id, self.logs, self.topics)
        told = ((judged.surplus, "not ours"), (judged.orphans, "of no topic"), (judged.replaced, "of an earlier topic"))
        return "; ".join(f"{what}: {' '.join(map(str, keys)) or 'none'}" for keys, what in told)

    def do_refuse(self, args: dict[str, str]) -> str:
        return strays.refusal(int(args["strays"]), int(args["local"]), int(args["percent"])) or "set aside"
