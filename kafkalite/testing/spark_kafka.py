"""Spark's own Kafka connector, from its jars: what our source is compared with. Fetched once with Maven, like Kafka's."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from kafkalite.testing.apache_kafka import KafkaJarsMissing, only_one_fills

#: It fits every Spark 4.0.
CONNECTOR_VERSION = "4.0.0"
#: Spark's version -> the connector's: those whose jar is on Maven.
CONNECTORS = {"4.0": CONNECTOR_VERSION, "4.1": "4.1.1", "4.2": "4.2.0"}
#: The connector needs it for delegation tokens only; no newer jar could be had.
_TOKEN_PROVIDER_VERSION = "4.0.0"
#: The rest of what Maven brings is in Spark already.
_WANTED = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>kafkalite</groupId><artifactId>connector-jars</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.spark</groupId><artifactId>spark-token-provider-kafka-0-10_2.13</artifactId><version>{1}</version>
<exclusions><exclusion><groupId>org.apache.kafka</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>
<dependency><groupId>org.apache.spark</groupId><artifactId>spark-sql-kafka-0-10_2.13</artifactId><version>{0}</version>
<exclusions><exclusion><groupId>org.apache.spark</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>
</dependencies></project>
"""


def connector_jars(cache: Path, version: str = CONNECTOR_VERSION) -> list[Path]:
    """For `spark.jars`; fetched into `cache` if need be. Raises KafkaJarsMissing."""
    directory = cache / f"spark-sql-kafka-{version}"
    with only_one_fills(directory):
        if not (directory / ".complete").exists():
            _fetch(directory, version)
    return sorted(jar for jar in (directory / "jars").glob("*.jar") if jar.name.startswith(_WANTED))


def _fetch(directory: Path, version: str) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaJarsMissing("no mvn to fetch Spark's Kafka connector with")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / "pom.xml").write_text(_POM.format(version, _TOKEN_PROVIDER_VERSION))
    command = [maven, "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars", "-DincludeScope=runtime"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise KafkaJarsMissing(f"mvn could not fetch Spark's Kafka connector: {(done.stdout + done.stderr)[-2000:]}")
    (directory / ".complete").touch()
