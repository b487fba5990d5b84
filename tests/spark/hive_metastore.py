"""Iceberg tables of pipelines in a real Hive metastore: the one in PySpark's jars (Hive 2.3), with Derby. `make pipelines` runs it.

It needs a JDK, and Python's package thrift (`pip install 'pyiceberg[hive]'`). No Spark session: a pipeline's commits go through pyiceberg.
"""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest

from kafkalite.testing.processes import DIE_WITH_PARENT
from tests.unit.pipelines.test_rest_catalog import sink_of, staged

pytest.importorskip("thrift")

_JARS = Path(pyspark.__file__).parent / "jars"
_OPENS = [
    f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "net", "util", "util.concurrent", "nio")
]
#: A metastore for production has its tables made by Hive's schematool, which is not in PySpark. These are the ones for locks.
_LOCK_TABLES = """
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;
class LockTables {
    public static void main(String[] args) throws Exception {
        HiveConf conf = new HiveConf();
        TxnDbUtil.setConfValues(conf);
        TxnDbUtil.prepDb(conf);
    }
}
"""


@pytest.fixture(scope="module")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """thrift://host:port"""
    directory = tmp_path_factory.mktemp("hive")
    settings = {
        "hive.async.log.enabled": "false",
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={directory}/db;create=true",
        "datanucleus.schema.autoCreateAll": "true",
        "datanucleus.connectionPoolingType": "NONE",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": f"{directory}/warehouse",
    }
    rows = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items()
    )
    (directory / "hive-site.xml").write_text(f"<configuration>{rows}</configuration>")
    (directory / "LockTables.java").write_text(_LOCK_TABLES)
    java = ["java", "-Xmx512m", *_OPENS, "-cp", f"{directory}:{_JARS}/*"]
    subprocess.run([*java, str(directory / "LockTables.java")], cwd=directory, check=True, capture_output=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (directory / "log").open("wb") as log:
        server = "org.apache.hadoop.hive.metastore.HiveMetaStore"
        process = subprocess.Popen(
            [*DIE_WITH_PARENT, *java, server, "-p", str(port)], cwd=directory, stdout=log, stderr=log
        )
    try:
        _wait_for(port, process, directory / "log")
        yield f"thrift://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    while process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), 1):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(log.read_text(errors="replace")[-3000:])


def test_a_hive_catalog(metastore: str, tmp_path: Path) -> None:
    """A table is made, a batch is committed once, also by two runs at the same time."""
    catalog = {"type": "hive", "uri": metastore}
    sink = sink_of(tmp_path, catalog)
    assert sink.table() is None and sink.recorded() is None
    sink._catalog.create_namespace_if_not_exists("shop")
    sink._catalog.create_table_if_not_exists("shop.orders", pa.schema([("n", pa.int64())]))
    assert staged(sink, 1).commit() == 10
    assert staged(sink, 1).commit() == 0, "the same batch again"
    assert staged(sink, 2).commit() == 10
    recorded = sink.recorded()
    assert recorded is not None and (recorded.number, recorded.offsets) == (2, {"t": {"0": 20}})

    ready = [staged(sink_of(tmp_path, catalog), 3) for _ in range(2)]
    added: list[int] = []
    runs = [threading.Thread(target=lambda each=each: added.append(each.commit())) for each in ready]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert sorted(added) == [0, 10]
    other = sink_of(tmp_path, catalog).table()
    assert other is not None
    assert sorted(other.scan().to_arrow().column("n").to_pylist()) == list(range(30))
