"""A node's metrics, gathered when they are asked for: the hot path counts in plain integers, nothing more.

Names are Kafka's, as its JMX exporter spells them; what Kafka does not have starts with `kafkalite_`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kafkalite.controller.stats import FailoverPhases
from kafkalite.security.quotas import Kind

if TYPE_CHECKING:
    from kafkalite.node.node import Node

#: Those of ReplicaManager.counts that only grow.
_COUNTERS = frozenset({"IsrShrinks", "IsrExpands", "FailedIsrUpdates", "ReplicaRestarts"})


class NodeCollector(Collector):  # type: ignore[misc]  # prometheus_client has no types
    """Reads the node's counts at each scrape."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def collect(self) -> Iterator[Metric]:
        yield from self._replicas()
        yield from self._controller()
        node = self._node
        yield GaugeMetricFamily(
            "kafkalite_session_lease_seconds",
            "How long ZooKeeper surely still holds our session",
            value=node.session.lease_left(),
        )
        yield from self._security()
        offline = sum(1 for problem in node.problems() if problem.what == "disk.offline")
        yield GaugeMetricFamily("kafka_log_logmanager_offlinelogdirectorycount", "Dead disks", value=offline)

    def _replicas(self) -> Iterator[Metric]:
        for name, value in sorted(self._node.replicas.counts().items()):
            kind = CounterMetricFamily if name in _COUNTERS else GaugeMetricFamily
            yield kind(f"kafka_server_replicamanager_{name.lower()}", name, value=value)

    def _security(self) -> Iterator[Metric]:
        access, quotas = self._node.rights.access, self._node.rights.quotas
        yield CounterMetricFamily(
            "kafka_server_authorizer_metrics_authorization_allowed", "Requests allowed by ACLs", value=access.allowed
        )
        denied = CounterMetricFamily(
            "kafka_server_authorizer_metrics_authorization_denied",
            "Requests refused by ACLs",
            labels=["operation", "resource"],
        )
        for (operation, resource), count in sorted(access.denials.items()):
            denied.add_metric([operation.name, resource.name], count)
        yield denied
        for kind, name in ((Kind.PRODUCE, "produce"), (Kind.FETCH, "fetch"), (Kind.REQUEST, "request")):
            yield CounterMetricFamily(
                f"kafka_server_{name}_throttled", "Answers that told a client to wait", value=quotas.throttled[kind]
            )
            yield CounterMetricFamily(
                f"kafka_server_{name}_throttle_time_milliseconds", "Waits told", value=quotas.throttled_ms[kind]
            )

    def _controller(self) -> Iterator[Metric]:
        controller = self._node.controller
        stats = controller.stats
        yield GaugeMetricFamily(
            "kafka_controller_kafkacontroller_activecontrollercount",
            "1 on the controller, 0 elsewhere",
            value=int(controller.is_active),
        )
        yield GaugeMetricFamily(
            "kafka_controller_kafkacontroller_offlinepartitionscount",
            "Partitions nobody leads",
            value=controller.offline_partitions,
        )
        yield CounterMetricFamily(
            "kafka_controller_controllerstats_uncleanleaderelections",
            "Leaders out of sync",
            value=stats.unclean_elections,
        )
        yield CounterMetricFamily(
            "kafka_controller_controllerstats_leaderelections", "Leaders elected", value=stats.leader_elections
        )
        for name, counter in (
            ("rpcs_sent", stats.rpcs_sent),
            ("rpcs_failed", stats.rpcs_failed),
            ("zk_ops", stats.zk_ops),
        ):
            family = CounterMetricFamily(f"kafkalite_controller_{name}", name, labels=["kind"])
            for kind in sorted(counter):
                family.add_metric([kind], counter[kind])
            yield family
        failover = GaugeMetricFamily(
            "kafkalite_controller_failover_milliseconds",
            "Phases of the last failover, from the moment its cause was seen",
            labels=["kind", "phase"],
        )
        for phases in (stats.last_broker_failover, stats.last_controller_failover):
            if phases is not None:
                for phase, value in _phases(phases):
                    failover.add_metric([phases.kind, phase], value)
        yield failover


def _phases(phases: FailoverPhases) -> Iterator[tuple[str, float]]:
    for field in fields(phases):
        if field.name.endswith("_ms"):
            yield field.name.removesuffix("_ms"), getattr(phases, field.name)
