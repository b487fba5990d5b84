"""A clock is set wrong in a running cluster: the cluster goes on, and the node whose clock it is says so."""

from __future__ import annotations

import dataclasses

from kafkalite.env.turns import at_once
from kafkalite.testing.simulation.plan import draw
from kafkalite.testing.simulation.run import Simulation


class Set(Simulation):
    """The clock of the second host is set forward by a day, and right again."""

    def wrong(self) -> list[str]:
        """The nodes that report their clock."""
        return [
            name
            for name, each in self.nodes.items()
            if any(problem.what == "clock.off" for problem in at_once(each.node.health.problems()))
        ]

    async def main(self) -> None:
        for name in self.nodes:
            self.start_node(name)
        await self.until(self.final.not_ready, 60.0, "all nodes start")
        clock = self.world.host("node2").clock
        clock.jump(86_400_000)
        await self.until(lambda: None if self.wrong() == ["node2"] else "not yet", 90.0, "the node says so")
        clock.jump(-86_400_000)
        await self.until(lambda: str(self.wrong()) if self.wrong() else None, 90.0, "all is well again")


def test_the_node_with_the_wrong_clock_says_so() -> None:
    result = Set(dataclasses.replace(draw(1, may_drain=False), nodes=3, faults=())).run()
    assert result.ok, "\n".join([*result.log[-30:], result.line()])
