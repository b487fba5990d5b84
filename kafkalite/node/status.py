"""The HTTP pages of a node: metrics, liveness, readiness, and a status page for people."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest

from kafkalite.node.http_server import Handler, Page
from kafkalite.node.metrics import NodeCollector

if TYPE_CHECKING:
    from kafkalite.node.node import Node

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: A page that a person reads does not list ten thousand rows.
_MAX_ROWS = 500

_STYLE = """
body{font:14px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;color:#1b2733;background:#fbfcfd}
h1{font-size:1.35rem;margin:0 0 .2rem}h2{font-size:1.02rem;margin:1.6rem 0 .4rem}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.28rem .6rem;border-bottom:1px solid #e2e8ee;font-variant-numeric:tabular-nums}
th{font-weight:600;color:#52616f}.ok{color:#117a4b}.bad{color:#b3261e;font-weight:600}.dim{color:#6b7a88}
@media(prefers-color-scheme:dark){body{background:#12171c;color:#dce4ea}th,td{border-color:#2a343d}th{color:#93a3b0}.ok{color:#4cc38a}.bad{color:#ff7b72}}
"""


class StatusPages:
    """What the HTTP listener serves."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(NodeCollector(node))

    def pages(self) -> Mapping[str, Handler]:
        return {
            "/": self._status,
            "/metrics": lambda: Page(generate_latest(self._registry), _METRICS_TYPE),
            "/healthz": self._healthz,
            "/readyz": self._readyz,
        }

    def _healthz(self) -> Page:
        problems = [
            {"what": p.what, "since_ms": p.since_ms, "detail": p.detail, "subject": p.subject}
            for p in self._node.problems()
        ]
        body = json.dumps({"id": self._node.broker_id, "problems": problems}).encode()
        return Page(body, "application/json", 200)

    def _readyz(self) -> Page:
        serves = self._node.ready.is_set() and not self._node.stopping and self._node.session.usable()
        return Page(b"ready\n" if serves else b"not ready\n", status=200 if serves else 503)

    def _status(self) -> Page:
        node = self._node
        metadata = node.metadata
        parts = [
            f"<h1>kafkalite node {node.broker_id}</h1>",
            (
                f"<p class=dim>cluster {html.escape(node.cluster_id)} · controller is node {metadata.controller_id}"
                f" (epoch {metadata.controller_epoch})"
                f" · session {'<span class=ok>live</span>' if node.session.usable() else '<span class=bad>fenced</span>'}</p>"
            ),
            self._problems(),
            "<h2>Nodes</h2>",
            _table(
                ("id", "RPC", "Kafka", "rack", "epoch"),
                (
                    (
                        str(b.broker_id),
                        f"{b.rpc_host}:{b.rpc_port}",
                        f"{b.kafka_host}:{b.kafka_port}" if b.kafka_port >= 0 else "",
                        b.rack or "",
                        str(b.broker_epoch),
                    )
                    for b in metadata.brokers()
                ),
            ),
            self._disks(),
            self._partitions(),
        ]
        page = (
            "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
            f"<meta http-equiv=refresh content=2><title>kafkalite {node.broker_id}</title><style>{_STYLE}</style>"
            + "".join(parts)
            + "</html>"
        )
        return Page(page.encode(), "text/html; charset=utf-8")

    def _problems(self) -> str:
        problems = self._node.problems()
        if not problems:
            return "<p class=ok>Nothing is wrong that this node can see.</p>"
        rows = ((p.what, p.subject, p.detail) for p in problems[:_MAX_ROWS])
        return "<h2 class=bad>Problems</h2>" + _table(("what", "where", "detail"), rows)

    def _disks(self) -> str:
        rows = (
            (
                each.path,
                "online" if each.online and not each.is_full else "full" if each.online else "OFFLINE",
                str(each.log_count),
                each.offline_reason,
            )
            for each in self._node.logs.dirs()
        )
        return "<h2>Disks</h2>" + _table(("directory", "state", "replicas", "why"), rows)

    def _partitions(self) -> str:
        replicas = self._node.replicas.describe(()).replicas
        rows = (
            (
                f"{r.topic}-{r.partition}",
                "leader" if r.is_leader else f"follows {r.leader}",
                str(r.leader_epoch),
                " ".join(map(str, r.isr)),
                " ".join(map(str, r.replicas)),
                f"{r.high_watermark:,}",
                f"{r.log_end_offset:,}",
                f"{r.size_bytes:,}",
            )
            for r in replicas[:_MAX_ROWS]
        )
        more = "" if len(replicas) <= _MAX_ROWS else f"<p class=dim>… and {len(replicas) - _MAX_ROWS:,} more</p>"
        head = ("partition", "role", "epoch", "in sync", "replicas", "high watermark", "log end", "bytes")
        return f"<h2>Replicas here: {len(replicas):,}</h2>{_table(head, rows)}{more}"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    top = "".join(f"<th>{html.escape(cell)}" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}" for cell in row) for row in rows)
    return f"<table><tr>{top}{body}</table>"
