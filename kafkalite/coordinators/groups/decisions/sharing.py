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
    """How many slots each member gets, and those that it has. The members that have most get the slots that are left over."""
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
    """A slot that is far from its member is swapped for one of a member nearby, if that one stays as near as it is.

    Each swap brings one slot nearer, so there is an end.
    """

    def is_far(slot: int) -> bool:
        rack = member_racks[owners[slot]]
        return bool(racks[slot]) and rack is not None and rack not in racks[slot]

    far = deque(slot for slot in range(len(owners)) if is_far(slot))
    yield
    if not far:
        return
    # (rack of the member that has it, rack where it may go) -> slots; where it may go "": it is far as well
    offers: dict[tuple[str | None, str], list[int]] = {}
    for slot, owner in enumerate(owners):
        for rack in ("", *sorted(racks[slot])) if is_far(slot) else sorted(racks[slot]):
            offers.setdefault((member_racks[owner], rack), []).append(slot)
        if not (slot + 1) % PIECE:
            yield
    count = 0
    while far:
        slot, count = far.popleft(), count + 1
        home = member_racks[owners[slot]]
        if is_far(slot) and home is not None:
            wanted = [(rack, there) for there in (home, "") for rack in sorted(racks[slot])]
            others = (_offer(offers.get(key, []), owners, member_racks, key[0]) for key in wanted)
            other = next((each for each in others if each is not None), None)
            if other is not None:
                owners[slot], owners[other] = owners[other], owners[slot]
                far.append(other)
        if not count % PIECE:
            yield


def _offer(slots: list[int], owners: Sequence[int], member_racks: Sequence[str | None], rack: str) -> int | None:
    """A slot that a member of this rack still has."""
    while slots:
        slot = slots.pop()
        if member_racks[owners[slot]] == rack:
            return slot
    return None
