"""Where znodes are."""

from __future__ import annotations

import pytest

from kafkalite.coordination import paths, zk_codec
from kafkalite.coordination.coordinator import Check, Create, Delete, Op, SetData
from kafkalite.coordination.paths import split_connect_string
from kafkalite.coordination.verbs import MAX_REQUEST_BYTES, size_of_ops
from kafkalite.errors import ConfigError
from kafkalite.model import Endpoint, TopicPartition


@pytest.mark.checklist("C1")
@pytest.mark.checklist(5, 6, 7, 9)
def test_the_layout_is_kafkas() -> None:
    partition = TopicPartition("t", 3)
    assert paths.broker(7) == "/brokers/ids/7"
    assert paths.topic("t") == "/brokers/topics/t"
    assert paths.partition_state(partition) == "/brokers/topics/t/partitions/3/state"
    assert paths.partition_add(partition) == "/admin/partitions_add/t/3"
    assert paths.partition_remove(partition) == "/admin/partitions_remove/t/3"
    assert paths.config_entity("brokers", paths.DEFAULT_ENTITY) == "/config/brokers/<default>"
    assert paths.config_entity("topics", "t") == paths.config_topic("t") == "/config/topics/t"


def test_a_name_of_thousands_of_digits_is_a_stranger() -> None:
    """int() refuses it with a ValueError, which ended every node that was elected."""
    name = "9" * 5000
    assert paths.broker_ids(["7", name]) == ([7], [name])
    assert paths.decimal("2147483647") == 2147483647
    assert [paths.decimal(each) for each in ("2147483648", "007", "", "x", "-1")] == [None] * 5


def test_broker_ids_are_canonical_decimals() -> None:
    assert paths.broker_ids(["10", "9", "01", "x", "-1", "１", "4294967296"]) == (
        [9, 10],
        ["-1", "01", "4294967296", "x", "１"],
    )


def test_parents_exist_for_everything_that_is_persistent() -> None:
    assert paths.parent("/a/b") == "/a"
    assert paths.parent("/a") == "/"
    assert all(paths.parent(path) == "/" or paths.parent(path) in paths.PERSISTENT for path in paths.PERSISTENT)


@pytest.mark.parametrize(
    ("text", "endpoints", "chroot"),
    [
        ("h", (Endpoint("h", 2181),), ""),
        ("h:1,g:2/kafka", (Endpoint("h", 1), Endpoint("g", 2)), "/kafka"),
        (" h:1 , g/ ", (Endpoint("h", 1), Endpoint("g", 2181)), ""),
        ("[::1]:2181/a/b/", (Endpoint("::1", 2181),), "/a/b"),
    ],
)
def test_connect_strings(text: str, endpoints: tuple[Endpoint, ...], chroot: str) -> None:
    assert split_connect_string(text) == (endpoints, chroot)


@pytest.mark.parametrize("text", ["", "h:x", "h:0", "h:70000", "h,,g", "h:1/a//b", "h/../x", ":2181", "h:1/a,g:2/a"])
def test_connect_strings_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^zookeeper\.connect: "):
        split_connect_string(text)


def test_the_size_of_a_transaction_is_not_underestimated() -> None:
    ops: list[Op] = [
        Check("/ä" * 50, 1),
        Create("/n", bytes(100), ephemeral=True),
        SetData("/n", bytes(7)),
        Delete("/x"),
    ]
    assert len(zk_codec.multi(1, ops)) <= size_of_ops(ops) + 64 < MAX_REQUEST_BYTES


@pytest.mark.parametrize(
    ("name", "znode"), [("a b/c*~", "a%20b%2Fc%2A%7E"), (".", "%2E"), ("..", "%2E%2E"), ("...", "...")]
)
def test_names_of_users_as_znodes(name: str, znode: str) -> None:
    """As Kafka's Sanitizer, but ZooKeeper has no znode `.` or `..`."""
    assert paths.sanitize(name) == znode
    assert paths.desanitize(znode) == name
