"""Apache Kafka itself, from its jars: brokers to be measured against, and the tools that must read what we write.

The jars come from Maven's registry through `mvn`, once, into a directory that git ignores; KAFKALITE_KAFKA_CLASSPATH
names a class path that is there already. Nothing of this is needed to run or test kafkalite otherwise.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from kafkalite.testing.processes import Process, ProcessFailed

KAFKA_VERSION = "3.9.1"
#: The newest, whose tools are not all in the registry.
NEWEST_VERSION = "4.4.0"
#: The Java client that users of today have.
CLIENT_VERSION = "4.4.0"
#: A Java client of 2019 (of 2.1).
OLDEST_CLIENT_VERSION = "2.1.1"
#: The newest whose tools, Streams, Connect and MirrorMaker are in the registry.
SERVICES_VERSION = "4.3.1"
#: What bin/kafka-run-class.sh and bin/kafka-server-start.sh give the JVM.
SERVER_FLAGS = (
    "-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
)  # fmt: skip
_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
#: Artifacts of the broker and of the tools; of the tools and of the services that are clients.
_SERVER = ("kafka_2.13", "kafka-tools")
_SERVER_ALONE = ("kafka_2.13",)
_SERVICES = ("kafka_2.13", "kafka-tools", "kafka-streams", "connect-runtime", "connect-file", "connect-mirror")
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>kafkalite</groupId><artifactId>kafka-jars</artifactId><version>1</version><dependencies>
{0}</dependencies></project>
"""
_DEPENDENCY = """<dependency><groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version>{3}</dependency>
"""
#: Of a server without tools: nothing that serves uses it, and the registry lacks it for some releases.
_WITHOUT_TOOLS = """<exclusions><exclusion><groupId>org.apache.kafka</groupId><artifactId>kafka-tools-api</artifactId></exclusion>
</exclusions>"""
#: The server brings one; without it the services say nothing.
_LOGGING = ("org.slf4j", "slf4j-reload4j", "1.7.36")
_LOG4J = """log4j.rootLogger=WARN, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


class KafkaJarsMissing(RuntimeError):
    """Kafka's jars are neither here nor to be had."""


def java() -> str:
    """The java command. Raises KafkaJarsMissing."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None:
        raise KafkaJarsMissing("no java: set JAVA_HOME or put java into PATH")
    return found


def class_path(cache: Path) -> str:
    """The class path of Kafka's server and tools; fetched into `cache` if need be. Raises KafkaJarsMissing."""
    if named := os.environ.get("KAFKALITE_KAFKA_CLASSPATH"):
        return named
    return _filled(cache / f"kafka-{KAFKA_VERSION}", _SERVER)


def server_class_path(cache: Path, version: str) -> str:
    """The class path of a broker of that release, without tools; fetched into `cache` if need be. Raises KafkaJarsMissing."""
    return _filled(cache / f"kafka-server-{version}", _SERVER_ALONE, version)


def services_class_path(cache: Path) -> str:
    """The class path of the tools, Streams, Connect and MirrorMaker of SERVICES_VERSION; fetched into `cache` if need be.

    Raises KafkaJarsMissing.
    """
    return _filled(cache / f"kafka-services-{SERVICES_VERSION}", _SERVICES, SERVICES_VERSION)


def newest_client_class_path(cache: Path) -> str:
    """The class path of the Java client of CLIENT_VERSION; fetched into `cache` if need be. Raises KafkaJarsMissing."""
    return _filled(cache / f"kafka-clients-{CLIENT_VERSION}", ("kafka-clients",), CLIENT_VERSION)


def oldest_client_class_path(cache: Path) -> str:
    """The class path of the Java client of OLDEST_CLIENT_VERSION; fetched into `cache` if need be. Raises KafkaJarsMissing."""
    return _filled(cache / f"kafka-clients-{OLDEST_CLIENT_VERSION}", ("kafka-clients",), OLDEST_CLIENT_VERSION)


def _filled(directory: Path, artifacts: Sequence[str], version: str = KAFKA_VERSION) -> str:
    with only_one_fills(directory):
        if not (directory / ".complete").exists():
            _fetch(directory, artifacts, version)
    return f"{directory}{os.pathsep}{directory / 'jars'}/*"


@contextmanager
def only_one_fills(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory that is filled once and shared, so that a second process waits instead of clearing it."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / f".{directory.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(directory: Path, artifacts: Sequence[str], version: str) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaJarsMissing("no mvn to fetch Kafka's jars with, and KAFKALITE_KAFKA_CLASSPATH is not set")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    wanted = [*(("org.apache.kafka", name, version) for name in artifacts), _LOGGING]
    exclusions = _WITHOUT_TOOLS if tuple(artifacts) == _SERVER_ALONE else ""
    (directory / "pom.xml").write_text(_POM.format("".join(_DEPENDENCY.format(*each, exclusions) for each in wanted)))
    (directory / "log4j.properties").write_text(_LOG4J)
    command = [maven, "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars", "-DincludeScope=runtime"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise KafkaJarsMissing(f"mvn could not fetch Kafka's jars: {(done.stdout + done.stderr)[-2000:]}")
    (directory / ".complete").touch()


def tool_command(classes: str, main: str, *arguments: str) -> list[str]:
    """The command line of one of Kafka's tools, by the name of its class."""
    return [java(), "-Xmx256M", "-XX:TieredStopAtLevel=1", "-cp", classes, main, *arguments]


def free_ports(count: int) -> list[int]:
    """Ports that nobody listened on a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


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
    """`nodes` Kafka brokers in KRaft mode under `directory`; use as a context manager. Formats the storage on creation."""

    def __init__(
        self, directory: Path, classes: str, *, nodes: int = 3, settings: Mapping[str, object] | None = None
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        ports = free_ports(2 * nodes)
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
