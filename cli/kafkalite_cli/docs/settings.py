"""Kafka's broker settings that kafkalite has not, each with the reason: for docs/kafka-protocol.md."""

from __future__ import annotations

#: Reason -> names.
NOT_HERE = {
    "KRaft's own; the metadata is in ZooKeeper": (
        "broker.session.timeout.ms controller.listener.names initial.broker.registration.timeout.ms metadata.log.dir "
        "metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms metadata.log.segment.bytes "
        "metadata.log.segment.min.bytes metadata.log.segment.ms metadata.max.idle.interval.ms metadata.max.retention.bytes "
        "metadata.max.retention.ms sasl.mechanism.controller.protocol unclean.leader.election.interval.ms "
        "zookeeper.metadata.migration.min.batch.size early.start.listeners server.max.startup.time.ms"
    ),
    "classes of Java that a broker loads": (
        "alter.config.policy.class.name authorizer.class.name client.quota.callback.class create.topic.policy.class.name "
        "kafka.metrics.reporters principal.builder.class sasl.server.callback.handler.class"
    ),
    "threads and queues, where an event loop has none": (
        "background.threads group.coordinator.threads num.recovery.threads.per.data.dir "
        "num.replica.alter.log.dirs.threads queued.max.requests group.coordinator.append.linger.ms "
        "delete.records.purgatory.purge.interval.requests fetch.purgatory.purge.interval.requests "
        "producer.purgatory.purge.interval.requests share.fetch.purgatory.purge.interval.requests"
    ),
    "chosen by features (UpdateFeatures) or by the versions of the nodes": (
        "eligible.leader.replicas.enable group.coordinator.new.enable group.coordinator.rebalance.protocols "
        "group.share.enable inter.broker.protocol.version unstable.api.versions.enable unstable.feature.versions.enable"
    ),
    "fixed here": (
        "controlled.shutdown.max.retries controlled.shutdown.retry.backoff.ms kafka.metrics.polling.interval.secs "
        "max.request.partition.size.limit offsets.commit.timeout.ms offsets.load.buffer.size "
        "offsets.retention.check.interval.ms producer.id.expiration.check.interval.ms replica.socket.receive.buffer.bytes "
        "reserved.broker.max.id "
        "transaction.state.log.load.buffer.size "
        "alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds "
        "replication.quota.window.num replication.quota.window.size.seconds"
    ),
    "settings of the internal topics themselves, as of any topic": "offsets.topic.compression.codec",
    "not offered": "control.plane.listener.name sasl.kerberos.principal.to.local.rules ssl.allow.dn.changes ssl.allow.san.changes",
}


def not_here() -> str:
    """One sentence for each reason."""
    return " ".join(
        f"{reason[0].upper()}{reason[1:]}: {', '.join(f'`{name}`' for name in sorted(names.split()))}."
        for reason, names in NOT_HERE.items()
    )
