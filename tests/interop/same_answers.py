"""The same requests to two clusters, and what their answers say once ids, times and addresses are made equal.

A case is a coroutine function that is run once against each cluster (`Side`) with the same random numbers. It takes what
it needs (ids, epochs) from the answers of its own cluster; what is compared are the traces of both runs.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import random
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafkalite.errors import ApiError
from kafkalite.protocol import wire
from kafkalite.protocol.errors import WireError
from kafkalite.protocol.schema import Field, Struct, schemas
from kafkalite.protocol.structs import ZERO_UUID
from kafkalite.record.batch import split_batches
from kafkalite.record.builder import RecordBatchBuilder
from kafkalite.record.reader import read_records
from kafkalite.testing.kafka_client import FrameClient

#: A guard; a broker that answers at all answers within this time.
_ANSWER_S = 12.0
#: Fields that say where, how fast, or in which words.
_LEFT_OUT = frozenset({
    "throttle_time_ms", "error_message", "batch_index_error_message", "host", "port", "cluster_id", "controller_id",
    "total_bytes", "usable_bytes", "log_dir", "finalized_features_epoch", "documentation", "status_detail",
    "client_host", "partition_size", "node_endpoints",
})  # fmt: skip
_TIMES = re.compile(r"timestamp|_time_ms$|append_time|_start_time")
#: Lists of what is there: other cases' things are left out.
_LISTINGS = frozenset({
    ("ListGroupsResponse", "groups"), ("ListTransactionsResponse", "transaction_states"), ("DescribeAclsResponse", "resources"),
    ("DeleteAclsResponse", "matching_acls"), ("DescribeLogDirsResponse", "topics"), ("ListConfigResourcesResponse", "config_resources"),
    ("ElectLeadersResponse", "replica_election_results"), ("DescribeUserScramCredentialsResponse", "results"),
    ("DescribeClientQuotasResponse", "entries"), ("MetadataResponse", "topics"), ("DescribeTopicPartitionsResponse", "topics"),
    ("ListPartitionReassignmentsResponse", "topics"),
})  # fmt: skip
#: A case's own, and those of all cases.
_THINGS = ("@", "shared", "nope")
_MEMBERS = frozenset({"member_id", "leader"})
#: A delegation token's id and HMAC.
_SECRETS = frozenset({"token_id", "hmac"})
_PRODUCERS = frozenset({"producer_id"})

_STRANGE = itertools.count()

Case = Callable[["Side"], Awaitable[None]]


def record_batch(*values: bytes | None, **batch: Any) -> bytes:
    builder = RecordBatchBuilder(**batch)
    for number, value in enumerate(values):
        builder.append(b"k", value, (), 1_700_000_000_000 + number)
    return builder.build()


@dataclass(frozen=True)
class Difference:
    api: str
    version: int
    case: str
    label: str
    path: str
    kafka: Any
    ours: Any

    @property
    def group(self) -> tuple[str, str, str, str]:
        return self.api, re.sub(r"\[\d+\]", "[]", self.path), str(self.kafka)[:160], str(self.ours)[:160]


@dataclass
class Step:
    api: str
    version: int
    label: str
    answer: Any


@dataclass(frozen=True)
class Login:
    """A user of SASL PLAIN, and the listener where that user logs in. Without a name, the walk itself sends each step of the login."""

    address: str
    user: str
    password: str

    async def client(self) -> FrameClient:
        if not self.user:
            return await self._strange_client()
        client = await FrameClient.to(self.address)
        async with asyncio.timeout(_ANSWER_S):
            assert (await client.ask(wire.SaslHandshakeRequest("PLAIN"), 1)).error_code == 0
            answer = await client.ask(wire.SaslAuthenticateRequest(f"\0{self.user}\0{self.password}".encode()), 2)
        assert answer.error_code == 0, answer
        return client

    async def _strange_client(self) -> FrameClient:
        """From an address of its own: kafkalite counts failed logins by address."""
        client = FrameClient()
        host, _, port = self.address.rpartition(":")
        number = next(_STRANGE)
        local = f"127.77.{number // 250 % 250}.{number % 250 + 1}"
        client.reader, client.writer = await asyncio.open_connection(host, int(port), local_addr=(local, 0))
        return client


@dataclass
class Side:
    """One cluster in one case. `logins`: connections that belong to a user, by their names; all others are nobody's."""

    address: str
    name: str
    tag: str
    source: random.Random
    trace: list[Step] = field(default_factory=list)
    names: dict[Any, str] = field(default_factory=dict)
    clients: dict[str, FrameClient] = field(default_factory=dict)
    asked: set[tuple[str, int]] = field(default_factory=set)
    logins: dict[str, Login] = field(default_factory=dict)
    #: The other nodes, by the names of connections to them; and the replicas of each partition that a case makes.
    nodes: dict[str, str] = field(default_factory=dict)
    replicas: list[int] = field(default_factory=list)
    #: What the user of this case may do.
    rights: str = ""
    _message: str = ""

    async def client(self, connection: str = "") -> FrameClient:
        if connection not in self.clients:
            login = self.logins.get(connection)
            address = self.nodes.get(connection, self.address)
            self.clients[connection] = await (FrameClient.to(address) if login is None else login.client())
        return self.clients[connection]

    def close(self) -> None:
        for client in self.clients.values():
            client.close()
        self.clients.clear()

    def drop(self, connection: str = "") -> None:
        if (client := self.clients.pop(connection, None)) is not None:
            client.close()

    async def ask(
        self, message: Any, version: int, label: str = "", connection: str = "", *, traced: bool = True
    ) -> Any:
        """The answer; None if the connection was closed or nothing came."""
        name = type(message).__name__.removesuffix("Request")
        self.asked.add((name, version))
        answer: Any = None
        shown: Any
        try:
            client = await self.client(connection)
            client.send(message, version)
            if name == "Produce" and message.acks == 0:
                client.asked.pop(client.correlation_id)
                client.send(wire.ApiVersionsRequest("", ""), 0)
                async with asyncio.timeout(_ANSWER_S):
                    await client.receive()
                shown = "no answer, open"
            else:
                async with asyncio.timeout(_ANSWER_S):
                    _, answer = await client.receive()
                shown = self.normal(name + "Response", answer, version)
        except (OSError, asyncio.IncompleteReadError) as error:
            shown = "timed out" if isinstance(error, TimeoutError) else "closed"
            self.drop(connection)
        except WireError as error:
            shown = f"unreadable: {error}"
            self.drop(connection)
        if traced:
            self.trace.append(Step(name, version, label, shown))
        return answer

    def note(self, label: str, value: Any) -> None:
        self.trace.append(Step("-", 0, label, value))

    def alias(self, value: Any, name: str) -> None:
        self.names[value] = name

    # --- normal forms ---

    def normal(self, message: str, value: Any, version: int) -> Any:
        self._message = message
        return self._struct(schemas()[message].root, value, version)

    def _struct(self, owner: Struct, value: Any, version: int) -> Any:
        if value is None:
            return None
        return {
            each.name: self._value(each, getattr(value, each.name), version)
            for each in owner.fields
            if version in each.versions and each.name not in _LEFT_OUT
        }

    def _value(self, each: Field, value: Any, version: int) -> Any:
        if each.is_array:
            if value is None:
                return [] if each.name == "aborted_transactions" else None
            found = [self._one(each, one, version) for one in value]
            if (self._message, each.name) in _LISTINGS:
                found = [one for one in found if any(each in repr(one) for each in _THINGS)]
            return sorted(_joined(found) if each.struct is not None else found, key=repr)
        return self._one(each, value, version)

    def _one(self, each: Field, value: Any, version: int) -> Any:
        if each.struct is not None:
            return self._struct(each.struct, value, version)
        if each.type == "records":
            return self._records(value)
        if each.name in _SECRETS:
            return "some" if value else "none"
        if each.type == "uuid":
            return self.names.get(bytes(value), "zero" if bytes(value) == ZERO_UUID else "some id")
        if isinstance(value, (bytes, memoryview)):
            return bytes(value)[:40].hex()
        if isinstance(value, bool):
            return value
        if each.name in _PRODUCERS and value >= 0:
            return self._nth("producer", value)
        if each.name == "session_id" and value > 1_000_000:
            return "a session"
        if each.name in _MEMBERS and value:
            return self._nth("member", value)
        if isinstance(value, int) and _TIMES.search(each.name) and value > 1_700_000_100_000:
            return "now"
        if isinstance(value, str) and value in self.names:
            return self.names[value]
        if isinstance(value, str):
            return value.replace(self.tag, "@")[:60]
        return value

    def _nth(self, kind: str, value: Any) -> str:
        if value not in self.names:
            self.names[value] = f"{kind} {sum(name.startswith(kind + ' ') for name in self.names.values())}"
        return self.names[value]

    def _records(self, value: Any) -> Any:
        if value is None:
            return None
        data = bytes(value)
        try:
            seen = []
            for _, header in split_batches(data):
                seen.append(
                    f"{header.base_offset}+{header.last_offset_delta} {header.attributes:x} s{header.base_sequence} {header.size}"
                )
            values = [f"{each.offset}={each.value!r}"[:30] for each in read_records(data)]
            return f"{seen} {values}"
        except (ApiError, ValueError) as error:
            return f"{len(data)} bytes: {type(error).__name__}"


def _joined(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One element for all partitions of a topic, however many the answer has."""
    topics: dict[str, dict[str, Any]] = {}
    for one in found:
        lists = [name for name, value in one.items() if isinstance(value, list)]
        if lists not in (["partitions"], ["partition_responses"]) or len(one) != 2:
            return found
        key = repr([value for name, value in one.items() if name not in lists])
        if key in topics:
            topics[key][lists[0]] = sorted(topics[key][lists[0]] + one[lists[0]], key=repr)
        else:
            topics[key] = one
    return list(topics.values())


def differences(case: str, kafka: Side, ours: Side) -> Iterator[Difference]:
    for left, right in zip(kafka.trace, ours.trace, strict=False):
        if (left.api, left.version, left.label) != (right.api, right.version, right.label):
            # What they ask depends on what they have heard.
            yield Difference("-", 0, case, "order", "", f"{left.api} {left.label}", f"{right.api} {right.label}")
            return
        found = list(_compared("", left.answer, right.answer))
        for path, one, other in found:
            yield Difference(left.api, left.version, case, left.label, path, one, other)
    if len(kafka.trace) != len(ours.trace):
        yield Difference("-", 0, case, "steps", "", len(kafka.trace), len(ours.trace))


def _compared(path: str, kafka: Any, ours: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(kafka, dict) and isinstance(ours, dict):
        # What an error leaves behind in the other fields says nothing; the code does.
        for name in kafka:
            if name == "log_append_time_ms" or (name == "log_start_offset" and kafka.get("error_code")):
                continue
            yield from _compared(f"{path}.{name}", kafka[name], ours[name])
    elif isinstance(kafka, list) and isinstance(ours, list) and len(kafka) == len(ours):
        for number, (one, other) in enumerate(zip(kafka, ours, strict=True)):
            yield from _compared(f"{path}[{number}]", one, other)
    elif isinstance(kafka, list) and isinstance(ours, list):
        yield path, [one for one in kafka if one not in ours], [one for one in ours if one not in kafka]
    elif kafka != ours:
        yield path, kafka, ours


async def run(
    case: Case,
    name: str,
    tag: str,
    seed: int,
    addresses: tuple[str, str],
    logins: tuple[dict[str, Login], dict[str, Login]] | None = None,
    nodes: tuple[dict[str, str], dict[str, str]] = ({}, {}),
    replicas: Sequence[int] = (),
) -> tuple[Side, Side]:
    sides = [
        Side(address, who, tag, random.Random(seed), logins=mine, nodes=others, replicas=list(replicas))
        for address, who, mine, others in zip(addresses, ("kafka", "ours"), logins or ({}, {}), nodes, strict=True)
    ]

    async def one(side: Side) -> None:
        try:
            await case(side)
        except (AssertionError, AttributeError, IndexError, TypeError, ValueError, OSError) as error:
            # A case that goes on with what an answer lacks.
            side.note("case", f"{type(error).__name__}: {error}"[:200])
        finally:
            side.close()

    await asyncio.gather(*map(one, sides))
    return sides[0], sides[1]


# --- one field of a good request changed ---

_INTEGERS = {"int8": 7, "int16": 15, "uint16": 16, "int32": 31, "uint32": 32, "int64": 63}
Change = Callable[[Any], None]


@dataclass(frozen=True)
class Mutation:
    path: str
    what: str
    apply: Change


def mutations(message: Any, version: int) -> list[Mutation]:
    root = schemas()[type(message).__name__].root
    return list(_of_struct(root, message, version, "", lambda whole: whole))


def _of_struct(owner: Struct, value: Any, version: int, path: str, reach: Callable[[Any], Any]) -> Iterator[Mutation]:
    for each in owner.fields:
        if version not in each.versions:
            continue
        here = f"{path}.{each.name}"
        now = getattr(value, each.name)

        def put(new: Any, name: str = each.name) -> Change:
            return lambda whole: setattr(reach(whole), name, copy.deepcopy(new))

        if version in each.nullable and now is not None:
            yield Mutation(here, "null", put(None))
        if each.is_array:
            if now is None:
                continue
            if now:
                yield Mutation(here, "empty", put([]))
                yield Mutation(here, "twice", put([*now, now[0]]))
                if each.struct is None:
                    for odd in _odd(each, now[0]):
                        yield Mutation(here, f"[{_short(odd)}]", put([odd]))
                        yield Mutation(here, f"+{_short(odd)}", put([*now, odd]))
                else:
                    for what, other in _bad_elements(each.struct, now[0], version):
                        yield Mutation(here, f"+{what}", put([*now, other]))
                        yield Mutation(here, f"{what}+", put([other, *now]))
            for number, one in enumerate(list(now)[:1]):
                if each.struct is not None:
                    yield from _of_struct(
                        each.struct, one, version, f"{here}[{number}]",
                        _reaching(reach, each.name, number),
                    )  # fmt: skip
        elif each.struct is not None:
            if now is not None:
                yield from _of_struct(each.struct, now, version, here, _reaching(reach, each.name))
        else:
            for odd in _odd(each, now):
                yield Mutation(here, _short(odd), put(odd))


def _reaching(reach: Callable[[Any], Any], name: str, at: int | None = None) -> Callable[[Any], Any]:
    def inner(whole: Any) -> Any:
        found = getattr(reach(whole), name)
        return found if at is None else found[at]

    return inner


def _short(value: Any) -> str:
    return repr(value) if len(repr(value)) < 30 else f"{repr(value)[:12]}…{len(value)}"


def _bad_elements(owner: Struct, value: Any, version: int) -> Iterator[tuple[str, Any]]:
    """Copies of an element that are about something that does not exist."""
    for each in owner.fields:
        if version not in each.versions or each.is_array or each.struct is not None:
            continue
        if each.type == "string" and getattr(value, each.name) is not None:
            for odd in ("nope", ""):
                other = copy.deepcopy(value)
                setattr(other, each.name, odd)
                yield f"{each.name}={odd!r}", other
            return
        if each.type == "uuid" or each.name in ("index", "partition", "partition_index"):
            other = copy.deepcopy(value)
            setattr(other, each.name, bytes(range(16)) if each.type == "uuid" else 77)
            yield f"{each.name} unknown", other
            return


def _odd(each: Field, now: Any) -> list[Any]:
    match each.type:
        case "bool":
            odd: list[Any] = [not now]
        case "string":
            odd = ["", "nope", "x" * 300, "a b/\u00fc", "*", "."]
        case "uuid":
            odd = [ZERO_UUID, bytes(range(16))]
        case "bytes":
            odd = [b"", b"\x00\x01\x02"]
        case "records":
            odd = [b"", b"garbage", b"\x00" * 80]
            if now:
                odd += [
                    bytes(now)[:-1],
                    bytes(now) + bytes(now),
                    bytes(now)[:-1] + b"\xff",
                    bytes(now)[:16] + b"\x01" + bytes(now)[17:],
                ]
        case "float64":
            odd = [-1.0, 0.0, 0.5, 1e300]
        case kind:
            bits = _INTEGERS[kind]
            low = 0 if bits in (16, 32) else -(1 << bits)
            odd = [0, -1, -2, 1, 2, 5, 100, (1 << bits) - 1, low]
            if "timestamp" in each.name:
                odd += [-3, -4, -5, -6, 1_700_000_000_001, 1_800_000_000_000]
            odd = [number for number in odd if low <= number < (1 << bits)]
    return [one for one in dict.fromkeys(odd) if one != now]
