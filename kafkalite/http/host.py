"""What the HTTP pages need of the node they are about."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kafkalite.admin.acls import AclManager
    from kafkalite.config import BrokerConfig
    from kafkalite.controller.controller import Controller
    from kafkalite.coordination.session import SessionKeeper
    from kafkalite.env.loop_times import LoopTimes
    from kafkalite.env.supervisor import Supervisor
    from kafkalite.extension.messages.watching import HealthProblem
    from kafkalite.http.overview import Overview
    from kafkalite.http.sampling import Sampled, Sampler
    from kafkalite.http.server import HttpServer
    from kafkalite.log.log_manager import LogManager
    from kafkalite.rpc.server import RpcServer
    from kafkalite.security.node_security import NodeSecurity


class ZooKeeper(Protocol):
    def away(self) -> str:
        """For people: how long ZooKeeper has not answered; empty if it does."""


class Health(Protocol):
    async def ask(self) -> tuple[HealthProblem, ...]:
        """What the node can see to be wrong."""


class ClockOffset(Protocol):
    """`ahead_s`: by how much the node's clock is ahead of ZooKeeper's."""

    ahead_s: float


class Counted(Sampled, Protocol):
    """What a scrape of metrics reads."""

    logs: LogManager
    controller: Controller
    session: SessionKeeper
    security: NodeSecurity | None
    rights: AclManager
    rpc: RpcServer
    http: HttpServer
    loop_times: LoopTimes
    sampler: Sampler

    @property
    def clock_check(self) -> ClockOffset: ...

    @property
    def health(self) -> Health: ...


class ObservedNode(Counted, Protocol):
    """What the pages read."""

    supervisor: Supervisor
    ready: asyncio.Event
    stopping: bool
    overview: Overview

    @property
    def config(self) -> BrokerConfig:
        """As it is now."""

    @property
    def zookeeper(self) -> ZooKeeper: ...
