"""The console in a real browser, by clicks and keys: where there is a Chromium with its driver (`make console`)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from kafkalite.client.admin.configs import ConfigResource, describe_configs
from kafkalite.client.admin.groups import Groups
from kafkalite.client.admin.quotas import describe_quotas
from kafkalite.client.admin.users import describe_users
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.producer import Producer
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.http.console import operators
from kafkalite.model import TopicPartition
from kafkalite.security.quotas import Entity
from kafkalite.testing.cluster import Cluster, cluster
from tests.support.browser import CHROMIUM, DRIVER, Browser
from tests.unit.kafka.test_hanging_transactions import a_hanging_transaction

EVIL = '<img src=x onerror="document.body.dataset.hacked=1">'
ENTER = "\ue007"
#: How often messages are read until an answer has all.
READS = 20

if CHROMIUM is not None and DRIVER is not None:  # takes part where there is a browser

    async def test_topics_messages_and_groups_by_clicks(tmp_path: Path) -> None:
        async with cluster(3) as running, AsyncClient.connect(running.bootstrap) as client:
            await _fill(client)
            for node in running.nodes.values():
                await node.sampler.sample()
            url = f"http://{running.nodes[2].endpoints['http']}/"
            await asyncio.to_thread(_create_a_topic, tmp_path / "create", url)
            names = {each.topic for each in (await client.metadata()).topics}
            assert "payments" in names
            settings = await describe_configs(client, ConfigResource.topic("payments"))
            assert settings.own == {"min.insync.replicas": "2", "retention.ms": "3600000"}
            await asyncio.to_thread(_browse_messages, tmp_path / "browse", url)
            await asyncio.to_thread(_reset_a_group, tmp_path / "reset", url)
            _, told = await Groups(client).describe("billing")
            assert {each.offset for each in told.offsets} == {0}
            await asyncio.to_thread(_users_and_quotas, tmp_path / "users", url)
            assert (await describe_users(client, ["clara"]))["clara"] == {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192}
            async with AsyncClient.connect(running.bootstrap) as other:
                assert await describe_quotas(other) == [(Entity("clara", None), {"producer_byte_rate": 5000.0})]
            await _look_around(running, tmp_path, url)
            assert "payments" not in {each.topic for each in (await client.metadata()).topics}

    async def test_a_broker_is_decommissioned_by_clicks(tmp_path: Path) -> None:
        async with cluster(4) as running, AsyncClient.connect(running.bootstrap) as client:
            await client.create_topics([NewTopic("orders", 4, 3)])
            url = f"http://{running.nodes[1].endpoints['http']}/"
            await asyncio.to_thread(_decommission, tmp_path / "decommission", url)
            (orders,) = (await client.metadata(["orders"])).topics
            assert all(3 not in each.replicas for each in orders.partitions)

    async def test_a_table_that_is_drawn_again_takes_no_click_and_no_focus(tmp_path: Path) -> None:
        async with cluster(3) as running:
            url = f"http://{running.nodes[1].endpoints['http']}/"
            await asyncio.to_thread(_press_while_drawn, tmp_path / "press", url)
            await asyncio.to_thread(_focus_while_drawn, tmp_path / "focus", url)

    async def test_a_hanging_transaction_is_ended_and_disks_are_shown(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(operators, "_HANGING_MS", 0)
        async with a_hanging_transaction(tmp_path / "cluster", **{"http.port": 0}) as story:
            url = f"http://{story.cluster.nodes[1].endpoints['http']}/"
            await asyncio.to_thread(_disks_and_transactions, tmp_path / "profile", url)
            found = await story.cli("transactions", "find-hanging", "--max-transaction-timeout", "0")
            assert (found.code, found.out) == (0, "no transaction hangs\n")


async def _fill(client: AsyncClient) -> None:
    await client.create_topics([NewTopic("orders", 4, 3), NewTopic("flights", 6, 2)])
    producer = Producer(client)
    for number in range(200):
        order = {"order": number, "amount": 12345678901234567890, "items": [{"sku": "A-1"}], "note": EVIL}
        headers = (("source", b"shop"), ("evil", EVIL.encode()))
        await producer.send("orders", f"customer-{number % 7}".encode(), json.dumps(order).encode(), headers=headers)
    await producer.send("orders", b"\xff\x00binary", None)
    await producer.flush()
    await producer.close()
    await Groups(client).commit("billing", {TopicPartition("orders", number): 10 for number in range(4)})


def _open(profile: Path, url: str, *, width: int = 1100, height: int = 900, dark: bool = False) -> Browser:
    browser = Browser(profile, width=width, height=height, dark=dark)
    browser.open(url)
    browser.wait("document.body.dataset.drawn")
    return browser


def _end(browser: Browser) -> None:
    assert browser.run("return document.body.dataset.hacked || ''") == ""
    assert browser.run("return document.images.length") == 0
    assert browser.complaints() == []


def _create_a_topic(profile: Path, url: str) -> None:
    with _open(profile, url) as browser:
        browser.click("#nav button[data-page=topics]")
        browser.wait("document.querySelectorAll('#topics tbody button').length === 2")
        assert "__consumer_offsets" not in browser.run("return document.getElementById('topics').innerText")
        browser.click("#topics-internal")
        browser.wait("document.querySelectorAll('#topics tbody button').length === 3")
        browser.click("#topic-create")
        browser.type("#ask input[name=topic]", "payments")
        browser.type("#ask input[name=partitions]", "2")
        browser.type("#ask input[name=replicas]", "3")
        browser.type("#ask textarea[name=settings]", "min.insync.replicas=2")
        browser.click("#ask-do")
        browser.wait(
            "document.body.dataset.page === 'topic' && document.getElementById('topic-title').textContent === 'payments'"
        )
        browser.wait("document.querySelectorAll('#topic-partitions tbody tr').length === 2")
        # A setting, from the keyboard; then one that is refused, and says why.
        browser.click("#topic-actions button")
        browser.type("#ask input[name=key]", "retention.ms")
        browser.type("#ask input[name=value]", "3600000" + ENTER)
        browser.wait("document.getElementById('topic-settings').innerText.includes('3600000')")
        browser.click("#topic-actions button")
        browser.type("#ask input[name=key]", "retention.msx")
        browser.type("#ask input[name=value]", "1" + ENTER)
        browser.wait("document.getElementById('ask-error').textContent.includes('retention.msx')")
        browser.click("#ask-cancel")
        # A record goes out and is shown; then all are deleted.
        browser.click("#m-send")
        browser.type("#ask textarea[name=record]", '{"paid": 5}')
        browser.type("#ask input[name=key]", "customer-1")
        browser.type("#ask textarea[name=headers]", "source=hand")
        browser.click("#ask-do")
        browser.wait("document.querySelectorAll('#records .record').length === 1")
        assert "customer-1" in browser.run("return document.getElementById('records').innerText")
        browser.run(
            "[...document.querySelectorAll('#topic-actions button')].find(b => b.textContent === 'empty').click()"
        )
        browser.type("#ask input[name=confirm]", "payments")
        browser.click("#ask-do")
        browser.wait("document.getElementById('records').innerText.includes('no records here')")
        said = [text for text in browser.complaints() if "409" not in text]  # the refusal
        assert said == []


def _browse_messages(profile: Path, url: str) -> None:
    with _open(profile, url + "#page=topic&name=orders", height=1000) as browser:
        browser.wait("document.querySelectorAll('#records .record').length === 25")
        browser.type("#m-text", '"order": 42,')
        _read(browser, "document.querySelectorAll('#records .record').length === 1")
        browser.click("#records summary")
        browser.wait("document.querySelector('#records pre + *, #records pre')")
        shown = browser.run("return document.getElementById('records').innerText")
        # Pretty, each number as it is, hostile text as text.
        assert '"amount": 12345678901234567890,\n' in shown
        text = '{"a": [1,{"b":"x, [y]"}], "c":{ },"d":[[]]}'
        lines = [
            "{",
            '  "a": [',
            "    1,",
            "    {",
            '      "b": "x, [y]"',
            "    }",
            "  ],",
            '  "c": {},',
            '  "d": [',
            "    []",
            "  ]",
            "}",
        ]
        assert browser.run(f"return pretty({json.dumps(text)})").split("\n") == lines
        # Records of 200 kB froze the page: brackets in brackets were indented by gigabytes, and each bracket searched all that was before it.
        for large in ("'['.repeat(90000) + ']'.repeat(90000)", "'[' + '{\"a\":1},'.repeat(20000) + '{}]'"):
            assert browser.run(f"return pretty({large}).length") < 20_000_000
        assert EVIL in shown
        assert "header source" in shown and "shop" in shown and "customer-0" in shown
        browser.type("#m-text", "")
        browser.type("#m-key", "binary")
        _read(browser, "document.getElementById('records').innerText.includes('ff 00')", by_key=True)
        assert "null" in browser.run("return document.getElementById('records').innerText")
        browser.type("#m-key", "")
        browser.choose("#m-from", "offset")
        browser.type("#m-at", "3")
        browser.choose("#m-partition", "1")
        browser.click("#m-read")
        browser.wait("document.querySelector('#records .place').textContent === '1:3'")
        browser.click("#m-next")
        browser.wait("document.querySelector('#records .place').textContent === '1:28'")
        browser.choose("#m-from", "end")
        browser.click("#m-read")
        browser.wait("document.getElementById('m-next').hidden && document.querySelectorAll('#records .record').length")
        first = browser.run("return document.querySelector('#records .record:last-child .place').textContent")
        browser.click("#m-before")
        expected = f"1:{int(str(first).partition(':')[2]) - 1}"
        browser.wait("document.querySelector('#records .place').textContent === arguments[0]", expected)
        _end(browser)


def _read(browser: Browser, expected: str, *, by_key: bool = False) -> None:
    """Read messages until the page shows them all: on a busy machine one answer may end before it has looked at all records."""
    for _ in range(READS):
        before = browser.run("return Number(document.body.dataset.read)")
        if by_key:
            browser.run("document.getElementById('m-key').focus()")
            browser.press(ENTER)
        else:
            browser.click("#m-read")
        browser.wait("Number(document.body.dataset.read) > arguments[0]", before)
        if browser.run(f"return {expected}"):
            return
        said = str(browser.run("return document.getElementById('records').innerText"))
        assert "more than one answer reads" in said or "not answered" in said, said
    raise AssertionError(f"{READS} answers were not complete")


def _reset_a_group(profile: Path, url: str) -> None:
    with _open(profile, url) as browser:
        browser.press("3")  # the third page, from the keyboard
        browser.wait(
            "document.body.dataset.page === 'groups' && document.querySelectorAll('#groups tbody button').length === 1"
        )
        browser.click("#groups tbody button")
        browser.wait("document.querySelectorAll('#group-offsets tbody tr').length === 4")
        browser.click("#group-reset")
        browser.choose("#ask select[name=to]", "earliest")
        browser.click("#ask-do")  # only shows
        browser.wait("document.querySelectorAll('#ask-preview tbody tr').length === 4")
        browser.click("#ask-do")
        browser.wait("document.getElementById('said').textContent === 'billing: 4 offsets are set'")
        browser.wait("document.querySelector('#group-offsets tbody td:nth-child(2)').textContent === '0'")
        _end(browser)


def _users_and_quotas(profile: Path, url: str) -> None:
    said = "document.getElementById('said').textContent === arguments[0]"
    with _open(profile, url + "#page=security") as browser:
        browser.wait("!document.getElementById('users-add').hidden")
        for user in ("clara", EVIL):
            browser.click("#users-add")
            browser.type("#ask input[name=user]", user)
            browser.type("#ask input[name=password]", "correct horse")
            browser.type("#ask input[name=again]", "correct hors")
            browser.click("#ask-do")
            browser.wait("document.getElementById('ask-error').textContent === 'the two passwords differ'")
            browser.type("#ask input[name=again]", "correct horse" + ENTER)
            browser.wait(said, f"{user} can log in with SCRAM-SHA-256 and SCRAM-SHA-512")
        browser.wait("document.querySelectorAll('#users tbody tr').length === 2")
        browser.click("#users tbody tr:nth-child(1) button:nth-of-type(2)")  # "<" comes before "c"
        browser.type("#ask input[name=confirm]", "clara")
        assert browser.run("return document.getElementById('ask-do').disabled")
        browser.type("#ask input[name=confirm]", EVIL + ENTER)
        browser.wait("document.querySelectorAll('#users tbody tr').length === 1")
        browser.click("#quotas-add")
        browser.type("#ask input[name=user]", "clara")
        browser.type("#ask input[name=producer_byte_rate]", "5000")
        browser.type("#ask input[name=consumer_byte_rate]", "6000" + ENTER)
        browser.wait("document.getElementById('quotas').innerText.includes('consumer_byte_rate=6000')")
        browser.click("#quotas tbody button")
        browser.type("#ask input[name=consumer_byte_rate]", ENTER)
        browser.wait(
            "document.querySelector('#quotas tbody tr').innerText.includes('clara') && !document.getElementById('quotas').innerText.includes('6000')"
        )
        # This cluster has no authorizer: a permission is refused, and the dialog says why.
        browser.click("#acls-add")
        browser.type("#ask input[name=principal]", "User:clara")
        browser.type("#ask input[name=name]", "orders" + ENTER)
        browser.wait("document.getElementById('ask-error').textContent !== ''")
        browser.click("#ask-cancel")
        assert browser.run("return document.body.dataset.hacked || ''") == ""
        assert [text for text in browser.complaints() if "409" not in text] == []  # the refusal


def _decommission(profile: Path, url: str) -> None:
    with _open(profile, url) as browser:
        row = "[...document.querySelectorAll('#brokers tbody tr')].find(r => r.firstChild.textContent === '3')"
        browser.wait(f"{row} && {row}.innerText.includes('decommission')")
        browser.click("#brokers tbody tr:nth-child(3) button:nth-of-type(2)")
        browser.type("#ask input[name=confirm]", "3")
        browser.click("#ask-do")
        browser.wait(f"{row}.innerText.includes('drained: it may be stopped')")
        browser.click("#brokers tbody tr:nth-child(3) button")
        browser.click("#ask-do")
        browser.wait(f"{row}.innerText.includes('cordon')")
        _end(browser)


def _draw_again(browser: Browser) -> None:
    """The table of brokers gets new rows, as when a number in it has changed."""
    before = browser.run("drawn.set($('brokers'), ''); poll(); return Number(document.body.dataset.drawn)")
    browser.wait("Number(document.body.dataset.drawn) > arguments[0]", before)


def _press_while_drawn(profile: Path, url: str) -> None:
    cordon = "#brokers tbody tr:nth-child(2) button"
    with _open(profile, url) as browser:
        browser.wait("document.querySelectorAll('#brokers tbody button').length === 6")
        browser.mouse("pointerDown", cordon)
        _draw_again(browser)
        browser.mouse("pointerUp", cordon)
        browser.wait("document.getElementById('ask').open")
        assert "broker 2" in browser.run("return document.getElementById('ask-title').textContent")
        # Afterwards the table follows again.
        browser.click("#ask-cancel")
        browser.run("document.querySelector('#brokers tbody').dataset.old = 1")
        _draw_again(browser)
        assert browser.run("return document.querySelector('#brokers tbody').dataset.old || ''") == ""
        _end(browser)


def _focus_while_drawn(profile: Path, url: str) -> None:
    with _open(profile, url) as browser:
        browser.wait("document.querySelectorAll('#brokers tbody button').length === 6")
        browser.run("document.querySelectorAll('#brokers tbody tr')[2].querySelectorAll('button')[1].focus()")
        _draw_again(browser)
        assert browser.run("return document.activeElement.textContent") == "decommission"
        browser.press(ENTER)
        browser.wait("document.getElementById('ask').open")
        assert "broker 3" in browser.run("return document.getElementById('ask-title').textContent")
        _end(browser)


def _disks_and_transactions(profile: Path, url: str) -> None:
    with _open(profile, url) as browser:
        browser.wait("document.querySelectorAll('#disks tbody tr').length === 3")
        assert browser.run("return document.getElementById('disks').innerText").count("online") == 3
        browser.click("#nav button[data-page=transactions]")
        browser.wait("document.getElementById('hanging').innerText.includes('CompleteAbort')")
        assert browser.run("return document.querySelectorAll('#open tbody tr').length") == 2
        browser.click("#hanging tbody td:last-child button")
        browser.click("#ask-do")
        browser.wait("document.getElementById('hanging').innerText.includes('none hangs')")
        _end(browser)


async def _look_around(running: Cluster, tmp_path: Path, url: str) -> None:
    def phone() -> None:
        with _open(tmp_path / "phone", url + "#page=topic&name=orders", width=390, height=800) as browser:
            browser.wait("document.querySelectorAll('#records .record').length === 25")
            browser.click("#records summary")
            browser.wait("document.querySelector('#records pre')")
            # Tables scroll within their cards; the page itself does not grow sideways.
            assert browser.run("return document.documentElement.scrollWidth") <= 390
            # All pages can be seen in the navigation, too.
            assert browser.run("return $('nav').scrollWidth <= $('nav').clientWidth")
            _end(browser)

    def dark() -> None:
        with _open(tmp_path / "dark", url, dark=True) as browser:
            for page in ("transactions", "security", "topics"):
                browser.click(f"#nav button[data-page={page}]")
                browser.wait("document.body.dataset.page === arguments[0]", page)
            browser.wait("document.querySelectorAll('#topics tbody button').length === 3")
            assert browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(15, 20, 24)"
            # Deleting takes the name; a wrong one leaves the button dead.
            browser.run(
                "[...document.querySelectorAll('#topics tbody button')].find(b => b.textContent === 'payments').click()"
            )
            browser.wait(
                "document.getElementById('topic-title').textContent === 'payments' && document.querySelector('#topic-actions .danger')"
            )
            browser.click("#topic-actions .danger:last-child")
            browser.type("#ask input[name=confirm]", "payment")
            assert browser.run("return document.getElementById('ask-do').disabled")
            browser.type("#ask input[name=confirm]", "payments")
            browser.click("#ask-do")
            browser.wait(
                "document.body.dataset.page === 'topics' && document.querySelectorAll('#topics tbody button').length === 2"
            )
            _end(browser)

    await asyncio.to_thread(phone)
    await asyncio.to_thread(dark)
