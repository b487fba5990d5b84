"""Every method of the Java client's Admin (4.4), on Apache Kafka 4.4 and on kafkalite: the answers differ only where a reason is known."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from kafkalite.testing.apache_kafka import (
    NEWEST_VERSION,
    KafkaCluster,
    newest_client_class_path,
    server_class_path,
    tool_command,
)
from kafkalite.testing.kafka_settings import BROKER_SETTINGS, names_in
from kafkalite.testing.processes import ProcessCluster

from .conftest import _base, compiled

pytestmark = [pytest.mark.timeout(1200), pytest.mark.cluster]

SETTINGS = {
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "share.coordinator.state.topic.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 100,
    "default.replication.factor": 3,
    "super.users": "User:ANONYMOUS",
}
ONLY_KAFKA = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "share.coordinator.state.topic.replication.factor": 3,
    "share.coordinator.state.topic.min.isr": 1,
    "auto.create.topics.enable": "false",
}
#: Lists directly after a deletion: the broker of Apache Kafka that is asked may not know of it yet, ours does (ADR 63).
AFTER = {
    "describeClientQuotas ann after": ["{ClientQuotaEntity(entries=client-id=c,user=ann)={consumer_byte_rate=2000.0}}"],
    "listClientMetricsResources after": ["[]"],
}
#: Beginning of a step's name -> why its answers differ.
KNOWN = {
    "createTopics a": "names: ours beside Kafka's, and without those of tiered storage",
    "createTopics setting internal.segment.bytes": "a setting of Kafka's own tests",
    "createTopics setting retention.bytes=-5": "below -1 has no meaning; Kafka takes it for no limit",
    "describeConfigs topic": "names and synonyms: ours beside Kafka's",
    "describeConfigs broker": "names: docs/kafka-protocol.md, Broker settings",
    "describeConfigs group": "synonyms and two names of assignors of streams groups",
    "describeConfigs loggers": "loggers are Python's, and no resource",
    "incrementalAlterConfigs logger": "loggers are Python's, and no resource",
    "incrementalAlterConfigs broker": "a name that does not exist is refused; which settings can change: docs/configuration.md",
    "incrementalAlterConfigs metrics": "INVALID_CONFIG for each wrong value",
    "unregisterController": "KRaft",
    "describeMetadataQuorum": "KRaft",
    "describeFeatures": "KRaft's metadata.version and kraft.version",
    "alterUserScramCredentials two": "both mechanisms of a user in one request are accepted",
    "describeUserScramCredentials": "after that",
    "listShareGroupOffsets": "the start offset moves with the acknowledgement; an unknown group is an error",
    "alterShareGroupOffsets negative": "a negative offset is refused",
}


def normal(line: str) -> str:
    """Without what differs from run to run: addresses, and the text of an error."""
    line = re.sub(r"127\.0\.0\.1:\d+|localhost:\d+", "ADDRESS", line)
    line = re.sub(r"^[\w-]{22} ->", "ID ->", line)
    line = re.sub(r"timestamp=\d{13}", "timestamp=NOW", line)
    line = re.sub(r"entries=\{([^}]*)\}", lambda found: "entries=" + ",".join(sorted(found[1].split(", "))), line)
    return re.sub(r"(! \w+) \|.*", r"\1", line)


def steps(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for part in text.split("@@ ")[1:]:
        name, _, rest = part.partition("\n")
        while name in found:
            name += " again"
        found[name] = sorted(map(normal, rest.splitlines()))
    return found


async def answers(classes: str, bootstrap: str, seen: Path) -> dict[str, list[str]]:
    command = tool_command(classes, "AdminAnswers", bootstrap)
    program = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        output, errors = await program.communicate()
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    await asyncio.to_thread(seen.write_bytes, output)  # to be read if something differs
    assert program.returncode == 0, (output + errors)[-2000:]
    return steps(output.decode())


def test_the_list_of_broker_settings_is_that_of_the_newest_release() -> None:
    assert names_in(server_class_path(_base(), NEWEST_VERSION)) == BROKER_SETTINGS


def unlike(ours: dict[str, list[str]], theirs: dict[str, list[str]]) -> dict[str, tuple[list[str], list[str]]]:
    """Steps with another answer than Kafka's, for no known reason."""
    return {
        name: (theirs[name], ours[name])
        for name in ours.keys() - AFTER
        if ours[name] != theirs[name] and not name.startswith(tuple(KNOWN))
    }


async def test_admin_gets_the_answers_of_apache_kafka(tmp_path: Path) -> None:
    classes = compiled("java-admin", newest_client_class_path(_base()))
    server = server_class_path(_base(), NEWEST_VERSION)

    async def kafkas_answers(run: str) -> dict[str, list[str]]:
        with KafkaCluster(tmp_path / run, server, settings=SETTINGS | ONLY_KAFKA) as kafka:
            return await answers(classes, kafka.bootstrap, tmp_path / f"{run}.txt")

    theirs = await kafkas_answers("kafka")
    with ProcessCluster(tmp_path / "kafkalite", nodes=3, settings=SETTINGS | {"authorizer.enabled": "true"}) as cluster:
        ours = await answers(classes, ",".join(cluster.bootstrap), tmp_path / "kafkalite.txt")
    assert len(ours) > 400 and ours.keys() == theirs.keys()
    assert {name: ours[name] for name in AFTER} == AFTER
    different = unlike(ours, theirs)
    if (
        different
    ):  # on a busy machine a broker of Kafka's may answer before it knows of the change: two runs hardly agree in that
        again = unlike(ours, await kafkas_answers("again"))
        different = {name: both for name, both in different.items() if name in again}
    assert different == {}
