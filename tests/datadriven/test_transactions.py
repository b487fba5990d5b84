"""Scenario files of transactions: the coordinator's rules beside what the partitions remember of the producer.

One transactional id, partitions 0, 1, ... of topic t, led here. Verbs:

    init [id= epoch=]              InitProducerId
    add p= id= epoch= [version=]   AddPartitionsToTxn
    end as=commit|abort id= epoch= [version=2]   EndTxn
    epochs at=                     as if there had been so many transactions
    complete                       all markers are written
    reload                         another coordinator reads the log
    ask p= id= epoch= seq=         a leader begins to verify a batch: the guard that it gets, "open" if there is no need
    verify p= id= epoch=           what the coordinator answers
    refuse p= id= guard=           the coordinator's no reaches the leader
    append p= id= epoch= seq= [guard=]   a transactional batch of one record
    marker p= id= epoch= as= [version=]  the end of the transaction reaches a partition
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from kafkalite.coordinators.transactions import state as rules
from kafkalite.coordinators.transactions.state import Transaction
from kafkalite.errors import ApiError
from kafkalite.log.producer_state import PreparedAppend, ProducerStates
from kafkalite.model import NO_PRODUCER_ID, ProducerId, TopicPartition
from kafkalite.record.batch import BatchHeader, split_batches
from kafkalite.record.builder import RecordBatchBuilder, end_transaction_marker
from kafkalite.record.reader import EndTransactionMarker
from kafkalite.testing.simulation.plants import PLANTS

from .runner import run

SCENARIOS = sorted((Path(__file__).parent / "transactions").glob("*.txt"))


class Partition:
    def __init__(self) -> None:
        self.producers = ProducerStates()
        self.end = 0

    def take(self, header: BatchHeader, marker: EndTransactionMarker | None, version: int) -> str:
        prepared = PreparedAppend()
        from_client = marker is None
        self.producers.prepare(
            prepared, header, self.end, marker, from_client=from_client, replicated=False, transaction_version=version
        )
        self.producers.apply(prepared)
        self.end += 1
        self.producers.forget_replicated(self.end)
        unstable = self.producers.first_unstable_offset
        return f"at {self.end - 1}, stable to {self.end if unstable is None else unstable}"


class Script:
    def __init__(self) -> None:
        self.known: Transaction | None = None
        self.next_id = 7
        self.now = 0
        self.partitions: dict[int, Partition] = {}
        self.guards: dict[str, int] = {}

    def handle(self, verb: str, args: dict[str, str]) -> str:
        self.now += 1
        try:
            return str(getattr(self, f"do_{verb}")(args))
        except ApiError as error:
            return error.code.name

    def _fresh(self) -> ProducerId:
        self.next_id += 1
        return ProducerId(self.next_id - 1)

    def _become(self, target: Transaction) -> str:
        self.known = target
        parts = ",".join(str(each.partition) for each in sorted(target.partitions))
        after = f", next id {target.next_producer_id}" if target.next_producer_id != NO_PRODUCER_ID else ""
        return f"{target.state.wire_name} id {target.producer_id} epoch {target.producer_epoch} [{parts}]{after}"

    def do_init(self, args: dict[str, str]) -> str:
        if self.known is None:
            return self._become(rules.begin("x", self._fresh(), 60_000, self.now))
        expected = (int(args.get("id", "-1")), int(args.get("epoch", "-1")))
        fresh = self._fresh() if rules.needs_new_producer_id(self.known) else NO_PRODUCER_ID
        return self._become(rules.init_producer(self.known, expected, 60_000, fresh, self.now))

    def do_epochs(self, args: dict[str, str]) -> str:
        assert self.known is not None
        return self._become(dataclasses.replace(self.known, producer_epoch=int(args["at"])))

    def do_add(self, args: dict[str, str]) -> str:
        wanted = [TopicPartition("t", int(args["p"]))]
        who = (int(args["id"]), int(args["epoch"]))
        return self._become(rules.add_partitions(self.known, *who, wanted, self.now, int(args.get("version", "0"))))

    def do_end(self, args: dict[str, str]) -> str:
        who = (int(args["id"]), int(args["epoch"]))
        is_commit = args["as"] == "commit"
        if "version" not in args:
            return self._become(rules.end(self.known, *who, self.now, is_commit=is_commit))
        assert self.known is not None
        fresh = self._fresh() if rules.needs_new_producer_id(self.known) else NO_PRODUCER_ID
        target = rules.end_and_bump(self.known, *who, fresh, self.now, is_commit=is_commit)
        producer_id, epoch = rules.producer_after(target)
        return f"{self._become(target)}; the producer goes on as {producer_id} epoch {epoch}"

    def do_complete(self, args: dict[str, str]) -> str:
        assert self.known is not None
        return self._become(rules.complete(self.known, self.now))

    def do_reload(self, args: dict[str, str]) -> str:
        assert self.known is not None
        value = rules.value_of(self.known)
        _, loaded = rules.parse(rules.key_of("x"), value)
        assert loaded is not None
        return f"value of version {int.from_bytes(value[:2])}: {self._become(loaded)}"

    def _partition(self, args: dict[str, str]) -> Partition:
        return self.partitions.setdefault(int(args["p"]), Partition())

    def do_ask(self, args: dict[str, str]) -> str:
        producers = self._partition(args).producers
        guard = producers.begin_verification(int(args["id"]), int(args["epoch"]), int(args["seq"]))
        if not guard:
            return "open"
        name = next((name for name, known in self.guards.items() if known == guard), None)
        if name is None:
            name = chr(ord("a") + len(self.guards))
            self.guards[name] = guard
        return f"guard {name}"

    def do_verify(self, args: dict[str, str]) -> str:
        partition = TopicPartition("t", int(args["p"]))
        return rules.verify_partition(self.known, int(args["id"]), int(args["epoch"]), partition).name

    def do_refuse(self, args: dict[str, str]) -> str:
        self._partition(args).producers.end_verification(int(args["id"]), self.guards.get(args["guard"], 0))
        return f"guard {args['guard']} is gone"

    def do_append(self, args: dict[str, str]) -> str:
        builder = RecordBatchBuilder(
            producer_id=int(args["id"]),
            producer_epoch=int(args["epoch"]),
            base_sequence=int(args["seq"]),
            transactional=True,
        )
        builder.append(None, b"v", (), 1)
        [(_, header)] = split_batches(builder.build())
        partition = self._partition(args)
        partition.producers.check_verified(header, self.guards.get(args.get("guard", ""), 0))
        return partition.take(header, None, 0)

    def do_marker(self, args: dict[str, str]) -> str:
        is_commit = args["as"] == "commit"
        batch = end_transaction_marker(
            ProducerId(int(args["id"])), int(args["epoch"]), commit=is_commit, coordinator_epoch=0, timestamp_ms=1
        )
        [(_, header)] = split_batches(batch)
        marker = EndTransactionMarker(commit=is_commit, coordinator_epoch=0)
        return self._partition(args).take(header, marker, int(args.get("version", "0")))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    run(path, Script().handle)


def test_the_scenario_of_late_packets_finds_a_log_that_verifies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKALITE_REWRITE", raising=False)  # the file is to be compared, whatever `make rewrite` does
    PLANTS["unverified"](monkeypatch.setattr)
    with pytest.raises(AssertionError, match="INVALID_TXN_STATE"):
        run(next(path for path in SCENARIOS if path.stem == "late_packets"), Script().handle)
