"""Shares slots out among members that may all have any: evenly, then near, then with few moves. Pure.

A slot is a partition, or the partitions of one number of several topics that are kept together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence

from kafkalite.coordinators.groups.decisions.assignment import PIECE

NOBODY = -1


def share_out(
    owners: list[int], member_racks: Sequence[str | None], racks: Sequence[frozenset[str]], *, in_blocks: bool
) -> Generator[None, None, list[int]]:
    """Each slot's member: no member has two slots more than another one.

    Args:
        owners: each slot's member so far, or NOBODY. It is changed.
        member_racks: of each member its rack; None: it has none.
        racks: of each slot those where it can be read nearby; empty: racks do not matter.
        in_blocks: a member gets slots that follow each other, rather than every n-th one.
    """
    quotas, held = _quotas(owners, len(member_racks))
    yield
    matters = bool(racks) and any(member_racks)

    def is_near(slot: int, member: int) -> bool:
        return not matters or member_racks[member] in racks[slot]

    for member, slots in enumerate(held):
        if len(slots) > quotas[member]:
            slots.sort(key=lambda slot: (not is_near(slot, member), slot))
            for slot in slots[quotas[member] :]:
                owners[slot] = NOBODY
        quotas[member] -= min(len(slots), quotas[member])
        if not (member + 1) % PIECE:
            yield
    if matters:
        yield from _near(owners, quotas, member_racks, racks)
    yield from _rest(owners, quotas, in_blocks=in_blocks)
    if matters:
        yield from _swapped(owners, member_racks, racks)
    return owners


def _quotas(owners: Sequence[int], members: int) -> tuple[list[int], list[list[int]]]:
    """How many slots each member gets, and those that it has. Those who have most get the ones that are left over."""
    held: list[list[int]] = [[] for _ in range(members)]
    for slot, owner in enumerate(owners):
        if owner != NOBODY:
            held[owner].append(slot)
    each, more = divmod(len(owners), members)
    quotas = [each] * members
    for member in sorted(range(members), key=lambda member: (-len(held[member]), member))[:more]:
        quotas[member] += 1
    return quotas, held


def _near(
    owners: list[int], quotas: list[int], member_racks: Sequence[str | None], racks: Sequence[frozenset[str]]
) -> Generator[None, None, None]:
    """Slots that nobody has go to members of their racks, as far as those have room."""
    waiting: dict[str, deque[int]] = {}
    for member, rack in enumerate(member_racks):
        if rack is not None and quotas[member]:
            waiting.setdefault(rack, deque()).append(member)
    for slot, owner in enumerate(owners):
        if owner == NOBODY:
            # The rack with most room first: the others may be all that other slots have.
            best = max(
                (rack for rack in sorted(racks[slot]) if waiting.get(rack)),
                key=lambda rack: len(waiting[rack]),
                default=None,
            )
            if best is not None:
                _give(owners, slot, waiting[best], quotas)
        if not (slot + 1) % PIECE:
            yield


def _rest(owners: list[int], quotas: list[int], *, in_blocks: bool) -> Generator[None, None, None]:
    waiting = deque(member for member, quota in enumerate(quotas) if quota)
    for slot, owner in enumerate(owners):
        if owner == NOBODY:
            _give(owners, slot, waiting, quotas, in_blocks=in_blocks)
        if not (slot + 1) % PIECE:
            yield


def _give(owners: list[int], slot: int, waiting: deque[int], quotas: list[int], *, in_blocks: bool = False) -> None:
    member = owners[slot] = waiting[0]
    quotas[member] -= 1
    if not quotas[member]:
        waiting.popleft()
    elif not in_blocks:
        waiting.rotate(-1)


def _swapped(
    owners: list[int], member_racks: Sequence[str | None], racks: Sequence[frozenset[str]]
) -> Generator[None, None, None]:
    """Two members swap slots if one comes nearer and the other one stays near, or comes nearer, too."""
    far = [
        slot
        for slot, owner in enumerate(owners)
        if racks[slot] and member_racks[owner] is not None and member_racks[owner] not in racks[slot]
    ]
    yield
    if not far:
        return
    # (rack of the member that has it, rack where it may go) -> slots
    offers: dict[tuple[str | None, str], list[int]] = {}
    for slot, owner in enumerate(owners):
        for rack in sorted(racks[slot]):
            offers.setdefault((member_racks[owner], rack), []).append(slot)
        if not (slot + 1) % PIECE:
            yield
    for count, slot in enumerate(far):
        home = member_racks[owners[slot]]
        assert home is not None
        if home in racks[slot]:
            continue  # it was swapped already
        for rack in sorted(racks[slot]):
            other = _offer(offers.get((rack, home), []), owners, member_racks, rack)
            if other is not None:
                owners[slot], owners[other] = owners[other], owners[slot]
                break
        if not (count + 1) % PIECE:
            yield


def _offer(slots: list[int], owners: Sequence[int], member_racks: Sequence[str | None], rack: str) -> int | None:
    """A slot that a member of this rack still has."""
    while slots:
        slot = slots.pop()
        if member_racks[owners[slot]] == rack:
            return slot
    return None
