"""docs/examples: what a node is started with there is accepted, and the manifests are what Kubernetes takes."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from kafkalite.config import load

EXAMPLES = Path(__file__).parents[2] / "docs/examples"
VARIABLES = {
    "HOSTNAME": "kafkalite-0",
    "NAMESPACE": "kafkalite",
    "NODE": "host-7",
    "ZOOKEEPER": "zookeeper:2181/kafkalite",
}


def _commands() -> list[tuple[str, str]]:
    """(file, the options of one node), as they stand in the manifests."""
    found = []
    for name in ("compose.yaml", "kubernetes.yaml"):
        text = (EXAMPLES / name).read_text()
        for block in re.findall(r"^( *)(?:command:|-) >-\n((?:\1 +\S.*\n)+)", text, re.MULTILINE):
            found.append((name, " ".join(block[1].split())))
    return found


@pytest.mark.parametrize(("name", "command"), _commands())
def test_a_node_starts_with_what_the_manifests_say(name: str, command: str) -> None:
    for variable, value in VARIABLES.items():
        command = command.replace(f"${variable}", value)
    words = shlex.split(command.replace("$((${HOSTNAME##*-} + 1))", "1"))
    settings = dict(words[at + 1].split("=", 1) for at, word in enumerate(words) if word == "--set")
    settings["broker.id"] = words[words.index("--id") + 1]
    settings["zookeeper.connect"] = words[words.index("--zookeeper") + 1]
    config, warnings = load(None, {}, settings)
    assert (config.host, warnings) == ("0.0.0.0", [])
    assert "$" not in str(config)


def test_there_are_four_nodes_in_the_manifests() -> None:
    assert [name for name, _ in _commands()] == ["compose.yaml"] * 3 + ["kubernetes.yaml"]


def test_probes_ask_pages_that_need_no_login() -> None:
    text = (EXAMPLES / "kubernetes.yaml").read_text()
    asked = re.findall(r"(\w+Probe):\n +httpGet: \{path: (\S+), port: http\}", text)
    assert asked == [("startupProbe", "/readyz"), ("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")]


def test_the_health_check_of_containers_is_one_text_for_a_shell() -> None:
    """podman-compose 1.0 (Debian 12) joins the words of a list wrongly: every node was "unhealthy"."""
    (found,) = re.findall(r"^ +test: (.*)$", (EXAMPLES / "compose.yaml").read_text(), re.MULTILINE)
    *command, code = shlex.split(found)
    assert command == ["python", "-c"]
    compile(code, "healthcheck", "exec")


if (
    importlib.util.find_spec("kubernetes_validate") is not None
):  # takes part where it is installed (PyPI: kubernetes-validate)

    def test_the_manifests_fit_the_schemas_of_kubernetes() -> None:
        import kubernetes_validate
        import yaml

        documents: list[Any] = list(yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text()))
        assert [each["kind"] for each in documents] == ["Service", "PodDisruptionBudget", "StatefulSet"]
        for each in documents:
            kubernetes_validate.validate(each, "1.30", strict=True)
