"""Spark's own Kafka connector, from its jars: what our source is compared with. Fetched once with Maven, like Kafka's."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from kafkalite.testing.apache_kafka import KafkaJarsMissing, only_one_fills

#: The newest that could be had when this was written; it fits every Spark 4.0.
CONNECTOR_VERSION = "4.0.0"
#: The rest of what Maven brings is in Spark already.
_WANTED = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>kafkalite</groupId><artifactId>connector-jars</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.spark</groupId><artifactId>spark-sql-kafka-0-10_2.13</artifactId><version>{0}</version></dependency>
</dependencies></project>
"""


def connector_jars(cache: Path) -> list[Path]:
    """For `spark.jars`; fetched into `cache` if need be. Raises KafkaJarsMissing."""
    directory = cache / f"spark-sql-kafka-{CONNECTOR_VERSION}"
    with only_one_fills(directory):
        if not (directory / ".complete").exists():
            _fetch(directory)
    return sorted(jar for jar in (directory / "jars").glob("*.jar") if jar.name.startswith(_WANTED))


def _fetch(directory: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaJarsMissing("no mvn to fetch Spark's Kafka connector with")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / "pom.xml").write_text(_POM.format(CONNECTOR_VERSION))
    command = [maven, "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars", "-DincludeScope=runtime"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise KafkaJarsMissing(f"mvn could not fetch Spark's Kafka connector: {(done.stdout + done.stderr)[-2000:]}")
    (directory / ".complete").touch()
