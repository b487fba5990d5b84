"""Which decoder a pipeline uses, and what it knows of the columns: given, found in the records, or from a registry."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kafkalite_pipelines.decoding.inner_fields import fields_of, grown
from kafkalite_pipelines.decoding.records import (
    ERROR,
    NO_COLUMN,
    OBJECT,
    Decoder,
    JsonDecoder,
    RawDecoder,
    decoded,
    infer_columns,
    unknown_fields,
)
from kafkalite_pipelines.decoding.types import ddl_of
from kafkalite_pipelines.definition import Pipeline, PipelineError
from kafkalite_pipelines.places import OWN, Place

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

log = logging.getLogger("kafkalite_pipelines")
#: Beside the checkpoint: the columns that were found.
SCHEMA = "schema.json"
_UNKNOWN = "unknown_fields"
#: Of the columns that are found, with those in objects. More are names that are data (ids of users, hosts): each batch would add columns.
MAX_FIELDS = 2_000


class Decoding:
    """Decodes batches. Columns that are found in records are kept beside the checkpoint: they do not change at a restart."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._place = Place(f"{pipeline.place(pipeline.checkpoint)}/{OWN}")
        decode = pipeline.decode
        self._infers = decode.format == "json" and not decode.columns and decode.registry is None
        self._decoder: Decoder | None = None
        if decode.format == "raw":
            self._decoder = RawDecoder()
        elif decode.format == "json" and decode.registry is None:
            columns = dict(decode.columns) or self._place.read_json(SCHEMA)
            self._decoder = JsonDecoder(columns, debezium=decode.debezium, found=self._infers) if columns else None
            if self._infers and (decode.debezium or pipeline.watermark is not None) and self._decoder is None:
                what = "decode.debezium" if decode.debezium else "a watermark"
                raise PipelineError(f"decode.schema is missing: {what} needs the columns")
        else:
            from kafkalite_pipelines.decoding.registry_decoders import registry_decoder

            self._decoder = registry_decoder(pipeline)

    def known(self) -> bool:
        """Whether the columns are known, before the first record or from a batch."""
        return self._decoder is not None

    def schemas(self) -> dict[str, int]:
        """The ids of the registry's newest schemas, by topic. Raises PipelineError: the registry does not answer."""
        return {} if self._decoder is None else dict(self._decoder.schemas())

    def decoded(self, records: DataFrame) -> DataFrame:
        if self._decoder is None:
            self._learn(records, {})
        decoder = self._decoder or JsonDecoder({NO_COLUMN: "string"}, found=True)
        pipeline = self._pipeline
        # with steps the key may be a column of theirs
        checked = pipeline.key if not pipeline.steps else tuple(set(pipeline.key) & {pipeline.decode.key_column})
        return decoded(records, pipeline.decode, decoder, keyed=pipeline.keyed, key=checked)

    def observed(self) -> list[Column]:
        """Aggregates over decoded rows that show whether records have fields that are no columns yet."""
        return [unknown_fields().alias(_UNKNOWN)] if self._infers else []

    def learnt(self, records: DataFrame, seen: Mapping[str, Any]) -> bool:
        """Whether there are new columns: then the batch is decoded again with them."""
        if not isinstance(self._decoder, JsonDecoder) or not seen.get(_UNKNOWN):
            return False
        return self._learn(records, self._decoder.columns)

    def _learn(self, records: DataFrame, known: Mapping[str, str]) -> bool:
        """Columns of the records. A column keeps its type: what does not fit it is an error of its record."""
        value = "value"
        if self._decoder is not None:  # what does not fit would make types of its own
            records, value = self.decoded(records).where(f"{ERROR} IS NULL"), "_value"
        values = records.selectExpr(f"CAST({value} AS string) AS value").where("value IS NOT NULL")
        found = infer_columns(records.sparkSession, values)
        taken = {name.lower() for name in known}
        new: dict[str, str] = {}
        for name, kind in found.items():  # names that differ in case only are the same to Spark
            if name.lower() not in taken:
                new[name] = kind
                taken.add(name.lower())
        more = _grown(known, found)
        columns = {**known, **more, **new}
        if not columns:  # no record has a field: they are errors, or there are none
            return False
        _check_number(columns)
        for what, which in (("new columns", new), ("new fields in objects", more)):
            if which:
                log.warning("%s: %s", what, ", ".join(f"{name} {kind}" for name, kind in which.items()))
        if new or more:
            self._place.write(SCHEMA, json.dumps(columns))
        self._decoder = JsonDecoder(columns, found=True)
        return bool(new or more)


def _check_number(columns: Mapping[str, str]) -> None:
    """Raises PipelineError."""
    from pyspark.sql.types import DataType

    sizes = {name: fields_of(DataType.fromDDL(kind)) for name, kind in columns.items()}
    if (total := sum(sizes.values())) <= MAX_FIELDS:
        return
    largest = max(sizes, key=lambda name: sizes[name])
    inner = f", {sizes[largest]} of them in {largest}" if sizes[largest] > 1 else ""
    raise PipelineError(
        f"decode.schema is missing: the records have {total} fields{inner}, and at most {MAX_FIELDS} are found. "
        "An object whose names are data is a map<string,...> there"
    )


def _grown(known: Mapping[str, str], found: Mapping[str, str]) -> dict[str, str]:
    """The columns whose objects have more fields in `found`, with these."""
    from pyspark.sql.types import DataType

    more = {}
    for name, kind in known.items():
        if OBJECT in kind and name in found:
            present = DataType.fromDDL(kind)
            wanted = grown(present, DataType.fromDDL(found[name]))
            if wanted != present:
                more[name] = ddl_of(wanted)
    return more
