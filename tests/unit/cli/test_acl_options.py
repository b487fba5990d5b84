"""Options of `admin acls`."""

from __future__ import annotations

from kafkalite_cli.admin.acls import add


def test_operations_are_taken_in_any_case() -> None:
    """As Kafka's tool takes them, so that its scripts run here."""
    words = ["--topic", "t", "--operation", "Read", "--operation", "WRITE", "--operation", "describe-configs"]
    context = add.make_context("add", words)
    assert context.params["operations"] == ("read", "write", "describe-configs")
