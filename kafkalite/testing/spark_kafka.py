"""Spark's own Kafka connector, from its jars: what our source is compared with. Fetched once with Maven, like Kafka's."""

from __future__ import annotations

from pathlib import Path

from kafkalite.testing.maven import Artifact, jars

_SPARK = "org.apache.spark"
#: It fits every Spark 4.0.
CONNECTOR_VERSION = "4.0.0"
#: Spark's version -> the connector's: those whose jar is on Maven.
CONNECTORS = {"4.0": CONNECTOR_VERSION, "4.1": "4.1.1", "4.2": "4.2.0"}
#: The connector needs it for delegation tokens only; no newer jar could be had.
_TOKEN_PROVIDER_VERSION = "4.0.0"
#: The rest of what Maven brings is in Spark already.
_WANTED = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")


def connector_jars(cache: Path, version: str = CONNECTOR_VERSION) -> list[Path]:
    """For `spark.jars`; fetched into `cache` if need be. Raises JarsMissing."""
    wanted = [
        Artifact(
            "spark-token-provider-kafka-0-10_2.13", _TOKEN_PROVIDER_VERSION, _SPARK, without=("org.apache.kafka:*",)
        ),
        Artifact("spark-sql-kafka-0-10_2.13", version, _SPARK, without=(f"{_SPARK}:*",)),
    ]
    found = jars(cache / f"spark-sql-kafka-{version}", wanted)
    return sorted(jar for jar in found.glob("*.jar") if jar.name.startswith(_WANTED))
