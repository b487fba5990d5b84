"""Source and sink on a cluster with TLS and passwords: both work, and the passwords are nowhere to be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.secured import PASSWORDS, SECRETS, SecuredCluster

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.zookeeper]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    settings = {"authorizer.enabled": "true", "super.users": "User:admin"}
    with SecuredCluster(tmp_path_factory.mktemp("secured"), "SASL_SSL", settings) as running:
        running.command("admin", "create-topic", "t", client_config=running.client_config("admin"))
        yield running


@pytest.fixture
def given(cluster: SecuredCluster) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": ",".join(cluster.bootstrap),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.location": str(cluster.authority.truststore),
        "kafka.sasl.username": "admin",
        "kafka.sasl.password": PASSWORDS["admin"],
    }


def seen(*texts: object) -> list[str]:
    return [secret for secret in SECRETS if any(secret in str(text) for text in texts)]


def test_both_ways_with_passwords_that_nobody_sees(spark, given, tmp_path: Path, capfd) -> None:
    rows = spark.range(0, 100, 1, 2).selectExpr("cast(id as string) value")
    rows.write.format("kafkalite").options(**given, topic="t").mode("append").save()
    batch = spark.read.format("kafkalite").options(**given, subscribe="t").load()
    assert batch.count() == 100
    stream = spark.readStream.format("kafkalite").options(**given, subscribe="t", startingOffsets="earliest").load()
    sink = stream.select("value").writeStream.format("kafkalite").options(**given, topic="t")
    sink = sink.option("deliveryGuarantee", "exactly-once").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = sink.trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    query.explain(extended=True)
    batch.explain(extended=True)
    assert spark.read.format("kafkalite").options(**given, subscribe="t").load().count() == 200
    checkpoint = [path.read_bytes() for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    assert checkpoint
    assert not seen(*capfd.readouterr(), query.lastProgress, query.status, *checkpoint)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kafka.sasl.password": "wrong-hush-9"}, "SASL_AUTHENTICATION_FAILED: Authentication failed"),
        ({"kafka.security.protocol": "SASL_TLS"}, "'SASL_TLS' is not one of PLAINTEXT"),
        ({"kafka.ssl.truststore.location": "/nowhere.pem"}, "/nowhere.pem"),
        ({"kafka.security.protocol": "PLAINTEXT"}, "cannot be reached.*security.protocol must be"),
    ],
)
def test_who_is_not_let_in_is_told_why_and_no_password(spark, given, change: dict[str, str], says: str) -> None:
    quick = {"kafka.request.timeout.ms": "2000", "fetchOffset.numRetries": "0", "subscribe": "t"}
    with pytest.raises(Exception, match=says) as raised:
        spark.read.format("kafkalite").options(**(given | quick | change)).load().count()
    assert "hush" not in str(raised.value)


def test_rights_are_told_apart_from_topics_that_are_not_there(spark, cluster, given) -> None:
    admin = cluster.client_config("admin")
    cluster.command("admin", "users", "set", "alice", client_config=admin, stdin=PASSWORDS["alice"])
    given |= {"kafka.sasl.username": "alice", "kafka.sasl.password": PASSWORDS["alice"]}
    with pytest.raises(Exception, match="topic t: TOPIC_AUTHORIZATION_FAILED"):
        spark.read.format("kafkalite").options(**given, subscribe="t").load().count()
    with pytest.raises(Exception, match="topic t: TOPIC_AUTHORIZATION_FAILED"):
        spark.sql("select 'v' value").write.format("kafkalite").options(**given, topic="t").mode("append").save()


def test_exactly_once_needs_no_more_rights_than_are_documented(spark, cluster, given) -> None:
    admin = cluster.client_config("admin")
    cluster.command("admin", "users", "set", "bob", client_config=admin, stdin=PASSWORDS["bob"])
    for where in (("--topic", "t"), ("--transactional-id", "txn-group:bobs:", "--pattern", "prefixed")):
        for operation in ("write", "describe"):
            who = ("--operation", operation, "--allow-principal", "User:bob")
            cluster.command("admin", "acls", "add", *where, *who, client_config=admin)
    given |= {"kafka.sasl.username": "bob", "kafka.sasl.password": PASSWORDS["bob"], "topic": "t"}
    once = given | {"deliveryGuarantee": "exactly-once", "txnVersion": "1"}
    rows = spark.sql("select 'once' value").write.format("kafkalite").mode("append")
    rows.options(**once, txnAppId="bobs").save()
    with pytest.raises(Exception, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        rows.options(**once, txnAppId="others").save()
    admins = given | {"kafka.sasl.username": "admin", "kafka.sasl.password": PASSWORDS["admin"]}
    read = spark.read.format("kafkalite").options(**admins, subscribe="t").load()
    assert read.where("cast(value as string) = 'once'").count() == 1
