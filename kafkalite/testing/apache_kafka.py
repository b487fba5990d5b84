"""Apache Kafka itself, from its jars: brokers to be measured against, and the tools that must read what we write.

The jars come from Maven's registry through `mvn`, once, into a directory that git ignores; KAFKALITE_KAFKA_CLASSPATH
names a class path that is there already. Nothing of this is needed to run or test kafkalite otherwise.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from kafkalite.coordination.embedded import free_port
from kafkalite.testing.maven import Artifact, JarsMissing, jars
from kafkalite.testing.processes import Process, ProcessFailed

KAFKA_VERSION = "3.9.1"
#: The newest.
NEWEST_VERSION = "4.4.0"
#: The Java client that users of today have.
CLIENT_VERSION = "4.4.0"
#: A Java client of 2019 (of 2.1).
OLDEST_CLIENT_VERSION = "2.1.1"
#: The newest of which the registry has everything: of NEWEST_VERSION it lacks MirrorMaker, file connectors and tests.
COMPLETE_VERSION = "4.3.1"
#: What bin/kafka-run-class.sh and bin/kafka-server-start.sh give the JVM.
SERVER_FLAGS = (
    "-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
)  # fmt: skip
_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
_SERVER = ("kafka_2.13", "kafka-tools")
_TOOLS = ("kafka_2.13", "kafka-tools", "kafka-streams")
_SERVICES = (*_TOOLS, "connect-runtime")
#: Of a server without tools: nothing that serves uses it, and the registry lacks it for some releases.
_TOOLS_API = "org.apache.kafka:kafka-tools-api"
#: The server brings one; without it the services say nothing.
_LOGGING = Artifact("slf4j-reload4j", "1.7.36", "org.slf4j")
#: Flink's connector has a version of its own.
_FLINK_VERSION, _FLINK_CONNECTOR_VERSION = "2.2.1", "5.0.0-2.2"
_FLINK = ("flink-streaming-java", "flink-clients", "flink-connector-base")
_SPRING = Artifact("spring-kafka", "4.0.0", "org.springframework.kafka")
_LOG4J = """log4j.rootLogger=WARN, console
log4j.logger.org.apache.kafka.streams.tests=INFO
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


def java() -> str:
    """The java command. Raises JarsMissing."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None:
        raise JarsMissing("no java: set JAVA_HOME or put java into PATH")
    return found


def class_path(cache: Path) -> str:
    """The class path of Kafka's server and tools; fetched into `cache` if need be. Raises JarsMissing."""
    if named := os.environ.get("KAFKALITE_KAFKA_CLASSPATH"):
        return named
    return _filled(cache / f"kafka-{KAFKA_VERSION}", _of_kafka(KAFKA_VERSION, *_SERVER))


def server_class_path(cache: Path, version: str) -> str:
    """The class path of a broker of that release, without tools; fetched into `cache` if need be. Raises JarsMissing."""
    return _filled(cache / f"kafka-server-{version}", [Artifact("kafka_2.13", version, without=(_TOOLS_API,))])


def tools_class_path(cache: Path) -> str:
    """The class path of the tools and Streams of NEWEST_VERSION; fetched into `cache` if need be. Raises JarsMissing."""
    return _filled(cache / f"kafka-tools-{NEWEST_VERSION}", _of_kafka(NEWEST_VERSION, *_TOOLS))


def services_class_path(cache: Path) -> str:
    """The class path of the tools, Streams and Connect of NEWEST_VERSION with the file connectors of COMPLETE_VERSION.

    Fetched into `cache` if need be. Raises JarsMissing.
    """
    wanted = [*_of_kafka(NEWEST_VERSION, *_SERVICES), Artifact("connect-file", COMPLETE_VERSION)]
    return _filled(cache / f"kafka-services-{NEWEST_VERSION}", wanted)


def mirror_class_path(cache: Path) -> str:
    """The class path of Connect of NEWEST_VERSION and MirrorMaker of COMPLETE_VERSION, which lacks two classes that have moved.

    Fetched into `cache` if need be. Raises JarsMissing.
    """
    connectors = [
        Artifact(name, COMPLETE_VERSION, without=("*:*",)) for name in ("connect-mirror", "connect-mirror-client")
    ]
    wanted = [*_of_kafka(NEWEST_VERSION, *_SERVICES), *connectors]
    return _filled(cache / f"kafka-mirror-{NEWEST_VERSION}", wanted)


def streams_tests_class_path(cache: Path) -> str:
    """The class path of the programs of Kafka's system tests of Streams; fetched into `cache` if need be. Raises JarsMissing."""
    tests = [Artifact(name, COMPLETE_VERSION, classifier="test") for name in ("kafka-streams", "kafka-clients")]
    wanted = [*_of_kafka(COMPLETE_VERSION, "kafka-streams"), *tests]
    return _filled(cache / f"kafka-streams-tests-{COMPLETE_VERSION}", wanted)


def flink_class_path(cache: Path) -> str:
    """The class path of Apache Flink with its Kafka connector; fetched into `cache` if need be. Raises JarsMissing."""
    wanted = [Artifact(name, _FLINK_VERSION, "org.apache.flink") for name in _FLINK]
    wanted.append(Artifact("flink-connector-kafka", _FLINK_CONNECTOR_VERSION, "org.apache.flink"))
    return _filled(cache / f"flink-{_FLINK_VERSION}", wanted)


def spring_class_path(cache: Path) -> str:
    """The class path of Spring Kafka with its own Java client; fetched into `cache` if need be. Raises JarsMissing."""
    return _filled(cache / f"spring-kafka-{_SPRING.version}", [_SPRING])


def newest_client_class_path(cache: Path) -> str:
    """The class path of the Java client of CLIENT_VERSION; fetched into `cache` if need be. Raises JarsMissing."""
    return _filled(cache / f"kafka-clients-{CLIENT_VERSION}", _of_kafka(CLIENT_VERSION, "kafka-clients"))


def oldest_client_class_path(cache: Path) -> str:
    """The class path of the Java client of OLDEST_CLIENT_VERSION; fetched into `cache` if need be. Raises JarsMissing."""
    return _filled(cache / f"kafka-clients-{OLDEST_CLIENT_VERSION}", _of_kafka(OLDEST_CLIENT_VERSION, "kafka-clients"))


def _of_kafka(version: str, *names: str) -> list[Artifact]:
    return [Artifact(name, version) for name in names]


def _filled(directory: Path, artifacts: Sequence[Artifact]) -> str:
    found = jars(directory, [*artifacts, _LOGGING])
    settings = directory / "log4j.properties"
    if not settings.exists():
        settings.write_text(_LOG4J)
    return f"{directory}{os.pathsep}{found}/*"


def tool_command(classes: str, main: str, *arguments: str) -> list[str]:
    """The command line of one of Kafka's tools, by the name of its class."""
    return [java(), "-Xmx256M", "-XX:TieredStopAtLevel=1", "-cp", classes, main, *arguments]


def _logins(users: Mapping[str, str]) -> dict[str, str]:
    """Settings of a listener SASL_PLAINTEXT."""
    prefix, modules = "listener.name.sasl_plaintext", "org.apache.kafka.common.security"
    known = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    return {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        f"{prefix}.plain.sasl.jaas.config": f"{modules}.plain.PlainLoginModule required {known};",
        f"{prefix}.scram-sha-256.sasl.jaas.config": f"{modules}.scram.ScramLoginModule required;",
    }


def free_ports(count: int) -> list[int]:
    """Ports that nobody listened on a moment ago."""
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(free_port("127.0.0.1"))
    return list(ports)


class JavaProcess(Process):
    """A Java program, by the name of its class, that runs until it is ended; stderr goes to its log.

    One that prints a line of JSON when it is ready (and nothing after it) can be waited for with `wait_ready`.
    """

    def __init__(self, name: str, classes: str, main: str, arguments: Sequence[str], log_path: Path) -> None:
        super().__init__(name, (), log_path)
        self._arguments = [java(), "-Xmx512M", "-cp", classes, main, *arguments]


class KafkaBroker(Process):
    """kafka.Kafka, broker and KRaft controller in one, ready when its port takes connections."""

    def __init__(self, classes: str, properties: Path, port: int, log_path: Path) -> None:
        super().__init__(f"Apache Kafka on {port}", (), log_path)
        self._arguments = [java(), *SERVER_FLAGS, "-cp", classes, "kafka.Kafka", str(properties)]
        self.port = port

    def wait_listening(self, deadline_s: float = 90.0) -> None:
        """Raises ProcessFailed."""
        until = time.monotonic() + deadline_s
        while self.running and time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise ProcessFailed(f"{self.name} does not listen\n{self.log_tail()}")


class KafkaCluster:
    """`nodes` Kafka brokers in KRaft mode under `directory`; use as a context manager. Formats the storage on creation.

    Args:
        users: name -> password, of SASL PLAIN. With it each broker has a second listener, SASL_PLAINTEXT (`logins`), that takes
            SCRAM-SHA-256 too.
    """

    def __init__(
        self,
        directory: Path,
        classes: str,
        *,
        nodes: int = 3,
        settings: Mapping[str, object] | None = None,
        users: Mapping[str, str] | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        ports = free_ports(3 * nodes)
        #: Where clients log in.
        self.logins = [f"127.0.0.1:{port}" for port in ports[2 * nodes :]] if users else []
        voters = ",".join(f"{node + 1}@127.0.0.1:{ports[nodes + node]}" for node in range(nodes))
        self.nodes: dict[int, KafkaBroker] = {}
        for node in range(nodes):
            number = node + 1
            properties = directory / f"kafka-{number}.properties"
            lines = {
                "process.roles": "broker,controller",
                "node.id": number,
                "controller.quorum.voters": voters,
                "listeners": f"PLAINTEXT://127.0.0.1:{ports[node]},CONTROLLER://127.0.0.1:{ports[nodes + node]}",
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                "log.dirs": directory / f"kafka-{number}",
                "offsets.topic.replication.factor": min(3, nodes),
                "transaction.state.log.replication.factor": min(3, nodes),
                "transaction.state.log.min.isr": 1,
                **(settings or {}),
            }
            if users:
                lines["listeners"] = f"{lines['listeners']},SASL_PLAINTEXT://{self.logins[node]}"
                lines["listener.security.protocol.map"] = (
                    f"{lines['listener.security.protocol.map']},SASL_PLAINTEXT:SASL_PLAINTEXT"
                )
                lines |= _logins(users)
            properties.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
            self._format(classes, properties)
            self.nodes[number] = KafkaBroker(classes, properties, ports[node], directory / f"kafka-{number}.log")

    @staticmethod
    def _format(classes: str, properties: Path) -> None:
        command = tool_command(classes, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(properties))
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise ProcessFailed(f"formatting failed: {done.stdout}{done.stderr}")

    def __enter__(self) -> KafkaCluster:
        try:
            for node in self.nodes.values():
                node.launch()
            for node in self.nodes.values():
                node.wait_listening()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{node.port}" for node in self.nodes.values())

    def close(self) -> None:
        for node in self.nodes.values():
            node.kill()


def dump_log(classes: str, files: Sequence[Path], *flags: str) -> str:
    """What kafka.tools.DumpLogSegments prints about these files. Raises AssertionError if it fails."""
    names = ",".join(map(str, files))
    command = tool_command(classes, "kafka.tools.DumpLogSegments", *flags, "--files", names)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def dumped_batches(text: str) -> list[dict[str, str]]:
    """The `key: value` pairs of each batch line of `dump_log`."""
    lines = [line for line in text.splitlines() if line.startswith("baseOffset:")]
    return [dict(re.findall(r"(\w+): (\S+)", line)) for line in lines]
