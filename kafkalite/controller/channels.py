"""Commands to brokers: per broker one bounded queue and one sender, so that a hung broker delays no other (controller design, optimization 1).

A command is sent again and again, over a new connection each time, until the broker answers or its registration
goes; also if the broker answers that it does not know that registration (yet). That is safe because of the epochs in it, and because a broker refuses what comes over an earlier connection than the
latest (kafkalite.replica.rpc_handlers). No answer within `controller.socket.timeout.ms` raises an alert.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import field

from kafkalite.config import BrokerConfig
from kafkalite.controller.decisions.effects import Command
from kafkalite.controller.decisions.events import (
    Event,
    InitialisationDue,
    ReplicasDoubtful,
    ReplicasFailed,
    ReplicasStopped,
)
from kafkalite.controller.decisions.queueing import enqueue
from kafkalite.controller.decisions.refusals import Refusals
from kafkalite.controller.stats import ControllerStats
from kafkalite.env.seams import Env
from kafkalite.env.supervisor import Supervisor
from kafkalite.errors import ApiError, ErrorCode, error_code
from kafkalite.extension.messages.watching import HealthProblem
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerEpoch, BrokerId, BrokerInfo, ControllerEpoch, LeaderAndIsr, TopicPartition
from kafkalite.rpc.answers import RpcError
from kafkalite.rpc.client import RpcConnection
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.messages.connection import HelloRequest
from kafkalite.rpc.messages.control import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataResponse,
)
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

BACKOFF_MIN_S = 0.02
BACKOFF_MAX_S = 1.0
#: How long a sender that may not send (the session's lease has run out) waits before it looks again.
FENCED_POLL_S = 0.1


@dataclass(slots=True)
class _Channel:
    broker: BrokerInfo
    refusals: Refusals
    queue: list[Command] = field(default_factory=list)
    #: How many commands were offered, and how many of those are known to have been answered.
    offered: int = 0
    settled: int = 0
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    connection: RpcConnection | None = None
    #: Since when (monotonic seconds) a command has been unanswered; None: nothing is under way.
    unanswered_since: float | None = None
    alerted: bool = False


class Channels:
    """The channels of one elected epoch.

    Args:
        hello: what our connections say of us.
        may_send: False while the session's lease has run out: a controller that may have a successor is silent.
        post: takes the events that answers cause.
        on_stale: called when a broker knows a newer controller epoch (-1: it does not say which), or the command was for an earlier broker epoch.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        env: Env,
        supervisor: Supervisor,
        stats: ControllerStats,
        hello: Callable[[], HelloRequest],
        may_send: Callable[[], bool],
        post: Callable[[Event], None],
        on_stale: Callable[[ErrorCode, ControllerEpoch], None],
    ) -> None:
        self._config = config
        self._env = env
        self._supervisor = supervisor
        self._stats = stats
        self._hello = hello
        self._may_send = may_send
        self._post = post
        self._on_stale = on_stale
        self._channels: dict[BrokerId, _Channel] = {}
        self._awaited: list[tuple[dict[BrokerId, tuple[BrokerEpoch, int]], Callable[[], None]]] = []

    def open(self, broker: BrokerInfo) -> None:
        """Start a sender for this incarnation of the broker."""
        self.close(broker.broker_id)
        channel = _Channel(broker, Refusals(broker.broker_id))
        self._channels[broker.broker_id] = channel
        channel.task = self._supervisor.spawn(f"controller.channel[{broker.broker_id}]", self._send_all(channel))

    def close(self, broker_id: BrokerId) -> None:
        """Forget the broker and what waits for it."""
        channel = self._channels.pop(broker_id, None)
        if channel is None:
            return
        assert channel.task is not None
        channel.task.cancel()
        if channel.connection is not None:
            channel.connection.abort("channel closed")
        self._check_awaited()

    def close_all(self) -> None:
        """When the controller resigns."""
        self._awaited.clear()
        for broker_id in sorted(self._channels):
            self.close(broker_id)

    def offer(self, broker_id: BrokerId, command: Command) -> None:
        """Queue a command. A broker without a channel has gone meanwhile: nothing to do."""
        channel = self._channels.get(broker_id)
        if channel is None or channel.broker.broker_epoch != command.broker_epoch:
            return
        channel.offered += 1
        channel.queue = enqueue(channel.queue, command)
        if len(channel.queue) > self._config.controller_queue_max_requests:
            _log.error("controller.queue_overflow", broker=broker_id, waiting=len(channel.queue))
            channel.queue = []
            self._post(InitialisationDue({broker_id: channel.broker.broker_epoch}, "queue.overflow"))
        channel.wake.set()

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Call back once every command offered so far is answered, or its broker gone."""
        marks = {
            broker_id: (channel.broker.broker_epoch, channel.offered) for broker_id, channel in self._channels.items()
        }
        self._awaited.append((marks, callback))
        if len(self._awaited) > 16:  # a hung broker: the oldest measurement is given up, the list stays small
            self._awaited.pop(0)
        self._check_awaited()

    def _check_awaited(self) -> None:
        ready = [entry for entry in self._awaited if all(self._settled(*item) for item in entry[0].items())]
        for entry in ready:
            self._awaited.remove(entry)
            entry[1]()

    def _settled(self, broker_id: BrokerId, mark: tuple[BrokerEpoch, int]) -> bool:
        channel = self._channels.get(broker_id)
        return channel is None or channel.broker.broker_epoch != mark[0] or channel.settled >= mark[1]

    def problems(self, states: Mapping[TopicPartition, LeaderAndIsr]) -> list[HealthProblem]:
        """Brokers that do not answer, and what brokers have refused."""
        result: list[HealthProblem] = []
        now_ms = self._env.clock.wall_ms()
        for broker_id in sorted(self._channels):
            channel = self._channels[broker_id]
            waited_ms = self._waited_ms(channel)
            if waited_ms >= self._config.controller_socket_timeout_ms:
                detail = f"broker {broker_id} has not answered the controller's command for {waited_ms} ms"
                result.append(HealthProblem("command.unanswered", now_ms - waited_ms, detail, f"broker-{broker_id}"))
            for partition, refusal in channel.refusals.current(states):
                detail = f"broker {broker_id} refused a command for {partition}: {error_code(refusal.code).name}"
                result.append(HealthProblem("command.refused", refusal.since_ms, detail, str(partition)))
        return result

    def _waited_ms(self, channel: _Channel) -> int:
        """How long a command has been unanswered; 0: nothing is under way. Not by the wall clock, which may be set."""
        since = channel.unanswered_since
        return 0 if since is None else int((self._env.clock.monotonic() - since) * 1000)

    async def _send_all(self, channel: _Channel) -> None:
        while True:
            await channel.wake.wait()
            channel.wake.clear()
            while channel.queue:
                # Taken out of the queue at once: what comes meanwhile must not be merged into what may have arrived.
                command = channel.queue.pop(0)
                covers = channel.offered if not channel.queue else channel.settled
                response = await self._deliver(channel, command)
                channel.settled = max(channel.settled, covers)
                self._take_answer(channel, command, response)
                self._check_awaited()

    async def _deliver(self, channel: _Channel, command: Command) -> Message:
        """Send until it is answered."""
        kind = type(command).__name__
        channel.unanswered_since = self._env.clock.monotonic()
        backoff = BACKOFF_MIN_S
        timeout_s = self._config.controller_socket_timeout_ms / 1000
        while True:
            while not self._may_send():  # noqa: ASYNC110 - a lease runs out, and comes back, without an event
                await asyncio.sleep(FENCED_POLL_S)
            try:
                if channel.connection is None or channel.connection.closed:
                    channel.connection = None
                    channel.connection = await RpcConnection.open(
                        self._env.network,
                        channel.broker.rpc,
                        self._hello(),
                        supervisor=self._supervisor,
                        max_frame_bytes=self._config.rpc_max_frame_bytes,
                        timeout_s=timeout_s,
                    )
                response, _ = await channel.connection.call(command, timeout_s=timeout_s)
            except (RpcError, ApiError) as error:
                self._stats.rpcs_failed[kind] += 1
                self._alert(channel, kind, error)
                if channel.connection is not None:
                    # After a timeout the answer might still come; a fresh connection knows of no earlier request.
                    channel.connection.abort("no answer")
                    channel.connection = None
                backoff = await self._back_off(backoff)
                continue
            if self._knows_another_epoch(response):
                _log.info(
                    "controller.command_retried", broker=channel.broker.broker_id, kind=kind, error="STALE_BROKER_EPOCH"
                )
                self._on_stale(ErrorCode.STALE_BROKER_EPOCH, ControllerEpoch(-1))
                backoff = await self._back_off(backoff)
                continue
            self._stats.rpcs_sent[kind] += 1
            channel.unanswered_since = None
            channel.alerted = False
            return response

    async def _back_off(self, backoff: float) -> float:
        await asyncio.sleep(backoff * (0.5 + self._env.random.random() / 2))
        return min(backoff * 2, BACKOFF_MAX_S)

    def _knows_another_epoch(self, response: Message) -> bool:
        """Whether the broker knows another epoch of itself.

        A later one: its registration shows that, and closes this channel. None or an earlier one: ZooKeeper shows us its
        registration before it has answered the broker. The same command is right as soon as that answer has come, and
        nothing else would send it again, so it has to be repeated.
        """
        assert isinstance(response, LeaderAndIsrResponse | StopReplicaResponse | UpdateMetadataResponse)
        return response.error == ErrorCode.STALE_BROKER_EPOCH

    def _alert(self, channel: _Channel, kind: str, error: Exception) -> None:
        waited_ms = self._waited_ms(channel)
        broker_id = channel.broker.broker_id
        if waited_ms >= self._config.controller_socket_timeout_ms and not channel.alerted:
            channel.alerted = True
            _log.error("controller.command_unanswered", broker=broker_id, kind=kind, ms=waited_ms, error=str(error))
        else:
            _log.info("controller.command_retried", broker=broker_id, kind=kind, error=str(error))

    def _take_answer(self, channel: _Channel, command: Command, response: Message) -> None:
        assert isinstance(response, LeaderAndIsrResponse | StopReplicaResponse | UpdateMetadataResponse)
        broker, kind = channel.broker, type(command).__name__
        if response.error:
            name = error_code(response.error).name
            _log.warning("controller.command_refused", broker=broker.broker_id, kind=kind, error=name)
            if response.error in (ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH):
                known = ControllerEpoch(-1)
                if isinstance(response, UpdateMetadataResponse):
                    known = response.controller_epoch
                self._on_stale(ErrorCode(response.error), known)
            return
        if isinstance(response, UpdateMetadataResponse):
            return
        now_ms = self._env.clock.wall_ms()
        refused = {TopicPartition(each.topic, each.partition): each.error for each in response.partitions}
        for entry in command.partitions:
            code = refused.get(TopicPartition(entry.topic, entry.partition), ErrorCode.NONE)
            channel.refusals.record(entry, code, now_ms)
        if refused:
            _log.warning(
                "controller.partitions_refused",
                broker=broker.broker_id,
                kind=kind,
                partitions=[(str(each), error_code(refused[each]).name) for each in sorted(refused)[:10]],
                count=len(refused),
            )
        if isinstance(command, LeaderAndIsrRequest):
            self._report_refused(broker, refused)
        if isinstance(command, StopReplicaRequest) and isinstance(response, StopReplicaResponse):
            self._report_stopped(broker, command, response, refused)

    def _report_refused(self, broker: BrokerInfo, refused: Mapping[TopicPartition, int]) -> None:
        """Replicas that cannot have the role that the controller gave them."""
        dead = tuple(each for each in sorted(refused) if refused[each] == ErrorCode.KAFKA_STORAGE_ERROR)
        if dead:
            self._post(ReplicasFailed(broker.broker_id, broker.broker_epoch, dead))
        doubtful = tuple(each for each in sorted(refused) if refused[each] == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
        if doubtful:
            self._post(ReplicasDoubtful(broker.broker_id, broker.broker_epoch, doubtful))

    def _report_stopped(
        self,
        broker: BrokerInfo,
        command: StopReplicaRequest,
        response: StopReplicaResponse,
        refused: Mapping[TopicPartition, int],
    ) -> None:
        """Replicas whose files are gone, and those whose files could not be deleted."""
        stopped, failed, ids = [], [], []
        for stop in command.partitions:
            if not stop.delete_files:
                continue
            partition = TopicPartition(stop.topic, stop.partition)
            if refused.get(partition, ErrorCode.NONE) in (ErrorCode.NONE, ErrorCode.INCONSISTENT_TOPIC_ID):
                stopped.append(partition)
                ids.append(stop.topic_id)
            else:
                failed.append(partition)
        if stopped or failed:
            away = frozenset(TopicPartition(*each) for each in response.away)
            outcome = (tuple(stopped), tuple(failed), tuple(ids), away)
            self._post(ReplicasStopped(broker.broker_id, broker.broker_epoch, *outcome))
