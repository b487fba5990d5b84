"""The share coordinator while nodes are killed: no acknowledged acknowledgement is lost, no fenced leader writes (KIP-932)."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from typing import Any

import pytest

from kafkalite.env.seams import Env
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.protocol import wire
from kafkalite.rpc.answers import RpcError
from kafkalite.testing.simulation.plan import Fault, FaultKind, Plan
from kafkalite.testing.simulation.run import Simulation
from kafkalite.testing.simulation.workloads.clients import client_of
from tests.sim.three_nodes import three_nodes

_TOPIC = bytes(range(16))
_KEYS = 3
_ACKNOWLEDGED = 2


class ShareLeaders:
    """One leader after the other for each of some keys: it reads, checks what it is shown, and acknowledges one offset after the other."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._epochs = 0
        #: Key -> the leader epoch that has read last; the offsets whose acknowledgement was confirmed.
        self.leads: dict[int, int] = {}
        self.confirmed: dict[int, set[int]] = {key: set() for key in range(_KEYS)}
        self.reads = self.fenced = 0

    def start(self) -> None:
        for key in range(_KEYS):
            for number in range(2):
                name = f"leader{key}-{number}"
                self._simulation.world.start(name, functools.partial(self._run, key), self._simulation.client_ended)

    def logged(self, event: dict[str, Any]) -> None:
        """Nothing of what nodes log counts here."""

    def stop(self) -> None:
        """They go on."""

    def stats(self) -> dict[str, int]:
        confirmed = sum(map(len, self.confirmed.values()))
        return {"acknowledgements": confirmed, "reads": self.reads, "fenced": self.fenced}

    def not_shared(self) -> str | None:
        return None

    async def _run(self, key: int, env: Env) -> None:
        while True:
            async with client_of(self._simulation.plan, env, f"share{key}") as client:
                with contextlib.suppress(ApiError, RpcError, TimeoutError):
                    await self._lead(key, client, env)
            await asyncio.sleep(env.random.uniform(0.05, 1.0))

    async def _ask(self, client: Any, key: int, request: Any) -> Any:
        name = f"g:AAECAwQFBgcICQoLDA0ODw:{key}"

        def error_of(response: Any) -> tuple[int, str]:
            found = response.results[0].partitions[0]
            return found.error_code, found.error_message or ""

        answer = await client.call_coordinator(2, name, request, error_of, timeout_s=20.0)
        return answer[1].results[0].partitions[0]

    async def _lead(self, key: int, client: Any, env: Env) -> None:
        self._epochs += 1
        epoch = self._epochs
        request = wire.ReadShareGroupStateRequest
        asked = request("g", [request.ReadStateData(_TOPIC, [request.PartitionData(key, epoch)])])
        confirmed = set(self.confirmed[key])
        try:
            state = await self._ask(client, key, asked)
        except ApiError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            begin = wire.InitializeShareGroupStateRequest
            fresh = begin("g", [begin.InitializeStateData(_TOPIC, [begin.PartitionData(key, 1, -1)])])
            await self._ask(client, key, fresh)
            return
        self.reads += 1
        self.leads[key] = max(epoch, self.leads.get(key, 0))
        shown = {
            offset
            for batch in state.state_batches
            for offset in range(batch.first_offset, batch.last_offset + 1)
            if batch.delivery_state == _ACKNOWLEDGED
        }
        if missing := confirmed - shown:
            self._simulation.fail(f"share state {key}: lost acknowledgements of {sorted(missing)[:5]}")
        offset = max(shown, default=0)
        while env.random.random() < 0.95:
            offset += env.random.choice((1, 1, 2))
            await self._write(key, epoch, offset, client)
            await asyncio.sleep(env.random.uniform(0.01, 0.1))

    async def _write(self, key: int, epoch: int, offset: int, client: Any) -> None:
        successor = self.leads.get(key, 0)
        request = wire.WriteShareGroupStateRequest
        part = request.PartitionData(key, 1, epoch, -1, -1, [request.StateBatch(offset, offset, _ACKNOWLEDGED, 1)])
        try:
            await self._ask(client, key, request("g", [request.WriteStateData(_TOPIC, [part])]))
        except ApiError as error:
            self.fenced += error.code is ErrorCode.FENCED_LEADER_EPOCH
            raise
        if successor > epoch:
            self._simulation.fail(f"share state {key}: leader epoch {epoch} wrote after {successor} had read")
        self.confirmed[key].add(offset)


def plan(seed: int) -> Plan:
    nodes = [f"node{1 + (seed + number) % 3}" for number in range(3)]
    return three_nodes(
        Fault(6.0, FaultKind.CRASH, nodes[0], 4.0),
        Fault(12.0, FaultKind.CRASH, nodes[1], 1.0),
        Fault(17.0, FaultKind.CRASH, nodes[2], 3.0),
        Fault(22.0, FaultKind.CRASH, nodes[0], 0.5),
        seed=seed,
        topics={"topic1": 1},
        log_dirs=("/data1",),
        fault_time_s=25.0,
        settings={
            "zookeeper.session.timeout.ms": 1_500,
            "replica.lag.time.max.ms": 2_000,
            "share.coordinator.state.topic.num.partitions": 2,
            "share.coordinator.snapshot.update.records.per.snapshot": 5,
            "share.coordinator.state.topic.prune.interval.ms": 2_000,
        },
        producers=1,
        batches_per_s=2.0,
        consumers=0,
        trims=False,
    )


@pytest.mark.parametrize("seed", range(1, 3))
def test_no_acknowledgement_is_lost_and_no_fenced_leader_writes(seed: int) -> None:
    simulation = Simulation(plan(seed))
    leaders = ShareLeaders(simulation)
    simulation.members = leaders  # type: ignore[assignment]
    result = simulation.run()
    assert result.violation is None, result.line()
    assert result.stats["acknowledgements"] > 100, result.line()
    assert result.stats["fenced"] > 0, result.line()
