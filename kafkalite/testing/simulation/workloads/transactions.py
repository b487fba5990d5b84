"""The transactional clients of a simulation, and the checks at its end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkalite.env.seams import Env
from kafkalite.testing.simulation.checkers.cluster import Violation
from kafkalite.testing.simulation.checkers.transactions import TransactionHistory
from kafkalite.testing.simulation.plan import KEYED, LEDGER
from kafkalite.testing.simulation.workloads.kafka import NONE, SimKafkaClient, Unanswered
from kafkalite.testing.simulation.workloads.transactional import (
    CommittedReader,
    TransactionWorkload,
    committed_records,
    fetch_committed,
)

if TYPE_CHECKING:
    from kafkalite.testing.simulation.run import Simulation

_JUDGE_S = 90.0


class TransactionalClients:
    """None where the plan has no transactions."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._plan = simulation.plan
        self.history = TransactionHistory()
        self._producers: list[TransactionWorkload] = []

    def start(self) -> None:
        """Start the producers and the reader."""
        if not self._plan.transactions:
            return
        world = self._simulation.world
        for number in range(1, self._plan.transactions + 1):
            producer = TransactionWorkload(f"txn{number}", self._plan, self.history)
            self._producers.append(producer)
            world.start(producer.name, producer.run, self._simulation.client_ended)
        reader = CommittedReader(self._plan, self.history)
        world.start(reader.name, reader.run, self._simulation.client_ended)

    def stop(self) -> None:
        """The faults are over: each client ends its transaction."""
        for producer in self._producers:
            producer.stopping.set()

    def stats(self) -> dict[str, int]:
        if not self._plan.transactions:
            return {}
        return {
            "committed": self.history.committed,
            "aborted": self.history.aborted,
            "late_taken": self.history.late_taken,
            "late_refused": self.history.late_refused,
        }

    def not_done(self) -> str | None:
        """Which clients still wait, and where an open transaction keeps readers waiting."""
        for producer in self._producers:
            if not producer.done:
                return f"{producer.name} waits for the cluster"
        for node in self._simulation.nodes.values():
            if not node.ready:
                return f"{node.name} is not ready"
            for replica in node.node.replicas.hosted.all():
                if replica.topic_partition.topic in self._plan.own_topics and replica.leader is not None:
                    stable = replica.log.last_stable_offset(replica.high_watermark)
                    if stable < replica.high_watermark:
                        return (
                            f"the last stable offset of {replica.topic_partition} on {node.name} is {stable}, "
                            f"its high watermark {replica.high_watermark}"
                        )
        return None

    async def check(self) -> None:
        """Read everything once more, from the beginning, as a new reader. Raises Violation."""
        if not self._plan.transactions:
            return
        found: dict[tuple[str, int], tuple[list[tuple[int, str]], int]] = {}

        async def program(env: Env) -> None:
            client = SimKafkaClient(self._plan, env)
            for topic, count in self._plan.own_topics.items():
                for number in range(count):
                    found[topic, number] = await _read_all(client, topic, number)
            client.close()

        simulation = self._simulation
        simulation.world.start("check", program, simulation.client_ended)
        wanted = sum(self._plan.own_topics.values())
        await simulation.until(
            lambda: None if len(found) == wanted else f"read {len(found)} of {wanted} partitions",
            _JUDGE_S,
            "a new reader reads all",
        )
        for partition, (records, begin) in found.items():
            self.history.final(partition, records, compacted=partition[0] == KEYED, begin=begin)
        if not self.history.transactions and self._plan.own_topics.get(LEDGER):
            raise Violation("no transaction was ever begun")


async def _read_all(client: SimKafkaClient, topic: str, partition: int) -> tuple[list[tuple[int, str]], int]:
    """All that is visible, and where the log begins."""
    while True:
        try:
            records: list[tuple[int, str]] = []
            answer = await fetch_committed(client, topic, partition, 0)
            begin = position = answer.log_start_offset
            while position < answer.high_watermark:
                answer = await fetch_committed(client, topic, partition, position)
                if answer.error_code != NONE:
                    raise Unanswered(f"{topic}-{partition}: {answer.error_code}")
                more, reached = committed_records(answer, position)
                if reached == position:
                    break  # compaction has left nothing up to the end
                records += more
                position = reached
        except Unanswered:
            client.forget_leader(topic, partition)
        else:
            return records, begin
        await asyncio.sleep(0.3)
