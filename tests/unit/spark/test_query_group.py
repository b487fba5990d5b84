"""The group that is named after a query: what tasks commit, and that it never fails them."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.errors import ErrorCode, api_error
from kafkalite.model import TopicPartition as Tp
from pyspark_kafkalite import query_group
from pyspark_kafkalite.offsets import OffsetRange
from tests.unit.spark.test_stream_reader import Query, grow

ID = "0f8fad5b-d9cb-469f-a165-70867728950e"
JOBS = f"id = {ID}\nrunId = 7c9e6679-7425-40de-944b-e07fc1f90ae7\nbatch = 3"


class Context:
    """A task's, with Spark's properties."""

    def __init__(self, **properties: str) -> None:
        self._properties = {name.replace("_", "."): value for name, value in properties.items()}

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties.get(name)


def context(description: str) -> Context:
    return Context(sql_streaming_queryId=ID, spark_job_description=description)


@pytest.fixture(autouse=True)
def a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_group, "_paused", {})
    monkeypatch.setattr(query_group, "_warned", set())


@pytest.mark.parametrize(
    ("given", "prefix", "kept", "group"),
    [
        (context(f"copies\n{JOBS}"), None, "1a2b", "spark-copies"),
        (context(f"a <br/> b\n{JOBS}"), "team", "", "team-a <br/> b"),
        (context(JOBS), None, "1a2b", f"spark-{ID}"),
        (context("what foreachBatch has set"), None, "", f"spark-{ID}"),
        (Context(sql_streaming_queryId=ID), None, "", f"spark-{ID}"),
        (Context(), None, "1a2b", "spark-1a2b"),
        (None, "team", "1a2b", "team-1a2b"),
        (Context(), None, "", None),
        (None, None, "", None),
    ],
)
def test_the_group_of_a_query(given: Any, prefix: str | None, kept: str, group: str | None) -> None:
    assert query_group.group_of(given, prefix, kept) == group


def test_a_failure_is_one_warning_and_a_pause(fake, caplog) -> None:
    def away(name: str) -> None:
        raise api_error(ErrorCode.GROUP_AUTHORIZATION_FAILED, "not allowed")

    fake.before = away
    for _ in range(3):
        query_group.commit(fake, "spark-q", OffsetRange("t", 0, 3, 7))
    assert fake.calls.count("commit_offsets") == 1  # then there is a pause
    assert caplog.text.count("could not be committed to group spark-q (commitProgress=false switches that off)") == 1
    fake.before = lambda name: None
    query_group.commit(fake, "spark-other", OffsetRange("t", 0, 3, 7))
    assert fake.committed == {"spark-other": {Tp("t", 0): 7}}


@pytest.mark.parametrize("options", [{}, {"minPartitions": "4"}])
def test_the_last_task_of_each_partition_commits(fake, monkeypatch, options: dict[str, str]) -> None:
    monkeypatch.setattr("pyspark.TaskContext.get", lambda: context(f"copies\n{JOBS}"))
    fake.add_topic("t", 2)
    grow(fake, 0, 10)
    grow(fake, 1, 10)
    query = Query(fake, startingOffsets="earliest", **options)
    assert len(query.batch()) == 20
    assert fake.committed == {"spark-copies": {Tp("t", 0): 10, Tp("t", 1): 10}}
    assert fake.calls.count("commit_offsets") == 2


@pytest.mark.parametrize("options", [{"commitProgress": "false"}, {"kafkalite.group.id": "g"}])
def test_tasks_commit_nothing_if_it_is_off_or_the_group_has_a_name(fake, monkeypatch, options: dict[str, str]) -> None:
    monkeypatch.setattr("pyspark.TaskContext.get", lambda: context(f"copies\n{JOBS}"))
    fake.add_topic("t", 2)
    grow(fake, 0, 10)
    assert len(Query(fake, startingOffsets="earliest", **options).batch()) == 10
    assert fake.committed == {}


def test_tasks_that_do_not_know_their_query_commit_to_one_group_over_restarts(fake, monkeypatch) -> None:
    """Spark Connect with foreachBatch: the name is in the query's positions."""
    monkeypatch.setattr("pyspark.TaskContext.get", lambda: None)
    fake.add_topic("t", 1)
    grow(fake, 0, 10)
    query = Query(fake, startingOffsets="earliest", groupIdPrefix="team")
    assert len(query.batch()) == 10
    [group] = fake.committed
    assert group == f"team-{query.start['#kafkalite']['query']}"
    grow(fake, 0, 5)
    again = Query(fake, query.start, groupIdPrefix="team")
    assert len(again.batch()) == 5
    assert fake.committed == {group: {Tp("t", 0): 15}}
