"""A node's metrics, collected at each scrape: the hot path only counts plain integers.

Names are Kafka's, as its JMX exporter spells them; metrics that Kafka does not have start with `kafkalite_`. Values of logs are
reported per topic, not per partition: the text of ten thousand partitions would have megabytes. Only metrics in METRICS can be
exported; docs/metrics.md is generated from it.

Imported at the first scrape, because prometheus_client imports an HTTP server and more, 15 ms of processor time.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import fields
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from kafkalite import __version__
from kafkalite.controller.decisions.problems import PartitionCounts
from kafkalite.controller.stats import FailoverPhases
from kafkalite.coordination.coordinator import SessionState
from kafkalite.env.shared import Shared
from kafkalite.env.turns import result_of
from kafkalite.extension.messages.watching import HealthProblem
from kafkalite.lazy_dataclass import dataclass
from kafkalite.replica.counters import Traffic
from kafkalite.replica.describing import Figures
from kafkalite.security.quotas import Kind
from kafkalite.telemetry.counters import Requests, Timing

if TYPE_CHECKING:
    from kafkalite.http.host import Counted

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"
#: Samples that are made and written between two yields: about a millisecond.
_PIECE = 100
#: Of the text of a metric, before its samples.
_HEAD_LINES = 2


@dataclass(frozen=True, slots=True)
class Spec:
    """One metric. A counter's samples end in _total, a histogram's in _bucket, _sum and _count."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


_RM = "kafka_server_replicamanager_"
_CONTROLLER = "kafka_controller_kafkacontroller_"
_SESSIONS = "kafka_server_fetchsessioncache_"
_TOPICS = "kafka_server_brokertopicmetrics_"
_AUTHORIZER = "kafka_server_authorizer_metrics_authorization_"
_REQUESTS = "kafka_network_requestmetrics_"
_SOCKETS = "kafka_server_socketservermetrics_"

METRICS = (
    Spec(_RM + "partitioncount", GAUGE, "Replicas on this node"),
    Spec(_RM + "leadercount", GAUGE, "Partitions led by this node"),
    Spec(_RM + "underreplicatedpartitions", GAUGE, "Partitions led by this node that have a replica which is not in sync"),
    Spec(_RM + "underminisrpartitioncount", GAUGE, "Partitions led by this node with fewer in-sync replicas than min.insync.replicas: acks=all is refused"),
    Spec(_RM + "atminisrpartitioncount", GAUGE, "Partitions led by this node with exactly min.insync.replicas in-sync replicas"),
    Spec(_RM + "offlinereplicacount", GAUGE, "Replicas on this node whose disk has failed"),
    Spec(_RM + "partitionswithlatetransactionscount", GAUGE, "Partitions led by this node with a transaction that is open for longer than any timeout: readers of committed records wait"),
    Spec(_RM + "produceridcount", GAUGE, "Idempotent producers that the replicas of this node remember; one counts for each replica that it writes to"),
    Spec(_RM + "isrshrinks", COUNTER, "Replicas that left the ISR of a partition led by this node"),
    Spec(_RM + "isrexpands", COUNTER, "Replicas that joined the ISR of a partition led by this node"),
    Spec(_RM + "failedisrupdates", COUNTER, "Changes of an ISR that ZooKeeper refused"),
    Spec(_RM + "replicarestarts", COUNTER, "Replicas that were recreated on another disk"),
    Spec(_RM + "delayedoperations", GAUGE, "Produce and fetch requests that wait (Kafka's purgatory)"),
    Spec(_SESSIONS + "numincrementalfetchsessions", GAUGE, "Incremental fetch sessions of clients (KIP-227)"),
    Spec(_SESSIONS + "numincrementalfetchpartitionscached", GAUGE, "Partitions in the incremental fetch sessions of clients"),
    Spec(_SESSIONS + "incrementalfetchsessionevictions", COUNTER, "Incremental fetch sessions that made room for another one"),
    Spec(_TOPICS + "bytesin", COUNTER, "Bytes appended by producers"),
    Spec(_TOPICS + "bytesout", COUNTER, "Bytes sent to consumers"),
    Spec(_TOPICS + "messagesin", COUNTER, "Records appended by producers"),
    Spec(_TOPICS + "replicationbytesin", COUNTER, "Bytes fetched from leaders"),
    Spec(_TOPICS + "replicationbytesout", COUNTER, "Bytes sent to followers"),
    Spec(_TOPICS + "totalproducerequests", COUNTER, "Partitions in produce requests"),
    Spec(_TOPICS + "failedproducerequests", COUNTER, "Partitions in produce requests that were refused at once"),
    Spec(_TOPICS + "totalfetchrequests", COUNTER, "Partitions in fetch requests of consumers"),
    Spec(_TOPICS + "failedfetchrequests", COUNTER, "Fetch requests of consumers in which a partition was refused"),
    Spec("kafkalite_truncations_below_high_watermark", COUNTER, "Replicas on this node that were truncated below their high watermark: their leader lacks records that were committed"),
    Spec("kafkalite_producers_dropped", COUNTER, "Idempotent producers that replicas have forgotten to keep max.producer.ids or max.producer.ids.per.broker"),
    Spec("kafkalite_topic_bytes_in", COUNTER, "Bytes appended by producers on this node, while it has a replica of the topic", ("topic",)),
    Spec("kafkalite_topic_bytes_out", COUNTER, "Bytes sent to consumers by this node, while it has a replica of the topic", ("topic",)),
    Spec("kafkalite_topic_messages_in", COUNTER, "Records appended by producers on this node, while it has a replica of the topic", ("topic",)),
    Spec("kafkalite_topic_messages_out", COUNTER, "Records sent to consumers by this node, while it has a replica of the topic; counted by their offsets", ("topic",)),
    Spec("kafka_consumergroup_lag", GAUGE, "Records by which a group's committed offset is behind its partition's high watermark, measured every 10 s on the group's coordinator", ("consumergroup", "topic", "partition")),
    Spec("kafka_consumergroup_lag_sum", GAUGE, "Records by which a group is behind in a topic, measured every 10 s on the group's coordinator", ("consumergroup", "topic")),
    Spec("kafka_consumergroup_members", GAUGE, "Members of a group with committed offsets, on its coordinator", ("consumergroup",)),
    Spec("kafkalite_consumergroup_lag_omitted", GAUGE, "Committed offsets on this coordinator that are not measured: it measures 500 groups and 2,000 partitions at most"),
    Spec("kafka_log_log_size", GAUGE, "Bytes of the logs on this node", ("topic",)),
    Spec("kafka_log_log_numlogsegments", GAUGE, "Segments of the logs on this node", ("topic",)),
    Spec("kafka_server_replicafetchermanager_maxlag", GAUGE, "Records by which the slowest follower replica on this node was behind its leader's high watermark"),
    Spec("kafkalite_follower_lag_max", GAUGE, "Records by which the slowest follower of a partition led by this node is behind"),
    Spec("kafkalite_event_loop_held_ms", HISTOGRAM, "Turns of the event loop that took 1 ms or more, by their cause (an API of the Kafka listener, or other)", ("cause",)),
    Spec("kafkalite_event_loop_late_ms", HISTOGRAM, "How late a timer of the event loop was, measured ten times a second"),
    Spec("kafkalite_event_loop_overruns", COUNTER, "Turns of the event loop that computed for more than 20 ms"),
    Spec("kafkalite_cold_reads", COUNTER, "Reads of records that were not in the page cache, done by the threads of the disk"),
    Spec("kafkalite_cold_read_bytes", COUNTER, "Bytes of records that were read from disk because they were not in the page cache"),
    Spec(_REQUESTS + "requests", COUNTER, "Requests answered", ("listener", "request")),
    Spec(_REQUESTS + "totaltimems", HISTOGRAM, "Time of a request from the call of the handler to the response", ("listener", "request")),
    Spec(_REQUESTS + "localtimems", HISTOGRAM, "Time of a request in the handler itself, until it returned", ("listener", "request")),
    Spec(_REQUESTS + "remotetimems", HISTOGRAM, "Time of a request after the handler returned: waiting for followers, for records, for ZooKeeper", ("listener", "request")),
    Spec("kafkalite_kept_metadata_bytes", GAUGE, "Bytes of encoded responses to Metadata about many partitions that are kept for the clients that ask for the same; 8 MiB at most"),
    Spec(_SOCKETS + "connectioncount", GAUGE, "Open connections", ("listener",)),
    Spec(_SOCKETS + "successful_authentication", COUNTER, "Successful authentications by SASL or an HTTP login", ("listener",)),
    Spec(_SOCKETS + "failed_authentication", COUNTER, "Failed authentications: wrong passwords and tokens, certificates that no mapping rule matches", ("listener",)),
    Spec("kafkalite_tls_refused", COUNTER, "TLS handshakes that failed, took too long or were replaced by newer ones; Kafka counts them as failed authentications", ("listener",)),
    Spec("kafka_coordinator_group_groupmetadatamanager_numgroups", GAUGE, "Consumer groups that this node coordinates"),
    Spec("kafka_coordinator_group_groupmetadatamanager_numoffsets", GAUGE, "Committed offsets of the consumer groups that this node coordinates"),
    Spec(_CONTROLLER + "activecontrollercount", GAUGE, "1 on the controller, 0 elsewhere"),
    Spec(_CONTROLLER + "activebrokercount", GAUGE, "Live brokers, as the controller sees them"),
    Spec(_CONTROLLER + "offlinepartitionscount", GAUGE, "Partitions without a leader"),
    Spec(_CONTROLLER + "globaltopiccount", GAUGE, "Topics, as the controller sees them"),
    Spec(_CONTROLLER + "globalpartitioncount", GAUGE, "Partitions, as the controller sees them"),
    Spec(_CONTROLLER + "preferredreplicaimbalancecount", GAUGE, "Partitions whose leader is not their preferred (first) replica"),
    Spec(_CONTROLLER + "topicstodeletecount", GAUGE, "Topics that are being deleted"),
    Spec("kafka_controller_controllerstats_uncleanleaderelections", COUNTER, "Elections of a leader that was not in sync: records may be lost"),
    Spec("kafka_controller_controllerstats_leaderelections", COUNTER, "Leader elections"),
    Spec("kafka_controller_controllereventmanager_eventqueuesize", GAUGE, "Events that wait in the controller's queue"),
    Spec("kafka_controller_controllereventmanager_eventqueuetimems", HISTOGRAM, "Time that events waited in the controller's queue"),
    Spec("kafkalite_controller_rpcs_sent", COUNTER, "Commands of the controller that brokers answered", ("kind",)),
    Spec("kafkalite_controller_rpcs_failed", COUNTER, "Attempts of the controller to send a command that failed", ("kind",)),
    Spec("kafkalite_controller_zk_ops", COUNTER, "Operations of the controller on ZooKeeper", ("kind",)),
    Spec("kafkalite_controller_failover_milliseconds", GAUGE, "Time of each phase of the last failover, since its cause was detected", ("kind", "phase")),
    Spec("kafka_log_logmanager_offlinelogdirectorycount", GAUGE, "Log directories that are offline"),
    Spec("kafka_log_logmanager_logdirectoryoffline", GAUGE, "1 if this log directory is offline", ("logdirectory",)),
    Spec("kafkalite_disk_free_bytes", GAUGE, "Free bytes in a log directory that is online", ("logdirectory",)),
    Spec("kafka_server_sessionexpirelistener_zookeeperdisconnects", COUNTER, "Connections to ZooKeeper lost"),
    Spec("kafka_server_sessionexpirelistener_zookeeperexpires", COUNTER, "ZooKeeper sessions that expired"),
    Spec("kafka_server_sessionexpirelistener_sessionstate", GAUGE, "1 for the present state of the ZooKeeper session", ("state",)),
    Spec("kafkalite_build_info", GAUGE, "Always 1; the label says which version of kafkalite the node runs", ("version",)),
    Spec("kafkalite_session_lease_seconds", GAUGE, "Time for which the ZooKeeper session is guaranteed to exist; negative: time since the lease ended"),
    Spec("kafkalite_zookeeper_silent_seconds", GAUGE, "Time since the last response of ZooKeeper"),
    Spec("kafkalite_zookeeper_away", GAUGE, "1 while ZooKeeper does not answer: `admin health` says zookeeper.away"),
    Spec("kafkalite_clock_ahead_seconds", GAUGE, "By how much the node's clock is ahead of ZooKeeper's (negative: behind): `admin health` says clock.off beyond 60 s"),
    Spec(_AUTHORIZER + "allowed", COUNTER, "Requests allowed by ACLs"),
    Spec(_AUTHORIZER + "denied", COUNTER, "Requests refused by ACLs", ("operation", "resource")),
    Spec("kafka_server_produce_throttled", COUNTER, "Produce responses with a throttle time"),
    Spec("kafka_server_produce_throttle_time_milliseconds", COUNTER, "Sum of the throttle times in produce responses"),
    Spec("kafka_server_fetch_throttled", COUNTER, "Fetch responses with a throttle time"),
    Spec("kafka_server_fetch_throttle_time_milliseconds", COUNTER, "Sum of the throttle times in fetch responses"),
    Spec("kafka_server_request_throttled", COUNTER, "Responses with a throttle time because of the request quota (processor time)"),
    Spec("kafka_server_request_throttle_time_milliseconds", COUNTER, "Sum of the throttle times because of the request quota (processor time)"),
    Spec("kafka_server_controllermutation_throttled", COUNTER, "Responses with a throttle time because of controller_mutation_rate"),
    Spec("kafka_server_controllermutation_throttle_time_milliseconds", COUNTER, "Sum of the throttle times because of controller_mutation_rate"),
    Spec("kafkalite_client_metric", GAUGE, "A metric that a client has pushed (KIP-714), by its name there", ("client_id", "client_instance_id", "client_software", "name", "attributes")),
    Spec("kafkalite_client_metrics_pushes", COUNTER, "Pushes of metrics by clients that were accepted"),
    Spec("kafkalite_client_metrics_refused", COUNTER, "Pushes of metrics by clients that were refused"),
    Spec("kafkalite_health_problems", GAUGE, "Problems that this node reports, by kind", ("what",)),
)  # fmt: skip

_BY_NAME = {spec.name: spec for spec in METRICS}
_FAMILIES = {GAUGE: GaugeMetricFamily, COUNTER: CounterMetricFamily}


def family(name: str) -> Metric:
    """An empty family of a metric of METRICS."""
    spec = _BY_NAME[name]
    if spec.kind == HISTOGRAM:
        return HistogramMetricFamily(spec.name, spec.help, labels=spec.labels)
    return _FAMILIES[spec.kind](spec.name, spec.help, labels=spec.labels)


def single(name: str, value: float) -> Metric:
    """A metric without labels."""
    found = family(name)
    found.add_metric([], value)
    return found


def _quoted(text: str) -> str:
    """Part of a list of attributes: two lists that differ must not look alike, or a scrape has a sample twice."""
    return text.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")


def labelled(name: str, rows: Iterable[tuple[tuple[str, ...], float]]) -> Iterator[Metric]:
    """A metric with labels, in their order; in pieces, because there may be thousands of rows."""
    found = family(name)
    for labels, value in rows:
        found.add_metric(list(labels), value)
        if len(found.samples) >= _PIECE:
            yield found
            found = family(name)
    yield found


def histogram(name: str, rows: Iterable[tuple[tuple[str, ...], Timing]]) -> Iterator[Metric]:
    """A metric of durations, likewise."""
    found = family(name)
    for labels, timing in rows:
        found.add_metric(list(labels), timing.buckets(), timing.sum_ms)
        if len(found.samples) >= _PIECE:
            yield found
            found = family(name)
    yield found


class _One(NamedTuple):
    """What prometheus_client needs of a registry."""

    metric: Metric

    def collect(self) -> Iterable[Metric]:
        return (self.metric,)


def text_of(metrics: Iterable[Metric]) -> Generator[None, None, bytes]:
    """In Prometheus's text format. In steps. Pieces of a metric follow each other; the first one has the head of them all."""
    lines: list[bytes] = []
    before, samples = "", 0
    for metric in metrics:
        text: bytes = generate_latest(_One(metric))
        lines.append(text if metric.name != before else text.split(b"\n", _HEAD_LINES)[-1])
        before = metric.name
        samples += len(metric.samples)
        if samples >= _PIECE:
            samples = 0
            yield
    return b"".join(lines)


class Exposition:
    """The response to a scrape of a node, including the process's own metrics, which are read from /proc."""

    def __init__(self, node: Counted) -> None:
        self._node = node
        self._process = ProcessCollector(registry=None)
        self._scrapes = Shared(self._scrape)

    async def text(self) -> bytes:
        """In Prometheus's text format. However many ask at once: a second text is made at most."""
        return await self._scrapes.result()

    async def _scrape(self) -> bytes:
        node = self._node
        seen = Seen(
            await result_of(node.replicas.describing.figures()),
            await result_of(node.replicas.hosted.traffic()),
            await result_of(node.controller.count_partitions()),
            await node.health.ask(),
        )
        return await result_of(text_of(chain(NodeMetrics(node, seen).collect(), self._process.collect())))


class Seen(NamedTuple):
    """What was counted over all partitions, before the other metrics are read."""

    figures: Figures
    traffic: Mapping[str, Traffic]
    partitions: PartitionCounts
    problems: tuple[HealthProblem, ...]


class NodeMetrics:
    """A node's metrics at one scrape."""

    def __init__(self, node: Counted, seen: Seen) -> None:
        self._node = node
        self._seen = seen

    def collect(self) -> Iterator[Metric]:
        """Each is read when its turn comes."""
        yield from self._replicas()
        yield from self._logs()
        yield from self._requests()
        yield from self._controller()
        yield from self._security()
        yield from self._session()
        yield from self._clients()
        problems: dict[str, int] = {}
        for problem in self._seen.problems:
            problems[problem.what] = problems.get(problem.what, 0) + problem.count
        yield from labelled("kafkalite_health_problems", (((what,), n) for what, n in sorted(problems.items())))

    def _clients(self) -> Iterator[Metric]:
        clients = self._node.kafka.client_metrics
        yield single("kafkalite_client_metrics_pushes", clients.pushes)
        yield single("kafkalite_client_metrics_refused", clients.refused)
        # By its labels: two users may give the id of one instance, and a scrape with a sample twice is refused as a whole.
        rows: dict[tuple[str, ...], float] = {}
        for client, name, attributes, value in clients.shown():
            attribute_text = ",".join(f"{_quoted(key)}={_quoted(text)}" for key, text in attributes)
            software = client.client_software_name
            rows[client.client_id, client.client_instance_id, software, name, attribute_text] = value
        yield from labelled("kafkalite_client_metric", rows.items())

    def _replicas(self) -> Iterator[Metric]:
        for name, value in sorted(self._seen.figures.totals.items()):
            yield single(_RM + name.lower(), value)
        counters = self._node.replicas.hosted.counters
        for name, value in (
            ("bytesin", counters.bytes_in),
            ("bytesout", counters.bytes_out),
            ("messagesin", counters.messages_in),
            ("replicationbytesin", counters.replication_bytes_in),
            ("replicationbytesout", counters.replication_bytes_out),
            ("totalproducerequests", counters.produce_requests),
            ("failedproducerequests", counters.failed_produce_requests),
            ("totalfetchrequests", counters.fetch_requests),
            ("failedfetchrequests", counters.failed_fetch_requests),
        ):
            yield single(_TOPICS + name, value)
        yield single("kafkalite_truncations_below_high_watermark", counters.truncations_below_high_watermark)
        yield single("kafkalite_producers_dropped", counters.dropped_producers)

    def _logs(self) -> Iterator[Metric]:
        node, figures = self._node, self._seen.figures
        counts = sorted(self._seen.traffic.items())
        for name in Traffic._fields:
            yield from labelled(f"kafkalite_topic_{name}", (((topic,), getattr(each, name)) for topic, each in counts))
        yield from labelled("kafka_log_log_size", _by_label(figures.size_bytes))
        yield from labelled("kafka_log_log_numlogsegments", _by_label(figures.segments))
        yield single("kafka_server_replicafetchermanager_maxlag", figures.fetch_lag)
        yield single("kafkalite_follower_lag_max", figures.follower_lag)
        dirs = list(node.logs.pool.dirs.values())
        yield single("kafka_log_logmanager_offlinelogdirectorycount", sum(not each.online for each in dirs))
        yield from labelled(
            "kafka_log_logmanager_logdirectoryoffline", (((each.path,), float(not each.online)) for each in dirs)
        )
        free: dict[str, int] = {}
        for each in dirs:
            if each.online:  # a dead disk is not asked: it may never answer
                try:
                    free[each.path] = node.env.disk.free_bytes(each.path)
                except OSError:
                    continue
        yield from labelled("kafkalite_disk_free_bytes", _by_label(free))

    def _requests(self) -> Iterator[Metric]:
        node = self._node
        listeners: dict[str, Requests] = {"kafka": node.kafka.listener.requests, "rpc": node.rpc.requests}
        timings = {
            (listener, api): timing
            for listener, requests in listeners.items()
            for api, timing in sorted(requests.by_api.items())
        }
        yield from labelled(_REQUESTS + "requests", ((key, sum(t.total.counts)) for key, t in timings.items()))
        yield from histogram(_REQUESTS + "totaltimems", ((key, t.total) for key, t in timings.items()))
        yield from histogram(_REQUESTS + "localtimems", ((key, t.local) for key, t in timings.items()))
        yield from histogram(_REQUESTS + "remotetimems", ((key, t.remote) for key, t in timings.items()))
        times = node.loop_times
        held = (((cause,), timing) for cause, timing in sorted(times.by_cause.items()))
        yield from histogram("kafkalite_event_loop_held_ms", held)
        yield from histogram("kafkalite_event_loop_late_ms", [((), times.late)])
        yield single("kafkalite_event_loop_overruns", times.overruns)
        yield single("kafkalite_cold_reads", node.logs.cold.loads)
        yield single("kafkalite_cold_read_bytes", node.logs.cold.loaded_bytes)
        connections = {
            "http": node.http.connections,
            "kafka": len(node.kafka.listener.connections),
            "rpc": len(node.rpc.connections),
        }
        yield from labelled(_SOCKETS + "connectioncount", _by_label(connections))
        yield single("kafkalite_kept_metadata_bytes", node.kafka.kept_metadata.bytes)
        sessions = node.kafka.fetching.sessions
        yield single(_SESSIONS + "numincrementalfetchsessions", len(sessions))
        yield single(_SESSIONS + "numincrementalfetchpartitionscached", sessions.partitions)
        yield single(_SESSIONS + "incrementalfetchsessionevictions", sessions.evictions)
        coordinator = node.kafka.coordinated_groups()
        groups, offsets = coordinator.count() if coordinator is not None else (0, 0)
        yield single("kafka_coordinator_group_groupmetadatamanager_numgroups", groups)
        yield single("kafka_coordinator_group_groupmetadatamanager_numoffsets", offsets)
        yield from self._lag()

    def _lag(self) -> Iterator[Metric]:
        """Of the last sample: names as those of the exporter that many dashboards are made for (kafka_exporter)."""
        sampler = self._node.sampler
        rows = [
            (group, key.topic, str(key.partition), lag)
            for group, by_partition in sorted(sampler.lag.items())
            for key, lag in sorted(by_partition.items())
        ]
        sums: dict[tuple[str, ...], float] = {}
        for group, topic, _, lag in rows:
            sums[group, topic] = sums.get((group, topic), 0) + lag
        yield from labelled("kafka_consumergroup_lag", ((row[:3], row[3]) for row in rows))
        yield from labelled("kafka_consumergroup_lag_sum", sums.items())
        yield from labelled(
            "kafka_consumergroup_members", _by_label({group: sampler.members[group] for group in sampler.lag})
        )
        yield single("kafkalite_consumergroup_lag_omitted", sampler.omitted)

    def _security(self) -> Iterator[Metric]:
        listeners = self._node.security.listeners() if self._node.security is not None else []
        yield from labelled(
            _SOCKETS + "successful_authentication", (((each.name,), each.succeeded) for each in listeners)
        )
        yield from labelled(_SOCKETS + "failed_authentication", (((each.name,), each.failed) for each in listeners))
        yield from labelled(
            "kafkalite_tls_refused", (((each.name,), each.tls.refused) for each in listeners if each.tls is not None)
        )
        access, quotas = self._node.rights.access, self._node.rights.quotas
        yield single(_AUTHORIZER + "allowed", access.allowed)
        yield from labelled(
            _AUTHORIZER + "denied",
            (
                ((operation.name, resource.name), count)
                for (operation, resource), count in sorted(access.denials.items())
            ),
        )
        for kind, name in (
            (Kind.PRODUCE, "produce"),
            (Kind.FETCH, "fetch"),
            (Kind.REQUEST, "request"),
            (Kind.MUTATION, "controllermutation"),
        ):
            yield single(f"kafka_server_{name}_throttled", quotas.throttled[kind])
            yield single(f"kafka_server_{name}_throttle_time_milliseconds", quotas.throttled_ms[kind])

    def _controller(self) -> Iterator[Metric]:
        controller = self._node.controller
        stats, state, counted = controller.stats, controller.state, self._seen.partitions
        yield single(_CONTROLLER + "activecontrollercount", int(controller.is_active))
        yield single(_CONTROLLER + "offlinepartitionscount", counted.offline)
        yield single(_CONTROLLER + "activebrokercount", 0 if state is None else len(state.brokers))
        yield single(_CONTROLLER + "globaltopiccount", 0 if state is None else len(state.topics))
        yield single(_CONTROLLER + "topicstodeletecount", 0 if state is None else len(state.deletions))
        yield single(_CONTROLLER + "globalpartitioncount", counted.partitions)
        yield single(_CONTROLLER + "preferredreplicaimbalancecount", counted.imbalanced)
        yield single("kafka_controller_controllerstats_uncleanleaderelections", stats.unclean_elections)
        yield single("kafka_controller_controllerstats_leaderelections", stats.leader_elections)
        yield single("kafka_controller_controllereventmanager_eventqueuesize", stats.queue_size)
        yield from histogram("kafka_controller_controllereventmanager_eventqueuetimems", [((), stats.event_queue)])
        yield from labelled("kafkalite_controller_rpcs_sent", _by_label(stats.rpcs_sent))
        yield from labelled("kafkalite_controller_rpcs_failed", _by_label(stats.rpcs_failed))
        yield from labelled("kafkalite_controller_zk_ops", _by_label(stats.zk_ops))
        failovers = (stats.last_broker_failover, stats.last_controller_failover)
        yield from labelled(
            "kafkalite_controller_failover_milliseconds",
            ((key, value) for phases in failovers if phases is not None for key, value in _phases(phases)),
        )

    def _session(self) -> Iterator[Metric]:
        session = self._node.session
        yield single("kafka_server_sessionexpirelistener_zookeeperdisconnects", session.changes["suspended"])
        yield single("kafka_server_sessionexpirelistener_zookeeperexpires", session.changes["expired"])
        present = SessionState.EXPIRED if session.current is None else session.current.state
        yield from labelled(
            "kafka_server_sessionexpirelistener_sessionstate",
            (((state.value,), float(state is present)) for state in SessionState),
        )
        yield single("kafkalite_session_lease_seconds", session.lease_left())
        yield single("kafkalite_zookeeper_silent_seconds", max(session.silent_s(), 0.0))
        yield single("kafkalite_zookeeper_away", float(session.away_s() is not None))
        yield single("kafkalite_clock_ahead_seconds", self._node.clock_check.ahead_s)
        yield from labelled("kafkalite_build_info", [((__version__,), 1.0)])


def _by_label(values: Mapping[str, float]) -> Iterator[tuple[tuple[str, ...], float]]:
    for label in sorted(values):
        yield (label,), values[label]


def _phases(phases: FailoverPhases) -> Iterator[tuple[tuple[str, ...], float]]:
    for field in fields(phases):
        if field.name.endswith("_ms"):
            yield (phases.kind, field.name.removesuffix("_ms")), getattr(phases, field.name)
