"""Which settings of a pipeline are secret, and texts without their values: what is printed is also logged and sent around. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kafkalite_pipelines.definition import DeltaSink, IcebergSink, Pipeline

#: As Spark writes it.
REDACTED = "*********(redacted)"
#: In names of settings: what Spark's default of spark.redaction.regex has, and more of what stores, catalogs and Kafka's clients have.
_NAME = re.compile(
    r"secret|passw(or)?d|passphrase|token|credential|authorization|jaas|user[._-]?info|connection[._-]?string"
    r"|(access|account|api|private|sas|shared|keystore)[._-]?key\b",
    re.IGNORECASE,
)
#: In values: a user in a URL, a password in a list of properties or in a login of Java's.
_VALUE = re.compile(r"://[^/\s@]*:[^\s@]+@|passw(or)?d\s*[=:]|\b(bearer|basic) \S", re.IGNORECASE)
#: Within such a value: the secret alone, which errors may name without what is around it.
_WITHIN = re.compile(
    r"""://[^/\s@:]*:(?P<url>[^\s@]+)@|passw(?:or)?d\s*[=:]\s*(?P<quote>["']?)(?P<given>[^"';&\s]+)(?P=quote)""",
    re.IGNORECASE,
)
#: Values of such names that are in many other texts, and no secrets: token-refresh-enabled = true.
_PLAIN = re.compile(r"true|false|none|[0-9]{1,6}|.{0,2}", re.IGNORECASE)
#: A setting of Spark's: what else is secret.
_MORE = "spark.redaction.regex"


def is_secret(name: str, value: str, more: str | None = None) -> bool:
    """Whether the value of a setting is not shown. `more`: a regular expression for names and values, as Spark has one."""
    if _NAME.search(name) is not None or _VALUE.search(value) is not None:
        return True
    try:
        return more is not None and re.search(more, f"{name}\n{value}") is not None
    except re.error:  # Java's may have what Python's have not
        return True


def secret_settings(pipeline: Pipeline, settings: Mapping[str, str]) -> dict[str, str]:
    """Those of Spark's settings that are secret."""
    more = pipeline.spark.get(_MORE)
    return {name: value for name, value in settings.items() if name != _MORE and is_secret(name, value, more)}


def secrets_of(pipeline: Pipeline) -> frozenset[str]:
    """Every secret value in a pipeline."""
    more = pipeline.spark.get(_MORE)
    tables: list[Mapping[str, str]] = [pipeline.kafka, pipeline.spark]
    for sink in pipeline.sinks:
        if isinstance(sink, IcebergSink | DeltaSink):
            tables += [sink.catalog if isinstance(sink, IcebergSink) else sink.storage, sink.properties]
    return frozenset(
        each
        for table in tables
        for name, value in table.items()
        if name != _MORE and is_secret(name, value, more)
        for each in _parts(value)
    )


def secrets_in(values: Mapping[str, Any]) -> Iterator[str]:
    """Every secret value in a file's values, which may be wrong."""
    sinks = values.get("sinks")
    tables = [values.get("kafka"), values.get("spark"), *(sinks if isinstance(sinks, list) else [sinks])]
    for table in tables:
        yield from _secrets_within("", table)


def _secrets_within(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _secrets_within(f"{name}.{key}", inner)
    elif isinstance(value, str) and is_secret(name, value):
        yield from _parts(value)


def without(secrets: Iterable[str], text: str) -> str:
    """The text, with no secret in it."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    return text


def _parts(value: str) -> Iterator[str]:
    inner = [found["url"] or found["given"] for found in _WITHIN.finditer(value)]
    yield from (each for each in (value, *inner) if not _PLAIN.fullmatch(each))
