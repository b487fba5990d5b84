"""A group against what its members may believe: what the models of consumer groups and of streams groups share."""

from __future__ import annotations

import random
from types import ModuleType
from typing import Any, Generic, TypeVar

from kafkalite.errors import ApiError, ErrorCode

_REJOINS = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


class ModelMember:
    """A member as its program sees itself."""

    def __init__(self, name: str, instance_id: str | None, owned: Any) -> None:
        self.name, self.instance_id = name, instance_id
        self.epoch = 0
        self.owned = owned
        self.is_joined = False


Member = TypeVar("Member", bound=ModelMember)


class GroupModel(Generic[Member]):
    """One group, its members, and the log that another coordinator reads."""

    #: The modules with the rules, and with the records.
    heartbeats: ModuleType
    records: ModuleType
    #: What a member has that has nothing.
    nothing: Any
    #: Attributes of the group that the log brings back.
    kept: tuple[str, ...]

    def __init__(self, source: random.Random, group: Any) -> None:
        self.source = source
        self.group = group
        self.log: list[Any] = []
        self.clients: dict[str, Member] = {}
        self.numbers = 0
        self.now = 0

    def request(self, client: Member) -> Any:
        """The member's heartbeat."""
        raise NotImplementedError

    def answer(self, request: Any) -> Any:
        """What the group decides of it. Raises ApiError."""
        raise NotImplementedError

    def assign(self) -> None:
        """The assignor has worked."""
        raise NotImplementedError

    def held(self, member: Any) -> Any:
        """What the answer says that the member has."""
        raise NotImplementedError

    def check(self) -> None:
        """Nobody has what another member has."""
        raise NotImplementedError

    def write(self, records: list[Any]) -> None:
        for record in records:
            key, value = self.records.encode_record("g", record)
            assert key is not None
            self.log.append(record)
            parsed = self.records.parse(int.from_bytes(key[:2]), key[2:], value)
            assert parsed.group_id == "g"
            self.group.apply(parsed.record)

    def heartbeat(self, client: Member, *, is_lost: bool = False) -> None:
        request = self.request(client)
        try:
            outcome = self.answer(request)
        except ApiError as error:
            if error.code is ErrorCode.UNRELEASED_INSTANCE_ID:
                return
            assert error.code in _REJOINS, error
            client.owned, client.is_joined, client.epoch = self.nothing, False, 0
            return
        self.answered(outcome)
        if outcome.waits:
            self.assign()
            outcome = self.heartbeats.settle(self.group, client.name, request.owned, self.now)
            self.write(outcome.records)
        if is_lost:
            return
        client.is_joined, client.epoch = True, outcome.member.epoch
        if outcome.shows_assignment:
            client.owned = self.held(outcome.member)

    def answered(self, outcome: Any) -> None:
        """The group's side of it."""
        self.write(outcome.records)

    def remove(self, client: Member) -> None:
        """It left, or its session has expired: it has stopped by then."""
        del self.clients[client.name]
        if client.name in self.group.members:
            self.write(self.heartbeats.removed(self.group, [self.group.members[client.name]]))

    def fail_over(self) -> None:
        """A new coordinator reads a log that was compacted."""
        last: dict[bytes, tuple[int, bytes | None]] = {}
        for number, record in enumerate(self.log):
            key, value = self.records.encode_record("g", record)
            assert key is not None
            last[key] = (number, value)
        fresh = type(self.group)("g")
        for key, (_, value) in sorted(last.items(), key=lambda each: each[1][0]):
            fresh.apply(self.records.parse(int.from_bytes(key[:2]), key[2:], value).record)
        for name in self.kept:
            assert getattr(fresh, name) == getattr(self.group, name), name
        self.group = fresh

    def settle(self, rounds: int) -> None:
        """Members send heartbeats, and nothing else happens."""
        for _ in range(rounds):
            for client in list(self.clients.values()):
                self.heartbeat(client)
                self.check()
            if self.group.needs_assignment:
                self.assign()
