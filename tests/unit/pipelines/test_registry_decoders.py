"""Topics that match a pipeline's pattern, and which of them have a schema."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kafkalite_pipelines import Pipeline, PipelineError, Source
from kafkalite_pipelines.decoding import registry_decoders
from kafkalite_pipelines.decoding.records import ERROR
from kafkalite_pipelines.decoding.registry import RegistryAway, RegistryClient, RegistrySchema
from kafkalite_pipelines.decoding.registry_rows import rows


class Registry(RegistryClient):
    """A registry with a schema for some topics, without a network."""

    def __init__(self, *topics: str, away: bool = False) -> None:
        self._topics = topics
        self._away = away

    def latest(self, subject: str) -> RegistrySchema:
        if self._away:
            raise RegistryAway("schema registry does not answer")
        if subject.removesuffix("-value") not in self._topics:
            raise PipelineError(f"schema registry: there is no subject {subject}")
        return RegistrySchema(1, "AVRO", "{}")


@pytest.mark.parametrize(
    ("source", "registry", "found"),
    [
        (Source(pattern="log-.*"), Registry("log-a"), {"log-a"}),
        (Source(pattern="log-.*"), Registry(), "there is no subject log-b-value"),
        (Source(pattern="log-.*"), Registry(away=True), "does not answer"),
        (Source(("log-a", "log-b")), Registry("log-a"), "there is no subject log-b-value"),
    ],
)
def test_a_new_topic_has_no_schema_yet(
    source: Source, registry: Registry, found: set[str] | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that was created, and matched the pattern, stopped the pipeline until somebody had written into it."""
    monkeypatch.setattr(registry_decoders, "topics_of", lambda _: ["log-a", "log-b"])
    pipeline = Pipeline("p", {}, source, ())
    if isinstance(found, str):
        with pytest.raises(PipelineError, match=found):
            registry_decoders.newest(pipeline, registry)
    else:
        assert registry_decoders.newest(pipeline, registry).keys() == found


def test_records_of_a_topic_without_a_schema() -> None:
    nothing: Any = object()
    batch = pa.RecordBatch.from_pydict({"_topic": ["log-b", "log-b"], "_value": [b"text", None]})
    errors = rows(batch, {"log-a": nothing}, "struct<`n`:int>").column(ERROR).to_pylist()
    assert errors == ["is of a topic without a schema: the registry has no subject log-b-value", None]


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (
            {"t": {"name": "string", "Name": "int"}},
            "the fields name and Name, whose names differ in upper and lower case only",
        ),
        ({"t": {"n": "int"}, "u": {"N": "int"}}, "the fields n and N, whose names differ in upper and lower case only"),
        ({"t": {}}, "the schema of t has no fields: they would be the columns"),
        ({}, "no topic matches source.pattern"),
        ({"t": {"n": "int"}, "u": {"n": "string"}}, "column n is int in one topic and string in u"),
        ({"t": {"_offset": "int"}}, "the schema has a field _offset"),
    ],
)
def test_schemas_that_are_no_columns(found: dict[str, dict[str, str]], why: str) -> None:
    """Names in two cases were an ambiguous reference of Spark; a schema without fields was a pattern that no topic matches."""
    with pytest.raises(PipelineError, match=why):
        registry_decoders.together(found)
