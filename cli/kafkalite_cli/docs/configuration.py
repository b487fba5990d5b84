"""The page that comes from kafkalite/config: docs/configuration.md."""

from __future__ import annotations

import dataclasses
from typing import Any

from kafkalite.config import ALIASES, BROKER_KEYS, LIMIT_KEYS, TOPIC_KEYS, is_dynamic

_FOREVER = 2**63 - 1


def _value(value: object) -> str:
    if value == _FOREVER:
        return "no limit"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value)


def _range(spec: dataclasses.Field[Any], kind: Any) -> str:
    meta = spec.metadata
    if meta["choices"]:
        return ", ".join(filter(None, meta["choices"]))
    low, high = meta["low"], meta["high"]
    if kind is not int or (low is None and high is None):
        return ""
    return f"from {low}" if high is None else f"{low} to {high}"


def _row(key: str, spec: dataclasses.Field[Any], kind: Any) -> str:
    also = ", ".join(f"`{alias}`" for alias, name in sorted(ALIASES.items()) if name == key)
    doc = spec.metadata["doc"] + (f" (also {also})" if also else "")
    doc += " (secret)" if spec.metadata["secret"] else ""
    doc = doc.replace("|", "\\|")
    name = "list" if kind not in (int, str, bool, float) else kind.__name__
    change = "yes" if is_dynamic(key) else ""
    return f"| `{key}` | {name} | {_value(spec.default)} | {_range(spec, kind)} | {change} | {doc} |"


def configuration_page() -> str:
    """docs/configuration.md."""
    head = ["| key | type | default | range | while running | meaning |", "|---|---|---|---|---|---|"]
    lines = [
        "# Configuration",
        "",
        "Written by `make docs` from kafkalite/config; do not edit.",
        "",
        "Names and defaults are Kafka's wherever Kafka has the key. Later sources in this list override earlier ones: default, TOML file",
        "(`serve --config FILE`), environment (`KAFKALITE_MIN_INSYNC_REPLICAS`), flags (`--set min.insync.replicas=2`), and then the",
        "settings in ZooKeeper, which can be changed while nodes run: for all brokers, for one broker, for a topic. If a key is unknown, a type",
        "wrong or a combination impossible, the node does not start and prints one line that names the key.",
        "",
        "<!-- cluster: --nodes 3 -->",
        "<!-- set-up",
        "kafkalite admin create-topic flights --partitions 6",
        "-->",
        "```sh",
        "kafkalite admin config set --topic flights retention.ms=3600000",
        "kafkalite admin config set --broker 2 max.connections=500",
        "kafkalite admin config set --cluster min.insync.replicas=2",
        "kafkalite admin config get --cluster",
        "```",
        "",
        "Any Kafka client can do the same (DescribeConfigs returns the source of each value, IncrementalAlterConfigs changes it).",
        'Keys marked "while running" are in force on the live nodes when the change is answered; the others need a restart.',
        "",
        "## Topics (in a broker's configuration: the defaults of all topics)",
        "",
        *head,
        *(_row(key, *TOPIC_KEYS[key]) for key in sorted(TOPIC_KEYS)),
        "",
        "## Brokers",
        "",
        *head,
        *(_row(key, *BROKER_KEYS[key]) for key in sorted(BROKER_KEYS)),
        "",
        "## Only for the cluster",
        "",
        "Limits of reassignments (KIP-435), integers from 1, without a limit by default, set with `admin config set --cluster` or by",
        "`admin reassign execute`: " + ", ".join(f"`{key}`" for key in LIMIT_KEYS) + ".",
        "The names of the KIP's table, `reassignment.max.concurrent.…`, are accepted too. If a limit is set under both names, the stricter one holds.",
    ]
    return "\n".join(lines) + "\n"
