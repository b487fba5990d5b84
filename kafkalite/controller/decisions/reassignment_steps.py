"""A reassignment in small steps (KIP-435): which replicas a partition has after the next one. Pure.

Names as in the KIP: FTR final target replicas, CR current replicas, NR new, DR dropped, TR target of this step. The
inputs are always FTR and what is in ZooKeeper now, so that a new controller goes on where the old one stopped.

The KIP's own formula is repaired (invariants C14 to C16): it computes a number that it never uses, and taken literally
grows the replica list for good. Here a step never leaves fewer replicas than min(|CR|, |FTR|), and while the
ISR is below min.insync.replicas it adds what is missing, if that is alive, even over the cap, and drops nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kafkalite.controller.decisions.events import UNLIMITED
from kafkalite.model import BrokerId, Replicas


def next_step(
    final: Sequence[BrokerId],
    current: Sequence[BrokerId],
    isr: Collection[BrokerId],
    live: Collection[BrokerId],
    *,
    max_replicas: int,
    min_insync_replicas: int,
    most_replicas: int | None = None,
) -> Replicas:
    """The replicas (TR) of the next step.

    Args:
        final: FTR, in the order that is to hold in the end; the first is the preferred leader.
        current: CR, in order.
        isr: the present ISR. The caller waits until it contains the replicas that were added before (invariant C16).
        live: brokers that can be added now.
        max_replicas: R, reassignment.parallel.replica.count >= 1: how many are added, and how many dropped, at once. UNLIMITED: the
            whole move is one step, as before the KIP.
        most_replicas: where a request replaces another whose replicas are still there, these go before more come. What the ISR
            lacks of min.insync.replicas comes on top of it, but once only: each of many requests would add its own.
    Returns:
        TR; equal to `current` while the step must wait (targets offline); equal to `final` in the last step.
    """
    assert final, "a partition has at least one replica"
    assert len(set(final)) == len(final), f"a broker twice in {final}"
    assert max_replicas >= 1, max_replicas
    addable = [replica for replica in final if replica not in current and replica in live]
    missing_in_sync = max(0, min_insync_replicas - sum(replica in live for replica in isr))
    room = UNLIMITED if most_replicas is None else max(0, most_replicas + missing_in_sync - len(current))
    addable = addable[:room]
    if addable and addable[0] == final[0] and max_replicas < UNLIMITED:
        # The preferred leader comes first and alone, so that leadership moves once; nobody goes yet.
        new = addable[: max(1, missing_in_sync)]
        return (new[0], *current, *new[1:])
    if addable and missing_in_sync:
        return _ordered(final, [*current, *addable[:missing_in_sync]])
    # A replica that is not in sync costs nothing to drop; but where too few are in sync and no more may come, one that is alive catches up.
    may_go = [replica for replica in current if room or not missing_in_sync or replica not in live]
    leaving = sorted(
        (replica for replica in may_go if replica not in final), key=lambda each: each in isr and each in live
    )
    drop = min(max_replicas, len(leaving))
    add = min(max_replicas, len(addable), max(0, len(final) - (len(current) - drop)))
    # Where too few can be added, fewer go: a step must not cost redundancy.
    drop = min(drop, len(current) + add - min(len(current), len(final)))
    gone = set(leaving[:drop])
    kept = [replica for replica in current if replica not in gone]
    if not drop and not add and set(kept) != set(final):
        return tuple(current)
    return _ordered(final, [*kept, *addable[:add]])


def _ordered(final: Sequence[BrokerId], replicas: Sequence[BrokerId]) -> Replicas:
    """Members of FTR in its order, then the others in theirs."""
    return (
        *(replica for replica in final if replica in replicas),
        *(replica for replica in replicas if replica not in final),
    )
