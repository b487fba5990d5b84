"""The status page, `kafkalite top` and `admin why` on whole clusters in this process."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.client.admin.cluster_status import problems_by_kind
from kafkalite.client.admin.why import ask, diagnose
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.producer import Producer
from kafkalite.env.loop_times import LoopTimes, Overrun
from kafkalite.errors import KafkaliteError
from kafkalite.extension.messages.disks import DiskDescription
from kafkalite.extension.messages.reassignment import (
    AlterReassignmentsRequest,
    AlterReassignmentsResponse,
    WantedReassignment,
)
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.extension.messages.watching import BrokerStatus, StatusRequest, StatusResponse
from kafkalite.http import overview
from kafkalite.http.overview import Overview
from kafkalite.model import (
    NO_LEADER,
    NO_TOPIC_ID,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
    TopicPartition,
)
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.rpc.codec import pack
from kafkalite.rpc.messages.control import PartitionState, UpdateMetadataRequest
from kafkalite.telemetry.advice import ADVICE, advice
from kafkalite.telemetry.history import Event, History
from kafkalite.testing.cluster import Cluster, cluster
from kafkalite_cli.top import _tables, fitted, turn
from tests.support.browser import CHROMIUM, DRIVER, Browser

ROOT = Path(__file__).parents[3]
#: What a hostile, or only careless, operator may write where free text is allowed.
EVIL = '<img src=x onerror="document.body.dataset.hacked=1">'


def get(url: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=150) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read()


async def get_json(running: Cluster, path: str, *, node: int = 1) -> Any:
    status, body = await asyncio.to_thread(get, f"http://{running.nodes[node].endpoints['http']}{path}")
    assert status == 200, body
    return json.loads(body)


async def wait_status(client: AsyncClient, request: StatusRequest, wanted: Any) -> StatusResponse:
    while True:
        answer = await client.request(request, StatusResponse)
        if wanted(answer):
            return answer
        await asyncio.sleep(0.05)


# --- history -----------------------------------------------------------------------------------------------


def test_history_is_bounded_both_ways() -> None:
    now = iter(range(10**6))
    history = History(lambda: next(now), max_events=3, max_subjects=2)
    for number in range(5):
        history.record("a-0", "isr.changed", str(number))
    assert history.of("a-0") == tuple(Event(n, "isr.changed", str(n)) for n in (2, 3, 4))
    history.record("a-1", "replica.leads")
    history.record("a-0", "replica.follows")
    history.record("a-2", "replica.leads")  # a-1 is the one that nothing has happened to for longest
    assert len(history) == 2
    assert [bool(history.of(each)) for each in ("a-0", "a-1", "a-2")] == [True, False, True]
    assert history.of("never") == ()


def test_history_is_of_the_present_topic() -> None:
    history = History(lambda: 0)
    history.record("a-0", "replica.leads", topic_id=TopicId("first"))
    history.record("a-0", "replica.back")  # of which topic is not known
    history.record("a-0", "replica.follows", topic_id=TopicId("second"))
    present = {"a-0": TopicId("first")}
    history.topic_id_of = lambda subject: present.get(subject, NO_TOPIC_ID)
    assert [each.what for each in history.of("a-0")] == ["replica.leads", "replica.back"]
    present["a-0"] = TopicId("second")
    assert [each.what for each in history.of("a-0")] == ["replica.back", "replica.follows"]
    present.clear()  # a node that knows no topics yet
    assert len(history.of("a-0")) == 3


# --- advice ------------------------------------------------------------------------------------------------


def test_every_problem_has_advice() -> None:
    told: set[str] = set()
    for path in sorted((ROOT / "kafkalite").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for pattern in (r'HealthProblem\(\s*"([a-z_.]+)"', r'(?:tell|report)\(\s*"([a-z_]+\.[a-z_]+)", (?:name|f?"|)'):
            told |= set(re.findall(pattern, text))
        if path.name == "problems.py":
            told |= set(re.findall(r'\("([a-z_]+\.[a-z_]+)"', text))
        if path.name == "describing.py":
            told |= set(re.findall(r'(?:yield|what =|else) "([a-z_]+\.[a-z_]+)"', text))
    told.discard("rpc.closed")  # a line of the log, of a function with the same name
    assert {"partition.offline", "disk.full", "znode.malformed", "command.refused"} <= told
    assert told == set(ADVICE)
    assert advice("of.a.later.version").do


# --- one page ----------------------------------------------------------------------------------------------


async def test_ten_thousand_partitions_are_told_a_page_at_a_time() -> None:
    async with cluster(1) as running:
        node = running.nodes[1]
        states = tuple(
            PartitionState(
                f"t{number // 100:02d}", number % 100, TopicId(f"id{number // 100}"), ControllerEpoch(1),
                NO_LEADER if number % 1000 == 0 else BrokerId(1), LeaderEpoch(3),
                (BrokerId(1),) if number % 100 == 0 else (BrokerId(1), BrokerId(2)), PartitionEpoch(0),
                (BrokerId(1), BrokerId(2)),
            )
            for number in range(10_000)
        )  # fmt: skip
        metadata = MetadataCache()
        brokers = node.metadata.brokers()
        epoch = brokers[0].broker_epoch
        metadata.apply(
            UpdateMetadataRequest(
                BrokerId(1), ControllerEpoch(1), epoch, is_full=True, brokers=brokers, partitions=states
            )
        )
        host = SimpleNamespace(
            metadata=metadata,
            session=node.session,
            local=node.local,
        )
        overview = Overview(host, node.env.clock, node.peers, dict, node.admin.reassignments)

        first = await overview.answer(StatusRequest(limit=10_000))
        assert (len(first.partitions), first.partitions_matched, first.partitions_total) == (200, 10_000, 10_000)
        assert (first.partitions_offline, first.partitions_troubled, first.topics_total) == (10, 100, 100)
        assert [broker.error for broker in first.brokers] == ["", "not alive"]
        assert (first.brokers[0].leaders, first.brokers[0].replicas, first.brokers[1].out_of_sync) == (9990, 10000, 100)
        assert len(pack(await overview.answer(StatusRequest()))) < 10_000

        async def names(**wanted: Any) -> list[str]:
            answer = await overview.answer(StatusRequest(**wanted))
            return [f"{each.topic}-{each.partition}" for each in answer.partitions]

        assert await names(topic="t07", offset=98) == ["t07-98", "t07-99"]
        assert await names(text="t03-4", limit=2) == ["t03-4", "t03-40"]
        assert await names(state="offline", limit=2, offset=1) == ["t10-0", "t20-0"]
        assert len(await names(state="troubled", limit=200)) == 100
        assert await names(broker_id=BrokerId(3)) == []
        assert await names(state="moving") == []
        refused = await overview.answer(StatusRequest(offset=-1))
        assert refused.error and not refused.partitions


async def test_the_longest_turn_of_each_node_is_shown_with_the_request_that_caused_it() -> None:
    async with cluster(2) as running:
        for node in running.nodes.values():  # a busy machine may have caused some
            node.loop_times = LoopTimes(node.env.clock)
        second = running.nodes[2]
        second.loop_times._longest = Overrun(second.env.clock.wall_ms(), 0.03, "Metadata", "greedy", "User:alice")
        answer = await running.nodes[1].overview.answer(StatusRequest())
        shown = {each.broker_id: (each.longest_turn_ms, each.longest_turn) for each in answer.brokers}
        assert shown == {1: (0, ""), 2: (30, "Metadata of client.id 'greedy' (User:alice)")}


async def test_bad_questions_are_refused() -> None:
    async with cluster(1) as running:
        base = f"http://{running.nodes[1].endpoints['http']}"
        for path, code in (
            ("/api/status?limit=many", 400), ("/api/status?who=me", 400), ("/api/status?offset=-1", 400),
            ("/api/why?topic=t", 400), ("/api/why?topic=t&partition=0", 404), ("/api", 404),
            ("/api/status?" + "&".join(f"text={n}" for n in range(50)), 400),
        ):  # fmt: skip
            status, body = await asyncio.to_thread(get, base + path)
            assert (status, bool(body)) == (code, True), path
        for path in ("/", "/metrics", "/healthz", "/readyz"):
            assert (await asyncio.to_thread(get, base + path))[0] == 200


# --- what is wrong ------------------------------------------------------------------------------------------


async def test_why_tells_what_is_wrong_and_what_led_there() -> None:
    key = TopicPartition("orders", 0)
    async with cluster(3) as running, AsyncClient.connect(running.bootstrap) as client:
        # What the controller remembers goes with its process: another node is to be stopped.
        office = (await wait_status(client, StatusRequest(), lambda a: a.controller_id >= 0)).controller_id
        leader, *others = sorted(running.nodes, key=lambda number: number == office)
        ids = tuple(BrokerId(number) for number in (leader, *others))
        topic = NewTopic("orders", -1, -1, {0: ids}, configs={"min.insync.replicas": "3"})
        (created,) = await client.create_topics([topic])
        assert not created.error
        await wait_status(
            client, StatusRequest(topic="orders"), lambda a: a.partitions and a.partitions[0].leader == leader
        )
        calm = diagnose(await ask(client, key, timeout_s=150))
        while calm.findings:  # a follower that the machine keeps waiting is one
            calm = diagnose(await ask(client, key, timeout_s=150))
        assert calm.leader == leader

        await running.stop_node(leader)
        wrong = {"broker.unreachable", "partition.under_min_isr"}
        # Problems that are on their way there (under-replicated, no leader) come and go first.
        answer = await wait_status(
            client, StatusRequest(topic="orders"), lambda a: a.partitions_troubled and len(a.partitions[0].isr) == 2
            and a.partitions[0].high_watermark == 0 and {each["what"] for each in problems_by_kind(a)} == wrong
        )  # fmt: skip
        kinds = {problem["what"]: problem for problem in problems_by_kind(answer)}
        assert list(kinds) == ["broker.unreachable", "partition.under_min_isr"]
        assert kinds["partition.under_min_isr"]["cases"][0]["subject"] == "orders-0"
        assert 0 < kinds["partition.under_min_isr"]["since_ms"] <= answer.at_ms

        told = diagnose(await ask(client, key, timeout_s=150))
        while {finding.what for finding in told.findings} != wrong:
            told = diagnose(await ask(client, key, timeout_s=150))
        assert all(finding.do and finding.doing and finding.since_ms for finding in told.findings)
        assert told.leader in others and len(told.isr) == 2
        events = [event.what for _, event in told.events]
        assert "controller.broker.gone" in events
        assert "controller.elected" in events and "replica.leads" in events
        assert any("a broker is being stopped" in event.detail for _, event in told.events)
        assert any("not in sync" in line for line in told.progress)
        same = await get_json(running, "/api/why?topic=orders&partition=0", node=office)
        assert {each["what"] for each in same["findings"]} == {finding.what for finding in told.findings}

        with pytest.raises(KafkaliteError):
            await ask(client, TopicPartition("orders", 7), timeout_s=150)
        await running.start_node(leader)
        while diagnose(await ask(client, key, timeout_s=150)).findings:
            await asyncio.sleep(0.05)


async def test_nothing_is_told_of_an_earlier_topic_of_the_same_name() -> None:
    """It seemed that the new topic's partition had been stopped, and its files deleted."""
    key = TopicPartition("orders", 0)
    async with cluster(2) as running, AsyncClient.connect(running.bootstrap) as client:

        async def told() -> list[str]:
            return [event.what for _, event in diagnose(await ask(client, key, timeout_s=150)).events if event.subject]

        (made,) = await client.create_topics([NewTopic("orders", -1, -1, {0: (BrokerId(1), BrokerId(2))})])
        while "replica.leads" not in (first := await told()):
            await asyncio.sleep(0.05)
        assert "controller.elected" in first
        (gone,) = await client.delete_topics(["orders"])
        (again,) = await client.create_topics([NewTopic("orders", -1, -1, {0: (BrokerId(2),)})])
        assert not (made.error or gone.error or again.error)
        while "replica.leads" not in (events := await told()):
            await asyncio.sleep(0.05)
        events = [each for each in events if each not in ("node.started", "controller.broker.started")]
        assert "controller.elected" in events and "replica.stopped" not in events
        assert "replica.follows" not in events, "broker 1 led the first, and broker 2 followed"
        await running.stop_node(1)
        await running.start_node(1)  # what it had written down of the first topic is not told either
        # Its file is read when it remembers its earlier start. (An event of the partition is there only if it was the controller.)
        while not any(each.is_earlier for each in running.nodes[1].health.history(["1"])):
            await asyncio.sleep(0.05)
        assert not {"replica.stopped", "replica.follows"} & set(await told())


# --- moves --------------------------------------------------------------------------------------------------


async def test_a_move_is_told_with_its_bytes_and_the_time_left() -> None:
    async with cluster(3) as running, AsyncClient.connect(running.bootstrap) as client:
        await client.create_topics([NewTopic("heavy", -1, -1, {0: (BrokerId(1),)})])
        async with Producer(client) as producer:
            for _ in range(40):
                await producer.send("heavy", None, bytes(100_000))
        wanted = WantedReassignment("heavy", 0, (BrokerId(2),), throttle=200_000)
        # Slow enough to be looked at; the copy never ends within a test.
        order = AlterReassignmentsRequest((wanted,))
        answer = await client.request(order, AlterReassignmentsResponse)
        assert not answer.error and not answer.partitions[0].error
        told = await wait_status(
            client, StatusRequest(), lambda a: a.moves and a.moves[0].done_bytes and a.moves[0].bytes_per_s
        )
        (move,) = told.moves
        assert (move.topic, move.target, move.is_under_way, told.moves_total) == ("heavy", (2,), True, 1)
        assert 0 < move.done_bytes < move.total_bytes and move.total_bytes > 4_000_000
        assert move.eta_s > 0
        moving = await client.request(StatusRequest(state="moving"), StatusResponse)
        assert [(each.topic, each.adding_replicas) for each in moving.partitions] == [("heavy", (2,))]
        cancel = AlterReassignmentsRequest((WantedReassignment("heavy", 0, None),))
        await client.request(cancel, AlterReassignmentsResponse)
        await wait_status(client, StatusRequest(), lambda a: not a.moves_total)


# --- top ----------------------------------------------------------------------------------------------------


def test_keys_of_top() -> None:
    request = StatusRequest(limit=10)
    answer = StatusResponse(
        0,
        "",
        BrokerId(1),
        is_live=True,
        at_ms=0,
        cluster_id="c",
        controller_id=BrokerId(1),
        controller_epoch=ControllerEpoch(1),
        partitions_matched=25,
    )
    second = turn(request, "n", answer, 10)
    assert second is not None and second.offset == 10
    third = turn(second, "\x1b[B", answer, 10)
    assert third is not None and third.offset == 20
    assert turn(third, " ", answer, 10) == third  # the end
    back = turn(third, "p", answer, 10)
    assert back == second
    filtered = turn(third, "s", answer, 10)
    assert filtered is not None and (filtered.state, filtered.offset) == ("troubled", 0)
    assert turn(request, "x", answer, 10) == request
    assert turn(request, "q", answer, 10) is None


# --- in a browser -------------------------------------------------------------------------------------------

if CHROMIUM is not None and DRIVER is not None:  # takes part where there is a browser

    async def test_the_page_in_chromium(tmp_path: Path) -> None:

        async with cluster(3, settings={"broker.rack": EVIL}) as running:
            async with AsyncClient.connect(running.bootstrap) as client:
                await client.create_topics([NewTopic("orders", 120, 3), NewTopic("flights", 6, 2)])
                await wait_status(client, StatusRequest(), lambda a: a.partitions_total == 126)
                await wait_status(client, StatusRequest(), lambda a: not a.partitions_offline)
            urls = {number: f"http://{node.endpoints['http']}/" for number, node in running.nodes.items()}
            longest = Overrun(running.nodes[2].env.clock.wall_ms(), 0.031, "Metadata", EVIL, "User:alice")
            running.nodes[2].loop_times._longest = longest
            await asyncio.to_thread(_browse, tmp_path, urls)
            await running.stop_node(3)
            await asyncio.to_thread(_browse_in_trouble, tmp_path, f"http://{running.nodes[1].endpoints['http']}/")


def _text(browser: Browser, selector: str) -> str:
    return str(browser.run("return document.querySelector(arguments[0]).innerText", selector))


def _browse(profile: Path, urls: Mapping[int, str]) -> None:
    url = urls[1]
    with Browser(profile / "light", width=1100, height=900) as browser:
        browser.open(url)
        browser.wait("document.body.dataset.drawn && document.querySelectorAll('#partitions tbody tr').length === 50")
        assert "Nothing is wrong" in _text(browser, "#problems")
        assert "1–50 of 126" in _text(browser, "#partitions-note")
        assert EVIL in _text(browser, "#brokers")  # shown as it is
        turn = "return [...document.querySelectorAll('#brokers tbody tr span')].map(each => [each.textContent, each.title])"
        assert ["31 ms", f"Metadata of client.id {EVIL!r} (User:alice)"] in browser.run(turn)
        links = "return [...document.querySelectorAll('#brokers a')].map(each => [each.textContent, each.href])"
        assert browser.run(links) == [[str(number), each] for number, each in sorted(urls.items())]
        assert browser.run("return document.images.length") == 0
        # The next page, by a click; then the last.
        for wanted in ("51–100 of 126", "101–126 of 126"):
            browser.run("document.getElementById('partitions-next').click()")
            browser.wait("document.getElementById('partitions-note').textContent.startsWith(arguments[0])", wanted)
        # What is typed reaches the server, and the address: a reload shows the same.
        browser.run(
            "const box = document.getElementById('text'); box.value = 'flights'; box.dispatchEvent(new Event('input'))"
        )
        browser.wait("document.querySelectorAll('#partitions tbody tr').length === 6")
        browser.open(browser.run("return location.href"))
        browser.wait("document.querySelectorAll('#partitions tbody tr').length === 6")
        # It is live: drawn again without anybody doing anything.
        drawn = int(browser.run("return document.body.dataset.drawn || 0"))
        browser.wait("Number(document.body.dataset.drawn) >= arguments[0]", drawn + 2)
        browser.click("#nav button[data-page=topics]")
        browser.wait(
            "document.body.dataset.page === 'topics' && document.querySelectorAll('#topics tbody tr').length === 2"
        )
        browser.click("#topics tbody button")
        browser.wait(
            "document.body.dataset.page === 'topic' && document.querySelectorAll('#topic-partitions tbody tr').length === 6"
        )
        assert browser.complaints() == []
    with Browser(profile / "narrow", width=390, height=800) as browser:
        browser.open(url)
        browser.wait("document.body.dataset.drawn")
        # Tables scroll within their cards; the page itself does not grow sideways.
        assert browser.run("return document.documentElement.scrollWidth") <= 390


def _browse_in_trouble(profile: Path, url: str) -> None:
    with Browser(profile / "dark", width=1100, height=900, dark=True) as browser:
        browser.open(url + "#state=troubled")
        browser.wait("document.querySelector('#problems').innerText.includes('partition.under_replicated')")
        assert "broker.unreachable" in _text(browser, "#problems")
        assert browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(15, 20, 24)"
        browser.run("document.querySelector('#partitions tbody button').click()")
        name = browser.wait("document.body.dataset.why")
        led_there = _text(browser, "#why-body")
        # A controller that was elected after the election remembers the broker that went, not the election.
        assert "What led there" in led_there
        assert "controller.elected" in led_there or "controller.broker.gone" in led_there
        assert str(name).rpartition("-")[0] in ("flights", "orders")
        assert browser.run("return document.body.dataset.hacked || ''") == ""
        assert browser.complaints() == []


def test_a_narrow_terminal_shows_the_most_important_columns() -> None:
    columns = ("broker", "state", "kafka", "rack", "leads", "replicas", "not in sync", "disks")
    rows = [(1, "alive", "10.0.0.1:9092", "", 4, 11, 0, "online, 41.4 GB free: /var/lib/kafkalite/disk-1" * 2)]

    def shown(width: int, rack: str = "") -> list[str]:
        return [columns[index] for index in fitted(columns, [(*rows[0][:3], rack, *rows[0][4:])], width)]

    assert shown(200, "a") == list(columns)
    assert shown(80) == ["broker", "state", "leads", "replicas", "not in sync", "disks"]
    assert shown(40) == ["broker", "state", "leads", "not in sync"]
    assert shown(20)[:2] == ["broker", "state"]


def test_top_shows_no_room_of_a_disk_that_is_not_asked() -> None:
    """ "-1 B free" of one that is offline."""
    disks = (DiskDescription("/a", "offline", -1, -1, 0, 0), DiskDescription("/b", "online", 10, 7, 0, 0))
    broker = BrokerStatus(BrokerId(1), "h:1", "h:2", "", 0, 0, 0, disks=disks)
    answer = StatusResponse(
        0, "", BrokerId(1), is_live=True, at_ms=0, cluster_id="c", controller_id=BrokerId(1),
        controller_epoch=ControllerEpoch(1), brokers=(broker,),
    )  # fmt: skip
    (columns, ((*_, shown),)), *_ = _tables(answer)
    assert (columns[-1], shown) == ("disks", "offline: /a, online, 7 B free: /b")


async def test_the_cluster_is_shown_while_zookeeper_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of moves is read from ZooKeeper. The page waited for it until its connection was cut, just when somebody needed it."""
    monkeypatch.setattr(overview, "_ZOOKEEPER_S", 0.01)
    async with cluster(1, settings={"zookeeper.session.timeout.ms": 2000}) as running:
        node = running.nodes[1]
        asked: list[object] = []

        async def never(request: object) -> None:
            asked.append(request)
            await asyncio.Event().wait()

        monkeypatch.setattr(node.overview._reassignments, "list", never)
        running.zookeeper.stop()
        for is_known in (False, True):  # that it is away
            while is_known and node.session.away_s() is None:
                await asyncio.sleep(0.01)
            node.overview._moves_at = node.overview._gathered_at = float("-inf")
            answer = await node.overview.answer(StatusRequest())
            assert (answer.error, answer.moves_total, len(asked)) == (0, 0, 1)
        assert [each.what for broker in answer.brokers for each in broker.problems] == ["zookeeper.away"]
        running.zookeeper.start()
