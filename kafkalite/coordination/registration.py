"""What a node says about itself in ZooKeeper: the cluster's id, its registration, its blocks of producer ids."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import random
from collections.abc import Callable, Collection, Container, Sequence
from functools import partial

from kafkalite.coordination import paths
from kafkalite.coordination.broker_znodes import BrokerZnode, decode_broker, encode_broker
from kafkalite.coordination.cluster_znodes import (
    ProducerIdBlock,
    decode_cluster_id,
    decode_producer_id_block,
    encode_cluster_id,
    encode_producer_id_block,
)
from kafkalite.coordination.coordinator import (
    BadVersionError,
    Coordinator,
    CoordinatorError,
    Create,
    MultiFailedError,
    NodeExistsError,
    NoNodeError,
    NotSentError,
    OutcomeUnknownError,
    SessionExpiredError,
    SessionState,
    Stat,
    Watch,
)
from kafkalite.coordination.notifications import follow
from kafkalite.coordination.retry import retrying
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.errors import StartupRefused
from kafkalite.model import BrokerEpoch, BrokerId, BrokerInfo
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: In the place of a broker's number of starts: it is gone for good.
GONE = b"gone"
#: Producer ids in one block (Kafka's number).
PRODUCER_ID_BLOCK_SIZE = 1000
_LAST_PRODUCER_ID = 2**63 - 1
_DECOY_KEY_BYTES = 32

#: A dead owner's registration goes when its session does: within its timeout and a tick of the server. Its timeout
#: is taken to be ours.
_OWNER_PATIENCE = 1.25
_OWNER_PATIENCE_EXTRA_S = 2.0
#: While we wait for it, only time counts in which ZooKeeper is connected: it is looked at this many times.
_LOOKS = 16


def new_uuid(rng: random.Random) -> str:
    """A random UUID as Kafka writes it: URL-safe base64, 22 characters, no dash in front (a shell's option, KAFKA-16010)."""
    while True:
        number = rng.getrandbits(128) & ~(0xF << 76) | 4 << 76  # version 4
        number = number & ~(0x3 << 62) | 2 << 62  # the RFC's variant
        text = base64.urlsafe_b64encode(number.to_bytes(16, "big")).decode().rstrip("=")
        if not text.startswith("-"):
            return text


async def join_cluster(coordinator: Coordinator, propose: Callable[[], str]) -> str:
    """Make what a cluster has in ZooKeeper, the persistent parents of everything and its id, and return the id: one look if
    all of it is there, and one write if nothing is. Raises StartupRefused: the present value is not an id.
    """
    where = (*paths.PERSISTENT, paths.CLUSTER_ID)
    found = dict(zip(where, await retrying(lambda: coordinator.get_many(where)), strict=True))
    present = found.pop(paths.CLUSTER_ID)
    missing = [path for path, node in found.items() if node is None]
    if missing:
        mine = propose() if present is None else None
        # All or nothing: a node that dies meanwhile leaves no part of it.
        try:
            await coordinator.multi(
                [
                    *(Create(path) for path in missing),
                    *([] if mine is None else [Create(paths.CLUSTER_ID, encode_cluster_id(mine))]),
                ]
            )
        except (MultiFailedError, NotSentError, OutcomeUnknownError):  # another node is at it too, or it may be done
            for path in missing:
                await retrying(partial(coordinator.ensure_path, path))
        else:
            if mine is not None:
                return mine
    return await cluster_id(coordinator, propose) if present is None else _decoded_id(present[0])


async def cluster_id(coordinator: Coordinator, propose: Callable[[], str]) -> str:
    """The cluster's id; if there is none, what is proposed. Raises StartupRefused: the present value is not an id."""
    while True:
        try:
            data, _ = await retrying(lambda: coordinator.get(paths.CLUSTER_ID))
        except NoNodeError:
            mine = encode_cluster_id(propose())
        else:
            return _decoded_id(data)
        try:
            await retrying(lambda: coordinator.create(paths.CLUSTER_ID, mine))  # noqa: B023 - awaited here
        except NodeExistsError:
            continue  # whatever is there now is the id
        except NoNodeError:
            await retrying(lambda: coordinator.ensure_path(paths.parent(paths.CLUSTER_ID)))


def _decoded_id(data: bytes) -> str:
    try:
        return decode_cluster_id(data)
    except ZnodeError as error:
        raise StartupRefused(f"{error}: this does not say which cluster it is; put the right id there") from None


async def decoy_key(coordinator: Coordinator, entropy: Callable[[int], bytes]) -> bytes:
    """The cluster's secret for decoys of users, created by the first node that asks for logins."""
    while True:
        try:
            data, _ = await retrying(lambda: coordinator.get(paths.DECOY_KEY))
            if len(data) >= _DECOY_KEY_BYTES:
                return data
            await retrying(lambda: coordinator.set(paths.DECOY_KEY, entropy(_DECOY_KEY_BYTES)))
        except NoNodeError:
            await retrying(lambda: coordinator.ensure_path(paths.parent(paths.DECOY_KEY)))
            with contextlib.suppress(NodeExistsError):
                await retrying(lambda: coordinator.create(paths.DECOY_KEY, entropy(_DECOY_KEY_BYTES)))


async def register_broker(
    coordinator: Coordinator,
    broker_id: BrokerId,
    broker: BrokerZnode,
    *,
    session_timeout_ms: int,
    dead_sessions: Container[int] = (),
) -> BrokerEpoch:
    """Create /brokers/ids/N for this session and return its czxid.

    Args:
        session_timeout_ms: how long a registration of a dead process can stay, unless ZooKeeper grants longer sessions.
        dead_sessions: sessions that are surely nobody's any more (our own earlier ones, read from a data
            directory whose lock we hold): their registration is removed at once instead of waited for.
    Raises:
        StartupRefused: another live process holds the id.
    """
    path = paths.broker(broker_id)
    data = encode_broker(broker)
    longest_s = max(session_timeout_ms / 1000, coordinator.timeout_s)
    patience = longest_s * _OWNER_PATIENCE + _OWNER_PATIENCE_EXTRA_S
    while True:
        # No limit of time: while ZooKeeper cannot be reached, nothing shows that anybody else has the id.
        stat = await _claim(coordinator, path, data)
        if stat.ephemeral_owner == coordinator.session_id:
            return BrokerEpoch(stat.czxid)
        if stat.ephemeral_owner in dead_sessions or stat.ephemeral_owner == 0:
            _log.info("registration.removed_stale", path=path, owner=f"{stat.ephemeral_owner:x}")
            await _remove(coordinator, path, stat.version)
            continue
        _log.info("registration.waiting_for_owner", path=path, owner=f"{stat.ephemeral_owner:x}")
        if not await _gone(coordinator, path, stat.czxid, patience):
            owner = await _describe_owner(coordinator, path)
            raise StartupRefused(
                f"broker id {broker_id} is in use{owner}: it was still registered in ZooKeeper after {patience:.1f} s"
            )


async def starts(coordinator: Coordinator, broker_id: BrokerId) -> int:
    """How often the broker has started and registered, or stopped in order; 0 if that is not known. Raises the seam's errors."""
    [found] = await retrying(lambda: coordinator.get_many([paths.broker_starts(broker_id)]))
    text = b"" if found is None else found[0]
    return int(text) if text.isdigit() and len(text) < 20 else 0


async def record_starts(coordinator: Coordinator, broker_id: BrokerId, number: int) -> None:
    """Its directories have this number already. Safe to repeat. Raises the seam's errors."""
    path = paths.broker_starts(broker_id)
    data = b"%d" % number
    is_there = number > 1  # as a rule; each of the two attempts shows if it is not so
    while True:
        try:
            if is_there:
                await retrying(lambda: coordinator.set(path, data))
            else:
                await retrying(lambda: coordinator.create(path, data))
        except NodeExistsError:  # also if it is ours, of an attempt without answer
            is_there = True
        except NoNodeError:
            if not is_there:
                await retrying(lambda: coordinator.ensure_path(paths.parent(path)))
            is_there = False
        else:
            return


async def unknown_brokers(coordinator: Coordinator, broker_ids: Collection[BrokerId]) -> list[BrokerId]:
    """Those that have never started, for ZooKeeper. Raises the seam's errors."""
    ids = sorted(broker_ids)
    where = [paths.broker_starts(each) for each in ids]
    found = await retrying(lambda: coordinator.get_many(where)) if where else []
    return [each for each, node in zip(ids, found, strict=True) if node is None]


async def remember_brokers(coordinator: Coordinator, broker_ids: Sequence[BrokerId]) -> None:
    """These unknown brokers have started once: ZooKeeper may have been put back from a time before that. Raises the seam's errors."""
    for path in map(paths.broker_starts, broker_ids):
        _log.warning("registration.broker_remembered", path=path)
        await retrying(partial(coordinator.ensure_path, path))


async def forget_starts(coordinator: Coordinator, broker_id: BrokerId) -> bool:
    """The broker is gone for good: nothing waits for it any more, even if nodes remember it. False if it has never started. Raises the seam's errors."""
    path = paths.broker_starts(broker_id)
    try:
        data, _ = await retrying(lambda: coordinator.get(path))
        if data == GONE:
            return False
        await retrying(lambda: coordinator.set(path, GONE))
    except NoNodeError:
        return False
    return True


async def change_registration(
    coordinator: Coordinator, broker_id: BrokerId, change: Callable[[BrokerZnode], BrokerZnode]
) -> bool:
    """Change this session's registration; False if it is not this session's, or stays as it is.

    Raises ZnodeError and the seam's errors.
    """
    path = paths.broker(broker_id)
    while True:
        try:
            data, stat = await retrying(lambda: coordinator.get(path))
            if stat.ephemeral_owner != coordinator.session_id:
                return False
            before = decode_broker(data, path)
            after = change(before)
            if after == before:
                return False
            await coordinator.set(path, encode_broker(after), stat.version)
        except NoNodeError:
            return False
        except (BadVersionError, NotSentError, OutcomeUnknownError):
            continue
        return True


async def _claim(coordinator: Coordinator, path: str, data: bytes) -> Stat:
    """The stat of the znode at `path`: ours if we could create it, or have before without learning of it."""
    while True:
        try:
            # Repeating is safe: our own znode of an attempt without answer has our session as its owner.
            _, stat = await retrying(lambda: coordinator.create(path, data, ephemeral=True))
            return stat
        except NodeExistsError:
            found = await retrying(lambda: coordinator.exists(path))
            if found is not None:
                return found
        except NoNodeError:
            await retrying(lambda: coordinator.ensure_path(paths.parent(path)))


async def _remove(coordinator: Coordinator, path: str, version: int) -> None:
    try:
        await retrying(lambda: coordinator.delete(path, version))
    except (NoNodeError, BadVersionError):
        return  # looked at again by the caller


async def _gone(coordinator: Coordinator, path: str, czxid: int, patience: float) -> bool:
    """Wait until the znode created at `czxid` is there no more; False: it was there for `patience` seconds of a connection.

    Raises SessionExpiredError.
    """
    connected = 0
    while True:
        changed = asyncio.Event()
        stat = await retrying(partial(coordinator.exists, path, changed.set))
        if stat is None or stat.czxid != czxid:
            return True
        if connected >= _LOOKS:
            return False
        while not changed.is_set() and connected < _LOOKS:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience / _LOOKS):
                    await changed.wait()
            if coordinator.state is SessionState.EXPIRED:  # which fires no watch
                raise SessionExpiredError("expired")
            # A ZooKeeper that comes back gives every session its whole time again.
            connected = connected + 1 if coordinator.state is SessionState.CONNECTED else 0


async def _describe_owner(coordinator: Coordinator, path: str) -> str:
    try:
        data, _ = await coordinator.get(path)
        owner = decode_broker(data, path)
    except (CoordinatorError, ZnodeError):
        return ""
    return f" by {owner.rpc or owner.host}"


async def until_spoilt(coordinator: Coordinator, broker_id: BrokerId) -> str:
    """Wait until our registration cannot be used any more, and say why; "" when the session is over.

    Nothing of ours removes or overwrites it during the session; nobody would find this node again.
    """
    path = paths.broker(broker_id)
    reason = ""

    async def check(changed: Watch) -> None:
        nonlocal reason
        try:
            data, stat = await retrying(lambda: coordinator.get(path, changed))
            if stat.ephemeral_owner != coordinator.session_id:
                reason = f"{path} is not this session's"
            decode_broker(data, path).info(broker_id, BrokerEpoch(stat.czxid))
        except NoNodeError:
            reason = f"{path} was removed"
        except ZnodeError as error:
            reason = str(error)
        if reason:
            changed()

    await follow(coordinator, check, until=lambda: bool(reason))
    return "" if coordinator.state is SessionState.EXPIRED else reason


def registered_brokers(
    ids: Sequence[BrokerId], found: Sequence[tuple[bytes, Stat] | None]
) -> tuple[dict[BrokerId, BrokerInfo], dict[str, str]]:
    """The brokers by id, and path -> reason for registrations that cannot be used.

    Args:
        found: the registration of each; None if it is gone since the names were read.
    """
    brokers: dict[BrokerId, BrokerInfo] = {}
    malformed: dict[str, str] = {}
    for broker_id, each in zip(ids, found, strict=True):
        if each is None:
            continue
        data, stat = each
        path = paths.broker(broker_id)
        try:
            brokers[broker_id] = decode_broker(data, path).info(broker_id, BrokerEpoch(stat.czxid))
        except ZnodeError as error:
            malformed[path] = error.reason
    return brokers, malformed


async def allocate_producer_ids(coordinator: Coordinator, broker_id: BrokerId, now_ms: int) -> ProducerIdBlock:
    """A block of producer ids that nobody else has. A block whose write has an unknown outcome is given up.

    `now_ms`: of the wall clock. Ids are not below it: after ZooKeeper was put back from a copy, those that were given out since the copy was made
    would be given out again. Partitions remember the last batches of their producers, and would take those of a new one for repetitions (ADR 74).

    Raises ZnodeError (what is there cannot be read, or no ids are left) and the seam's errors.
    """
    path = paths.LATEST_PRODUCER_ID_BLOCK
    while True:
        try:
            data, stat = await retrying(lambda: coordinator.get(path))
        except NoNodeError:
            after, version = 0, None
        else:
            after, version = decode_producer_id_block(data).last + 1, stat.version
        first = max(after, now_ms * PRODUCER_ID_BLOCK_SIZE)
        last = first + PRODUCER_ID_BLOCK_SIZE - 1
        if last > _LAST_PRODUCER_ID:
            raise ZnodeError(path, "no producer ids are left")
        block = ProducerIdBlock(broker_id, first, last)
        try:
            if version is None:
                await coordinator.create(path, encode_producer_id_block(block))
            else:
                await coordinator.set(path, encode_producer_id_block(block), version)
        except (BadVersionError, NodeExistsError, NoNodeError, OutcomeUnknownError):
            continue
        return block
