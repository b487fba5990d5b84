"""What the console can change. Each action needs the rights of the Kafka API it stands for, and leaves a line in the audit log.

What deletes needs the name once more (`confirm`): the page asks for it, and a script that forgets it deletes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from kafkalite.client.admin.configs import ConfigResource, alter_configs
from kafkalite.client.admin.groups import Groups
from kafkalite.client.admin.hanging_transactions import TransactionAdmin
from kafkalite.client.admin.partitions import add_partitions, elect_leaders
from kafkalite.client.admin.refusals import refuse
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.offset_reset import PLACES, Reset, new_offsets
from kafkalite.coordination.broker_states import ACTIVE, BROKER_STATE, DRAINING, STATES, changed_text
from kafkalite.errors import ErrorCode, KafkaliteError, api_error
from kafkalite.extension.messages.reassignment import (
    AlterReassignmentsRequest,
    AlterReassignmentsResponse,
    WantedReassignment,
)
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.http.authentication import AuthenticatedRequest
from kafkalite.http.console.body import Values, confirmed, long, numbers, object_of, partition, texts, value
from kafkalite.http.console.cluster import ClusterAccess
from kafkalite.http.console.record_actions import CONTENT, RecordActions
from kafkalite.http.console.rights import UserRights
from kafkalite.http.console.security_actions import CLUSTER_WIDE, SECRET, SecurityActions
from kafkalite.model import BrokerId, TopicPartition
from kafkalite.security.acl import CLUSTER_NAME, ResourceType
from kafkalite.telemetry.logs import get_logger
from kafkalite.wording import number_of

if TYPE_CHECKING:
    from kafkalite.http.host import ObservedNode

_log = get_logger("kafkalite.audit")

#: Patience with a change, below the deadline of a page.
_TIMEOUT_S = 8.0
_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
#: Without `execute` it changes nothing.
_RESET = "group.reset"
_CLUSTER = {ResourceType.CLUSTER: [CLUSTER_NAME]}
Action = Callable[[Values, UserRights, AsyncClient], Awaitable[dict[str, Any]]]


class Actions:
    """Of one node."""

    #: Name of a button -> the API that it stands for, where no resource but the cluster is named.
    CLUSTER_WIDE: Mapping[str, str] = {
        "elect": "ElectLeaders",
        "move": "AlterReassignmentsRequest",
        "brokers": "IncrementalAlterConfigs",
        "see_cluster": "StatusRequest",
        **CLUSTER_WIDE,
    }

    def __init__(self, node: ObservedNode, cluster: ClusterAccess) -> None:
        self._node = node
        self._cluster = cluster
        self._table: Mapping[str, Action] = {
            "topic.create": self._create_topic,
            "topic.delete": self._delete_topic,
            "topic.settings": self._alter_settings,
            "topic.partitions": self._add_partitions,
            _RESET: self._reset_group,
            "group.delete": self._delete_group,
            "leaders.elect": self._elect,
            "partition.move": self._move,
            "move.cancel": self._cancel_move,
            "broker.state": self._set_state,
            "transaction.abort": self._abort,
            **RecordActions(node, _TIMEOUT_S).table(),
            **SecurityActions(_TIMEOUT_S).table(),
        }

    async def do(self, asked: AuthenticatedRequest, rights: UserRights) -> dict[str, Any]:
        """{"action": NAME, …} -> what was done. Raises ValueError, ApiError, RpcError."""
        if not self._node.config.http_actions_enable:
            raise api_error(ErrorCode.POLICY_VIOLATION, "the console only shows here (http.actions.enable is false)")
        values = object_of(asked.body)
        name = value(values, "action", str)
        action = self._table.get(name)
        if action is None:
            raise ValueError(f"action: {name!r} is not one of {', '.join(sorted(self._table))}")
        outcome = "failed"
        try:
            done = await action(values, rights, await self._cluster.client(asked))
            outcome = "done"
        except KafkaliteError as error:
            outcome = f"refused: {error}"
            raise
        finally:
            if name != _RESET or values.get("execute", False) is not False:
                self._audit(asked, name, values, outcome)
        return done

    def _audit(self, asked: AuthenticatedRequest, name: str, values: Values, outcome: str) -> None:
        details = {key: value for key, value in values.items() if key not in ("action", "confirm", *SECRET, *CONTENT)}
        _log.info(
            "console.action",
            principal=str(asked.principal),
            host=asked.client_host,
            action=name,
            values=json.dumps(details)[:1000],
            outcome=outcome[:500],
        )

    # --- topics --------------------------------------------------------------------------------------------

    async def _create_topic(self, values: Values, rights: UserRights, client: AsyncClient) -> dict[str, Any]:
        topic = value(values, "topic", str)
        rights.need("CreateTopics", {_TOPIC: [topic]})
        wanted = NewTopic(
            topic,
            value(values, "partitions", int, 1),
            value(values, "replication_factor", int, -1),
            configs=texts(values, "settings"),
        )
        [result] = await client.create_topics([wanted], timeout_s=_TIMEOUT_S)
        refuse(result.error, result.message)
        return {"text": f"created {topic} with {number_of(result.partitions, 'partition')}"}

    async def _delete_topic(self, values: Values, rights: UserRights, client: AsyncClient) -> dict[str, Any]:
        topic = confirmed(values, "topic")
        rights.need("DeleteTopics", {_TOPIC: [topic]})
        [result] = await client.delete_topics([topic], timeout_s=_TIMEOUT_S)
        refuse(result.error, result.message)
        return {"text": f"deleted {topic}"}

    async def _alter_settings(self, values: Values, rights: UserRights, client: AsyncClient) -> dict[str, Any]:
        topic = value(values, "topic", str)
        rights.need("IncrementalAlterConfigs", {_TOPIC: [topic]})
        changes, removed = texts(values, "set"), [str(key) for key in value(values, "remove", list, [])]
        if not changes and not removed:
            raise ValueError("nothing was changed")
        resource = ConfigResource.topic(topic)
        await alter_configs(client, resource, changes, removed, timeout_s=_TIMEOUT_S)
        said = [f"{key}={value}" for key, value in changes.items()] + [f"{key}: the default again" for key in removed]
        return {"text": f"{topic}: {', '.join(said)}"}

    async def _add_partitions(self, values: Values, rights: UserRights, client: AsyncClient) -> dict[str, Any]:
        topic, count = value(values, "topic", str), value(values, "count", int)
        rights.need("CreatePartitions", {_TOPIC: [topic]})
        await add_partitions(client, topic, count, timeout_s=_TIMEOUT_S)
        return {"text": f"{topic} has {number_of(count, 'partition')}"}

    # --- groups --------------------------------------------------------------------------------------------

    async def _reset_group(self, values: Values, rights: UserRights, client: AsyncClient) -> dict[str, Any]:
        """Without `execute` it only says what would be committed."""
        group, topic = value(values, "group", str), value(values, "topic", str, "")
        reset = Reset(value(values, "to", str), long(values, "value", 0))
        if reset.place not in PLACES:
            raise ValueError(f"to: {reset.place!r} is not one of {', '.join(PLACES)}")
        rights.need("DescribeGroups", {_GROUP: [group]})
        admin = Groups(client, timeout_s=_TIMEOUT_S)
        _, described = await admin.describe(group)
        before = {
            key: int(each.offset)
            for each in described.offsets
            if not topic or each.topic == topic
            for key in (TopicPartition(each.topic, each.partition),)
        }
        if not before:
            raise api_error(ErrorCode.GROUP_ID_NOT_FOUND, f"{group} has committed nothing for {topic or 'any topic'}")
        rights.need("OffsetCommit", {_GROUP: [group], _TOPIC: sorted({key.topic for key in before})})
        after = await new_offsets(client, before, before, reset, _TIMEOUT_S)
        is_executed = value(values, "execute", bool, default=False)
        if is_executed:
            if described.members:
                text = f"{group} has {number_of(len(described.members), 'member')}: stop all of them first"
                raise api_error(ErrorCode.NON_EMPTY_GROUP, text)
            await admin.commit(group, after)
        rows = [
            {"topic": key.topic, "partition": key.partition, "before": before[key], "after": offset}
            for key, offset in after.items()
        ]
        text = (
            f"{group}: {number_of(len(rows), 'offset')} {'is' if len(rows) == 1 else 'are'} set"
            if is_executed
            else f"{number_of(len(rows), 'offset')} would be set"
        )
        return {"text": text, "offsets": rows[:500], "executed": is_executed}

    async def _delete_group(self, values: Values, rights: UserRights, client: AsyncClient) -> dict[str, Any]:
        group = confirmed(values, "group")
        rights.need("DeleteGroups", {_GROUP: [group]})
        await Groups(client, timeout_s=_TIMEOUT_S).delete(group)
        return {"text": f"deleted {group}"}

    # --- leaders and replicas --------------------------------------------------------------------------------

    async def _elect(self, values: Values, rights: UserRights, client: AsyncClient) -> dict[str, Any]:
        """The preferred leaders of a topic, of one partition of it, or of all topics."""
        rights.need("ElectLeaders")
        topic, number_wanted = value(values, "topic", str, ""), value(values, "partition", int, -1)
        wanted = None
        if topic:
            known = sorted(self._node.metadata.topic(topic) or {})
            wanted = [TopicPartition(topic, number) for number in known if number_wanted in (-1, number)]
            if not wanted:
                raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {topic}-{number_wanted}")
        results = await elect_leaders(client, wanted, timeout_s=_TIMEOUT_S / 2)
        failed = [each for each in results if each.error not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)]
        elected = sum(each.error == ErrorCode.NONE for each in results)
        text = f"{number_of(elected, 'leader')} elected"
        if failed:
            first = failed[0]
            text += (
                f", {len(failed)} not: {first.topic}-{first.partition}: {first.message or ErrorCode(first.error).name}"
            )
        return {"text": text}

    async def _move(self, values: Values, rights: UserRights, client: AsyncClient) -> dict[str, Any]:
        key = partition(values)
        brokers = tuple(map(BrokerId, numbers(values, "replicas")))
        throttle = long(values, "throttle", 0)
        await self._reassign(WantedReassignment(*key, brokers, throttle), rights, client)
        return {"text": f"{key} moves to {' '.join(map(str, brokers))}"}

    async def _cancel_move(self, values: Values, rights: UserRights, client: AsyncClient) -> dict[str, Any]:
        key = partition(values)
        await self._reassign(WantedReassignment(*key, None), rights, client)
        return {"text": f"the move of {key} is called off"}

    async def _reassign(self, wanted: WantedReassignment, rights: UserRights, client: AsyncClient) -> None:
        rights.need("AlterReassignmentsRequest")
        request = AlterReassignmentsRequest((wanted,), is_atomic=True)
        answer = await client.request(request, AlterReassignmentsResponse, timeout_s=_TIMEOUT_S)
        for each in answer.partitions:
            refuse(each.error, each.message)
        refuse(answer.error, answer.message)

    async def _set_state(self, values: Values, rights: UserRights, client: AsyncClient) -> dict[str, Any]:
        """Cordon a broker, drain it (decommission), or let it take replicas again."""
        broker, state = value(values, "broker", int), value(values, "state", str)
        rights.need("IncrementalAlterConfigs", _CLUSTER)
        if state not in STATES:
            raise ValueError(f"state: {state!r} is not one of {', '.join(STATES)}")
        if state == DRAINING and values.get("confirm") != str(broker):
            raise ValueError(f"to drain broker {broker}, confirm must be its id")
        changes, removed = ({}, [BROKER_STATE]) if state == ACTIVE else ({BROKER_STATE: state}, [])
        resource = ConfigResource.broker(BrokerId(broker))
        await alter_configs(client, resource, changes, removed, timeout_s=_TIMEOUT_S)
        return {"text": changed_text(BrokerId(broker), state)}

    # --- transactions ----------------------------------------------------------------------------------------

    async def _abort(self, values: Values, rights: UserRights, client: AsyncClient) -> dict[str, Any]:
        """A transaction that hangs; its coordinator ends every other one itself."""
        rights.need("AbortTransactionRequest")
        key, start = partition(values), long(values, "start_offset")
        ended = await TransactionAdmin(client, timeout_s=_TIMEOUT_S).abort(key, start_offset=start)
        return {"text": f"aborted the transaction of producer {ended.producer_id} on {key}"}
