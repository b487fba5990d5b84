"""What the HTTP pages need of the node they are about."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kafkalite.admin.acls import AclManager
    from kafkalite.controller.controller import Controller
    from kafkalite.coordination.session import SessionKeeper
    from kafkalite.env import Env
    from kafkalite.env.loop_times import LoopTimes
    from kafkalite.extension.messages.watching import HealthProblem
    from kafkalite.http.overview import Overview
    from kafkalite.http.peers import Peers
    from kafkalite.http.server import HttpServer
    from kafkalite.kafka.broker_apis import KafkaSide
    from kafkalite.log.log_manager import LogManager
    from kafkalite.model import BrokerId
    from kafkalite.replica.metadata_cache import MetadataCache
    from kafkalite.replica.replica_manager import ReplicaManager
    from kafkalite.rpc.server import RpcServer
    from kafkalite.security.node_security import NodeSecurity


class ZooKeeper(Protocol):
    def away(self) -> str:
        """For people: how long ZooKeeper has not answered; empty if it does."""


class Counted(Protocol):
    """What a scrape of metrics reads."""

    env: Env
    replicas: ReplicaManager
    logs: LogManager
    controller: Controller
    session: SessionKeeper
    security: NodeSecurity | None
    rights: AclManager
    kafka: KafkaSide
    rpc: RpcServer
    http: HttpServer
    loop_times: LoopTimes

    def problems(self) -> tuple[HealthProblem, ...]: ...


class Host(Counted, Protocol):
    """What the pages read."""

    broker_id: BrokerId
    ready: asyncio.Event
    stopping: bool
    overview: Overview
    peers: Peers
    metadata: MetadataCache

    @property
    def zookeeper(self) -> ZooKeeper: ...
