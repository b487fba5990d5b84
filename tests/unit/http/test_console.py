"""The console's answers: what they hold, who gets them, and what a page of another origin gets."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import threading
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from kafkalite.client.admin import groups as groups_module
from kafkalite.client.admin.groups import Groups
from kafkalite.client.admin.quotas import alter_quotas
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.consumed import ConsumedRecord
from kafkalite.client.membership import Membership
from kafkalite.client.offset_reset import PLACES, Reset, place
from kafkalite.client.producer import Producer
from kafkalite.config import broker_config
from kafkalite.env.turns import at_once
from kafkalite.errors import ApiError
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.http.authentication import AuthenticatedRequest
from kafkalite.http.console import messages, origin
from kafkalite.http.console.messages import MessageFilter
from kafkalite.http.console.pages import ConsolePages
from kafkalite.http.console.values import shown
from kafkalite.model import BrokerId, TopicPartition
from kafkalite.protocol.consumer_protocol import assigned_partitions
from kafkalite.rpc.messages.forwarding import ForwardRequest
from kafkalite.security.acl import AclEntry, Binding, Operation, Pattern, PatternType, Permission, ResourceType
from kafkalite.security.principal import Principal
from kafkalite.security.quotas import CONNECTION_RATE, Entity
from kafkalite.security.scram import salted_password
from kafkalite.telemetry.series import KEPT, Rates, Series
from kafkalite.testing.cluster import Cluster, cluster
from tests.unit.http.secured_pages import login, settings

# --- pure parts ------------------------------------------------------------------------------------------------


def test_bytes_are_shown_as_text_or_in_hexadecimal() -> None:
    assert shown(None) is None
    assert shown(b"") == {"size": 0, "text": ""}
    assert shown(b"\xff\x00") == {"size": 2, "hex": "ff 00"}
    # A character that is cut in the middle is left out, not shown as something else.
    assert shown("aä".encode(), 2) == {"size": 3, "is_cut": True, "text": "a"}
    assert shown(b"\xff" * 100, 8) == {"size": 100, "is_cut": True, "hex": "ff ff"}


def test_filters_of_records() -> None:
    record = ConsumedRecord("t", 0, 1, 2, b"key-1", "käse".encode(), (("kind", b"cheese"), ("gone", None)))
    fitting = (MessageFilter(), MessageFilter(text="äs"), MessageFilter(text="chee"), MessageFilter(key="-1", text="key"), MessageFilter(header="gone"),
               MessageFilter(header="kind=eese"))  # fmt: skip
    assert all(each.fits(record) for each in fitting)
    others = (
        MessageFilter(text="milk"),
        MessageFilter(key="käse"),
        MessageFilter(header="kin"),
        MessageFilter(header="gone=x"),
        MessageFilter(header="kind=x"),
    )
    assert not any(each.fits(record) for each in others)
    assert not MessageFilter(text="x").fits(ConsumedRecord("t", 0, 1, 2, None, None, ()))


def test_where_a_reset_leads() -> None:
    a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    first, last, committed = {a: 5, b: 0}, {a: 20, b: 9}, {a: 10}

    def to(where: str, value: int = 0, at_time: dict[TopicPartition, int] | None = None) -> list[int]:
        return list(place(Reset(where, value), committed, first, last, at_time or {}).values())

    assert to("earliest") == [5, 0]
    assert to("latest") == [20, 9]
    assert to("offset", 7) == [7, 7]
    assert to("offset", 1000) == [20, 9]
    assert to("shift", -3) == [7, 0]  # what has committed nothing starts at the first record
    assert to("time", 1, {a: 12, b: -1}) == [12, 9]
    assert set(PLACES) == {"earliest", "latest", "time", "offset", "shift"}


def test_rates_come_from_counters() -> None:
    rates = Rates(2, max_subjects=2)
    at_once(rates.sample({"a": (100, 1), "idle": (7, 7)}, 0.0))
    at_once(rates.sample({"a": (200, 1), "idle": (7, 7), "new": (50, 0)}, 10.0))
    assert rates.of("a", 5) == ((10,), (0,))
    assert rates.of("new", 5) == ((5,), (0,))
    assert rates.of("idle", 5) == ((), ())
    at_once(rates.sample({"a": (10, 1), "idle": (7, 7), "new": (50, 0), "more": (1000, 0)}, 10.0))  # a was recreated
    assert rates.of("a", 5) == ((10, 1), (0, 0))
    assert rates.subjects() == ["a", "more"]  # the quietest gives way
    series = Series()
    for number in range(KEPT + 5):
        series.add(number)
    assert (len(series.values), series.last(2), series.last(0)) == (KEPT, (KEPT + 3, KEPT + 4), ())


def test_of_many_topics_the_busiest_are_kept_without_looking_at_all_of_them_for_each_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sample of 2,000 topics in use held the loop for 2 s, every 10 s: each that was too many was looked for among all."""
    sums = []

    def counting(values: Iterable[float]) -> float:
        sums.append(1)
        return math.fsum(values)

    monkeypatch.setattr("kafkalite.telemetry.series.sum", counting, raising=False)
    rates = Rates(1, max_subjects=50)
    at_once(rates.sample({}, 0.0))
    steps = rates.sample({f"t{number:03d}": (number,) for number in range(400)}, 10.0)
    assert sum(1 for _ in steps) >= 8
    assert rates.subjects() == [f"t{number:03d}" for number in range(350, 400)]
    assert len(sums) <= 2 * 400


SAME = {"host": "10.0.0.1:9292", "content-type": "application/json", "x-kafkalite-token": "t"}


@pytest.mark.parametrize(
    ("change", "is_foreign"),
    [
        ({}, False),
        ({"origin": "http://10.0.0.1:9292", "sec-fetch-site": "same-origin"}, False),
        ({"origin": "https://console.example.org"}, False),  # a proxy in front of it, which is configured
        ({"origin": "http://10.0.0.1:80"}, True),
        ({"origin": "http://evil.example"}, True),
        ({"origin": "null"}, True),
        ({"sec-fetch-site": "cross-site"}, True),
        ({"sec-fetch-site": "same-site"}, True),
        ({"content-type": "text/plain"}, True),  # what a form of another site can send
        ({"x-kafkalite-token": ""}, True),
        ({"x-kafkalite-token": "tt"}, True),
    ],
)
def test_changes_come_from_a_page_of_this_console(change: dict[str, str], *, is_foreign: bool) -> None:
    assert bool(origin.foreign_change({**SAME, **change}, {"console.example.org"}, "t")) == is_foreign


def test_names_of_this_host() -> None:
    names = {"broker-1.example"}
    for host in ("localhost:9292", "127.0.0.1", "[::1]:9292", "broker-1.EXAMPLE:80", "x.localhost"):
        assert origin.foreign_host({"host": host}, names) == ""
    for host in ("evil.example", "", "localhost.evil.example", "127.0.0.1.evil.example"):
        assert origin.foreign_host({"host": host}, names) != ""
    assert origin.token_of(b"k", "User:a") != origin.token_of(b"k", "User:b")


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])
def test_a_node_on_all_addresses_is_not_everywhere(host: str) -> None:
    """An empty host was a name of this node, which a request without a Host, and an Origin of null, have."""
    config, _ = broker_config(
        {
            "host": host,
            "advertised.listeners": "PLAINTEXT://b2.example:2",
            "advertised.rpc": "Broker-1.example:1",
            "http.allowed.hosts": "console.example,",
        }
    )
    node: Any = SimpleNamespace(
        config=config, metadata=SimpleNamespace(broker=lambda _: None), local=SimpleNamespace(broker_id=1)
    )
    names = ConsolePages(node).own_names()
    assert {"broker-1.example", "console.example"} <= names
    assert origin.foreign_host({}, names) and origin.foreign_change({**SAME, "origin": "null"}, names, "t")


# --- whole nodes -------------------------------------------------------------------------------------------------


def _call(url: str, body: Any, headers: dict[str, str]) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=150) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        with refusal:
            text = refusal.read().decode()
            return refusal.code, json.loads(text)["error"] if text.startswith("{") else text


async def ask(
    running: Cluster, path: str, headers: dict[str, str] | None = None, body: Any = None, *, node: int = 1
) -> Any:
    url = f"http://{running.nodes[node].endpoints['http']}/api/console/{path}"
    return await asyncio.to_thread(_call, url, body, headers or {})


async def do(running: Cluster, action: str, user: dict[str, str] | None = None, /, **values: Any) -> Any:
    _, me = await ask(running, "me", user)
    headers = {"content-type": "application/json", "x-kafkalite-token": me["token"], **(user or {})}
    return await ask(running, "do", headers, {"action": action, **values})


async def test_every_node_shows_and_changes_everything() -> None:
    async with cluster(3) as running:
        async with AsyncClient.connect(running.bootstrap) as client:
            await client.create_topics([NewTopic("t", 3, 1)])
            producer = Producer(client)
            for number in range(90):
                await producer.send("t", None, b"%d" % number, partition=number % 3, timestamp_ms=1000 + number)
            await producer.flush()
            await producer.close()
            await Groups(client).commit("g", {TopicPartition("t", number): 10 for number in range(3)})
        for node in running.nodes.values():
            await node.sampler.sample()
        for number in running.nodes:  # the leaders and the coordinator are on several of them
            status, topic = await ask(running, "topic?topic=t", node=number)
            assert status == 200
            assert [(p["start"], p["end"], p["oldest_ms"], p["newest_ms"]) for p in topic["partitions"]] == [
                (0, 30, 1000 + n, 1087 + n) for n in range(3)
            ]
            _, found = await ask(running, "messages?topic=t&limit=4", node=number)
            assert [record["value"]["text"] for record in found["records"]] == ["89", "88", "87", "86"]
            _, older = await ask(running, f"messages?topic=t&limit=4&from=before&places={found['before']}", node=number)
            assert [record["value"]["text"] for record in older["records"]] == ["85", "84", "83", "82"]
            _, group = await ask(running, "group?group=g", node=number)
            assert ([each["end"] for each in group["offsets"]], group["lag"][-1]) == ([30] * 3, 60)
            _, groups = await ask(running, "groups", node=number)
            assert [(each["group"], each["lag"], each["partitions"]) for each in groups["groups"]] == [("g", 60, 3)]
        # From a time on, with a filter, until the end.
        texts: list[str] = []
        query = "messages?topic=t&limit=5&text=7&from=time&at=1040"
        while True:
            _, found = await ask(running, query)
            texts += [record["value"]["text"] for record in found["records"]]
            if found["is_end"]:
                break
            query = f"messages?topic=t&limit=5&text=7&from=next&places={found['next']}"
        assert sorted(texts) == sorted(str(n) for n in range(40, 90) if "7" in str(n))
        assert await do(running, "group.reset", group="g", to="time", value=1045) == (
            200,
            {"text": "3 offsets would be set", "executed": False, "offsets": [
                {"topic": "t", "partition": number, "before": 10, "after": 15} for number in range(3)]},
        )  # fmt: skip
        assert (await do(running, "group.reset", group="g", to="latest", execute=True))[0] == 200
        assert (await do(running, "topic.partitions", topic="t", count=4))[0] == 200
        assert (await do(running, "group.delete", group="g", confirm="g"))[0] == 200
        assert await ask(running, "group?group=g") == (409, "there is no group 'g'")
        # What is wrong is said, and nothing is deleted without its name.
        assert await do(running, "topic.delete", topic="t") == (400, "to delete t, confirm must be its name\n")
        assert (await do(running, "topic.create", topic="t"))[0] == 409
        assert (await do(running, "nonsense"))[0] == 400
        assert (await ask(running, "messages?topic=t&from=yesterday"))[0] == 400
        assert (await ask(running, "do"))[0] == 405
        assert (await do(running, "topic.delete", topic="t", confirm="t"))[0] == 200


async def test_what_members_are_assigned_is_read_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member's assignment of four megabytes held the node for 0.2 s, whenever somebody looked at its group."""
    threads: list[threading.Thread] = []

    def read(data: bytes) -> tuple[tuple[str, int], ...]:
        threads.append(threading.current_thread())
        return assigned_partitions(data)

    monkeypatch.setattr(groups_module, "assigned_partitions", read)
    async with cluster(1) as running, AsyncClient.connect(running.bootstrap) as client:
        await client.create_topics([NewTopic("t", 60, 1)])
        await Groups(client).commit("g", {TopicPartition("t", 59): 0})
        member = Membership(client, Groups(client), "g", ["t"])
        await member.join()
        _, group = await ask(running, "group?group=g")
        (shown,) = group["members"]
        assert shown["partitions"] == [f"t-{number}" for number in range(50)]
        assert [each["owner"] for each in group["offsets"]] == [shown["client_id"]]
        assert threads and threading.main_thread() not in threads
        threads.clear()
        await do(running, "group.reset", group="g", to="latest")
        assert not threads
        await member.leave()


async def test_records_are_sent_and_a_topic_is_emptied() -> None:
    async with cluster(2) as running:
        async with AsyncClient.connect(running.bootstrap) as client:
            await client.create_topics([NewTopic("t", 2, 2)])
        with capture_logs() as logged:
            status, done = await do(
                running, "record.send", topic="t", partition=1, key="k", record='{"a": 1}', headers=[["h", "x=y"]]
            )
        assert (status, done) == (200, {"text": "written: t-1, offset 0", "partition": 1, "offset": 0})
        assert (await do(running, "record.send", topic="t", partition=1, key="k", record=None))[0] == 200
        _, found = await ask(running, "messages?topic=t&partition=1")
        newest, first = found["records"]
        assert (newest["value"], newest["key"]["text"]) == (None, "k")
        assert (first["value"]["text"], first["headers"][0][1]["text"]) == ('{"a": 1}', "x=y")
        (line,) = [each for each in logged if each["event"] == "console.action"]
        assert json.loads(line["values"]) == {"topic": "t", "partition": 1}, "no content in the log"
        for wrong in ({"headers": [["h"]]}, {"partition": "1"}, {"record": 5}):
            assert (await do(running, "record.send", **{"topic": "t", "record": "x", **wrong}))[0] == 400
        assert (await do(running, "record.send", topic="t", record="x", partition=7))[0] == 409
        assert (await do(running, "record.send", topic="__consumer_offsets", record="x"))[0] == 409
        assert (await do(running, "topic.empty", topic="t"))[0] == 400
        assert await do(running, "topic.empty", topic="t", confirm="t") == (200, {"text": "t is empty"})
        _, topic = await ask(running, "topic?topic=t")
        assert [(each["start"], each["end"]) for each in topic["partitions"]] == [(0, 0), (2, 2)]


async def test_the_newest_records_are_shown_however_large_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "_READ_BYTES", 65_536)
    async with cluster(1) as running:
        async with AsyncClient.connect(running.bootstrap) as client:
            await client.create_topics([NewTopic("t", 2, 1)])
            async with Producer(client) as producer:
                for number in range(40):
                    await (await producer.send("t", None, bytes(10_000), partition=number % 2))
        seen: list[tuple[int, int]] = []
        query = "messages?topic=t&limit=25"
        while True:
            _, found = await ask(running, query)
            if not found["records"]:
                break
            page = [(each["partition"], each["offset"]) for each in found["records"]]
            assert found["errors"] == {} and found["is_end"]
            assert seen or {(0, 19), (1, 19)} <= set(page), "the newest of both partitions come first"
            seen += page
            query = f"messages?topic=t&limit=25&from=before&places={found['before']}"
        assert sorted(seen) == [(partition, offset) for partition in (0, 1) for offset in range(20)]


async def test_each_change_is_in_the_audit_log_and_what_is_malformed_is_answered() -> None:
    async with cluster(1) as running:
        async with AsyncClient.connect(running.bootstrap) as client:
            await client.create_topics([NewTopic(name, 1, 1) for name in ("t", "u")])
            await Groups(client).commit("g", {TopicPartition("t", 0): 0})
        with capture_logs() as logged:
            assert (await do(running, "topic.delete", topic="u", confirm="u", execute=False))[0] == 200
            for execute in ({}, {"execute": False}):
                assert (await do(running, "group.reset", group="g", to="latest", **execute))[0] == 200
            assert (await do(running, "group.reset", group="g", to="latest", execute=True))[0] == 200
        actions = [each["action"] for each in logged if each["event"] == "console.action"]
        assert actions == ["topic.delete", "group.reset"], "a reset that is only shown changes nothing"
        with capture_logs() as logged:
            wrong: list[Any] = [None, {}, "1", 1.5, True, float("inf")]
            for replica in wrong:
                assert (await do(running, "partition.move", topic="t", partition=0, replicas=[replica]))[0] == 400
            assert (await do(running, "partition.move", topic="t", partition=0, replicas=[1], throttle=-5))[0] == 409
            for name in ("\ud800", "x" * 300):
                assert (await do(running, "record.send", topic=name, record="x"))[0] == 409
        assert not [each for each in logged if each["event"] == "task.failed"]
        node = running.nodes[1]
        with capture_logs() as logged, pytest.raises(ApiError, match="not a request that is forwarded"):
            await node.peers.ask_with_body(BrokerId(1), ForwardRequest("User:x", "h"), b"\0", timeout_s=150)
        assert not [each for each in logged if each["event"] == "task.failed"], "a refusal is an answer"
        async with AsyncClient.connect(running.bootstrap) as client:
            await alter_quotas(client, Entity(ip="10.0.0.9"), {CONNECTION_RATE: 5})
        _, found = await ask(running, "security")
        assert [(each["user"], each["ip"]) for each in found["quotas"]["rows"]] == [("", "10.0.0.9")]
        assert (await do(running, "record.send", topic="t", record="x"))[0] == 200, "a wrong name spoils nothing"


async def test_a_name_that_is_not_ours_is_refused_without_a_login() -> None:
    async with cluster(1, settings={"http.allowed.hosts": "console.example", "http.actions.enable": False}) as running:
        assert (await ask(running, "topics", {"host": "rebound.evil.example"}))[0] == 403
        assert (await ask(running, "topics", {"host": "console.example:8080"}))[0] == 200
        assert (await ask(running, "do", {"content-type": "application/json"}, {"action": "topic.create"}))[0] == 403
        status, text = await do(running, "topic.create", topic="t")
        assert (status, "http.actions.enable" in text) == (409, True)


def _allow(principal: str, resource: ResourceType, name: str, operation: Operation) -> Binding:
    return Binding(Pattern(resource, name, PatternType.LITERAL), AclEntry(principal, "*", operation, Permission.ALLOW))


CREDENTIAL = {
    "mechanism": "SCRAM-SHA-512", "iterations": 4096, "salt": base64.b64encode(b"s" * 24).decode(),
    "salted_password": base64.b64encode(salted_password("SCRAM-SHA-512", "hush", b"s" * 24, 4096)).decode(),
}  # fmt: skip
ENTRY = {
    "principal": "User:x", "host": "*", "operation": "READ", "permission": "ALLOW", "resource": "TOPIC", "name": "t",
    "pattern": "PREFIXED",
}  # fmt: skip


async def test_users_permissions_and_quotas_change(tmp_path: Path) -> None:
    async with cluster(1, settings=settings(tmp_path, **{"listener.security.protocol": "SASL_PLAINTEXT"})) as running:
        admin = login("admin")

        async def rows(part: str) -> list[dict[str, Any]]:
            _, security = await ask(running, "security", admin)
            found: list[dict[str, Any]] = security[part]["rows"]
            return found

        done = await do(running, "user.set", admin, user="x", credentials=[CREDENTIAL])
        assert done == (200, {"text": "x can log in with SCRAM-SHA-512"})
        assert {"user": "x", "mechanisms": ["SCRAM-SHA-512"]} in await rows("users")
        assert (await ask(running, "me", login("x", "hush")))[0] == 200
        assert (await do(running, "user.delete", admin, user="x", confirm="y"))[0] == 400
        assert (await do(running, "user.delete", admin, user="x", confirm="x"))[0] == 200
        assert (await do(running, "user.delete", admin, user="x", confirm="x"))[0] == 409
        assert (await do(running, "acl.add", admin, **ENTRY))[0] == 200
        assert ENTRY in await rows("acls")
        assert (await do(running, "acl.remove", admin, **ENTRY))[0] == 400
        assert (await do(running, "acl.remove", admin, **ENTRY, confirm="User:x"))[0] == 200
        assert ENTRY not in await rows("acls")
        assert (await do(running, "acl.remove", admin, **ENTRY, confirm="User:x"))[0] == 409
        limits = {"producer_byte_rate": "1000", "request_percentage": "12.5"}
        assert (await do(running, "quota.set", admin, user="x", client_id="", limits=limits))[0] == 200
        [quota] = [each for each in await rows("quotas") if each["user"] == "x"]
        assert quota["limits"] == {"producer_byte_rate": 1000, "request_percentage": 12.5}
        assert (quota["client_id"], quota["entity"]) == ("(default)", {"user": "x", "client_id": ""})
        gone = dict.fromkeys(limits)
        assert (await do(running, "quota.set", admin, **quota["entity"], limits=gone))[0] == 200
        assert [each for each in await rows("quotas") if each["user"] == "x"] == []
        for action, values in (
            ("user.set", {"user": "x", "credentials": []}),
            ("user.set", {"user": "", "credentials": [CREDENTIAL]}),
            ("user.set", {"user": "x", "credentials": [CREDENTIAL | {"salted_password": "aGk="}]}),
            ("user.set", {"user": "x", "credentials": [CREDENTIAL | {"iterations": 4095}]}),
            ("user.set", {"user": "x", "credentials": [CREDENTIAL | {"mechanism": "PLAIN"}]}),
            ("acl.add", ENTRY | {"operation": "ANY"}),
            ("acl.add", ENTRY | {"principal": "alice"}),
            ("quota.set", {"user": None, "client_id": None, "limits": limits}),
            ("quota.set", {"user": "x", "client_id": None, "limits": {"producer_byte_rate": "-1"}}),
            ("quota.set", {"user": "x", "client_id": None, "limits": {"nonsense": "1"}}),
        ):
            assert (await do(running, action, admin, **values))[0] == 400, (action, values)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT"])
async def test_the_rights_are_those_of_the_kafka_apis(tmp_path: Path, protocol: str) -> None:
    # Of the user, whatever the nodes may do on the Kafka listener.
    secured = settings(tmp_path, **{"listener.security.protocol": protocol})
    async with cluster(1, settings=secured) as running:
        node = running.nodes[1]
        admin, watcher = login("admin"), login("watcher")
        assert (await ask(running, "topics"))[0] == 401
        for topic in ("open", "closed"):
            assert (await do(running, "topic.create", admin, topic=topic))[0] == 200
        assert await ask(running, "rates", watcher) == (
            403,
            "User:watcher may not DESCRIBE cluster (docs/security.md)",
        )
        _, seen = await ask(running, "topics", watcher)
        assert seen["topics"] == []
        asked = AuthenticatedRequest(Principal("User", "admin"), "127.0.0.1", {})
        bindings = [_allow("User:watcher", ResourceType.TOPIC, "open", Operation.DESCRIBE)]
        assert await node.rights.create_acls(asked, bindings) == [None]
        _, seen = await ask(running, "topics", watcher)
        assert [each["topic"] for each in seen["topics"]] == ["open"]
        _, topic = await ask(running, "topic?topic=open", watcher)
        assert (topic["settings"], set(topic["can"].values())) == (None, {False})
        for refused in ("topic?topic=closed", "messages?topic=open"):
            assert (await ask(running, refused, watcher))[0] == 403
        for action, values in (
            ("topic.delete", {"topic": "open", "confirm": "open"}),
            ("topic.create", {"topic": "mine"}),
            ("record.send", {"topic": "open", "record": "x"}),
            ("topic.empty", {"topic": "open", "confirm": "open"}),
            ("topic.settings", {"topic": "open", "set": {"retention.ms": "1"}}),
            ("topic.partitions", {"topic": "open", "count": 5}),
            ("leaders.elect", {}),
            ("partition.move", {"topic": "open", "partition": 0, "replicas": [1]}),
            ("move.cancel", {"topic": "open", "partition": 0}),
            ("transaction.abort", {"topic": "open", "partition": 0, "start_offset": 0}),
            ("group.delete", {"group": "g", "confirm": "g"}),
            ("group.reset", {"group": "g", "to": "latest"}),
            ("user.set", {"user": "x", "credentials": [CREDENTIAL]}),
            ("user.delete", {"user": "admin", "confirm": "admin"}),
            ("acl.add", ENTRY),
            ("acl.remove", {**ENTRY, "confirm": "User:x"}),
            ("quota.set", {"user": "x", "client_id": None, "limits": {"producer_byte_rate": "1"}}),
        ):
            assert (await do(running, action, watcher, **values))[0] == 403, action
        _, security = await ask(running, "security", watcher)
        assert {part["note"] for part in security.values()} == {"you may not see this"}
        _, security = await ask(running, "security", admin)
        assert "User:watcher" in {row["principal"] for row in security["acls"]["rows"]}
        # A token is of use to its own user only.
        _, me = await ask(running, "me", admin)
        stolen = {"content-type": "application/json", "x-kafkalite-token": me["token"], **watcher}
        assert (await ask(running, "do", stolen, {"action": "leaders.elect"}))[0] == 403


async def test_an_open_port_is_no_way_around_the_logins_of_the_kafka_listener(tmp_path: Path) -> None:
    closed = {"listener.security.protocol": "SASL_PLAINTEXT", "http.security.protocol": "PLAINTEXT"}
    async with cluster(1, settings=settings(tmp_path, **closed, **{"authorizer.enabled": False})) as running:
        for page in ("me", "topics", "groups"):
            status, text = await ask(running, page)
            assert (status, "http.security.protocol" in text) == (403, True)
