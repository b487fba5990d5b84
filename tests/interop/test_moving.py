"""docs/moving-from-kafka.md, executed: a broker of the newest Apache Kafka, MirrorMaker 2, and the commands of the page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kafkalite.testing.apache_kafka import (
    NEWEST_VERSION,
    KafkaCluster,
    java,
    server_class_path,
)
from tests.documented.pages import ROOT, SHELL, fences
from tests.documented.session import Session
from tests.support.commands import kafkalite

from .conftest import _base

pytestmark = [pytest.mark.cluster]
PAGE = ROOT / "docs" / "moving-from-kafka.md"
_MAIN = "org.apache.kafka.connect.mirror.MirrorMaker"


def _values(lines: str) -> set[str]:
    return {json.loads(line)["value"] for line in lines.splitlines()}


def test_the_page_moves_a_topic_and_its_group(mirror_classes: str, tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    properties = re.search(r"^```properties\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert properties is not None
    settings = {"group.initial.rebalance.delay.ms": 0, "num.partitions": 3}
    classes = server_class_path(_base(), NEWEST_VERSION)
    with (
        KafkaCluster(tmp_path / "kafka", classes, nodes=1, settings=settings) as source,
        Session(tmp_path / "page", patience_s=240.0) as session,
    ):
        old = [source.bootstrap]
        assert kafkalite("admin", "create-topic", "orders", "--partitions", "3", bootstrap=old).code == 0
        lines = "".join(f"{number % 50}:order {number}\n" for number in range(1000)).encode()
        sent = kafkalite("produce", "orders", "--key-separator", ":", bootstrap=old, stdin=lines)
        assert sent.code == 0, sent.err
        read = ("--group", "readers", "--from", "beginning", "--max", "600")
        before = kafkalite("consume", "orders", *read, "--json", bootstrap=old).out
        assert len(_values(before)) == 600

        session.aliases["old1:9092"] = source.bootstrap
        session.start_cluster("--nodes 3")
        session.write("mm2.properties", properties[1])
        session.program("connect-mirror-maker.sh", f'exec {java()} -Xmx512M -cp "{mirror_classes}" {_MAIN} "$@"')
        for fence in fences(text):
            if fence.language in SHELL:
                session.run(fence)
        # None is skipped; some may come twice, where MirrorMaker knows a place only roughly.
        after = (tmp_path / "page" / "rest.jsonl").read_text()
        assert len(_values(before) | _values(after)) == 1000
