"""What people may type into the addresses of a node's pages: each refusal is a sentence, none is Python's."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from urllib.parse import urlencode

from kafkalite.client.async_client import AsyncClient
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.testing.cluster import cluster

#: Path -> its parameters that are numbers, beside those that it needs.
_NUMBERS = {
    "status?": ("broker_id", "offset", "limit", "topics_offset", "topics_limit"),
    "why?topic=t": ("partition",),
    "console/topics?": ("offset", "limit"),
    "console/topic?topic=t": ("offset",),
    "console/messages?topic=t&from=offset": ("partition", "at", "limit"),
    "console/groups?": ("offset", "limit"),
    "console/security?": ("offset",),
}
_HUGE = "9" * 5000
_NO_NUMBERS = ("abc", "1_0", "+1", " 1", "1.5", "\u0661", "\x00", _HUGE)
_OUTSIDE = ("-2", "99999999999999999999999")
_OTHERS = {
    "why": (400, "topic is missing"),
    "why?topic=t": (400, "partition is missing"),
    "why?topic=t&partition=": (400, "partition is missing"),
    "why?topic=t&partition=7": (404, "there is no partition t-7"),
    "why?topic=nope&partition=0": (404, "there is no topic 'nope'"),
    f"why?topic={_HUGE}&partition=0": (404, "there is no topic"),
    "why?topic=t&partition=0&topic=t": (400, "'topic' is given twice"),
    "status?text=a&text=b": (400, "'text' is given twice"),
    "status?nosuch=1": (400, "unknown parameters: 'nosuch'"),
    "status?" + "&".join(f"a{number}=1" for number in range(30)): (400, "more than 20 parameters"),
    "console/topic": (400, "topic is missing"),
    "console/group": (400, "group is missing"),
    "console/messages": (400, "topic is missing"),
    "console/messages?topic=t&from=nowhere": (400, "from: 'nowhere' is not end, start"),
    "console/messages?topic=t&from=next&places=7": (400, "places: '7' is not PARTITION:OFFSET"),
    "console/messages?topic=t&from=next&places=0:x": (400, "places: 'x' is not a whole number"),
    "console/messages?topic=t&from=next&places=0:-5": (400, "places: -5 is not between 0 and"),
    "console/messages?topic=t&from=next&places=0:99999999999999999999999": (400, "places: 99999999999999999999999 is"),
}  # fmt: skip


def _get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=150) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read().decode()


async def test_what_is_refused_says_why() -> None:
    """`/api/why` without a partition said "invalid literal for int() with base 10: ''"."""
    wanted = {
        f"{path}&{urlencode({name: text})}": (400, f"{name}: ")
        for path, names in _NUMBERS.items()
        for name in names
        for text in (*_NO_NUMBERS, *_OUTSIDE)
    }
    wrong = []
    async with cluster(1) as running, AsyncClient.connect(running.bootstrap) as client:
        await client.create_topics([NewTopic("t", 1, 1)])
        base = f"http://{running.nodes[1].endpoints['http']}/api/"
        for path, (status, text) in {**wanted, **_OTHERS}.items():
            code, said = await asyncio.to_thread(_get, base + path)
            if code != status or not said.startswith(text) or len(said) > 200 or said.count("\n") != 1:
                wrong.append((path[:100], code, said[:200]))
        assert json.loads((await asyncio.to_thread(_get, base + "why?topic=t&partition=0"))[1])["leader"] == 1
    assert not wrong, "\n".join(map(str, wrong))
