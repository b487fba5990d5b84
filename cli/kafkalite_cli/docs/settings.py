"""Kafka's broker settings that kafkalite does not have, each with the reason: for docs/kafka-protocol.md."""

from __future__ import annotations

#: Reason -> names.
NOT_HERE = {
    "KRaft's own; the metadata is in ZooKeeper": (
        "broker.session.timeout.ms controller.listener.names controller.quorum.append.linger.ms controller.quorum.auto.join.enable "
        "controller.quorum.bootstrap.servers controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms "
        "controller.quorum.fetch.max.bytes controller.quorum.fetch.snapshot.max.bytes controller.quorum.fetch.timeout.ms "
        "controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms controller.quorum.voters "
        "initial.broker.registration.timeout.ms log.dir.failure.timeout.ms metadata.log.dir "
        "metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms metadata.log.segment.bytes "
        "metadata.log.segment.min.bytes metadata.log.segment.ms metadata.max.idle.interval.ms metadata.max.retention.bytes "
        "metadata.max.retention.ms sasl.mechanism.controller.protocol unclean.leader.election.interval.ms "
        "zookeeper.metadata.migration.min.batch.size early.start.listeners server.max.startup.time.ms"
    ),
    "classes of Java that a broker loads, and what they read": (
        "alter.config.policy.class.name authorizer.class.name client.quota.callback.class config.providers create.topic.policy.class.name "
        "group.streams.topology.description.plugin.class kafka.metrics.polling.interval.secs kafka.metrics.reporters metric.reporters "
        "principal.builder.class sasl.client.callback.handler.class sasl.jaas.config sasl.login.callback.handler.class "
        "sasl.login.class sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class "
        "sasl.server.callback.handler.class security.providers ssl.engine.factory.class ssl.keymanager.algorithm ssl.protocol "
        "ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm"
    ),
    "threads, queues and buffers, where an event loop has none": (
        "background.threads group.coordinator.background.threads group.coordinator.cached.buffer.max.bytes "
        "group.coordinator.threads num.recovery.threads.per.data.dir "
        "num.replica.alter.log.dirs.threads queued.max.requests group.coordinator.append.linger.ms "
        "delete.records.purgatory.purge.interval.requests fetch.purgatory.purge.interval.requests "
        "producer.purgatory.purge.interval.requests share.coordinator.append.linger.ms "
        "share.coordinator.cached.buffer.max.bytes share.coordinator.threads share.fetch.purgatory.purge.interval.requests"
    ),
    "tiered storage, which is not offered": (
        "follower.fetch.last.tiered.offset.enable remote.fetch.max.wait.ms "
        "remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes "
        "remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second "
        "remote.log.manager.copy.quota.window.num remote.log.manager.copy.quota.window.size.seconds "
        "remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second "
        "remote.log.manager.fetch.quota.window.num remote.log.manager.fetch.quota.window.size.seconds "
        "remote.log.manager.follower.thread.pool.size remote.log.manager.task.interval.ms remote.log.manager.thread.pool.size "
        "remote.log.metadata.custom.metadata.max.bytes remote.log.metadata.manager.class.name "
        "remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix "
        "remote.log.metadata.manager.listener.name remote.log.reader.max.pending.tasks remote.log.reader.threads "
        "remote.log.storage.manager.class.name remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix"
    ),
    "a node's own login, which is `inter.broker.username` and `inter.broker.password`; it asks nobody for tokens": (
        "sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds "
        "sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter "
        "sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.oauthbearer.assertion.algorithm "
        "sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss "
        "sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds "
        "sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file "
        "sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file "
        "sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret "
        "sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name sasl.oauthbearer.token.endpoint.url"
    ),
    "keys and certificates are PEM files (`ssl.keystore.location`, `ssl.truststore.location`)": (
        "ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.password ssl.truststore.certificates ssl.truststore.password"
    ),
    "Kerberos, which is not offered": (
        "sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.principal.to.local.rules "
        "sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor"
    ),
    "windows and levels of Java's metrics; `/metrics` has counters": (
        "metrics.num.samples metrics.recording.level metrics.sample.window.ms"
    ),
    "buffers and limits of Java's log cleaner; a log's keys are kept while it is compacted": (
        "log.cleaner.dedupe.buffer.size log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size "
        "log.cleaner.io.max.bytes.per.second"
    ),
    "chosen by features (UpdateFeatures) or by the versions of the nodes": (
        "eligible.leader.replicas.enable group.coordinator.new.enable group.coordinator.rebalance.protocols "
        "group.share.enable inter.broker.protocol.version unstable.api.versions.enable unstable.feature.versions.enable"
    ),
    "fixed here": (
        "add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms "
        "controlled.shutdown.max.retries controlled.shutdown.retry.backoff.ms log.flush.scheduler.interval.ms "
        "offsets.load.buffer.size "
        "offsets.retention.check.interval.ms producer.id.expiration.check.interval.ms replica.socket.receive.buffer.bytes "
        "request.timeout.ms reserved.broker.max.id sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms "
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms share.coordinator.load.buffer.size "
        "socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms "
        "transaction.state.log.load.buffer.size "
        "alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds "
        "replication.quota.window.num replication.quota.window.size.seconds"
    ),
    "settings of the internal topics themselves, as of any topic": (
        "offsets.topic.compression.codec share.coordinator.state.topic.compression.codec"
    ),
    "not offered": "control.plane.listener.name max.decompressed.message.bytes ssl.allow.dn.changes ssl.allow.san.changes",
}


def not_here() -> str:
    """One sentence for each reason."""
    return " ".join(
        f"{reason[0].upper()}{reason[1:]}: {', '.join(f'`{name}`' for name in sorted(names.split()))}."
        for reason, names in NOT_HERE.items()
    )
