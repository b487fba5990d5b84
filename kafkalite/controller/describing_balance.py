"""The balance as the active controller sees it, and what its balancer would move: read-only."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from kafkalite.controller.decisions.balance_view import BalanceMove, Goals
from kafkalite.controller.decisions.balancer import BYTES, LEADERS, RATE, REPLICAS, Balancer
from kafkalite.controller.decisions.rebalancing import leaving_replicas, merged_moves, under_way, view_of
from kafkalite.controller.decisions.state import ControllerState
from kafkalite.controller.load_reports import BalancerConfig, LoadReports
from kafkalite.extension.messages.balancing import (
    BrokerBalance,
    DescribeBalanceRequest,
    DescribeBalanceResponse,
    PlannedMove,
    StuckReplica,
)
from kafkalite.model import BrokerId

#: Of one response.
MAX_MOVES = 1_000
MAX_STUCK = 100


async def describe_balance(
    request: DescribeBalanceRequest, state: ControllerState, reports: LoadReports, config: BalancerConfig
) -> DescribeBalanceResponse:
    """The plan is computed move by move, and other work goes on in between."""
    settings = config.settings
    if request.refresh or reports.age_s > 2 * config.interval_s:
        await reports.ask()
    event = reports.event(config)
    view = view_of(state, event)
    balancer = Balancer(view, Goals(settings.tolerance, settings.max_disk))
    is_even = not balancer.is_uneven(settings.tolerance) and not any(
        each in view.leaving for replicas in view.assignment.values() for each in replicas
    )
    rows = _brokers(state, reports, config, Balancer(view, Goals(settings.tolerance, settings.max_disk)))
    limit = max(0, min(request.moves, MAX_MOVES))
    found: list[BalanceMove] = []
    has_more = False
    if limit:
        for move in balancer.moves():
            found.append(move)
            if len({each.partition for each in found}) > limit:
                has_more = True
                found.pop()
                break
            await asyncio.sleep(0)
    moves = merged_moves(found, view.assignment)
    return DescribeBalanceResponse(
        mode=settings.mode,
        is_even=is_even,
        tolerance_percent=round(settings.tolerance * 100),
        under_way=sum(1 for _ in under_way(state)),
        age_ms=-1 if reports.age_s == float("inf") else int(reports.age_s * 1000),
        throttle=settings.throttle,
        max_moves=settings.max_moves,
        brokers=rows,
        moves=tuple(
            PlannedMove(
                *move.partition, view.assignment[move.partition], move.target, move.goal, move.reason, move.copied_bytes
            )
            for move in moves
        ),
        has_more=has_more,
        stuck=tuple(
            StuckReplica(*each, {**balancer.stuck, **state.stuck}[each])
            for each in sorted({**balancer.stuck, **state.stuck})[:MAX_STUCK]
        ),
    )


def _brokers(
    state: ControllerState, reports: LoadReports, config: BalancerConfig, balancer: Balancer
) -> tuple[BrokerBalance, ...]:
    closed: Mapping[BrokerId, str] = reports.event(config).closed
    missing = reports.missing_s()
    leaving = leaving_replicas(state)
    leads: dict[BrokerId, int] = {}
    for known in state.partitions.values():
        leads[known.leader] = leads.get(known.leader, 0) + 1
    held: dict[BrokerId, list[float]] = {broker: list(load) for broker, load in balancer.load.items()}
    for partition, replicas in balancer.assignment.items():
        for at, broker in enumerate(replicas):
            if broker not in balancer.load:  # not alive
                mine = held.setdefault(broker, [0.0] * 4)
                for dimension, value in enumerate(balancer.loads_of(partition, replicas, at)):
                    mine[dimension] += value
    rows: list[BrokerBalance] = []
    for broker in sorted({*held, *closed}):
        load, info, room = held.get(broker, [0.0] * 4), state.brokers.get(broker), reports.room.get(broker)
        rows.append(
            BrokerBalance(
                broker,
                closed.get(broker, "active"),
                (info.rack or "") if info is not None else "",
                int(load[REPLICAS]),
                int(load[LEADERS]),
                leads.get(broker, 0),
                int(load[BYTES]),
                int(load[RATE]),
                -1 if room is None else room.total_bytes,
                -1 if room is None else room.free_bytes,
                -1 if info is not None else int(missing.get(broker, 0)),
                leaving.get(broker, 0),
            )
        )
    return tuple(rows)
