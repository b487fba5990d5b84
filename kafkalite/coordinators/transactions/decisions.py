"""The decision over a group of transactions (`kafkalite.extension.transaction_groups`): who may make it, what follows. Pure.

A decision names its owner (a query) and a version (its batch). It goes into `__transaction_state` in one record batch
with the prepared commit of every transaction that it names, so there is no moment at which one is decided and another
may still time out. What the group has open besides (attempts that failed, speculative twins, what a dead driver left)
is aborted in the same batch. A version that is decided stays decided: only the same owner's later versions, or another
owner, are decided after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafkalite.coordinators.transactions import state as rules
from kafkalite.coordinators.transactions.state import Transaction, TransactionState
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.extension.messages.transactions import TransactionMember
from kafkalite.lazy_dataclass import dataclass
from kafkalite.protocol import wire
from kafkalite.protocol.codec import decode, encode
from kafkalite.protocol.errors import WireError

#: The latest decisions of one partition, which are kept whatever their age.
KEPT = 1_000
#: Kafka's own keys in this topic begin with version 0.
KEY_VERSION = 0x4B4C
_VALUE_VERSION = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """The last decision of a group."""

    group: str
    owner: str
    version: int
    updated_ms: int


def covers(known: Decision | None, owner: str, version: int) -> bool:
    """Whether this version of this owner is decided."""
    return known is not None and known.owner == owner and known.version >= version


def commit_group(known: Mapping[str, Transaction], members: Iterable[TransactionMember], now: int) -> list[Transaction]:
    """The states in which a commit of exactly `members` leaves the group `known`; those that stay are left out.

    Raises:
        ApiError: a member was fenced, timed out or never opened: then nothing may be committed. The message says which.
    """
    changed: dict[str, Transaction] = {}
    for member in members:
        current = known.get(member.transactional_id)
        try:
            target = rules.end(current, member.producer_id, member.producer_epoch, now, is_commit=True)
        except ApiError as error:
            raise api_error(error.code, f"{member.transactional_id}: {_why(current, member, error)}") from None
        if target is current:
            raise api_error(ErrorCode.INVALID_TXN_STATE, f"{member.transactional_id} has ended without a decision")
        changed[member.transactional_id] = target
    for transactional_id, transaction in sorted(known.items()):
        # an attempt that has not written yet would open its transaction after the decision: readers would wait for its timeout
        if transactional_id not in changed and transaction.state in (TransactionState.ONGOING, TransactionState.EMPTY):
            changed[transactional_id] = rules.fence(transaction, now)
    return list(changed.values())


def abort_members(
    known: Mapping[str, Transaction], members: Iterable[TransactionMember], now: int
) -> list[Transaction]:
    """The states after an abort of those of `members` that are still open as they were; the others are left alone.

    Aborted under a new epoch: what is still on its way from the old producer is refused everywhere.
    """
    changed: dict[str, Transaction] = {}
    for member in members:
        current = known.get(member.transactional_id)
        if current is None or current.state is not TransactionState.ONGOING:
            continue
        if (current.producer_id, current.producer_epoch) == (member.producer_id, member.producer_epoch):
            changed[member.transactional_id] = rules.fence(current, now)
    return list(changed.values())


def expired(known: Iterable[Decision], limit_ms: int) -> list[Decision]:
    """The decisions that are forgotten: made before `limit_ms`, and not among the latest `KEPT`.

    A query that was stopped between the decision over its last batch and its own record of it (a checkpoint) asks for the
    decision when it is started again, possibly weeks later. By age alone it would be removed.
    """
    latest_first = sorted(known, key=lambda decision: (decision.updated_ms, decision.group), reverse=True)
    return [decision for decision in latest_first[KEPT:] if decision.updated_ms <= limit_ms]


def _why(current: Transaction | None, member: TransactionMember, error: ApiError) -> str:
    if current is None:
        return "unknown transaction"
    if error.code is ErrorCode.PRODUCER_FENCED:
        return (
            f"the transaction was aborted (epoch {member.producer_epoch}, now {current.producer_epoch}): it took longer than "
            "its timeout, or another attempt has taken its place"
        )
    return f"{error.code.name} in state {current.state.wire_name}"


# --- in the log ----------------------------------------------------------------------------------


def is_decision(key: bytes | None) -> bool:
    return key is not None and key[:2] == KEY_VERSION.to_bytes(2)


def key_of(group: str) -> bytes:
    return KEY_VERSION.to_bytes(2) + encode(wire.TransactionGroupKey(group), 0)


def value_of(decision: Decision) -> bytes:
    stored = wire.TransactionGroupValue(decision.owner, decision.version, decision.updated_ms)
    return _VALUE_VERSION.to_bytes(2) + encode(stored, _VALUE_VERSION)


def parse(key: bytes, value: bytes | None) -> tuple[str, Decision | None]:
    """A decision's record; None for a tombstone. Raises WireError."""
    group: str = decode(wire.TransactionGroupKey, 0, key[2:]).group
    if value is None:
        return group, None
    if value[:2] != _VALUE_VERSION.to_bytes(2):
        raise WireError("a decision of another version in __transaction_state")
    stored = decode(wire.TransactionGroupValue, _VALUE_VERSION, value[2:])
    return group, Decision(group, stored.owner, stored.version, stored.updated_ms)
