"""Transaction groups: transactions that one decision commits together. What their ids look like, for both sides.

All transactional ids of a group belong to one partition of `__transaction_state`, that of the group's name: so one
record batch can hold the decision and every transaction's prepared commit, and is in the log as a whole or not at all.
"""

from __future__ import annotations

_PREFIX = "txn-group:"


def transactional_id(group: str, member: str) -> str:
    """The id of one transaction of `group`. `member` has no colon; the group may have."""
    if ":" in member:
        raise ValueError(f"a colon in {member!r}")
    return f"{_PREFIX}{group}:{member}"


def group_of(transactional_id: str) -> str | None:
    """The group of a transactional id; None: it is one of its own, as Kafka's clients have them."""
    if not transactional_id.startswith(_PREFIX):
        return None
    group, colon, _ = transactional_id.removeprefix(_PREFIX).rpartition(":")
    return group if colon else None


def coordinator_key(transactional_id: str) -> str:
    """What decides who coordinates a transactional id."""
    group = group_of(transactional_id)
    return transactional_id if group is None else group
