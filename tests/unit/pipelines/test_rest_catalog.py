"""A table in a REST catalog, named by the pipeline's file: made, committed once, changed by others meanwhile. The server is a small one
for this test: Iceberg's REST messages, kept by pyiceberg's SQL catalog."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyiceberg")

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, Table

from kafkalite_pipelines import PipelineError, parse
from kafkalite_pipelines.sinks import writing
from kafkalite_pipelines.sinks.iceberg import IcebergTable, _IcebergAppend
from kafkalite_pipelines.sinks.iceberg_files import target_of
from kafkalite_pipelines.sinks.sink import Batch


class _Server(ThreadingHTTPServer):
    def __init__(self, directory: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.catalog = SqlCatalog(
            "kept", uri=f"sqlite:///{directory}/rest.db", warehouse=f"file://{directory}/warehouse"
        )
        self.lock = threading.Lock()
        self.refuse = 0

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        parts = self.path.partition("?")[0].strip("/").split("/")
        if parts[1] == "config":
            self._say(200, {"defaults": {}, "overrides": {}})
        elif len(parts) == 5:
            try:
                self._table(self.server.catalog.load_table((parts[2], parts[4])))
            except NoSuchTableError:
                self._say(404, {"error": {"message": "no such table", "type": "NoSuchTableException", "code": 404}})
        else:
            self._say(200, {"namespace": [parts[2]], "properties": {}})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        parts = self.path.strip("/").split("/")
        catalog = self.server.catalog
        with self.server.lock:
            if parts[1:] == ["namespaces"]:
                catalog.create_namespace_if_not_exists(tuple(json.loads(body)["namespace"]))
                self._say(200, {"namespace": json.loads(body)["namespace"], "properties": {}})
            elif len(parts) == 4:
                wanted = json.loads(body)
                schema = Schema.model_validate(wanted["schema"])
                made = catalog.create_table((parts[2], wanted["name"]), schema, properties=wanted["properties"])
                self._table(made)
            else:
                self._commit(CommitTableRequest.model_validate_json(body), (parts[2], parts[4]))

    def _commit(self, wanted: CommitTableRequest, identifier: tuple[str, str]) -> None:
        conflict = {"error": {"message": "changed", "type": "CommitFailedException", "code": 409}}
        if self.server.refuse:
            self.server.refuse -= 1
            self._say(409, conflict)
            return
        try:
            table = self.server.catalog.load_table(identifier)
            self.server.catalog.commit_table(table, wanted.requirements, wanted.updates)
            self._table(self.server.catalog.load_table(identifier))
        except CommitFailedException:
            self._say(409, conflict)

    def _table(self, table: Table) -> None:
        text = f'{{"metadata-location": {json.dumps(table.metadata_location)}, "metadata": {table.metadata.model_dump_json()}}}'
        self._say(200, json.loads(text))

    def _say(self, code: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on stderr."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[_Server]:
    with _Server(tmp_path) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def sink_of(directory: Path, catalog: dict[str, str]) -> IcebergTable:
    sinks = [{"format": "iceberg", "table": "shop.orders", "catalog": catalog}]
    values = {"name": "p", "kafka": {"bootstrap.servers": "h:1"}, "source": {"topics": ["t"]}, "sinks": sinks}
    pipeline = parse(values, directory)
    return IcebergTable(pipeline, pipeline.sinks[0])  # type: ignore[arg-type]


def staged(sink: IcebergTable, number: int) -> _IcebergAppend:
    table = sink.table()
    assert table is not None
    batch = Batch("p", "query", number, {"t": {"0": number * 10}})
    rows = pa.table({"n": pa.array(range(number * 10 - 10, number * 10), pa.int64())})
    return _IcebergAppend(sink, batch, table, writing.files_of(rows, target_of(table), batch.prefix, ()))


def test_a_rest_catalog(server: _Server, tmp_path: Path) -> None:
    sink = sink_of(tmp_path, {"type": "rest", "uri": server.uri, "name": "lake"})
    assert sink.table() is None and sink.recorded() is None
    sink._catalog.create_namespace_if_not_exists("shop")
    sink._catalog.create_table_if_not_exists("shop.orders", pa.schema([("n", pa.int64())]))
    assert staged(sink, 1).commit() == 10
    assert staged(sink, 1).commit() == 0, "the same batch again"
    server.refuse = 1  # as if another writer had been faster
    assert staged(sink, 2).commit() == 10
    recorded = sink.recorded()
    assert recorded is not None and (recorded.number, recorded.offsets) == (2, {"t": {"0": 20}})
    other = sink_of(tmp_path, {"type": "rest", "uri": server.uri}).table()
    assert other is not None
    assert sorted(other.scan().to_arrow().column("n").to_pylist()) == list(range(20))


def test_a_catalog_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    for catalog in ({"type": "rest", "uri": "http://127.0.0.1:1"}, {"type": "hive", "uri": "thrift://127.0.0.1:1"}):
        with pytest.raises(PipelineError) as raised:
            sink = sink_of(tmp_path, catalog)
            sink.table()
        assert "\n" not in raised.value.problems[0] and "Iceberg catalog" in raised.value.problems[0]
