"""What a node reports of its certificates."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kafkalite.node.health import _old_certificates


def _listener(name: str, complaint: str | None) -> Any:
    return SimpleNamespace(name=name, tls=None if complaint is None else SimpleNamespace(complaint=complaint))


def test_certificates_that_could_not_be_reloaded_are_a_problem() -> None:
    """Only the log said so; the node would not have started again."""
    listeners = [
        _listener("kafka", "/n.pem: half"),
        _listener("rpc", "/n.pem: half"),
        _listener("http", ""),
        _listener("x", None),
    ]
    (problem,) = _old_certificates(listeners)
    assert (problem.what, problem.subject, problem.detail) == ("tls.not_reloaded", "kafka, rpc", "/n.pem: half")
