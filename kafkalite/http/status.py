"""The HTTP pages of a node: metrics, liveness, readiness, and the console's page.

The console is one page without anything from elsewhere. What it shows of the cluster it asks of /api/status, a page of
partitions at a time, and of /api/why; everything else of /api/console/ (kafkalite.http.console).
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import importlib
import json
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from kafkalite.client.admin.cluster_status import status_value
from kafkalite.client.admin.why import diagnose, gather
from kafkalite.env.turns import result_of
from kafkalite.errors import ErrorCode
from kafkalite.extension.messages.watching import StatusRequest
from kafkalite.http.authentication import AuthenticatedRequest
from kafkalite.http.page import Page
from kafkalite.http.server import Handler
from kafkalite.http.values import cut, given, whole
from kafkalite.model import NO_LEADER, TopicPartition
from kafkalite.partition_values import PartitionMetadata
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.rpc.messages.control import PartitionState
from kafkalite.telemetry.advice import advice

if TYPE_CHECKING:
    from kafkalite.http.host import ObservedNode
    from kafkalite.http.metrics import Exposition

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: In the order in which they run.
_SCRIPTS = ("base.js", "cluster.js", "topics.js", "messages.js", "groups.js", "schemas.js", "operators.js", "start.js")
#: One node's patience when it is asked why.
_WHY_S = 3.0
#: Of a broker's or partition's number.
_MAX_INT = 2**31 - 1


class StatusPages:
    """What the HTTP listener serves."""

    def __init__(self, node: ObservedNode) -> None:
        self._node = node
        self._exposition: Exposition | None = None

    def pages(self) -> Mapping[str, Handler]:
        return {
            "/": lambda asked: console_page(),
            "/console": lambda asked: console_page(),
            "/api/status": self._status,
            "/api/why": self._why,
            "/metrics": self._metrics,
            "/healthz": self._healthz,
            "/readyz": self._readyz,
        }

    async def _metrics(self, asked: AuthenticatedRequest) -> Page:
        if self._exposition is None:
            # No start waits for what only a scrape needs, and the loop does not wait while it is imported.
            await self._node.env.disk.run_blocking(lambda: importlib.import_module("kafkalite.http.metrics"))
            from kafkalite.http.metrics import Exposition

            self._exposition = Exposition(self._node)
        return Page(await self._exposition.text(), _METRICS_TYPE)

    async def _healthz(self, asked: AuthenticatedRequest) -> Page:
        if not asked.sees_cluster:  # that it answers is what a probe wants to know
            return _json({"id": self._node.local.broker_id})
        found = await self._node.health.ask()
        problems = [{**dataclasses.asdict(problem), "do": advice(problem.what).do} for problem in found]
        return _json({"id": self._node.local.broker_id, "problems": problems})

    async def _readyz(self, asked: AuthenticatedRequest) -> Page:
        """Whether clients should be sent here. It stays 200 if only ZooKeeper is away, because each node goes on serving (ADR 15).
        Liveness probes ask `/healthz`: a restart would only end what still works."""
        node = self._node
        is_up = node.ready.is_set() and not node.stopping
        serves = is_up and await result_of(node.replicas.hosted.serves())
        text = "ready" if serves else "not ready"
        away = node.zookeeper.away()
        return Page(f"{text}; {away}\n".encode() if away else f"{text}\n".encode(), status=200 if serves else 503)

    async def _status(self, asked: AuthenticatedRequest) -> Page:
        values = _values_of(asked.query)
        answer = await self._node.overview.answer(StatusRequest(**values))
        if answer.error:
            return _json({"error": answer.message}, status=400)
        return _json(status_value(answer))

    async def _why(self, asked: AuthenticatedRequest) -> Page:
        partition = TopicPartition(given(asked.query, "topic"), whole(asked.query, "partition", None, 0, _MAX_INT))
        cache, peers = self._node.metadata, self._node.peers
        states = cache.topic(partition.topic)
        state = (states or {}).get(partition.partition)
        if state is None:
            text = f"there is no partition {partition}" if states else f"there is no topic {cut(partition.topic)}"
            return Page(f"{text}\n".encode(), status=404)
        known = await gather(
            partition,
            _metadata(state, cache),
            lambda message: peers.every_node(message, timeout_s=_WHY_S),
            lambda: frozenset(broker.broker_id for broker in cache.brokers()),
        )
        return _json({**dataclasses.asdict(diagnose(known)), "at_ms": self._node.env.clock.wall_ms()})


def _values_of(query: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a StatusRequest. Raises ValueError."""
    known = {field.name: field.default for field in dataclasses.fields(StatusRequest)}
    if unknown := sorted(query.keys() - known.keys()):
        raise ValueError(f"unknown parameters: {', '.join(map(cut, unknown))}")
    return {
        name: whole(query, name, default, -1 if name == "broker_id" else 0, _MAX_INT)
        if isinstance(default := known[name], int)
        else text
        for name, text in query.items()
    }


def _metadata(state: PartitionState, cache: MetadataCache) -> PartitionMetadata:
    """As in a response to a client: a leader that is not alive does not count."""
    return PartitionMetadata(
        state.partition,
        int(ErrorCode.NONE),
        state.leader if cache.broker(state.leader) is not None else NO_LEADER,
        state.leader_epoch,
        state.replicas,
        state.isr,
        state.elr,
        state.last_known_elr,
        state.adding_replicas,
    )


@cache
def console_page() -> Page:
    """The page itself, joined from its files. Its one script may run, and nothing else: markup that slips in stays dead."""
    from importlib import resources  # also loads tempfile, shutil and zipfile

    files = resources.files("kafkalite.http.console").joinpath("page")

    def read(name: str) -> str:
        return files.joinpath(name).read_text(encoding="utf-8")

    script = "".join(read(name) for name in _SCRIPTS)
    text = read("index.html").replace("@@style@@", read("style.css")).replace("@@script@@", script)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return Page(text.encode(), "text/html; charset=utf-8", headers=(("content-security-policy", policy),))


def _json(value: object, *, status: int = 200) -> Page:
    return Page(json.dumps(value).encode(), "application/json", status)
