"""Each test of the contract runs on a real ZooKeeper and on the simulated one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kafkalite.coordination.coordinator import Coordinator
from tests.contract.rigs import RealRig, Rig, SimRig
from tests.zk import ZooKeeperForTests
from tests.zk_proxy import FaultProxy


@pytest.fixture(params=["real", "sim"])
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    if request.param == "sim":
        simulated = SimRig()
        yield simulated
        await simulated.close()
        return
    server: ZooKeeperForTests = request.getfixturevalue("zookeeper")
    async with FaultProxy(server.port) as proxy:
        real = RealRig(server, proxy)
        yield real
        await real.close()


@pytest.fixture
async def zk(rig: Rig) -> Coordinator:
    return await rig.connect()
