"""An operator in a simulated cluster: moves partitions between nodes and disks, changes its mind, elects leaders, and makes,
grows, shrinks and deletes a topic of its own, while everything else goes on and things go wrong."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Callable, Mapping

from kafkalite.client.admin.configs import ConfigResource, alter_configs
from kafkalite.client.async_client import AsyncClient
from kafkalite.coordination.broker_states import BROKER_STATE
from kafkalite.env.seams import Env
from kafkalite.errors import KafkaliteError
from kafkalite.extension.messages.disks import MoveReplicasRequest, RequestedDiskMove
from kafkalite.extension.messages.reassignment import (
    AlterReassignmentsRequest,
    AlterReassignmentsResponse,
    WantedReassignment,
)
from kafkalite.extension.messages.topics import (
    NewTopic,
    RemovePartitionsRequest,
    RemovePartitionsResponse,
)
from kafkalite.model import BrokerId, TopicPartition
from kafkalite.protocol import wire
from kafkalite.testing.simulation.plan import LONE, Plan
from kafkalite.testing.simulation.workloads.clients import client_of

#: The operator's own topic: no records, much change.
CHURN = "churn"
REPLICAS = 3
#: min.insync.replicas of the workload's topics.
MIN_INSYNC = 2
#: Bytes per second of the requests that are throttled.
THROTTLE = 20_000
_TIMEOUT_S = 5.0
#: ElectionType of ElectLeaders (KIP-460).
_PREFERRED = 0
#: With nodes that are cordoned and drained: among the others.
_STATES = ("cordoned", "cordoned", "draining", "draining", "")
_REQUESTS = ("reassign",) * 4 + ("cancel", "elect", "add", "remove", "create", "delete") + ("disk",) * 2


class OperatorWorkload:
    """Makes a request every second or so until it is stopped.

    `assignments`: for each partition, all replica lists that were ever ordered (whether or not the answer came).
    """

    def __init__(self, plan: Plan) -> None:
        self.name = "boss"
        self._plan = plan
        #: A node can only be drained if the others can take its replicas.
        self._drains = plan.drains and plan.nodes > REPLICAS
        self.stopping = asyncio.Event()
        self.done = False
        self.orders = 0
        #: The node that is to hold nothing in the end.
        self.drained = 0
        self.assignments: dict[tuple[str, int], set[tuple[int, ...]]] = {}
        #: Whether replicas may have left the operator's topic before it was deleted: what a disk brings back of these belongs to no
        #: topic, and no record of the deletion names it (ADR 61).
        self.may_leave = self._drains
        #: Such replicas came back with a disk: `admin health` says so, and the operator orders the deletion again. Nothing more is to
        #: be ordered when `over` is set.
        self.has_vanished = False
        self.over = False

    async def run(self, env: Env) -> None:
        """The program."""
        source = env.random
        async with client_of(self._plan, env, self.name) as client:
            while not self.stopping.is_set():
                try:
                    await self._request(client, source)
                    self.orders += 1
                except KafkaliteError:
                    pass  # refused, or nobody has answered: an operator goes on
                await asyncio.sleep(source.uniform(0.2, 2.0))
            if self._drains:
                await self._settle(client, source)
            self.done = True
            while not self.over:
                if self.has_vanished:
                    self.has_vanished = False
                    with contextlib.suppress(KafkaliteError):
                        await client.delete_topics([CHURN], timeout_s=_TIMEOUT_S, vanished=True)
                await asyncio.sleep(0.5)

    async def _settle(self, client: AsyncClient, source: random.Random) -> None:
        """One node is drained for good, the others take replicas again."""
        chosen = source.randint(1, self._plan.nodes)
        wanted = {node: "" for node in range(1, self._plan.nodes + 1) if node != chosen} | {chosen: "draining"}
        while wanted:
            for node, state in list(wanted.items()):
                try:
                    await self._set_state(client, node, state)
                    del wanted[node]
                except KafkaliteError:
                    await asyncio.sleep(0.5)
        self.drained = chosen

    async def _set_state(self, client: AsyncClient, node: int, state: str) -> None:
        resource = ConfigResource.broker(BrokerId(node))
        changes, deletions = ({BROKER_STATE: state}, []) if state else ({}, [BROKER_STATE])
        await alter_configs(client, resource, changes, deletions, timeout_s=_TIMEOUT_S)

    async def _request(self, client: AsyncClient, source: random.Random) -> None:
        if self._drains and source.random() < 0.25:
            await self._set_state(client, source.randint(1, self._plan.nodes), source.choice(_STATES))
            return
        kind = source.choice(_REQUESTS)
        topic = source.choice(sorted(each for each in self._plan.topics if each != LONE))
        where = TopicPartition(topic, source.randrange(self._plan.topics[topic]))
        milliseconds = int(_TIMEOUT_S * 1000)
        if kind in ("reassign", "cancel"):
            replicas: tuple[BrokerId, ...] | None = None
            if kind == "reassign":
                chosen = source.sample(range(1, self._plan.nodes + 1), REPLICAS)
                replicas = tuple(BrokerId(each) for each in chosen)
                self.assignments.setdefault((where.topic, where.partition), set()).add(tuple(chosen))
            wanted = WantedReassignment(where.topic, where.partition, replicas, source.choice((0, 0, THROTTLE)))
            reassign = AlterReassignmentsRequest((wanted,), milliseconds, limits=self._plan.move_limits)
            await client.request(reassign, AlterReassignmentsResponse, timeout_s=_TIMEOUT_S)
        elif kind == "elect":
            request = wire.ElectLeadersRequest(_PREFERRED, None, milliseconds)
            await client.call_controller(request, timeout_s=_TIMEOUT_S)
        elif kind == "disk":
            directory = source.choice(self._plan.log_dirs)
            node = BrokerId(source.randint(1, self._plan.nodes))
            move = RequestedDiskMove(where.topic, where.partition, directory, source.choice((0, 50_000)))
            await client.ask_node(node, MoveReplicasRequest((move,)), timeout_s=_TIMEOUT_S)
        elif kind == "create":
            await client.create_topics([NewTopic(CHURN, source.randint(1, 3), REPLICAS)], timeout_s=_TIMEOUT_S)
        elif kind == "delete":
            await client.delete_topics([CHURN], timeout_s=_TIMEOUT_S)
        elif kind == "add":
            create = wire.CreatePartitionsRequest
            more = create.CreatePartitionsTopic(CHURN, source.randint(2, 5), None)
            await client.call_controller(create([more], milliseconds), timeout_s=_TIMEOUT_S)
        else:
            self.may_leave = True
            fewer = RemovePartitionsRequest(CHURN, source.randint(1, 2), source.random() < 0.5, milliseconds)
            await client.request(fewer, RemovePartitionsResponse, timeout_s=_TIMEOUT_S)


class RequestsChecker:
    """What must be true of requests, by the znodes alone.

    Args:
        limits: replicas at once, partitions under way, leader movements; 0 none.
    """

    def __init__(self, read: Callable[[str], bytes | None], limits: tuple[int, int, int]) -> None:
        self._read = read
        self._limits = limits
        self._steps: dict[str, dict[int, tuple[tuple[int, ...], bool]]] = {}
        #: Replicas of a partition at its last step.
        self._counts: dict[tuple[str, int], int] = {}

    def topic_written(self, topic: str, data: bytes | None) -> str | None:
        """A topic's znode as it is now; what it violates."""
        if data is None:
            self._steps.pop(topic, None)
            return None
        fields = json.loads(data)
        steps: dict[int, tuple[tuple[int, ...], bool]] = {}
        for number, move in fields.get("moves", {}).items():
            if step := move.get("step"):
                steps[int(number)] = (tuple(step), bool(move.get("moves_leader")))
        self._steps[topic] = steps
        under_way = [(topic, each) for topic in sorted(self._steps) for each in self._steps[topic].values()]
        replicas, partitions, leaders = self._limits
        if partitions and len(under_way) > partitions:
            return f"{len(under_way)} partitions are being moved, {partitions} are allowed: {under_way}"
        moving = sum(moves_leader for _, (_, moves_leader) in under_way)
        if leaders and moving > leaders:
            return f"{moving} leaders are being moved, {leaders} are allowed: {under_way}"
        for number in sorted(steps):
            count = len(fields["partitions"][str(number)])
            before = self._counts.get((topic, number), REPLICAS)
            self._counts[topic, number] = count
            if replicas and count > max(before, REPLICAS + replicas + self._missing_in_sync(topic, number)):
                return f"{topic}-{number} has more than {replicas} replicas beside its {REPLICAS}: {fields}"
        return None

    def _missing_in_sync(self, topic: str, number: int) -> int:
        """A step adds what is missing in the ISR even beyond the limit (KIP-435)."""
        state = self._read(f"/brokers/topics/{topic}/partitions/{number}/state")
        in_sync = 0 if state is None else len(json.loads(state)["isr"])
        return max(0, MIN_INSYNC - in_sync)

    def unfinished(
        self, names: Mapping[str, int], ordered: Mapping[tuple[str, int], set[tuple[int, ...]]], drained: int = 0
    ) -> str | None:
        """What is not over yet when everything should be, or ended as nobody wanted.

        Args:
            drained: a node that is to have nothing; then replicas may be anywhere else. 0: none.
        """
        for path in ("/admin/reassign_partitions", "/admin/preferred_replica_election"):
            if (left := self._read(path)) is not None:
                return f"{path} still holds {left.decode()}"
        for name in sorted(names):
            data = self._read(f"/brokers/topics/{name}")
            assert data is not None
            fields = json.loads(data)
            if fields.get("moves"):
                return f"{name} is still being moved: {fields['moves']}"
            for number, replicas in fields["partitions"].items():
                wanted = ordered.get((name, int(number)), {tuple(replicas)})
                if drained:
                    # Not as many as it had first: the balancer may have been moving it already.
                    count = 1 if name == LONE else REPLICAS
                    if drained in replicas:
                        return f"{name}-{number} is assigned to {replicas}, and node {drained} is drained"
                    if len(set(replicas)) != count:
                        return f"{name}-{number} ended as {replicas}, and had {count} replicas"
                elif tuple(replicas) not in wanted:
                    return f"{name}-{number} ended as {replicas}, which nobody ordered: {sorted(wanted)}"
        return None
