"""A sink whose format needs a package that is not there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kafkalite_pipelines import DeltaSink, IcebergSink, Pipeline, PipelineError, Source
from kafkalite_pipelines.sinks.opening import open_sink


@pytest.mark.parametrize("key", [(), ("id",)])
@pytest.mark.parametrize(
    ("kind", "format_name", "package"), [(IcebergSink, "Iceberg", "pyiceberg"), (DeltaSink, "Delta", "deltalake")]
)
def test_a_missing_package_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[IcebergSink | DeltaSink],
    format_name: str,
    package: str,
    key: tuple[str, ...],
) -> None:
    own = f"kafkalite_pipelines.sinks.{format_name.lower()}"
    for name in list(sys.modules):
        if name.partition(".")[0] == package or name.startswith(own):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    sink = kind("t", key=key)
    with pytest.raises(
        PipelineError, match=rf"^{format_name} tables need a package: pip install 'kafkalite\[pipelines\]'"
    ):
        open_sink(Pipeline("p", {}, Source(("t",)), (sink,), directory=tmp_path), sink)
