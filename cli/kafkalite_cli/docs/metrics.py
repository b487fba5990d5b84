"""The pages that come from the catalogue of metrics: docs/metrics.md and the Grafana dashboard."""

from __future__ import annotations

import json
from typing import Any

from kafkalite.http.metrics import COUNTER, HISTOGRAM, METRICS, Spec


def _exposed(spec: Spec) -> str:
    if spec.kind == COUNTER:
        return f"{spec.name}_total"
    return f"{spec.name}_bucket, _sum, _count" if spec.kind == HISTOGRAM else spec.name


def metrics_page() -> str:
    """docs/metrics.md."""
    lines = [
        "# Metrics",
        "",
        "Written by `make docs` from kafkalite/http/metrics.py; do not edit.",
        "",
        "Every node serves these at `/metrics` on its HTTP port, in the text format of Prometheus. Names are Kafka's, as its JMX",
        "exporter spells them; `kafkalite_` marks what Kafka does not have. Hot paths only count integers; the text is generated at",
        "each scrape. Metrics of logs are per topic; for one partition see `/api/status` and `admin describe --internal`. In addition",
        "there are the `process_*` metrics of the Prometheus client (memory, CPU, open files).",
        "",
        "[docs/grafana/kafkalite.json](grafana/kafkalite.json) is a dashboard over them: import it in Grafana and choose the data source.",
        "[docs/prometheus/alerts.yml](prometheus/alerts.yml) has alert rules for Prometheus: name it under `rule_files`, and change what",
        "does not fit. Each alert names the page that says what to do.",
        "",
        "| metric | kind | labels | meaning |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {_exposed(spec)} | {spec.kind} | {', '.join(spec.labels)} | {spec.help} |"
        for spec in sorted(METRICS, key=lambda spec: spec.name)
    ]
    return "\n".join(lines) + "\n"


_RM, _TOPICS = "kafka_server_replicamanager_", "kafka_server_brokertopicmetrics_"
_CONTROLLER, _REQUESTS = "kafka_controller_kafkacontroller_", "kafka_network_requestmetrics_"


def _rate(metric: str, by: str = "instance") -> str:
    return f"sum by ({by}) (rate({metric}_total[1m]))"


def _p99(metric: str, by: str) -> str:
    return f"histogram_quantile(0.99, sum by (le, {by}) (rate({metric}_bucket[1m])))"


#: Row: (title, [(panel, kind, unit, [(expression, legend)])]).
_ROWS: tuple[tuple[str, tuple[tuple[str, str, str, tuple[tuple[str, str], ...]], ...]], ...] = (
    (
        "Is all well?",
        (
            ("Offline partitions", "stat", "short", ((f"sum({_CONTROLLER}offlinepartitionscount)", ""),)),
            ("Under min ISR", "stat", "short", ((f"sum({_RM}underminisrpartitioncount)", ""),)),
            ("Under-replicated", "stat", "short", ((f"sum({_RM}underreplicatedpartitions)", ""),)),
            ("Active controllers", "stat", "short", ((f"sum({_CONTROLLER}activecontrollercount)", ""),)),
            ("Dead disks", "stat", "short", (("sum(kafka_log_logmanager_offlinelogdirectorycount)", ""),)),
            ("Problems", "timeseries", "short", (("sum by (what) (kafkalite_health_problems)", "{{what}}"),)),
        ),
    ),
    (
        "Traffic",
        (
            ("Bytes in", "timeseries", "Bps", ((_rate(_TOPICS + "bytesin"), "{{instance}}"),)),
            ("Bytes out", "timeseries", "Bps", ((_rate(_TOPICS + "bytesout"), "{{instance}}"),)),
            ("Records in", "timeseries", "cps", ((_rate(_TOPICS + "messagesin"), "{{instance}}"),)),
            ("Replication", "timeseries", "Bps", (
                (_rate(_TOPICS + "replicationbytesin"), "in {{instance}}"),
                (_rate(_TOPICS + "replicationbytesout"), "out {{instance}}"),
            )),
            ("Topics, bytes in", "timeseries", "Bps", (("topk(10, " + _rate("kafkalite_topic_bytes_in", "topic") + ")", "{{topic}}"),)),
            ("Topics, bytes out", "timeseries", "Bps", (("topk(10, " + _rate("kafkalite_topic_bytes_out", "topic") + ")", "{{topic}}"),)),
            ("Topics, records in", "timeseries", "cps", (("topk(10, " + _rate("kafkalite_topic_messages_in", "topic") + ")", "{{topic}}"),)),
            ("Topics, records out", "timeseries", "cps", (("topk(10, " + _rate("kafkalite_topic_messages_out", "topic") + ")", "{{topic}}"),)),
            ("Refused", "timeseries", "cps", (
                (_rate(_TOPICS + "failedproducerequests"), "produce {{instance}}"),
                (_rate(_TOPICS + "failedfetchrequests"), "fetch {{instance}}"),
            )),
        ),
    ),
    (
        "Consumer groups",
        (
            ("Lag", "timeseries", "short", (("topk(10, sum by (consumergroup) (kafka_consumergroup_lag_sum))", "{{consumergroup}}"),)),
            ("Lag by topic", "timeseries", "short", (("topk(10, sum by (consumergroup, topic) (kafka_consumergroup_lag_sum))", "{{consumergroup}} {{topic}}"),)),
            ("Members", "timeseries", "short", (("sum by (consumergroup) (kafka_consumergroup_members)", "{{consumergroup}}"),)),
        ),
    ),
    (
        "Requests",
        (
            ("Requests", "timeseries", "reqps", ((_rate(_REQUESTS + "requests", "request"), "{{request}}"),)),
            ("Total time, 99 %", "timeseries", "ms", ((_p99(_REQUESTS + "totaltimems", "request"), "{{request}}"),)),
            ("Own work, 99 %", "timeseries", "ms", ((_p99(_REQUESTS + "localtimems", "request"), "{{request}}"),)),
            ("Waiting, 99 %", "timeseries", "ms", ((_p99(_REQUESTS + "remotetimems", "request"), "{{request}}"),)),
            ("Connections", "timeseries", "short", (("sum by (instance, listener) (kafka_server_socketservermetrics_connectioncount)", "{{listener}} {{instance}}"),)),
            ("Waiting requests", "timeseries", "short", ((f"{_RM}delayedoperations", "{{instance}}"),)),
        ),
    ),
    (
        "Replication",
        (
            ("ISR changes", "timeseries", "cps", (
                (_rate(_RM + "isrshrinks"), "shrinks {{instance}}"), (_rate(_RM + "isrexpands"), "expands {{instance}}"),
            )),
            ("Lag of the slowest follower", "timeseries", "short", (("kafkalite_follower_lag_max", "{{instance}}"),)),
            ("Leaders", "timeseries", "short", ((f"{_RM}leadercount", "{{instance}}"),)),
            ("Not led by the preferred leader", "timeseries", "short", ((f"sum({_CONTROLLER}preferredreplicaimbalancecount)", ""),)),
        ),
    ),
    (
        "Controller and ZooKeeper",
        (
            ("Event queue, 99 %", "timeseries", "ms", ((_p99("kafka_controller_controllereventmanager_eventqueuetimems", "instance"), "{{instance}}"),)),
            ("Elections", "timeseries", "cps", (
                (_rate("kafka_controller_controllerstats_leaderelections"), "clean {{instance}}"),
                (_rate("kafka_controller_controllerstats_uncleanleaderelections"), "unclean {{instance}}"),
            )),
            ("Last failover", "timeseries", "ms", (("kafkalite_controller_failover_milliseconds", "{{kind}} {{phase}} {{instance}}"),)),
            ("Session lease", "timeseries", "s", (("kafkalite_session_lease_seconds", "{{instance}}"),)),
            ("Sessions ended", "timeseries", "cps", ((_rate("kafka_server_sessionexpirelistener_zookeeperexpires"), "{{instance}}"),)),
        ),
    ),
    (
        "Disks",
        (
            ("Room left", "timeseries", "bytes", (("kafkalite_disk_free_bytes", "{{logdirectory}} {{instance}}"),)),
            ("Logs", "timeseries", "bytes", (("topk(10, sum by (topic) (kafka_log_log_size))", "{{topic}}"),)),
            ("Memory", "timeseries", "bytes", (("process_resident_memory_bytes", "{{instance}}"),)),
        ),
    ),
)  # fmt: skip

_WIDTH, _COLUMNS = 24, 3


def grafana_dashboard() -> str:
    """docs/grafana/kafkalite.json."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in _ROWS:
        panels.append(_panel(len(panels) + 1, title, "row", 0, top, _WIDTH, 1))
        top += 1
        left = height = 0
        for name, kind, unit, targets in row:
            width, tall = (4, 4) if kind == "stat" else (_WIDTH // _COLUMNS, 8)
            if left + width > _WIDTH:
                left, top, height = 0, top + height, 0
            panel = _panel(len(panels) + 1, name, kind, left, top, width, tall)
            panel["datasource"] = {"type": "prometheus", "uid": "${datasource}"}
            panel["fieldConfig"] = {"defaults": {"unit": unit, "min": 0}, "overrides": []}
            panel["targets"] = [
                {"refId": chr(ord("A") + index), "expr": expression, "legendFormat": legend or "__auto"}
                for index, (expression, legend) in enumerate(targets)
            ]
            panels.append(panel)
            left, height = left + width, max(height, tall)
        top += height
    dashboard = {
        "title": "kafkalite",
        "uid": "kafkalite",
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "tags": ["kafka"],
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
        "panels": panels,
    }
    return json.dumps(dashboard, indent=1, ensure_ascii=False) + "\n"


def _panel(number: int, title: str, kind: str, x: int, y: int, w: int, h: int) -> dict[str, Any]:
    return {"id": number, "title": title, "type": kind, "gridPos": {"x": x, "y": y, "w": w, "h": h}}
