"""Options: Spark's names and meaning, and errors that say what to write instead."""

from __future__ import annotations

import pytest

from kafkalite.model import TopicPartition as Tp
from kafkalite.security.dialling import ClientSecurity
from pyspark_kafkalite.offsets import AtTimestamp, Earliest, Latest, Specific
from pyspark_kafkalite.option_parsing import read_options, write_options
from pyspark_kafkalite.options import OptionError

BASE = {"kafka.bootstrap.servers": "a:9092,b:9093", "subscribe": "t"}


def as_options(options: dict[str, str]) -> dict[str, str]:
    return BASE | {k.replace("__", "."): v for k, v in options.items()}


def read(**options: str):
    return read_options(as_options(options), streaming=False)


def read_stream(**options: str):
    return read_options(as_options(options), streaming=True)


def test_defaults_of_a_batch_and_of_a_stream() -> None:
    batch, stream = read(), read_stream()
    assert (batch.starting, batch.ending, stream.starting) == (Earliest(), Latest(), Latest())
    assert batch.client.bootstrap == ("a:9092", "b:9093")
    assert batch.fetch.fail_on_data_loss and not batch.include_headers and batch.fetch.read_committed
    assert stream.max_trigger_delay_ms == 15 * 60_000


def test_keys_are_known_in_any_case_and_values_keep_theirs() -> None:
    options = read_options(
        {
            "KAFKA.bootstrap.SERVERS": "H:1",
            "SUBSCRIBE": "T, u ,",
            "includeHEADERS": "True",
            "failondataloss": "false",
        },
        streaming=False,
    )
    assert options.subscription.topics == ("T", "u")
    assert options.include_headers and not options.fetch.fail_on_data_loss


def test_the_three_ways_to_subscribe() -> None:
    servers = {"kafka.bootstrap.servers": "a:1"}
    assigned = read_options(servers | {"assign": '{"b":[1,0],"a":[2]}'}, streaming=False).subscription
    assert assigned.partitions == (Tp("a", 2), Tp("b", 0), Tp("b", 1))
    pattern = read_options(servers | {"subscribePattern": "ev.*"}, streaming=False).subscription
    assert pattern.matches("events") and pattern.matches("an event") and not pattern.matches("tests")
    whole = read_options(servers | {"subscribePattern": "^ev.*$"}, streaming=False).subscription
    assert whole.matches("events") and not whole.matches("an event")
    everything = read_options(servers | {"subscribePattern": ".*"}, streaming=False).subscription
    assert not everything.matches("__consumer_offsets")
    assert everything.matches("__debezium-heartbeat.inventory"), "only the cluster's own topics are internal"


def test_offsets_and_their_precedence() -> None:
    both = {"startingOffsets": '{"t":{"0":23,"1":-2}}', "startingOffsetsByTimestamp": '{"t":{"0":1000}}'}
    assert read(startingOffsets=both["startingOffsets"]).starting == Specific({Tp("t", 0): 23, Tp("t", 1): -2})
    assert read(**both).starting == AtTimestamp({Tp("t", 0): 1000})
    assert read(**both, startingTimestamp="5").starting == AtTimestamp({}, 5)
    assert read(endingTimestamp="5", endingOffsets="latest").ending == AtTimestamp({}, 5)
    assert read_stream(startingOffsets=" Earliest ").starting == Earliest()


def test_old_names_still_work_with_a_warning() -> None:
    old = read_options({"kafkalite.bootstrap.servers": "a:1", "subscribe": "t"}, streaming=False)
    assert old.client.bootstrap == ("a:1",)
    assert old.warnings == ("kafkalite.bootstrap.servers is the old name of kafka.bootstrap.servers",)
    assert not read(kafkalite__isolation__level="read_uncommitted").fetch.read_committed
    assert not read(kafkalite__check__crcs="false").fetch.check_crc
    both = read(kafkalite__bootstrap__servers="old:9192")
    assert both.client.bootstrap == ("a:9092", "b:9093") and "which counts here" in both.warnings[0]


def test_what_tunes_kafka_s_client_is_accepted_and_said() -> None:
    assert read(kafka__linger__ms="5").warnings == ("kafka.linger.ms tunes Kafka's Java client and has no effect here",)
    assert read(kafka__enable__idempotence="true").warnings == ()
    assert read(kafka__partitioner__ignore__keys="false").warnings == ()
    assert read(kafka__ssl__truststore__type="PEM", kafka__ssl__enabled__protocols="TLSv1.2,TLSv1.3").warnings == ()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"kafka.partitioner.class": "com.example.Mine"}, "kafka.partitioner.class=com.example.Mine is not supported.*column"),
        ({"kafka.partitioner.ignore.keys": "true"}, "keys decide the partition"),
        ({"kafka.transactional.id": "t"}, "deliveryGuarantee=exactly-once"),
        ({"kafka.interceptor.classes": "x"}, "there are no interceptors"),
        ({"kafka.exclude.internal.topics": "false"}, "internal topics match no pattern"),
        ({"kafka.ssl.truststore.location": "/store.jks"}, "looks like a Java store.*keytool -importkeystore.*openssl pkcs12"),
        ({"kafka.ssl.truststore.type": "JKS"}, "ssl.truststore.type=JKS is not supported.*keytool"),
        ({"kafka.ssl.truststore.password": "hush"}, "certificates need no password"),
        ({"kafka.ssl.keystore.key": "hush"}, "write key and certificates to one file"),
        ({"kafka.ssl.enabled.protocols": "TLSv1.2,TLSv1.1"}, "TLS 1.2 and 1.3"),
        ({"kafka.ssl.cipher.suites": "x"}, "those of OpenSSL"),
        ({"kafka.sasl.mechanism": "GSSAPI"}, "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"),
        ({"kafka.sasl.kerberos.service.name": "kafka"}, "Kerberos"),
        ({"kafka.sasl.login.callback.handler.class": "x"}, "OAUTHBEARER is not supported"),
        (
            {
                "kafka.security.protocol": "SASL_SSL",
                "kafka.sasl.mechanism": "PLAIN",
                "kafka.sasl.jaas.config": 'x.ScramLoginModule required username="id" password="hush" tokenauth="true";',
            },
            "a delegation token .* needs sasl.mechanism SCRAM",
        ),
        ({"kafka.max.patrition.fetch.bytes": "1"}, "did you mean kafka.max.partition.fetch.bytes"),
        ({"kafka.no.such.thing": "1"}, "no setting of Kafka's clients"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused(options: dict[str, str], says: str) -> None:
    for reads in (True, False):
        with pytest.raises(OptionError, match=says) as raised:
            if reads:
                read_options(BASE | options, streaming=False)
            else:
                write_options(BASE | options)
        assert "hush" not in str(raised.value)


def test_security() -> None:
    assert read().client.security is None
    given = {
        "kafka__security__protocol": "SASL_SSL",
        "kafka__ssl__truststore__location": "/ca.pem",
        "kafka__sasl__mechanism": "PLAIN",
        "kafka__sasl__username": "spark",
        "kafka__sasl__password": "hush",
    }
    client = read(**given).client
    assert client.security == ClientSecurity(
        "SASL_SSL", "/ca.pem", "", "", check_hostname=True, mechanism="PLAIN", username="spark", password="hush"
    )
    assert "hush" not in repr(client)
    assert hash(client) != hash(read().client)
    with pytest.raises(OptionError, match=r"kafka\.security\.protocol"):
        read(kafka__security__protocol="TLS")
    with pytest.raises(OptionError, match=r"did you mean kafka\.sasl\.password"):
        read(kafka__sasl__passwort="x")
    assert "maxOffsetsPerTrigger" in read(maxOffsetsPerTrigger="5").warnings[0]


def test_addresses_as_kafka_s_clients_take_them() -> None:
    """A protocol in front says nothing there: kafka.security.protocol counts."""
    given = "PLAINTEXT://a:9092, SASL_SSL://[::1]:9093,b:9094"
    assert read(kafka__bootstrap__servers=given).client.bootstrap == ("a:9092", "[::1]:9093", "b:9094")


def test_what_has_no_effect_is_said() -> None:
    """Names that may belong to another source stay, but not in silence; so do settings that only tune, without their prefix."""
    given = BASE | {"inferSchema": "true", "max.poll.records": "5", "path": "x"}
    for options in (read_options(given, streaming=False), write_options(given)):
        assert options.warnings == (
            "inferschema is no option here and is ignored",
            "max.poll.records is no option here and is ignored",
        )


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("500ms", 500), ("30s", 30_000), ("15m", 900_000), ("2 hours", 7_200_000), ("1 min", 60_000), ("7", 7)],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert read_stream(maxTriggerDelay=text).max_trigger_delay_ms == milliseconds


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"subscribe": ""}, "names no topic"),
        ({"assign": '{"t":[0]}'}, "assign and subscribe are given"),
        ({"startingOffsets": "latest"}, "read nothing in a batch"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "-1 \\(latest\\) would read nothing"),
        ({"endingOffsets": "earliest"}, "would read nothing"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "-2 \\(earliest\\)"),
        ({"startingOffsets": "tomorrow"}, "is JSON such as"),
        ({"startingOffsets": '{"t":5}'}, "partition and number"),
        ({"startingOffsets": '{"t":{"x":5}}'}, "partition and number"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "the least is -2"),
        (
            {"startingTimestamp": "2024-01-01"},
            "startingTimestamp is a whole number of milliseconds since 1970, not '2024-01-01'",
        ),
        ({"minPartitions": "0"}, "the least is 1"),
        ({"includeHeaders": "yes"}, "true or false"),
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"kafka.isolation.levle": "x"}, "did you mean kafka.isolation.level"),
        ({"kafka.isolation.level": "serializable"}, "read_uncommitted or read_committed"),
        ({"kafka.auto.offset.reset": "latest"}, "use startingOffsets"),
        ({"kafka.value.deserializer": "x"}, "cast it in the query"),
        ({"kafka.bootstrap.servers": "nowhere"}, "not host:port"),
        (
            {"kafka.bootstrap.servers": "a:9092,host/path:9092"},
            "kafka.bootstrap.servers: 'host/path:9092' is not host:port",
        ),
        ({"kafka.bootstrap.servers": "PLAINTEXT://:9092"}, "not host:port"),
        ({"isolation.level": "read_uncommitted"}, r"no option isolation\.level; did you mean kafka\.isolation\.level"),
        ({"Security.Protocol": "SSL"}, r"did you mean kafka\.security\.protocol"),
        ({"value.deserializer": "x"}, r"did you mean kafka\.value\.deserializer"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "error or latest"),
        ({"startingOffsets": '{"t":{"²":5}}'}, "partition and number"),
        (
            {"startingOffsets": f'{{"t":{{"0":{1 << 63}}}}}'},
            "t-0 is 9223372036854775808; the most is 9223372036854775807",
        ),
        ({"startingOffsets": f'{{"t":{{"0":{"9" * 5000}}}}}'}, "is JSON such as"),
        ({"startingOffsets": "[" * 100_000}, "is JSON such as"),
        ({"startingTimestamp": str(1 << 63)}, "the most is"),
        ({"startingTimestamp": "9" * 5000}, "whole number"),
        ({"kafka.bootstrap.servers": "host:²"}, "not host:port"),
        ({"kafka.bootstrap.servers": "host:" + "9" * 5000}, "not host:port"),
        ({"kafka.request.timeout.ms": str(1 << 31)}, "request.timeout.ms is 2147483648; the most is 2147483647"),
        ({"kafka.max.partition.fetch.bytes": str(1 << 31)}, "the most is"),
        ({"fetchOffset.retryIntervalMs": str(1 << 63)}, "the most is"),
    ],
)
def test_wrong_options_of_a_batch(options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        read_options(BASE | options, streaming=False)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"endingOffsets": "latest"}, "for batch queries"),
        ({"endingTimestamp": "1"}, "for batch queries"),
        ({"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "5"}, "larger than"),
        ({"maxTriggerDelay": "soon"}, "a time such as"),
        ({"maxTriggerDelay": "9" * 5000}, "a time such as"),
        ({"maxBytesPerTrigger": "0"}, "the least is 1"),
        ({"maxBytesPerTrigger": "1m"}, "whole number"),
        ({"filterPushdown": "true"}, "auto, always or never"),
        ({"kafkalite.group.id": " "}, "group.id is empty"),
    ],
)
def test_wrong_options_of_a_stream(options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        read_options(BASE | options, streaming=True)


def test_groups() -> None:
    """Spark's kafka.group.id commits nothing, so it must not begin to."""
    given = read_options(BASE | {"kafkalite.group.id": "g", "groupIdPrefix": "p"}, streaming=True)
    assert (given.group_id, given.warnings) == ("g", ())
    given = read_options(BASE | {"kafka.group.id": "g"}, streaming=True)
    assert given.group_id is None and "kafkalite.group.id names the group" in given.warnings[0]
    given = read_options(BASE | {"groupIdPrefix": "p"}, streaming=True)
    assert (given.group_id, given.group_prefix, given.commit_progress) == (None, "p", True)
    assert not read_options(BASE | {"commitProgress": "false"}, streaming=True).commit_progress
    with pytest.raises(OptionError, match="names a group for the progress, and commitProgress is false"):
        read_options(BASE | {"kafkalite.group.id": "g", "commitProgress": "false"}, streaming=True)
    given = read_options(BASE | {"kafkalite.group.id": "g", "maxBytesPerTrigger": "5"}, streaming=False)
    assert given.group_id is None and given.max_bytes_per_trigger is None and len(given.warnings) == 2


def test_missing_subscription_pattern_and_servers() -> None:
    with pytest.raises(OptionError, match="none is"):
        read_options({"kafka.bootstrap.servers": "a:1"}, streaming=False)
    with pytest.raises(OptionError, match="not a regular expression of Python"):
        read_options({"kafka.bootstrap.servers": "a:1", "subscribePattern": "a++("}, streaming=False)
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing"):
        read_options({"subscribe": "t"}, streaming=False)


def test_options_of_the_sink() -> None:
    options = write_options(
        {
            "kafka.bootstrap.servers": "a:1",
            "topic": "t",
            "kafka.compression.type": "ZSTD",
            "kafka.batch.size": "500",
        }
    )
    assert (options.topic, options.compression, options.batch_bytes) == ("t", "zstd", 500)
    single = write_options({"kafka.bootstrap.servers": "a:1", "kafka.batch.size": "0"})
    assert single.batch_bytes == 1  # a batch per row, as in Kafka
    large = write_options({"kafka.bootstrap.servers": "a:1", "kafka.buffer.memory": str(1 << 40)})
    assert large.buffer_bytes == 256 << 20
    for wrong, says in (
        ({"kafka.acks": "1"}, "acks=all only"),
        ({"kafka.compression.type": "brotli"}, "one of none, gzip"),
        ({"topic": " "}, "topic is empty"),
        ({"topik": "t"}, "did you mean topic"),
        ({"kafka.transaction.timeout.ms": str(1 << 31)}, "the most is 2147483647"),
        ({"kafka.delivery.timeout.ms": str(1 << 31)}, "the most is 2147483647"),
        ({"deliveryGuarantee": "exactly-once", "txnAppId": "x" * 1001, "txnVersion": "1"}, "1001 characters"),
        ({"deliveryGuarantee": "exactly-once", "txnAppId": "x", "txnVersion": str(1 << 63)}, "the most is"),
    ):
        with pytest.raises(OptionError, match=says):
            write_options({"kafka.bootstrap.servers": "a:1"} | wrong)
