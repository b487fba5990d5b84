"""Apache Kafka's tests against our nodes: settings under our names, and what JUnit prints."""

from __future__ import annotations

from pathlib import Path

from kafkalite.config import broker_config
from tests.suites.broker_settings import as_named, translated
from tests.suites.kafka_tests.runner import fed, outcomes

_JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="super" password="p" user_super="p" user_a="q";'


def test_a_login_and_rights_of_kafkas_tests(tmp_path: Path) -> None:
    rest, ours = translated(
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
    config, _ = broker_config(rest | ours)
    assert config.authorizer_enabled and config.listener_security_protocol == "SASL_PLAINTEXT"
    assert Path(config.sasl_plain_users_location).read_text() == "super=p\na=q\n"
    assert (config.inter_broker_username, config.inter_broker_password) == ("super", "p")


def test_listeners_of_kafkas_tests(tmp_path: Path) -> None:
    settings = {"listeners": "EXTERNAL://localhost:0,CONTROLLER://localhost:0", "auto.create.topics.enable": "false"}
    rest, ours = translated(settings, tmp_path)
    assert rest == {"auto.create.topics.enable": "false"}
    assert broker_config(rest | ours)[0].listeners == "EXTERNAL://localhost:0"

    _, ours = translated({"listener.security.protocol.map": "EXTERNAL:SSL,CONTROLLER:SSL"}, tmp_path)
    assert ours["listeners"] == "EXTERNAL://localhost:0" and ours["rpc.security.protocol"] == "PLAINTEXT"
    assert as_named("127.0.0.1:5", ours) == "localhost:5"
    assert as_named("127.0.0.1:5", {}) == "127.0.0.1:5"


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
        '<testcase classname="a.b.C" name="z()"><skipped/></testcase></testsuite>'
    )
    assert outcomes(report) == {"C.x()": "passed", "C.y()": "failed", "C.z()": "skipped"}
