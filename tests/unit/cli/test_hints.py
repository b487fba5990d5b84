"""Hints for users of kafka-*.sh, rpk and kcat."""

from __future__ import annotations

import pytest

from kafkalite_cli.hints import with_key
from kafkalite_cli.main import run


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("topic list", "No such command 'topic'. Use 'kafkalite admin list-topics'"),
        ("admin consumer-groups list", "Use 'kafkalite admin groups list'"),
        ("health", "Use 'kafkalite admin health'."),
        ("admin help", "Use 'kafkalite admin --help'."),
        ("admin groups help", "Use 'kafkalite admin groups --help'."),
        ("admin users set alice --password x", "Use stdin or KAFKALITE_USER_PASSWORD"),
        ("admin broker decommission 3 --dry-run", "Use 'kafkalite admin reassign plan --drain-broker N'"),
        ("produce t -k LH1", "Use --key TEXT."),
        ("tops", "Did you mean 'top'?"),
        ("consume t --from-beginning", "No such option '--from-beginning'. Use --from beginning."),
        ("consume --topic t", "Use TOPIC without an option in front."),
        ("consume t -p 3", "Use --partition N."),
        ("admin create-topic t -p 3", "Use --partitions N."),
        ("admin create-topic t --config retention.ms=1", "Use --set KEY=VALUE."),
        ("admin describe --topic t", "Use TOPICS without an option in front."),
        ("admin health --bootstrap-server h:1", "Use --bootstrap HOST:PORT."),
        ("admin broker decommission 3 --yes", "Use the command without it: it does not ask."),
        ("admin groups delete g", "add --yes"),
        ("admin config describe --topic t", "Use 'kafkalite admin config get'."),
        ("admin delete-topics t", "Use 'kafkalite admin delete-topic'."),
        ("admin top --once", "Use 'kafkalite top'."),
        ("admin consume t", "Use 'kafkalite consume'."),
        ("admin helth", "Did you mean 'health'?"),
        ("admin groups seek g", "Use 'kafkalite admin groups reset-offsets'."),
        ("admin config set --topic t --add-config k=v", "Use KEY=VALUE without an option in front."),
        ("perf producer t", "Use 'kafkalite perf produce'."),
        ("-C -t t", "No such option '-C'. Use 'kafkalite consume TOPIC'."),
        ("-L", "Use 'kafkalite admin describe'."),
        ("consume t -c 5", "Use --max N."),
        ("consume t --property print.key=true", "Use --format '{key} {value}'."),
        ("produce t -K :", "Use --key-separator TEXT."),
        ("produce t -z gzip", "Use --compression CODEC."),
        ("perf produce t --throughput -1", "Use --rate N."),
        ("debug bundle", "Use 'kafkalite admin health'"),
        ("shadow list", "No such command 'shadow'. 'kafkalite --help' lists the commands."),
        ("-X brokers=h:1 topic list", "--client-config FILE"),
        ("--zookeeper h:1 topics", "clients talk to brokers only"),
        ("admin create-topic t -c k=v", "Use --set KEY=VALUE."),
        ("admin list-topics -q", "'kafkalite admin list-topics --help' lists the options."),
        ("consume t --tail 5", "Use --last N."),
        ("consume t --follow", "it goes on until Ctrl-C"),
        ("admin groups --describe --group g", "Use 'kafkalite admin groups describe'."),
        ("admin config --describe", "Use 'kafkalite admin config get'."),
        ("admin reassign --generate", "Use 'kafkalite admin reassign plan'."),
        ("admin reassign execute --reassignment-json-file x", "Use PLAN without an option in front."),
        ("admin groups reset-offsets g --dry-run", "it only shows, until you add --execute"),
        ("admin add-partitions t --partitions 9", "--total N: how many it has then"),
        ("serve --id x", "'x' is not a valid integer."),
        ("admin health --bootstrap http://h:1", "'http://h:1' is not HOST:PORT"),
        ("serve --id 1 --kafka 9092", "'9092' is not HOST:PORT"),
    ],
)
def test_what_other_tools_call_it(typed: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(typed.split()) == 2
    said = capsys.readouterr().err
    assert hint in said and said.count("\n") == 1


def test_the_closest_setting() -> None:
    assert with_key("t: retentin.ms: no such topic configuration").endswith("; did you mean retention.ms?")
    for text in ("t: frobnicate: no such topic configuration", "something else", "x" * 100 + ": no such configuration"):
        assert with_key(text) == text


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        ("security.inter.broker.protocol", "set inter.broker.listener.name"),
        ("controller.listener.names", "leave it out, here and in listeners"),
        ("listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config", "set inter.broker.username"),
        ("ssl.keystore.type", "PEM"),
        ("ssl.keystore.password", "ssl.key.password"),
        ("listener.name.internal.max.connection.creation.rate", "without listener.name"),
        ("listener.name.internal.num.network.threads", "one event loop"),
    ],
)
def test_listeners_of_kafka_that_are_set_otherwise_here(key: str, instead: str) -> None:
    assert instead in with_key(f"{key}: no such configuration")
