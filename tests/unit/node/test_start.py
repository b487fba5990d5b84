"""What a node's process imports before it serves: not what only some requests need."""

from __future__ import annotations

import subprocess
import sys

_START = "import kafkalite_cli.main, kafkalite_cli.serve, kafkalite.env.real, kafkalite.node.node, kafkalite.coordination.aiozk_adapter"
#: structlog is for applications with our client, h11 for the first HTTP request, prometheus_client for the first scrape, importlib.resources for
#: the console's page, shutil for the first directory that is deleted. The coordinators are for clusters with groups, transactions or
#: schemas. The package crc32c loads what its command line needs, and difflib finds what a mistyped word meant.
_LATER = {
    "structlog",
    "rich",
    "h11",
    "prometheus_client",
    "kafkalite.http.metrics",
    "http",
    "tomllib",
    "argparse",
    "email",
    "importlib.metadata",
    "importlib.resources",
    "zipfile",
    "crc32c",
    "difflib",
    "shutil",
    "lzma",
    "kafkalite.client.async_client",
    "kafkalite.coordinators.groups.coordinator",
    "kafkalite.coordinators.shares",
    "kafkalite.coordinators.transactions",
    "kafkalite.kafka.handlers.tokens",
    "kafkalite.schemas.rest",
    "kafkalite.testing",
}


def test_a_node_imports_at_its_start_what_every_node_needs() -> None:
    told = subprocess.run(
        [sys.executable, "-c", f"{_START}; import sys; print(*sys.modules)"],
        capture_output=True, text=True, timeout=150, check=True,
    )  # fmt: skip
    assert "kafkalite.kafka.apis" in told.stdout.split()
    assert _LATER & set(told.stdout.split()) == set()


def test_no_class_of_a_message_is_made_by_imports() -> None:
    found = subprocess.run(
        [sys.executable, "-c", f"{_START}; from kafkalite.protocol import wire; print(*vars(wire))"],
        capture_output=True, text=True, timeout=150, check=True,
    )  # fmt: skip
    assert [name for name in found.stdout.split() if name.endswith(("Request", "Response"))] == []
