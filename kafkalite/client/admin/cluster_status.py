"""A StatusResponse as the status page, `kafkalite top` and programs read it: problems by kind, worst first. Pure."""

from __future__ import annotations

import dataclasses
from typing import Any

from kafkalite.extension.messages.watching import HealthProblem, StatusResponse
from kafkalite.model import BrokerId
from kafkalite.telemetry.advice import advice, severity

#: Maximum number of cases of one kind of problem that are listed individually.
MAX_CASES = 20


def problems_by_kind(answer: StatusResponse) -> list[dict[str, Any]]:
    """The problems that all brokers report; a problem that several report is listed once. Times are wall ms, 0 not known.

    Returns:
        One entry a kind: what, doing, do, since_ms (of the oldest case), total, cases (subject, detail, since_ms,
        broker_id: the reporting broker).
    """
    found: dict[str, dict[str, tuple[BrokerId, HealthProblem]]] = {}
    for broker in answer.brokers:
        problems = broker.problems
        if broker.error:
            gone = f"broker {broker.broker_id}: {broker.error}"
            problems = (*problems, HealthProblem("broker.unreachable", 0, gone, str(broker.broker_id)))
        for problem in problems:
            cases = found.setdefault(problem.what, {})
            case = problem.subject or f"{broker.broker_id}: {problem.detail}"
            if case not in cases or cases[case][1].since_ms > problem.since_ms:
                cases[case] = (broker.broker_id, problem)
    statuses: list[dict[str, Any]] = []
    for what in sorted(found, key=severity):
        rows = [{"broker_id": node, **dataclasses.asdict(problem)} for node, problem in found[what].values()]
        for row in rows:
            del row["what"]
        since = [row["since_ms"] for row in rows if row["since_ms"]]
        statuses.append(
            {
                "what": what,
                **dataclasses.asdict(advice(what)),
                "since_ms": min(since, default=0),
                "total": sum(row["count"] for row in rows),
                "cases": rows[:MAX_CASES],
            }
        )
    return statuses


def status_value(answer: StatusResponse) -> dict[str, Any]:
    """For programs."""
    value = dataclasses.asdict(answer)
    for each in value["brokers"]:
        del each["problems"]
    value["problems"] = problems_by_kind(answer)
    return value
