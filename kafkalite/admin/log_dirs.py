"""What people may ask of this node's disks (`admin disk …`): how they are, and to take one into service again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kafkalite.admin.disk_healing import ReplicaSelfHealing
from kafkalite.env.seams import Disk
from kafkalite.env.turns import with_pauses
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.extension.messages.disks import (
    AlterStrayRequest,
    AlterStrayResponse,
    DescribeDisksRequest,
    DescribeDisksResponse,
    DiskDescription,
    DiskMove,
    DiskMoveResult,
    DiskOnlineRequest,
    DiskOnlineResponse,
    MoveReplicasRequest,
    MoveReplicasResponse,
    StrayDescription,
)
from kafkalite.log.log_dir import LogDir
from kafkalite.log.log_manager import LogManager
from kafkalite.log.moving import LogDirMove
from kafkalite.model import TopicPartition
from kafkalite.replica.replica_manager import ReplicaManager
from kafkalite.rpc.local_broker import LocalBroker

#: Strays in one response.
_MAX_STRAYS = 1_000


class LogDirAdmin:
    """Answers the RPC requests about disks."""

    def __init__(
        self,
        logs: LogManager,
        disk: Disk,
        care: ReplicaSelfHealing,
        replicas: ReplicaManager,
        *,
        local: LocalBroker,
        topic_configs: Callable[[], Mapping[str, Mapping[str, str]]],
    ) -> None:
        self._logs = logs
        self._disk = disk
        self._care = care
        self._replicas = replicas
        self._local = local
        self._topic_configs = topic_configs

    async def describe(self, request: DescribeDisksRequest) -> DescribeDisksResponse:
        """All log directories of this node, as configured."""
        sizes: dict[str, int] = {}
        async for log in with_pauses(list(self._logs.pool.logs.values())):
            sizes[log.directory] = sizes.get(log.directory, 0) + log.size_bytes
        lost: dict[str, int] = {}
        for directory in self._logs.pool.offline_partitions.values():
            lost[directory] = lost.get(directory, 0) + 1
        disks = [
            self._one(log_dir, sizes.get(log_dir.path, 0), lost.get(log_dir.path, 0))
            for log_dir in self._logs.pool.dirs.values()
        ]
        moves = tuple(_described(move) for move in self._logs.moves.all())
        strays = tuple(
            StrayDescription(
                stray.path, *stray.topic_partition, stray.size_bytes, stray.since_ms,
                stray.is_requested or self._replicas.is_elsewhere(stray),
            )
            for stray in self._logs.removals.strays()[:_MAX_STRAYS]
        )  # fmt: skip
        return DescribeDisksResponse(self._local.broker_id, tuple(disks), moves, strays)

    def _one(self, log_dir: LogDir, size_bytes: int, lost: int) -> DiskDescription:
        total = free = -1
        if log_dir.online:  # a dead disk is not asked: it may never answer
            try:
                total, free = self._disk.total_bytes(log_dir.path), self._disk.free_bytes(log_dir.path)
            except OSError:
                total = free = -1
        state = "offline" if not log_dir.online else "full" if log_dir.is_full else "online"
        strays = [stray.size_bytes for stray in self._logs.removals.strays() if stray.directory == log_dir.path]
        return DiskDescription(
            path=log_dir.path,
            state=state,
            total_bytes=total,
            free_bytes=free,
            partitions=log_dir.log_count,
            size_bytes=size_bytes,
            since_ms=log_dir.offline_since_ms,
            reason=log_dir.offline_reason if log_dir.online else log_dir.describe_offline(),
            failures=len(log_dir.failures.at),
            offline_replicas=lost,
            strays=len(strays),
            stray_bytes=sum(strays),
            is_cordoned=log_dir.path in self._logs.pool.cordoned,
        )

    async def online(self, request: DiskOnlineRequest) -> DiskOnlineResponse:
        """Take a directory into service again; its replicas follow without a request."""
        try:
            found = await self._bring_online(request.path)
        except ApiError as error:
            return DiskOnlineResponse(error.code, str(error))
        return DiskOnlineResponse(ErrorCode.NONE, logs=found)

    async def take_back(self, path: str) -> str:
        """The same for a disk that was full and has room again; returns the reason if it failed, else ""."""
        try:
            await self._bring_online(path)
        except ApiError as error:
            return str(error)
        return ""

    async def _bring_online(self, path: str) -> int:
        found = await self._logs.opening.bring_online(
            path, self._local.cluster_id, self._local.broker_id, self._topic_configs()
        )
        self._care.disk_is_back()
        return found

    async def alter_stray(self, request: AlterStrayRequest) -> AlterStrayResponse:
        """Remove a directory that was set aside, or let it be the log of an offline replica again."""
        stray = next((each for each in self._logs.removals.strays() if each.path == request.path), None)
        if stray is None:
            return AlterStrayResponse(
                ErrorCode.INVALID_REQUEST,
                f"{request.path} was not set aside by this node: `kafkalite admin disk strays list` shows what was",
            )
        if request.action == "remove":
            self._logs.removals.remove_stray(stray)
            return AlterStrayResponse(ErrorCode.NONE)
        if request.action != "restore":
            return AlterStrayResponse(ErrorCode.INVALID_REQUEST, f"{request.action!r}: neither remove nor restore")
        partition = self._replicas.replica_of(stray)
        if partition is None:
            text = f"this node has no replica of the partition to which {request.path} belonged"
            return AlterStrayResponse(ErrorCode.REPLICA_NOT_AVAILABLE, text)
        refusal = self._replicas.offline_replicas.restore_refusal(partition)
        if refusal:
            return AlterStrayResponse(ErrorCode.INVALID_REQUEST, refusal)
        try:
            await self._logs.failures.restore(stray, partition.topic_partition, partition.config)
        except ApiError as error:
            return AlterStrayResponse(error.code, str(error))
        self._care.schedule()
        return AlterStrayResponse(ErrorCode.NONE)

    async def move(self, request: MoveReplicasRequest) -> MoveReplicasResponse:
        """Begin to move replicas between disks; see kafkalite.log.moving."""
        results = []
        for wanted in request.moves:
            key = TopicPartition(wanted.topic, wanted.partition)
            error, message = self._begin(key, wanted.directory, wanted.throttle)
            results.append(DiskMoveResult(wanted.topic, wanted.partition, error, message))
        return MoveReplicasResponse(tuple(results))

    async def alter_replica_log_dirs(
        self, moves: Mapping[str, Sequence[TopicPartition]]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """The same for the Kafka protocol: directory -> partitions. A partition named twice goes to the last one."""
        return {key: self._begin(key, path, 0)[0] for path, keys in moves.items() for key in keys}

    def _begin(self, key: TopicPartition, directory: str, throttle: int) -> tuple[ErrorCode, str]:
        offline = self._logs.pool.offline_partitions.get(key)
        try:
            path = self._logs.pool.named(directory).path
            if offline is not None:
                return ErrorCode.KAFKA_STORAGE_ERROR, f"{key} is offline: it was on {offline}"
            if path in self._logs.pool.cordoned:
                return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{path} is cordoned (cordoned.log.dirs)"
            self._logs.moves.start(key, path, throttle)
        except ApiError as error:
            return error.code, str(error)
        return ErrorCode.NONE, ""


def _described(move: LogDirMove) -> DiskMove:
    topic, number = move.topic_partition
    size = move.ended_bytes if move.is_over else move.source.size_bytes
    copied = 0 if move.future is None else move.copied_bytes
    return DiskMove(
        topic,
        number,
        move.source.directory,
        move.target,
        move.state,
        copied,
        max(size, copied),
        0 if move.is_over else move.lag,
        move.throttle,
        move.reason,
    )
