"""The ends of replicas' logs. The controller asks for them before it chooses a leader that may lack committed records
(KIP-966's unclean recovery). Replicas that do not answer in time, or whose code does not know the request, are left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from kafkalite.controller.decisions.effects import AskLogEnds
from kafkalite.controller.decisions.eligible import NOTHING, LogEnd
from kafkalite.env.own_time import OwnTime
from kafkalite.env.seams import Env
from kafkalite.env.supervisor import Supervisor
from kafkalite.errors import ApiError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import NO_LEADER_EPOCH, NO_TOPIC_ID, BrokerId, BrokerInfo, LeaderEpoch, TopicPartition
from kafkalite.rpc.answers import RpcError
from kafkalite.rpc.client import RpcConnection
from kafkalite.rpc.messages.connection import HelloRequest
from kafkalite.rpc.messages.replication import LogEndsRequest, LogEndsResponse
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: The time for all answers together.
WAIT_S = 2.0
#: Partitions in one request.
CHUNK = 2_000
_NEVER_S = 3600.0
#: The delay before a broker is asked again that does not know its epoch yet.
AGAIN_S = 0.05


@dataclass(slots=True)
class LogEndAnswers:
    """`ends`: for every partition in the question. `leading`: the latest leader epoch in which a replica says that it leads. `unanswered`: of
    the brokers that were asked. `doubtful`: those that say that their log may lack committed records. `elsewhere`: logs of partitions that were asked
    for everywhere, on brokers that are not among their replicas, in the question at least; `incomplete`: brokers that may have more of them on an
    offline disk."""

    ends: dict[TopicPartition, dict[BrokerId, LogEnd]]
    leading: dict[TopicPartition, LeaderEpoch]
    unanswered: set[BrokerId]
    doubtful: dict[TopicPartition, set[BrokerId]]
    elsewhere: dict[TopicPartition, dict[BrokerId, LogEnd]]
    incomplete: set[BrokerId]


class LogEnds:
    """Asks over connections of its own, which are closed again: this is rare."""

    def __init__(self, env: Env, own_time: OwnTime, supervisor: Supervisor, hello: Callable[[], HelloRequest]) -> None:
        self._env = env
        self._own_time = own_time
        self._supervisor = supervisor
        self._hello = hello

    async def ask(self, question: AskLogEnds, brokers: Mapping[BrokerId, BrokerInfo]) -> LogEndAnswers:
        """The answers of the first WAIT_S."""
        answers = LogEndAnswers({partition: {} for partition in question.replicas}, {}, set(), {}, {}, set())
        by_broker: dict[BrokerId, list[TopicPartition]] = {}
        for partition, members in question.replicas.items():
            for broker in brokers if partition in question.everywhere else members:
                if broker in brokers:
                    by_broker.setdefault(broker, []).append(partition)
        answers.unanswered = set(by_broker)
        tasks = [
            self._supervisor.spawn(
                f"controller.log_ends[{id_}]", self._ask(brokers[id_], by_broker[id_], question, answers)
            )
            for id_ in sorted(by_broker)
        ]
        try:
            if tasks:
                async with self._own_time.timeout(WAIT_S):
                    await asyncio.wait(tasks)
        except TimeoutError:
            _log.warning("controller.log_ends_missing", partitions=len(question.replicas))
        finally:
            for task in tasks:
                task.cancel()
        return answers

    async def _ask(
        self, broker: BrokerInfo, partitions: list[TopicPartition], question: AskLogEnds, answers: LogEndAnswers
    ) -> None:
        connection: RpcConnection | None = None
        try:
            while True:
                connection = await RpcConnection.open(
                    self._env.network, broker.rpc, self._hello(), supervisor=self._supervisor, timeout_s=_NEVER_S
                )
                if connection.peer.node_id != broker.broker_id or connection.peer.broker_epoch > broker.broker_epoch:
                    return
                if connection.peer.broker_epoch == broker.broker_epoch:
                    break
                # ZooKeeper shows us a registration before it has answered the broker; its log may be the most complete one.
                connection.abort("not registered yet, as far as it knows")
                await asyncio.sleep(AGAIN_S)
            for start in range(0, len(partitions), CHUNK):
                chunk = tuple((each.topic, each.partition) for each in partitions[start : start + CHUNK])
                request = LogEndsRequest(chunk, with_strays=bool(question.everywhere))
                answer, _ = await connection.call(request, timeout_s=_NEVER_S)
                assert isinstance(answer, LogEndsResponse)
                for each in answer.ends:
                    partition = TopicPartition(each.topic, each.partition)
                    topic_id = question.topic_ids.get(each.topic, NO_TOPIC_ID)
                    is_known = NO_TOPIC_ID not in (each.topic_id, topic_id)
                    if is_known and each.topic_id != topic_id:
                        continue  # of a former topic of that name: this replica has not begun yet
                    if each.is_stray or broker.broker_id not in question.replicas.get(partition, ()):
                        if is_known and partition in question.everywhere:
                            logs = answers.elsewhere.setdefault(partition, {})
                            log_end = each.leader_epoch, each.log_end_offset
                            logs[broker.broker_id] = max(logs.get(broker.broker_id, NOTHING), log_end)
                        continue
                    answers.ends[partition][broker.broker_id] = (each.leader_epoch, each.log_end_offset)
                    latest = answers.leading.get(partition, NO_LEADER_EPOCH)
                    answers.leading[partition] = max(latest, each.leads_in)
                    if each.is_doubtful:
                        answers.doubtful.setdefault(partition, set()).add(broker.broker_id)
                if answer.has_offline_dir:
                    answers.incomplete.add(broker.broker_id)
            answers.unanswered.discard(broker.broker_id)
        except (RpcError, ApiError) as error:
            _log.info("controller.log_ends_refused", broker=broker.broker_id, error=str(error))
        finally:
            if connection is not None:
                connection.abort("asked")
