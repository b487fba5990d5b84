"""Every action of the console that tests/unit/http/test_console_in_chromium.py does not click, and every filter, by clicks, on a cluster with an authorizer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafkalite.client.admin.configs import ConfigResource, describe_configs
from kafkalite.client.admin.groups import Groups
from kafkalite.client.admin.quotas import describe_quotas
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.producer import Producer
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import BrokerId, TopicPartition
from kafkalite.testing.cluster import Cluster, cluster
from tests.support.browser import CHROMIUM, DRIVER, Browser
from tests.unit.http.secured_pages import login, settings
from tests.unit.http.test_console import do

ESCAPE, BACKSPACE = "\ue00c", "\ue003"
#: Clicked in test_console_in_chromium.
CLICKED_THERE = {"topic.create", "topic.delete", "topic.empty", "transaction.abort", "user.delete"}
#: A move of this many bytes at the slowest rate is still under way when somebody calls it off.
MOVED = 4_000_000
#: In milliseconds; the records of `times` are a minute apart.
NOON = 1_700_000_000_000
SAID = "document.getElementById('said').textContent === arguments[0]"

if CHROMIUM is not None and DRIVER is not None:  # takes part where there is a browser

    async def test_every_action_by_clicks(tmp_path: Path) -> None:
        users = {"super.users": "User:admin;User:ANONYMOUS", "listener.security.protocol": "PLAINTEXT"}
        async with (
            cluster(3, settings=settings(tmp_path, **users)) as running,
            AsyncClient.connect(running.bootstrap) as client,
        ):
            await _fill(client)
            page = _Pages(tmp_path, running)
            await asyncio.to_thread(_topic, page)
            (orders,) = (await client.metadata(["orders"])).topics
            assert len(orders.partitions) == 6
            assert {each.partition: each.leader for each in orders.partitions}[0] == 3
            assert (await describe_configs(client, ConfigResource.topic("orders"))).own == {}
            await asyncio.to_thread(_records, page)
            await asyncio.to_thread(_moves, page)
            (large,) = (await client.metadata(["large"])).topics
            assert large.partitions[0].replicas == (1,)
            await asyncio.to_thread(_brokers, page)
            await asyncio.to_thread(_groups, page)
            assert "billing" not in {each.group for _, each in await Groups(client).list()}
            await asyncio.to_thread(_security, page)
            assert await describe_quotas(client) == []
            await asyncio.to_thread(_schemas, page)
            await asyncio.to_thread(_filters, page)
            await asyncio.to_thread(_what_cannot_be_shown, page)
            _, told = await do(running, "nonsense", login("admin"))
            known = {each.strip() for each in told.partition("is not one of ")[2].split(",")}
            assert page.posted == known - CLICKED_THERE, "each action has a button, and each button was clicked"


async def _fill(client: AsyncClient) -> None:
    one, two, three = map(BrokerId, (1, 2, 3))
    wanted = [
        NewTopic("orders", assignment={0: (one, two), 1: (two, three), 2: (three, one), 3: (one, three)}),
        NewTopic("large", assignment={0: (one,)}),
        NewTopic("times", 1, 1, configs={"retention.ms": "-1"}),
        NewTopic("many", 60, 1),
    ]
    assert all(each.error == 0 for each in await client.create_topics(wanted))
    async with Producer(client) as producer:
        for number in range(MOVED // 100_000):
            await producer.send("large", None, b"%d" % number + b"x" * 100_000, partition=0)
        for number in range(10):
            headers = (("source", b"shop" if number % 2 else b"web"),)
            at = NOON + 60_000 * number
            await producer.send("times", b"k%d" % number, b"v%d" % number, timestamp_ms=at, headers=headers)
        await producer.send("times", b"long", b"y" * 5_000 + b"the end")
        await producer.flush()
    await Groups(client).commit("billing", {TopicPartition("times", 0): 4})


class _Pages:
    """Windows of the console, and what was posted from them."""

    def __init__(self, directory: Path, running: Cluster) -> None:
        self.posted: set[str] = set()
        self._directory = directory
        self._address = str(running.nodes[2].endpoints["http"])
        self._count = 0

    @contextmanager
    def open(self, place: str, login: str = "admin:may%20all", path: str = "/") -> Iterator[Browser]:
        """The administrator's window. At its end: nothing was complained about but refusals."""
        self._count += 1
        with Browser(self._directory / f"window-{self._count}", width=1100, height=1000) as browser:
            browser.open(f"http://{login}@{self._address}{path}#{place}")
            browser.wait("document.body.dataset.drawn || !document.getElementById('page-error').hidden")
            browser.run(
                "window.posted = []; const before = act;"
                "act = (action, values) => { posted.push(action); return before(action, values); };"
            )
            yield browser
            self.posted.update(browser.run("return window.posted"))
            assert [text for text in browser.complaints() if not {"403", "409"} & set(text.split())] == []


def _press(browser: Browser, box: str, text: str, row: str = "") -> None:
    """The button of that text in a part of the page, in the row that begins with `row`. Tables are drawn again: found and clicked at once."""
    browser.wait(
        "(() => { const found = [...document.querySelectorAll(arguments[0] + ' button')].find(b => b.textContent === arguments[1]"
        " && (!arguments[2] || b.closest('tr').firstChild.textContent === arguments[2])); if (found) found.click(); return found; })()",
        box,
        text,
        row,
    )
    browser.wait("document.getElementById('ask').open")


def _topic(page: _Pages) -> None:
    with page.open("page=topic&name=orders") as browser:
        rows = "document.querySelectorAll('#topic-partitions tbody tr')"
        browser.wait(f"{rows}.length === 4")
        _press(browser, "#topic-partitions", "move", "0")
        browser.type("#ask input[name=replicas]", "3, x")
        browser.click("#ask-do")
        browser.wait("document.getElementById('ask-error').textContent === 'x is not a whole number'")
        browser.type("#ask input[name=replicas]", "3 1")
        browser.click("#ask-do")
        browser.wait(SAID, "orders-0 moves to 3 1")
        browser.wait(f"{rows}[0].cells[3].textContent === '3 1'")
        _press(browser, "#topic-actions", "elect")
        browser.click("#ask-do")
        browser.wait("/^\\d leaders? elected$/.test(document.getElementById('said').textContent)")
        browser.wait(f"{rows}[0].cells[1].textContent === '3'")
        _press(browser, "#topic-actions", "add partitions")
        browser.type("#ask input[name=count]", "6")
        browser.click("#ask-do")
        browser.wait(f"{rows}.length === 6")
        # A setting is set, then removed at its row; the others are shown on request.
        _press(browser, "#topic-actions", "set")
        browser.type("#ask input[name=key]", "retention.ms")
        browser.type("#ask input[name=value]", "3600000")
        browser.click("#ask-do")
        _press(browser, "#topic-settings", "change", "retention.ms")
        browser.choose("#ask select[name=how]", "remove")
        browser.click("#ask-do")
        browser.wait(SAID, "orders: retention.ms: the default again")
        browser.wait("document.getElementById('topic-settings').innerText.includes('everything is at its default')")
        browser.click("#settings-all")
        browser.wait("document.querySelectorAll('#topic-settings tbody tr').length > 20")


def _records(page: _Pages) -> None:
    places = "[...document.querySelectorAll('#records .record .place:first-child')].map(p => p.textContent).join(' ')"
    with page.open("page=topic&name=times") as browser:
        browser.wait("document.querySelectorAll('#records .record').length === 11")
        browser.choose("#m-from", "time")
        browser.run(
            "const at = new Date(arguments[0] - new Date(arguments[0]).getTimezoneOffset() * 60000);"
            "document.getElementById('m-time').value = at.toISOString().slice(0, 19)",
            NOON + 7 * 60_000,
        )
        browser.click("#m-read")
        browser.wait(f"{places} === '0:7 0:8 0:9 0:10'")
        browser.choose("#m-from", "start")
        browser.type("#m-header", "source=shop")
        browser.click("#m-read")
        browser.wait(f"{places} === '0:1 0:3 0:5 0:7 0:9'")
        # A value that is cut in the list is whole when it is opened.
        browser.type("#m-header", "")
        browser.type("#m-key", "long")
        browser.click("#m-read")
        browser.wait(f"{places} === '0:10'")
        browser.click("#records summary")
        browser.wait("document.getElementById('records').innerText.includes('ythe end')")
        browser.type("#m-key", "")
        # What arrives is shown, the newest on top.
        browser.click("#m-follow")
        browser.wait("document.querySelectorAll('#records .record').length === 11")
        for number in (11, 12):
            browser.run("act('record.send', {topic: 'times', record: 'new ' + arguments[0]})", number)
            browser.wait("document.querySelector('#records .place').textContent === '0:' + arguments[0]", number)
        browser.wait("document.getElementById('m-note').textContent === 'following, 13 records shown'")
        browser.click("#m-follow")
        # A tombstone has a key and no value.
        browser.click("#m-send")
        browser.type("#ask textarea[name=record]", "gone?")
        browser.type("#ask input[name=key]", "k1")
        browser.choose("#ask select[name=kind]", "tombstone")
        browser.click("#ask-do")
        browser.wait("document.getElementById('ask-error').textContent === 'a tombstone has no value'")
        browser.type("#ask textarea[name=record]", "")
        browser.click("#ask-do")
        browser.wait(SAID, "written: times-0, offset 13")


def _moves(page: _Pages) -> None:
    with page.open("page=topic&name=large") as browser:
        _press(browser, "#topic-partitions", "move", "0")
        browser.type("#ask input[name=replicas]", "2")
        browser.type("#ask input[name=throttle]", "1000")
        browser.click("#ask-do")
        browser.wait(SAID, "large-0 moves to 2")
        browser.click("#nav button[data-page=cluster]")
        _press(browser, "#moves", "call off", "large-0")
        browser.click("#ask-do")
        browser.wait(SAID, "the move of large-0 is called off")
        browser.wait("document.getElementById('moves-card').hidden")


def _brokers(page: _Pages) -> None:
    with page.open("") as browser:
        row = (
            "[...document.querySelectorAll('#brokers tbody tr')].find(r => r.firstChild.textContent === '1').innerText"
        )
        _press(browser, "#brokers", "cordon", "1")
        browser.press(ESCAPE)
        browser.wait("!document.getElementById('ask').open")
        _press(browser, "#brokers", "cordon", "1")
        browser.click("#ask-do")
        browser.wait(SAID, "broker 1 is cordoned")
        browser.wait(f"{row}.includes('cordoned')")
        _press(browser, "#brokers", "take replicas again", "1")
        browser.click("#ask-do")
        browser.wait(SAID, "broker 1 takes new replicas")
        browser.click("#elect-all")
        browser.click("#ask-do")
        browser.wait("/^\\d+ leaders? elected$/.test(document.getElementById('said').textContent)")
        # Why is a partition as it is; Escape closes the answer.
        browser.wait("document.querySelectorAll('#partitions tbody button').length === 50")
        browser.run("document.querySelector('#partitions tbody button').click()")
        browser.wait("document.body.dataset.why && document.getElementById('why').open")
        browser.press(ESCAPE)
        browser.wait("!document.getElementById('why').open")


def _groups(page: _Pages) -> None:
    offset = "document.querySelector('#group-offsets tbody td:nth-child(2)')?.textContent === arguments[0]"
    with page.open("page=groups") as browser:
        browser.wait("document.querySelectorAll('#groups tbody button').length === 1")
        browser.press("/")
        browser.press("nobody")
        browser.wait("document.getElementById('groups').innerText.includes('no group fits')")
        browser.type("#groups-text", "bill")
        browser.wait("document.querySelectorAll('#groups tbody button').length === 1")
        browser.click("#groups tbody button")
        browser.wait(offset, "4")
        for to, value, then in (("offset", "6", "6"), ("shift", "-4", "2"), ("latest", "", "14")):
            browser.click("#group-reset")
            browser.choose("#ask select[name=to]", to)
            if value:
                browser.type("#ask input[name=value]", value)
            browser.click("#ask-do")
            browser.wait("document.querySelectorAll('#ask-preview tbody tr').length === 1")
            browser.click("#ask-do")
            browser.wait(SAID, "billing: 1 offset is set")
            browser.wait(offset, then)
        browser.click("#group-reset")
        browser.choose("#ask select[name=to]", "time")
        browser.type("#ask input[name=value]", "yesterday")
        browser.click("#ask-do")
        browser.wait("document.getElementById('ask-error').textContent.startsWith('yesterday is not a time')")
        browser.click("#ask-cancel")
        browser.click("#group-delete")
        browser.type("#ask input[name=confirm]", "billing")
        browser.click("#ask-do")
        browser.wait(SAID, "deleted billing")
        browser.wait("document.body.dataset.page === 'groups'")


def _security(page: _Pages) -> None:
    with page.open("page=security") as browser:
        for label, start in (("create a user", ""), ("password", "clara")):
            if start:
                _press(browser, "#users", label, start)
            else:
                browser.wait("!document.getElementById('users-add').hidden")
                browser.click("#users-add")
                browser.type("#ask input[name=user]", "clara")
            browser.type("#ask input[name=password]", "correct horse")
            browser.type("#ask input[name=again]", "correct horse")
            browser.click("#ask-do")
            browser.wait(SAID, "clara can log in with SCRAM-SHA-256 and SCRAM-SHA-512")
            browser.run("document.getElementById('said').textContent = ''")
            browser.wait("document.querySelectorAll('#users tbody button').length === 2")
        browser.click("#acls-add")
        browser.type("#ask input[name=principal]", "User:clara")
        browser.choose("#ask select[name=operation]", "CLUSTER_ACTION")
        browser.type("#ask input[name=name]", "orders")
        browser.click("#ask-do")
        browser.wait(
            "document.getElementById('ask-error').textContent === 'CLUSTER_ACTION is not an operation on TOPIC'"
        )
        browser.choose("#ask select[name=operation]", "READ")
        browser.choose("#ask select[name=pattern]", "PREFIXED")
        browser.click("#ask-do")
        browser.wait(SAID, "added: User:clara may READ TOPIC orders…")
        _press(browser, "#acls", "remove", "User:clara")
        browser.type("#ask input[name=confirm]", "User:clara")
        browser.click("#ask-do")
        browser.wait(SAID, "removed: User:clara may READ TOPIC orders…")
        browser.wait("document.getElementById('acls').innerText.includes('none')")
        browser.click("#quotas-add")
        browser.type("#ask input[name=client_id]", "shop")
        browser.type("#ask input[name=request_percentage]", "50")
        browser.click("#ask-do")
        browser.wait("document.getElementById('quotas').innerText.includes('request_percentage=50')")
        _press(browser, "#quotas", "change")
        browser.type("#ask input[name=request_percentage]", "")
        browser.click("#ask-do")
        browser.wait("document.getElementById('quotas').innerText.includes('none')")
        browser.type("#security-text", "nobody")
        browser.wait("document.getElementById('users').innerText.includes('no user has')")


def _schemas(page: _Pages) -> None:
    names = "[...document.querySelectorAll('#subjects tbody button')].map(b => b.textContent).join(' ')"
    with page.open("page=schemas") as browser:
        browser.wait("document.getElementById('subjects').innerText.includes('no schema is registered')")
        for subject, number in (("orders-value", 1), ("orders-value", 2), ("a/b c", 1)):
            browser.run(
                "return fetch(beside('subjects/' + encodeURIComponent(arguments[0]) + '/versions'), {method: 'POST',"
                " headers: {'content-type': 'application/json'}, body: JSON.stringify({schema: JSON.stringify({type: 'record', name: 'Order',"
                " fields: [...Array(arguments[1]).keys()].map(n => ({name: 'field' + n, type: 'int', default: n}))})})}).then(a => a.text())",
                subject,
                number,
            )
        browser.run("poll()")
        browser.wait(f"{names} === 'a/b c orders-value'")
        browser.type("#subjects-text", "or")
        browser.wait(f"{names} === 'orders-value'")
        browser.click("#subjects tbody button")
        browser.wait("document.getElementById('schema-note').textContent === '2 versions, compatibility BACKWARD'")
        newest = "document.querySelector('#versions details')"
        assert '"name": "field1"' in browser.run(f"return {newest}.innerText")
        assert browser.run(f"return {newest}.querySelector('summary').innerText").split() == [
            "version",
            "2",
            "id",
            "2",
            "AVRO",
        ]
        browser.click("#versions details:last-child summary")
        browser.wait("document.querySelector('#versions details:last-child pre').innerText.includes('field0')")
        browser.run("show({page: 'schema', name: 'a/b c'})")
        browser.wait("document.getElementById('schema-note').textContent.startsWith('1 version,')")


def _filters(page: _Pages) -> None:
    names = "[...document.querySelectorAll('#partitions tbody button')].map(b => b.textContent)"
    with page.open("") as browser:
        browser.wait(f"{names}.length === 50")
        browser.click("#partitions-next")
        browser.wait("document.getElementById('partitions-note').textContent.startsWith('51–')")
        browser.click("#partitions-back")
        browser.wait("document.getElementById('partitions-note').textContent.startsWith('1–')")
        browser.type("#text", "orders-3")
        browser.wait(f"{names}.join() === 'orders-3'")
        browser.choose("#broker", "2")
        browser.wait(f"{names}.length === 0")
        browser.click("#text")
        browser.press(BACKSPACE * len("orders-3"))
        browser.choose("#broker", "-1")
        browser.choose("#state", "internal")
        browser.wait(f"{names}.length && {names}.every(each => each.startsWith('_'))")
        browser.choose("#state", "offline")
        browser.wait("document.getElementById('partitions').innerText.includes('no partition fits')")
        # The id of a broker leads to its own console; the browser's way back shows the filter again.
        assert browser.run("return document.querySelectorAll('#brokers a').length") == 3
        browser.click("#nav button[data-page=topics]")
        browser.wait("document.body.dataset.page === 'topics'")
        browser.type("#topics-text", "man")
        browser.wait("document.querySelectorAll('#topics tbody button').length === 1")
        browser.run("history.back()")
        browser.wait("document.body.dataset.page === 'cluster' && document.getElementById('state').value === 'offline'")


def _what_cannot_be_shown(page: _Pages) -> None:
    """The page of a topic that is not there, or may not be seen, still showed the one before, with its buttons."""
    error = "document.getElementById('page-error-text').textContent === arguments[0] && !document.getElementById('page-error').hidden"
    with page.open("page=topic&name=orders") as browser:
        browser.wait("document.getElementById('topic-title').textContent === 'orders'")
        browser.run("show({page: 'topic', name: 'nope'})")
        browser.wait(error, "there is no topic 'nope'")
        assert browser.run("return document.getElementById('page-topic').hidden")
        browser.run("show({page: 'topic', name: 'orders'})")
        browser.wait("document.getElementById('page-error').hidden && !document.getElementById('page-topic').hidden")
    with page.open("", "watcher:may%20look", "/console") as browser:
        browser.wait(error, "User:watcher may not describe the cluster\n")
        assert browser.run("return document.getElementById('page-cluster').hidden")
        browser.click("#nav button[data-page=topics]")
        browser.wait("document.getElementById('topics').innerText.includes('no topic fits')")
        assert browser.run("return document.getElementById('page-error').hidden")
