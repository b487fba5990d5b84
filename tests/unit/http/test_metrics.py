"""The metrics of a running cluster against the catalogue, and the dashboard against both."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kafkalite.client.admin.groups import Groups
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.producer import Producer
from kafkalite.env.turns import at_once
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.http.metrics import COUNTER, HISTOGRAM, METRICS, histogram, labelled, single, text_of
from kafkalite.model import TopicPartition
from kafkalite.telemetry.counters import BUCKETS_MS, Requests, Timing
from kafkalite.testing.cluster import Cluster, cluster

ROOT = Path(__file__).parents[3]


def scrape(running: Cluster, node: int) -> dict[str, dict[tuple[str, ...], float]]:
    """Sample -> values of its labels -> value."""
    with urllib.request.urlopen(f"http://{running.nodes[node].endpoints['http']}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def samples_of(name: str, kind: str) -> set[str]:
    if kind == COUNTER:
        return {f"{name}_total"}
    return {f"{name}_bucket", f"{name}_sum", f"{name}_count"} if kind == HISTOGRAM else {name}


@pytest.mark.checklist(61)
async def test_a_working_cluster_tells_every_metric() -> None:
    async with cluster(3) as running, AsyncClient.connect(running.bootstrap) as client:
        await client.create_topics([NewTopic("counted", 3, 3, configs={"min.insync.replicas": "2"})])
        async with Producer(client) as producer:
            for number in range(300):
                await producer.send("counted", None, b"%d" % number, partition=number % 3)
        for number in range(3):
            await client.fetch_raw(TopicPartition("counted", number), 0)
        await Groups(client).commit("watchers", {TopicPartition("counted", 0): 5})
        for node in running.nodes.values():
            await node.sampler.sample()
        told = {node: await asyncio.to_thread(scrape, running, node) for node in running.nodes}

        def total(name: str, *labels: str) -> float:
            return sum(samples.get(name, {}).get(labels, 0) for samples in told.values())

        catalogue: set[str] = set().union(*(samples_of(spec.name, spec.kind) for spec in METRICS))
        seen = {name for samples in told.values() for name in samples if not name.startswith("process_")}
        assert seen <= catalogue
        # Those that a healthy cluster in its first second has no values for.
        quiet = {
            "kafkalite_health_problems",
            "kafkalite_client_metric",  # no administrator has subscribed to any
            "kafkalite_controller_rpcs_failed_total",
            "kafka_server_authorizer_metrics_authorization_denied_total",
            # Nobody is asked who they are (test_access.py).
            "kafka_server_socketservermetrics_successful_authentication_total",
            "kafka_server_socketservermetrics_failed_authentication_total",
            "kafkalite_tls_refused_total",
            # It counts turns of 1 ms or more: on a fast machine there may be none.
            *samples_of("kafkalite_event_loop_held_ms", HISTOGRAM),
        }
        assert catalogue - seen <= quiet

        assert total("kafka_server_brokertopicmetrics_messagesin_total") >= 300
        assert total("kafkalite_topic_bytes_in_total", "counted") > 300
        written = total("kafkalite_topic_bytes_in_total", "counted")
        assert total("kafka_log_log_size", "counted") == 3 * written
        assert total("kafka_server_brokertopicmetrics_bytesout_total") >= written
        assert total("kafkalite_topic_bytes_out_total", "counted") == written
        assert total("kafkalite_topic_messages_in_total", "counted") == 300
        assert total("kafkalite_topic_messages_out_total", "counted") == 300
        assert total("kafka_consumergroup_lag", "watchers", "0", "counted") == 95
        assert total("kafka_consumergroup_lag_sum", "watchers", "counted") == 95
        in_, out = (total(f"kafka_server_brokertopicmetrics_replicationbytes{way}_total") for way in ("in", "out"))
        assert in_ == out >= 2 * written
        assert total("kafka_controller_kafkacontroller_activecontrollercount") == 1
        names = ("detected", "read", "decided", "written", "sent", "acked")
        elected = [total("kafkalite_controller_failover_milliseconds", "controller", name) for name in names]
        assert 0 < elected[0] <= elected[1] <= elected[2] <= elected[4] <= elected[5]
        assert total("kafka_controller_kafkacontroller_activebrokercount") == 3
        assert total("kafka_server_sessionexpirelistener_sessionstate", "connected") == 3
        assert total("kafka_coordinator_group_groupmetadatamanager_numoffsets") == 1
        produced = total("kafka_network_requestmetrics_requests_total", "kafka", "Produce")
        assert 3 <= produced <= 300
        assert total("kafka_network_requestmetrics_totaltimems_count", "kafka", "Produce") == produced
        phases = [
            total(f"kafka_network_requestmetrics_{phase}timems_sum", "kafka", "Produce")
            for phase in ("local", "remote", "total")
        ]
        assert abs(phases[0] + phases[1] - phases[2]) < 0.01 * phases[2] + 0.01


def test_timings_add_up() -> None:
    timing = Timing()
    for ms in (0.05, 0.1, 0.2, 7, 10_000):
        timing.add(ms)
    rows = dict(timing.buckets())
    assert (rows["0.1"], rows["0.25"], rows["5.0"], rows["10.0"], rows["5000.0"], rows["+Inf"]) == (2, 3, 3, 4, 4, 5)
    assert [float(bound) for bound, _ in timing.buckets()] == [*BUCKETS_MS, float("inf")]
    requests = Requests()
    requests.add("Fetch", 0.001, 0.5)
    assert (requests.by_api["Fetch"].local.sum_ms, requests.by_api["Fetch"].remote.sum_ms) == (1.0, 499.0)
    requests.add("Fetch", 0.002, 0.002)  # its handler has answered
    found = requests.by_api["Fetch"]
    assert [timing.sum_ms for timing in (found.local, found.remote, found.total)] == [3.0, 499.0, 502.0]
    counts = [dict(timing.buckets()) for timing in (found.local, found.remote, found.total)]
    assert [(rows["0.1"], rows["2.5"], rows["500.0"]) for rows in counts] == [(0, 2, 2), (1, 1, 2), (0, 1, 2)]


def test_the_text_of_many_samples_is_made_in_steps_and_is_the_same() -> None:
    rows = [((f"topic{number:03d}",), float(number)) for number in range(250)]
    families = [single("kafkalite_producers_dropped", 1), *labelled("kafka_log_log_size", rows)]
    families += histogram("kafka_network_requestmetrics_totaltimems", [(("kafka", "Fetch"), Timing())] * 20)
    whole: dict[str, Metric] = {}
    for each in families:
        whole.setdefault(each.name, Metric(each.name, each.documentation, each.type)).samples.extend(each.samples)
    steps = text_of(families)
    assert sum(1 for _ in steps) >= 5, "a hundred samples or so in each"
    expected = generate_latest(SimpleNamespace(collect=whole.values))
    assert at_once(text_of(families)) == expected and expected.count(b"# HELP") == 3
    assert at_once(text_of(labelled("kafka_log_log_size", rows[:100]))).count(b"\n") == 102, "as many as a piece has"


def test_the_dashboard_names_only_metrics_that_there_are() -> None:
    known: set[str] = set().union(*(samples_of(spec.name, spec.kind) for spec in METRICS)) | {
        "process_resident_memory_bytes"
    }
    dashboard = json.loads((ROOT / "docs/grafana/kafkalite.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    assert len(expressions) >= 30
    labels = {label for spec in METRICS for label in spec.labels} | {"instance", "le"}
    words = {"sum", "by", "rate", "topk", "histogram_quantile", "m"}
    for expression in expressions:
        names = set(re.findall(r"[a-z_]+", expression)) - labels - words
        assert names and names <= known, (expression, names - known)
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_the_alerts_name_only_metrics_that_there_are() -> None:
    known: set[str] = set().union(*(samples_of(spec.name, spec.kind) for spec in METRICS)) | {"up"}
    labels = {label for spec in METRICS for label in spec.labels} | {"instance", "job"}
    words = {"sum", "by", "max", "abs", "and", "deriv", "predict_linear", "m", "h", "kafkalite"}
    text = (ROOT / "docs/prometheus/alerts.yml").read_text()
    expressions = re.findall(r"^ {8}expr: >?\n?((?:.|\n)*?)^ {8}(?:for|labels):", text, re.MULTILINE)
    assert len(expressions) == text.count("- alert:") >= 10
    for expression in expressions:
        names = set(re.findall(r"[a-z_]+", expression)) - labels - words
        assert names and names <= known, (expression, names - known)
    pages = re.findall(r"runbook: (\S+?)(?:#(\S+))?$", text, re.MULTILINE)
    assert ("docs/operations.md", "transactions-that-hang") in pages, "it led to the console"
    for page, anchor in pages:
        heads = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), re.MULTILINE)
        assert not anchor or anchor in {re.sub(r"[^a-z_ -]", "", head.lower()).replace(" ", "-") for head in heads}


PROMTOOL = shutil.which("promtool") or ""
if PROMTOOL:  # takes part where there is one

    def test_promtool_accepts_the_alerts_and_their_tests() -> None:
        for command in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
            done = subprocess.run([PROMTOOL, *command], cwd=ROOT / "docs/prometheus", capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
