"""kafka-python's own integration suite, from its source distribution, against a node of ours."""

from __future__ import annotations

import asyncio
import os
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.support.loopback_cluster import LoopbackCluster

from .conftest import CLUSTER_SETTINGS, install, scratch

pytestmark = [pytest.mark.timeout(900), pytest.mark.cluster]

_HERE = Path(__file__).parent
#: What the suite imports to start brokers by itself, which it does not do here; the distribution lacks it.
_SERVICE = """class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass


SpawnedService = None
"""
_FILES = ("test_producer_integration.py", "test_consumer_integration.py", "test_admin_integration.py")
#: Of our environment: a ZooKeeper that it would look into, our own modules and options.
_NOT_ITS_BUSINESS = ("ZOOKEEPER_URI", "PYTHONPATH", "PYTEST_ADDOPTS")
#: For the suite's test of ACLs; nobody logs in here, and everybody may do everything.
_RIGHTS = {"authorizer.enabled": True, "super.users": "User:ANONYMOUS"}
#: Test -> why it does not pass. Whoever changes that takes it off the list.
_NOT_PASSING = {
    "test_kafka_version_infer": "infers a newer version from the APIs than the one for which it runs here",
}
#: The suite's own choice for brokers of this version.
_SKIPPED = {
    "test_kafka_consumer_offsets_for_time_old": "for brokers before 0.10.1",
    "test_describe_metadata_quorum": "for KRaft",
    "test_list_config_resources": "for brokers from 4.1 on",
}


@pytest.fixture(scope="session")
def suite() -> Path:
    """A directory with the unpacked distribution in `source` and an interpreter that can run it."""
    requirements = _HERE / "requirements-kafka-python-suite.txt"
    directory = scratch("kafka-python-suite", requirements)
    python = str(directory / "venv" / "bin" / "python")
    [package] = [line for line in requirements.read_text().splitlines() if line.startswith("kafka-python==")]
    unpack = (
        "mkdir source && tar -xzf kafka_python-*.tar.gz -C source --strip-components 1 && touch source/test/__init__.py"
    )
    install(
        directory,
        [sys.executable, "-m", "venv", "venv"],
        [python, "-m", "pip", "install", "-q", "-r", str(requirements)],
        [python, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", package],
        ["sh", "-c", unpack],
        ["sh", "-c", 'printf %s "$1" > source/test/service.py', "sh", _SERVICE],
    )
    return directory


async def _run(suite: Path, bootstrap: str, version: str, report: Path, *arguments: str) -> dict[str, str]:
    """Name of each test -> passed, failure, error or skipped."""
    settings = {"KAFKA_ROOT": str(report.parent), "KAFKA_URI": f"kafka://{bootstrap}", "KAFKA_VERSION": version}
    process = await asyncio.create_subprocess_exec(
        *(str(suite / "venv" / "bin" / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider"),
        *(f"--junitxml={report}", *arguments),
        cwd=suite / "source",
        env={name: value for name, value in os.environ.items() if name not in _NOT_ITS_BUSINESS} | settings,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(600):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    print(out.decode(errors="replace")[-6000:])
    bad = ("failure", "error", "skipped")
    return {
        case.attrib["name"]: next((child.tag for child in case if child.tag in bad), "passed")
        for case in ElementTree.parse(report).getroot().findall(".//testcase")
    }


async def test_what_passes_of_kafka_pythons_own_suite(suite: Path, tmp_path: Path) -> None:
    settings = CLUSTER_SETTINGS | {"num.partitions": 4, "default.replication.factor": 1} | _RIGHTS
    # The suite takes it for granted that the one broker is number 0.
    async with LoopbackCluster(tmp_path / "cluster", nodes=1, settings=settings, first_id=0) as cluster:
        boot, files = cluster.bootstrap, [f"test/integration/{name}" for name in _FILES]
        outcome = await _run(suite, boot, "3.9", tmp_path / "report.xml", *files)
        # What the suite has for 4.0 only, and is served all the same.
        newer = await _run(suite, boot, "4.0", tmp_path / "newer.xml", files[-1], "-k", "describe_topic_partitions")
    assert set(newer.values()) == {"passed"} and len(newer) == 2
    outcome |= newer
    print(f"{sum(each == 'passed' for each in outcome.values())} of {len(outcome)} pass")
    assert {name for name, each in outcome.items() if each == "skipped"} == _SKIPPED.keys()
    assert {name for name, each in outcome.items() if each in ("failure", "error")} == _NOT_PASSING.keys()
    assert len(outcome) > 50
