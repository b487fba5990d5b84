"""Every answer of the console, by the name of its page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from kafkalite.errors import ErrorCode, api_error
from kafkalite.http.authentication import AuthenticatedRequest
from kafkalite.http.console.actions import Actions
from kafkalite.http.console.cluster import ClusterAccess
from kafkalite.http.console.groups import GroupAnswers
from kafkalite.http.console.messages import MessageAnswers
from kafkalite.http.console.operators import OperatorAnswers
from kafkalite.http.console.rights import UserRights
from kafkalite.http.console.topics import TopicAnswers
from kafkalite.security.acl import CLUSTER_NAME, ResourceType

if TYPE_CHECKING:
    from kafkalite.http.host import ObservedNode

Value = dict[str, Any]
Answer = Callable[[AuthenticatedRequest, UserRights], Awaitable[Value]]


class Answers:
    """One per node, made when somebody first looks."""

    def __init__(self, node: ObservedNode) -> None:
        self._node = node
        self.cluster = ClusterAccess(node)
        topics, groups = TopicAnswers(node, self.cluster), GroupAnswers(node, self.cluster)
        operators = OperatorAnswers(self.cluster)
        self._actions = Actions(node, self.cluster)
        self._table: Mapping[str, Answer] = {
            "me": self._me,
            "topics": topics.topics,
            "topic": topics.topic,
            "rates": topics.rates,
            "messages": MessageAnswers(node, self.cluster).messages,
            "groups": groups.groups,
            "group": groups.group,
            "transactions": operators.transactions,
            "security": operators.security,
            "do": self._actions.do,
        }

    async def answer(self, name: str, asked: AuthenticatedRequest) -> Value:
        """Raises ApiError, RpcError, ValueError (what somebody typed)."""
        answer = self._table.get(name)
        if answer is None:
            raise api_error(ErrorCode.INVALID_REQUEST, f"there is no {name}")
        return await answer(asked, UserRights(self._node.rights.access, asked))

    async def _me(self, asked: AuthenticatedRequest, rights: UserRights) -> Value:
        """Who the user is, and which buttons are of use at all."""
        return {
            "principal": str(asked.principal),
            "broker_id": self._node.local.broker_id,
            "cluster_id": self._node.local.cluster_id,
            "may_act": self._node.config.http_actions_enable,
            "can": {
                name: rights.may(api, {ResourceType.CLUSTER: [CLUSTER_NAME]})
                for name, api in self._actions.CLUSTER_WIDE.items()
            },
        }
