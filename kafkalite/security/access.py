"""What handlers ask before they act: the authorizer if there is one, counts and an audit log of who was refused."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Protocol

from kafkalite.security.acl import CLUSTER_NAME, OPERATIONS, Operation, ResourceType, operation_bits
from kafkalite.security.authorizer import Authorizer
from kafkalite.security.principal import Principal
from kafkalite.security.requirements import Need
from kafkalite.telemetry.logs import get_logger

_log = get_logger("kafkalite.audit")

#: Refusals written to the log per second; the rest are counted and reported with the next one.
MAX_LINES = 20
#: What is decided in one step of a large request.
NAMES_PER_STEP = 100
_LINES_WINDOW_S = 1.0
_NOTHING: frozenset[str] = frozenset()


class Subject(Protocol):
    """The client that makes a request, and its address: of either listener."""

    @property
    def principal(self) -> Principal: ...

    @property
    def client_host(self) -> str: ...


class Access:
    """One per node. `authorizer` None: everybody may do everything, and nothing is asked."""

    def __init__(self, authorizer: Authorizer | None = None, now: Callable[[], float] = lambda: 0.0) -> None:
        self.authorizer = authorizer
        self._now = now
        self._window_began = 0.0
        self._lines = 0
        self._suppressed = 0
        #: What was asked for and refused, as (operation, resource type) -> how often.
        self.denials: dict[tuple[Operation, ResourceType], int] = {}
        self.allowed = 0

    def may(
        self,
        subject: Subject,
        operation: Operation,
        resource_type: ResourceType,
        name: str = CLUSTER_NAME,
        *,
        is_logged: bool = True,
    ) -> bool:
        """Whether it is allowed. Not `is_logged`: a refusal only means that something is left out of an answer."""
        authorizer = self.authorizer
        if authorizer is None:
            return True
        if authorizer.authorize(subject.principal, subject.client_host, operation, resource_type, name):
            self.allowed += 1
            return True
        if is_logged:
            self._refused(subject, operation, resource_type, name)
        return False

    def meets(self, subject: Subject, need: Need, name: str = CLUSTER_NAME) -> bool:
        """Whether a row's need is met for one resource."""
        authorizer = self.authorizer
        if authorizer is None:
            return True
        if need.or_cluster is not None and self.may(subject, need.or_cluster, ResourceType.CLUSTER, is_logged=False):
            return True
        if need.or_any_topic is not None and authorizer.authorize_any(
            subject.principal, subject.client_host, need.or_any_topic, ResourceType.TOPIC
        ):
            self.allowed += 1
            return True
        return self.may(subject, need.operation, need.resource_type, name)

    def denying(self, subject: Subject, need: Need, names: Iterable[str]) -> Generator[None, None, frozenset[str]]:
        """Those of `names` for which the need is not met. A step for each NAMES_PER_STEP names: there may be 100,000."""
        if self.authorizer is None:
            return _NOTHING
        seen: set[str] = set()
        found: set[str] = set()
        for number, name in enumerate(names, 1):
            if name not in seen:
                seen.add(name)
                if not self.meets(subject, need, name):
                    found.add(name)
            if not number % NAMES_PER_STEP:
                yield
        return frozenset(found) if found else _NOTHING

    def visible(self, subject: Subject, need: Need) -> Callable[[str], bool]:
        """Whether a resource of that name is to be seen in an answer."""
        if self.authorizer is None:
            return lambda name: True
        if need.or_cluster is not None and self.may(subject, need.or_cluster, ResourceType.CLUSTER, is_logged=False):
            return lambda name: True
        return lambda name: self.may(subject, need.operation, need.resource_type, name, is_logged=False)

    def is_super_user(self, subject: Subject) -> bool:
        """Whether super.users names it; without an authorizer nobody is."""
        return self.authorizer is not None and str(subject.principal) in self.authorizer.super_users

    def authorized_operations(self, subject: Subject, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """The wire's bit field of what the subject may do."""
        return operation_bits(
            tuple(
                operation
                for operation in OPERATIONS[resource_type]
                if self.may(subject, operation, resource_type, name, is_logged=False)
            )
        )

    # --- the audit ---

    def _refused(self, subject: Subject, operation: Operation, resource_type: ResourceType, name: str) -> None:
        key = (operation, resource_type)
        self.denials[key] = self.denials.get(key, 0) + 1
        now = self._now()
        if now - self._window_began >= _LINES_WINDOW_S:
            self._window_began, self._lines = now, 0
        if self._lines >= MAX_LINES:
            self._suppressed += 1
            return
        self._lines += 1
        suppressed, self._suppressed = self._suppressed, 0
        _log.warning(
            "acl.denied",
            principal=str(subject.principal),
            host=subject.client_host,
            operation=operation.name,
            resource=resource_type.name,
            name=name[:256],
            suppressed=suppressed,
        )

    def changed(self, subject: Subject, what: str, **details: object) -> None:
        """Somebody changed who may do what: always logged."""
        _log.info(what, principal=str(subject.principal), host=subject.client_host, **details)
