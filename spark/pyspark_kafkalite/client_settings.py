"""Kafka's client settings as options `kafka.<key>`: used, without effect, or refused. Pure.

Spark's Kafka connector hands `kafka.*` options to Kafka's Java clients. Here every one of them has an answer: it does the same,
or it tunes what does not exist here and cannot change what is read or written (a warning says so), or it is refused.
Source: Kafka's ConsumerConfig and ProducerConfig, 3.9 and 4.x; Spark's KafkaSourceProvider.
"""

from __future__ import annotations

from kafkalite.errors import ConfigError
from kafkalite.security.dialling import KEYS as SECURITY_KEYS

#: Settings that do here what they do in Kafka's clients.
USED = (
    "bootstrap.servers", "client.id", "group.id", "isolation.level", "check.crcs", "max.partition.fetch.bytes",
    "fetch.max.wait.ms", "request.timeout.ms", "delivery.timeout.ms", "acks", "compression.type", "batch.size",
    "buffer.memory", "transaction.timeout.ms", *SECURITY_KEYS,
)  # fmt: skip

#: They tune threads, buffers, pauses and group membership of the Java clients. Rows are the same without them.
TUNING = frozenset({
    "allow.auto.create.topics", "auto.commit.interval.ms", "auto.include.jmx.reporter", "client.dns.lookup", "client.rack",
    "compression.gzip.level", "compression.lz4.level", "compression.zstd.level", "connections.max.idle.ms",
    "default.api.timeout.ms", "enable.metrics.push", "fetch.max.bytes", "fetch.min.bytes", "group.instance.id",
    "group.protocol", "group.remote.assignor", "heartbeat.interval.ms", "linger.ms", "max.block.ms",
    "max.in.flight.requests.per.connection", "max.poll.interval.ms", "max.poll.records", "max.request.size",
    "metadata.max.age.ms", "metadata.max.idle.ms", "metadata.recovery.rebootstrap.trigger.ms", "metadata.recovery.strategy",
    "metric.reporters", "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms",
    "partition.assignment.strategy", "partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms",
    "receive.buffer.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms", "retries", "retry.backoff.max.ms",
    "retry.backoff.ms", "send.buffer.bytes", "session.timeout.ms", "share.acknowledgement.mode",
    "socket.connection.setup.timeout.max.ms", "socket.connection.setup.timeout.ms", "ssl.keymanager.algorithm",
    "ssl.secure.random.implementation", "ssl.trustmanager.algorithm",
})  # fmt: skip

_PEM_ONLY = "stores are PEM files here (ssl.truststore.location, ssl.keystore.location)"
_USER_AND_PASSWORD = "sasl.mechanism is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 here"
_NO_OWN_CLASSES = "no Java class can be used here"

#: Settings that would change what is read or written, or which peers are trusted, and are not supported.
REFUSED = {
    "auto.offset.reset": "use startingOffsets",
    "key.deserializer": "key is always binary: cast it in the query",
    "value.deserializer": "value is always binary: cast it in the query",
    "key.serializer": "key is written as it is, string or binary",
    "value.serializer": "value is written as it is, string or binary",
    "enable.auto.commit": "offsets live in the query's checkpoint",
    "interceptor.classes": "there are no interceptors",
    "transactional.id": "use deliveryGuarantee=exactly-once",
    "transaction.two.phase.commit.enable": "use deliveryGuarantee=exactly-once",
    "config.providers": "give the value itself, or file:PATH for a password",
    "security.providers": _NO_OWN_CLASSES,
    "ssl.provider": _NO_OWN_CLASSES,
    "ssl.engine.factory.class": _NO_OWN_CLASSES,
    "ssl.cipher.suites": "the cipher suites are those of OpenSSL on the host",
    "ssl.keystore.key": f"{_PEM_ONLY}: write key and certificates to one file",
    "ssl.keystore.certificate.chain": f"{_PEM_ONLY}: write key and certificates to one file",
    "ssl.truststore.certificates": f"{_PEM_ONLY}: write the certificates to a file",
    "ssl.keystore.password": f"{_PEM_ONLY}, whose key may have ssl.key.password",
    "ssl.truststore.password": f"{_PEM_ONLY}, and certificates need no password",
}
_REFUSED_PREFIXES = {
    "sasl.kerberos.": f"GSSAPI (Kerberos) is not supported: {_USER_AND_PASSWORD}",
    "sasl.oauthbearer.": f"OAUTHBEARER is not supported: {_USER_AND_PASSWORD}",
    "sasl.login.": f"{_NO_OWN_CLASSES}, and OAUTHBEARER is not supported: {_USER_AND_PASSWORD}",
    "sasl.client.": _NO_OWN_CLASSES,
    "sasl.jaas.config.": "one login: sasl.jaas.config",
}
#: What Kafka's own partitioners of these names do with keys is done here, too.
_DEFAULT_PARTITIONERS = frozenset({
    "", "org.apache.kafka.clients.producer.internals.DefaultPartitioner",
    "org.apache.kafka.clients.producer.internals.BuiltInPartitioner",
})  # fmt: skip
#: Settings that are fine with one of these values and refused with another: (values in lower case, why not).
_ONLY = {
    "exclude.internal.topics": (("true",), "internal topics match no pattern; name them in subscribe or assign"),
    "partitioner.ignore.keys": (("false",), "keys decide the partition; a column `partition` overrides them"),
    "ssl.protocol": (("tls", "tlsv1.2", "tlsv1.3"), "TLS 1.2 and 1.3 are spoken"),
    "ssl.enabled.protocols": (("tlsv1.2", "tlsv1.3"), "TLS 1.2 and 1.3 are spoken"),
}
_TO_PEM = (
    "convert it: `keytool -importkeystore -srckeystore STORE.jks -destkeystore STORE.p12 -deststoretype PKCS12`, then "
    "`openssl pkcs12 -in STORE.p12 -nodes -out STORE.pem`"
)
_STORES = ("ssl.truststore.location", "ssl.keystore.location")
_STORE_TYPES = ("ssl.truststore.type", "ssl.keystore.type")
_JAVA_STORES = (".jks", ".keystore", ".truststore", ".p12", ".pfx", ".pkcs12", ".bcfks")


def matters(key: str) -> bool:
    """Whether a setting of this name would change what is read or written, or who is trusted."""
    return key in USED or key in REFUSED or key in _ONLY or key in _STORE_TYPES or key == "partitioner.class"


def check(key: str, value: str) -> str | None:
    """A warning for the option `kafka.<key>`, or None.

    Raises:
        ConfigError: it cannot be done; the text begins with `<key>`.
    """
    if key in REFUSED:
        raise ConfigError(f"{key} is not supported: {REFUSED[key]}")
    for prefix, why in _REFUSED_PREFIXES.items():
        if key.startswith(prefix):
            raise ConfigError(f"{key} is not supported: {why}")
    _check_value(key, value.strip())
    if key in TUNING:
        return f"kafka.{key} tunes Kafka's Java client and has no effect here"
    if key == "enable.idempotence":
        return (
            None if value.strip().lower() == "true" else "kafka.enable.idempotence is ignored: the sink is idempotent"
        )
    if key in USED or key in _ONLY or key in _STORE_TYPES or key == "partitioner.class":
        return None
    known = [*USED, *TUNING, *REFUSED, *_ONLY, *_STORE_TYPES, "enable.idempotence", "partitioner.class"]
    import difflib

    close = difflib.get_close_matches(key, known, n=1)
    hint = f"; did you mean kafka.{close[0]}?" if close else ""
    raise ConfigError(f"{key} is no setting of Kafka's clients that is known here{hint}")


def _check_value(key: str, value: str) -> None:
    """Raises ConfigError if the setting is supported here, but not this value of it."""
    if key in _ONLY:
        fine, why = _ONLY[key]
        if any(part.strip().lower() not in fine for part in value.split(",")):
            raise ConfigError(f"{key}={value} is not supported: {why}")
    if key == "partitioner.class" and value not in _DEFAULT_PARTITIONERS:
        raise ConfigError(
            f"{key}={value} is not supported: {_NO_OWN_CLASSES}. Keys go where Kafka's default partitioner puts them; "
            "a column `partition` puts rows elsewhere"
        )
    if key in _STORE_TYPES and value.upper() != "PEM":
        raise ConfigError(f"{key}={value} is not supported: {_PEM_ONLY}; {_TO_PEM}")
    if key in _STORES and value.lower().endswith(_JAVA_STORES):
        raise ConfigError(f"{key}={value} looks like a Java store: {_PEM_ONLY}; {_TO_PEM}")
    if key == "sasl.mechanism" and value.upper() in ("GSSAPI", "OAUTHBEARER"):
        raise ConfigError(f"{key}={value} is not supported: {_USER_AND_PASSWORD}")
    if key == "sasl.jaas.config" and ("Krb5LoginModule" in value or "OAuthBearerLoginModule" in value):
        raise ConfigError(f"{key} names a login that is not supported: {_USER_AND_PASSWORD}")
