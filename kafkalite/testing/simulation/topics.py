"""The topics of a plan: what each is created with."""

from __future__ import annotations

from kafkalite.extension.messages.topics import NewTopic
from kafkalite.testing.simulation.plan import KEYED, LETTERS, LONE, TRIMMED, Plan


def compacted(plan: Plan) -> tuple[str, ...]:
    """Topics whose replicas may differ in what they have compacted."""
    return (KEYED, TRIMMED) if plan.keyed else (KEYED,)


def new_topics(plan: Plan) -> list[NewTopic]:
    """What is to be created before the faults begin."""
    settings = dict(plan.topic_settings)
    return [
        NewTopic(name, count, plan.replicas_of(name), configs={**settings, **_own_settings(plan, name)})
        for name, count in plan.all_topics.items()
    ]


def settings_of(plan: Plan, topic: str) -> dict[str, str]:
    """What it was created with."""
    return dict(next(each.configs or {} for each in new_topics(plan) if each.topic == topic))


def _own_settings(plan: Plan, topic: str) -> dict[str, str]:
    if topic == LONE:
        return {"min.insync.replicas": "1"}
    if topic == LETTERS:
        return {"errors.deadletterqueue.group.enable": "true"}
    if topic not in compacted(plan):
        return {}
    settings = {
        "cleanup.policy": plan.keyed if topic == KEYED else "compact,delete",
        "segment.bytes": "2048",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "1000",
    }
    if topic == KEYED and "delete" in plan.keyed:
        settings["retention.bytes"] = "2048"
    return settings
