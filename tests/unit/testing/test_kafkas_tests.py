"""Apache Kafka's tests against our nodes: settings under our names, and what JUnit prints."""

from __future__ import annotations

from pathlib import Path

from kafkalite.config import broker_config
from tests.suites.kafka_settings import DEFAULTS, as_named, node_settings
from tests.suites.kafka_tests.runner import fed, outcomes

_JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="super" password="p" user_super="p" user_a="q";'


def test_a_login_and_rights_of_kafkas_tests(tmp_path: Path) -> None:
    found = node_settings(
        {
            "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,EXTERNAL:SASL_PLAINTEXT",
            "listener.name.external.plain.sasl.jaas.config": _JAAS,
            "listener.name.controller.plain.sasl.jaas.config": _JAAS,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "super.users": "User:super",
        },
        tmp_path / "c1",
    )
    assert not found.ignored
    config, _ = broker_config(found.taken)
    assert config.authorizer_enabled and config.listener_security_protocol == "SASL_PLAINTEXT"
    assert Path(config.sasl_plain_users_location).read_text() == "super=p\na=q\n"
    assert (config.inter_broker_username, config.inter_broker_password) == ("super", "p")


def test_listeners_of_kafkas_tests(tmp_path: Path) -> None:
    settings = {"listeners": "EXTERNAL://localhost:0,CONTROLLER://localhost:0", "auto.create.topics.enable": "false"}
    found = node_settings(settings, tmp_path, defaults={})
    config, _ = broker_config(found.taken)
    assert (config.listeners, config.auto_create_topics_enable) == ("EXTERNAL://localhost:0", False)
    assert config.listener_security_protocol_map == "EXTERNAL:PLAINTEXT"

    taken = node_settings({"listener.security.protocol.map": "EXTERNAL:SSL,CONTROLLER:SSL"}, tmp_path).taken
    assert taken["listeners"] == "EXTERNAL://localhost:0" and taken["rpc.security.protocol"] == "PLAINTEXT"
    assert as_named("127.0.0.1:5", taken) == "localhost:5"
    assert as_named("127.0.0.1:5", {}) == "127.0.0.1:5"


def test_a_broker_of_the_test_harness(tmp_path: Path) -> None:
    """It names everything that a broker of KRaft has, and gets a listener on top."""
    found = node_settings(
        {
            "node.id": "2",
            "log.dir": "a, b",
            "controller.listener.names": "QUORUM",
            "listeners": "QUORUM://localhost:0,SASL_SSL://localhost:0,EXTERNAL://localhost:0",
            "advertised.listeners": "SASL_SSL://localhost:0,EXTERNAL://localhost:1",
            "listener.security.protocol.map": "EXTERNAL:SSL,QUORUM:PLAINTEXT",
            "listener.name.quorum.ssl.client.auth": "required",
            "listener.name.external.ssl.client.auth": "required",
            "security.inter.broker.protocol": "SSL",
            "sasl.plain.users": "alice=a=b\n",
            "default.replication.factor": "2",
            "replica.lag.time.max.ms": "4000",
            "producer.id.expiration.check.interval.ms": "7",
            "no.such.thing": "1",
            "listener.name.external.scram-sha-256.sasl.jaas.config": "a login",
        },
        tmp_path,
        plain_listeners={"MORE": "127.0.0.1:0"},
    )
    taken = found.taken
    assert found.log_dirs == ("a", "b")
    assert found.ignored.keys() == {"no.such.thing", "listener.name.external.scram-sha-256.sasl.jaas.config"}
    assert taken["listeners"] == "SASL_SSL://localhost:0,EXTERNAL://localhost:0,MORE://127.0.0.1:0"
    assert taken["advertised.listeners"] == "SASL_SSL://localhost:0,EXTERNAL://localhost:1,MORE://127.0.0.1:0"
    assert taken["listener.security.protocol.map"] == "SASL_SSL:SASL_SSL,EXTERNAL:SSL,MORE:PLAINTEXT"
    assert taken["inter.broker.listener.name"] == "EXTERNAL"
    assert taken["listener.name.external.ssl.client.auth"] == "required"
    assert "listener.name.quorum.ssl.client.auth" not in taken
    assert Path(str(taken["sasl.plain.users.location"])).read_text() == "alice=a=b\n"
    assert (taken["auto.create.topics.replication.factor"], taken["zookeeper.session.timeout.ms"]) == ("2", 3000)
    assert taken["log.retention.check.interval.ms"] == "7"
    assert "node.id" not in taken and "log.dir" not in taken


def test_settings_that_are_valid_only_together(tmp_path: Path) -> None:
    asked = {
        "group.share.heartbeat.interval.ms": "500",
        "group.share.min.heartbeat.interval.ms": "500",
        "group.share.session.timeout.ms": "501",
        "group.share.min.session.timeout.ms": "501",
    }
    found = node_settings({**asked, "num.partitions": "0"}, tmp_path, defaults={})
    assert found.taken == asked and list(found.ignored) == ["num.partitions"]


def test_what_kafkas_tests_expect_without_a_setting(tmp_path: Path) -> None:
    found = node_settings({}, tmp_path)
    assert found.taken == {**DEFAULTS, "auto.create.topics.replication.factor": 1}
    assert node_settings({}, tmp_path, plain_listeners={"MORE": "[::1]:0"}).taken["listeners"] == (
        "PLAINTEXT://localhost:0,MORE://[::1]:0"
    )


def test_a_test_that_has_only_begun_has_failed() -> None:
    lines = [
        "JUnit Jupiter > EosTest > runs() :: STARTED",
        "JUnit Jupiter > EosTest > runs() :: SUCCESSFUL",
        "[2026] WARN a line of the test's own",
        "JUnit Jupiter > EosTest > fails(String) > [1] classic :: STARTED",
        "JUnit Jupiter > EosTest > fails(String) > [1] classic :: FAILED",
        "JUnit Jupiter > EosTest > skipped() :: SKIPPED",
        "JUnit Jupiter > EosTest > hangs() :: STARTED",
    ]
    assert fed("\n".join(lines)) == {
        "EosTest.runs()": "passed",
        "EosTest.fails(String).[1] classic": "failed",
        "EosTest.skipped()": "skipped",
        "EosTest.hangs()": "failed",
    }


def test_a_report_of_junit(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuite><testcase classname="a.b.C" name="x()"/><testcase classname="a.b.C" name="y()"><error/></testcase>'
        '<testcase classname="a.b.C" name="z()"><skipped/></testcase>'
        '<testcase classname="a.b.C" name="v()"><error message="looks inside the broker&apos;s JVM: A.b"/></testcase>'
        '<testcase classname="a.b.C" name="w()"><failure message="after 5 s">E: after 5 s\n\tat x\n'
        "Caused by: E: looks inside the broker&apos;s JVM: A.b\n</failure></testcase></testsuite>"
    )
    assert outcomes(report) == {
        "C.x()": "passed",
        "C.y()": "failed",
        "C.z()": "skipped",
        "C.v()": "inside",
        "C.w()": "inside",
    }
