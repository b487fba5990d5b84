"""The pictures of the console in docs/images: a cluster at work, in light, in dark and on a phone.

    python -m tests.support.console_pictures [DIRECTORY]        (`make console SCREENSHOTS=1`; needs chromium and chromedriver)

Producers write to three topics, a consumer group reads one of them too slowly, and at the end one broker is stopped. The samples for the
plots are taken faster than a node takes them, so the time below the plots is longer than it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import math
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from kafkalite.client.admin.quotas import alter_quotas
from kafkalite.client.admin.users import NewCredential, alter_user
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.producer import Producer
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.security.quotas import Entity
from kafkalite.testing.cluster import Cluster, cluster
from tests.support.browser import Browser

ROOT = Path(__file__).parents[2]
#: Topic -> partitions, and the share of the load.
TOPICS = {"flights": (6, 0.4), "orders": (4, 1.0), "payments": (2, 0.6)}
SAMPLES, PAUSE_S = 60, 0.3
WIDTH, HEIGHT = 1100, 900
_PHONE = 390


@dataclass(frozen=True)
class Picture:
    """One file: the place on the page, what must be there, what is clicked, in which window."""

    name: str
    place: str
    ready: str
    clicks: tuple[tuple[str, str], ...] = ()
    width: int = WIDTH
    height: int = HEIGHT
    dark: bool = False


_PARTITIONS = (
    "document.querySelectorAll('#partitions tbody tr').length === 12 && document.querySelector('.plot polyline')"
)
_WELL = f"{_PARTITIONS} && document.querySelector('#tiles').innerText.includes('3 of 3')"
_RECORDS = "document.querySelectorAll('#records .record').length === 25"
_OPENED = ("#records summary", "document.querySelector('#records pre')")
AT_WORK = (
    Picture("status-light", "", _WELL),
    Picture("status-narrow", "", _WELL, width=_PHONE, height=800),
    Picture(
        "console-dark",
        "page=topics",
        "document.querySelectorAll('#topics tbody button').length === 3",
        dark=True,
        height=420,
    ),
    Picture("console-topic", "page=topic&name=orders", _RECORDS, (_OPENED,), height=1200),
    Picture("console-phone", "page=topic&name=orders", _RECORDS, (_OPENED,), width=_PHONE, height=1000),
    Picture(
        "console-group",
        "page=group&name=billing",
        "document.querySelectorAll('#group-offsets tbody tr').length === 4",
        (
            ("#group-reset", "true"),
            ("#ask select[name=to] option[value=earliest]", "true"),
            ("#ask-do", "document.querySelectorAll('#ask-preview tbody tr').length === 4"),
        ),
        height=760,
    ),
    Picture("console-users", "page=security", "document.querySelectorAll('#users tbody tr').length === 2", height=520),
)
IN_TROUBLE = (
    Picture(
        "status-dark",
        "state=troubled",
        "document.querySelector('#problems').innerText.includes('broker.unreachable')",
        dark=True,
    ),
    Picture(
        "status-why",
        "state=troubled",
        "document.querySelector('#problems').innerText.includes('broker.unreachable')",
        (("#partitions tbody button", "document.body.dataset.why"),),
        dark=True,
    ),
)


def take(picture: Picture, url: str, directory: Path) -> None:
    """Open the page and write the file. Raises AssertionError if the page complains."""
    with (
        tempfile.TemporaryDirectory(prefix="pictures-") as profile,
        Browser(Path(profile), width=picture.width, height=picture.height, dark=picture.dark) as browser,
    ):
        browser.open(f"{url}#{picture.place}")
        browser.wait(f"({picture.ready}) && !document.body.innerText.includes('not measured yet')")
        for selector, shown in picture.clicks:
            if "option[" in selector:
                browser.click(selector)
            else:  # tables are drawn again every few seconds: found and clicked in one step
                browser.run("document.querySelector(arguments[0]).click()", selector)
            browser.wait(shown)
        browser.run("if (document.activeElement) document.activeElement.blur()")
        assert browser.run("return document.documentElement.scrollWidth") <= picture.width, picture.name
        browser.screenshot(directory / f"{picture.name}.png")
        assert browser.complaints() == [], picture.name
    print(picture.name, flush=True)


def _record(topic: str, number: int) -> tuple[bytes, bytes]:
    customer = f"customer-{number % 97}"
    value = {
        "id": f"{topic[:2]}-{number:06d}",
        "customer": customer,
        "amount": round(19.9 + number * 7.3 % 480, 2),
        "items": [{"sku": f"A-{number % 13}", "count": 1 + number % 3}],
    }
    return customer.encode(), json.dumps(value).encode()


@asynccontextmanager
async def _slow_reader(bootstrap: list[str]) -> AsyncIterator[asyncio.StreamReader]:
    """A member of the group billing; it reads on when somebody takes its lines."""
    command = [sys.executable, "-m", "kafkalite_cli", "consume", "orders", "--group", "billing", "--from", "beginning"]
    environ = os.environ | {"KAFKALITE_BOOTSTRAP": ",".join(bootstrap)}
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=environ, limit=4096)
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        with contextlib.suppress(ProcessLookupError):  # it has ended
            process.kill()
        await process.communicate()  # what is left in the pipe keeps it open


async def _read(lines: asyncio.StreamReader) -> None:
    """Sometimes less than is written, sometimes more. Goes on until it is cancelled."""
    for number in itertools.count():
        await lines.readline()
        if number % (100 if number % 4000 < 2000 else 40) == 0:
            await asyncio.sleep(PAUSE_S)


async def _work(running: Cluster, client: AsyncClient, enough: asyncio.Event) -> None:
    """The load rises and falls between the samples. Goes on until it is cancelled."""
    producer, number = Producer(client), 0
    for step in itertools.count():
        for topic, (_, share) in TOPICS.items():
            for _ in range(int(share * (60 + 40 * math.sin(step / 5) + 11 * (step % 3)))):
                key, value = _record(topic, number)
                await producer.send(topic, key, value, headers=(("source", b"shop"),))
                number += 1
        await producer.flush()
        for node in running.nodes.values():
            await node.sampler.sample()
        if step == SAMPLES:
            enough.set()
        await asyncio.sleep(PAUSE_S)


async def pictures(directory: Path) -> None:
    """All of them."""
    async with (
        cluster(3, settings={"broker.rack": "room-1"}) as running,
        AsyncClient.connect(running.bootstrap) as client,
    ):
        await client.create_topics([NewTopic(name, count, 3) for name, (count, _) in TOPICS.items()])
        for user in ("clara", "shop"):
            made = NewCredential("SCRAM-SHA-512", 8192, os.urandom(24), os.urandom(64))
            await alter_user(client, user, credentials=[made])
        await alter_quotas(client, Entity("shop", None), {"producer_byte_rate": 5_000_000.0})
        url = f"http://{running.nodes[2].endpoints['http']}/"
        async with _slow_reader(running.bootstrap) as lines, asyncio.TaskGroup() as tasks:
            enough = asyncio.Event()
            work = [tasks.create_task(_work(running, client, enough)), tasks.create_task(_read(lines))]
            await enough.wait()
            for picture in AT_WORK:
                await asyncio.to_thread(take, picture, url, directory)
            for each in work:
                each.cancel()
            await running.stop_node(3)
            for picture in IN_TROUBLE:
                await asyncio.to_thread(take, picture, url, directory)


if __name__ == "__main__":
    wanted = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images"
    wanted.mkdir(parents=True, exist_ok=True)
    asyncio.run(pictures(wanted))
