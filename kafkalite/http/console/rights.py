"""What a user of the console may see and do: the rows of the Kafka APIs and extension requests that its answers stand for.

The console asks the cluster as the node that it runs on, so nothing may be asked before it is checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kafkalite.errors import ErrorCode, api_error
from kafkalite.extension.apis import APIS
from kafkalite.security.access import Access, Subject
from kafkalite.security.acl import CLUSTER_NAME, ResourceType
from kafkalite.security.requirements import KAFKA, REFUSALS, Need, Row, Scope

#: The requests of the console are of the newest versions.
_NEWEST = 2**15 - 1

Resources = Mapping[ResourceType, Iterable[str]]


class UserRights:
    """Of one request's user."""

    def __init__(self, access: Access, subject: Subject) -> None:
        self._access = access
        self._subject = subject

    def need(self, api: str, resources: Resources | None = None) -> None:
        """Raises ApiError (TOPIC_AUTHORIZATION_FAILED, …) unless the user may ask this of all these resources.

        Args:
            api: the name of a Kafka API or the class of an extension request.
            resources: what the request would name. The cluster need not be named where a row asks for it as a whole.
        """
        for need, name in self._needed(api, resources or {}):
            if not self._access.meets(self._subject, need, name):
                what = need.resource_type.name.lower().replace("_", " ")
                of = "" if need.resource_type is ResourceType.CLUSTER else f" {name}"
                text = f"{self._subject.principal} may not {need.operation.name} {what}{of} (docs/security.md)"
                raise api_error(REFUSALS[need.resource_type], text)

    def may(self, api: str, resources: Resources | None = None) -> bool:
        """As `need`, without an entry in the audit log: only whether a button is of use."""
        return all(self._is_met(need, name) for need, name in self._needed(api, resources or {}))

    def visible(self, api: str, resource_type: ResourceType) -> Callable[[str], bool]:
        """Whether a resource of this type is to be seen in the response of this API."""
        needs = [need for need in _row(api) if need.resource_type is resource_type and _NEWEST in need.versions]
        if self._access.authorizer is None:
            return lambda name: True
        return lambda name: all(self._is_met(need, name) for need in needs)

    def _needed(self, api: str, resources: Resources) -> Iterable[tuple[Need, str]]:
        for need in _row(api):
            if _NEWEST not in need.versions or need.scope is Scope.HIDE:
                continue
            names = resources.get(need.resource_type)
            if names is None and need.resource_type is ResourceType.CLUSTER and need.scope is Scope.WHOLE:
                names = (CLUSTER_NAME,)
            for name in names or ():
                yield need, name

    def _is_met(self, need: Need, name: str) -> bool:
        access, subject = self._access, self._subject
        return (
            need.or_cluster is not None and access.may(subject, need.or_cluster, ResourceType.CLUSTER, is_logged=False)
        ) or access.may(subject, need.operation, need.resource_type, name, is_logged=False)


def _row(api: str) -> Row:
    """Raises ApiError: a request without a row is nobody's."""
    row = KAFKA.get(api)
    if row is None and (extension := APIS.get(api)) is not None:
        row = extension.needs
    if row is None:
        raise api_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"no rule says who may send {api}")
    return row
