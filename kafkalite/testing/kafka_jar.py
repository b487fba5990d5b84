"""What the message definitions inside a kafka-clients jar have that kafkalite does not offer.

`python -m kafkalite.testing.kafka_jar [PATH]` prints one line for each API for brokers that is missing, for each
version that is newer than ours, and for each field that differs in a version that both have. Without a path it fetches
the jar of the newest client that the tests use, and names the broker settings of its server that are not known
(`kafka_settings`). It ends with status 1 if a field differs: such a difference is an error
in our tables. What is missing is a plan, not an error.

The jar of a client has the definitions since Kafka 2.4 (common/message/*.json). APIs of KRaft's own quorum
(`QUORUM`) are left out: ZooKeeper does their work here.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kafkalite.kafka.apis import OFFERED
from kafkalite.lazy_dataclass import dataclass
from kafkalite.protocol.schema import MessageSchema, Struct, parse_versions, schemas
from kafkalite.testing.apache_kafka import NEWEST_VERSION, newest_client_class_path, server_class_path
from kafkalite.testing.kafka_settings import BROKER_SETTINGS, names_in

#: APIs of the Raft quorum that the controllers of KRaft form.
QUORUM = frozenset(
    {"DescribeQuorum", "AddRaftVoter", "RemoveRaftVoter", "UpdateRaftVoter", "UnregisterController"}
)  # fmt: skip
#: Fields of our own in Kafka's messages.
_OURS = frozenset({"ListPartitionReassignmentsResponse.current_batch"})
_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*')
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Definition:
    """One request or response of the jar."""

    name: str
    api_key: int
    versions: range
    flexible: range
    is_for_brokers: bool
    newest_stable: int
    json: Mapping[str, Any]


def read_definitions(jar: Path) -> dict[str, Definition]:
    """The requests and responses by name. Raises OSError, zipfile.BadZipFile, ValueError if it has none."""
    found: dict[str, Definition] = {}
    with zipfile.ZipFile(jar) as archive:
        for entry in archive.namelist():
            if not (entry.startswith("common/message/") and entry.endswith(("Request.json", "Response.json"))):
                continue
            text = _COMMENT.sub(lambda match: match[1] or "", archive.read(entry).decode())
            message = json.loads(text)
            versions = parse_versions(message["validVersions"])
            if not versions:
                continue  # it was removed
            newest_stable = versions.stop - 1 - bool(message.get("latestVersionUnstable"))
            found[message["name"]] = Definition(
                name=message["name"],
                api_key=message["apiKey"],
                versions=versions,
                flexible=parse_versions(message["flexibleVersions"]),
                is_for_brokers="broker" in message.get("listeners", ()),
                newest_stable=newest_stable,
                json=message,
            )
    if not found:
        raise ValueError(f"{jar} has no message definitions")
    return found


def missing(definitions: Mapping[str, Definition]) -> Iterator[str]:
    """One line for each API or version that the jar has and we do not."""
    for name, definition in sorted(definitions.items(), key=lambda item: item[1].api_key):
        api = name.removesuffix("Request")
        if not (name.endswith("Request") and definition.is_for_brokers) or api in QUORUM:
            continue
        newest = definition.newest_stable
        if newest < definition.versions.start:
            continue
        if api not in OFFERED:
            yield f"{definition.api_key} {api}: not offered (there: {definition.versions.start} to {newest})"
        elif OFFERED[api][1] < newest:
            yield f"{definition.api_key} {api}: offered to version {OFFERED[api][1]} (there: to {newest})"


def _words(name: str) -> str:
    return _CAPITAL.sub("_", name).lower()


def _default(text: object, kind: str, path: str) -> str:
    """Defaults that mean the same in the same words; of responses none: we write all their fields."""
    if "Response" in path:
        return ""
    word = str(text).lower() if text is not None else ""
    if word.startswith(("-0x", "0x")):
        word = str(int(word, 16))
    return "" if word in ("", "0", "false", "0.0") or (kind.startswith("[]") and word != "null") else word


def _theirs(
    fields: list[dict[str, Any]], common: Mapping[str, Any], version: int, path: str, *, is_flexible: bool
) -> Iterator[tuple[str, str, bool, str, int | None]]:
    """(path, type, may be null, default, tag) of each field of this version, those with tags last."""
    live = [field for field in fields if version in parse_versions(field["versions"])]

    def tag(field: dict[str, Any]) -> int | None:
        tagged = parse_versions(field.get("taggedVersions", "none"))
        return field["tag"] if is_flexible and version in tagged else None

    for field in sorted(live, key=lambda field: -1 if tag(field) is None else tag(field) or 0):
        kind = field["type"]
        struct = kind.removeprefix("[]")
        nested = field.get("fields") or common.get(struct)
        name = f"{path}.{_words(field['name'])}"
        is_nullable = version in parse_versions(field.get("nullableVersions", "none"))
        default = _default(field.get("default"), kind, path)
        yield (
            name,
            ("[]" if kind.startswith("[]") else "") + ("struct" if nested else struct),
            is_nullable,
            default,
            tag(field),
        )
        if nested:
            yield from _theirs(nested, common, version, name, is_flexible=is_flexible)


def _ours(
    owner: Struct, schema: MessageSchema, version: int, path: str
) -> Iterator[tuple[str, str, bool, str, int | None]]:
    is_flexible = version in schema.flexible
    live = [field for field in owner.fields if version in field.versions]
    tags = {field.name: field.tag if is_flexible and version in field.tagged else None for field in live}
    for field in sorted(live, key=lambda field: -1 if tags[field.name] is None else tags[field.name] or 0):
        name = f"{path}.{field.name}"
        if name in _OURS:
            continue
        kind = ("[]" if field.is_array else "") + ("struct" if field.struct else field.type)
        yield name, kind, version in field.nullable, _default(field.default, kind, path), tags[field.name]
        if field.struct:
            yield from _ours(field.struct, schema, version, name)


def differences(definitions: Mapping[str, Definition]) -> Iterator[str]:
    """One line for each message and version whose fields are not the jar's."""
    for name, definition in sorted(definitions.items()):
        schema = schemas().get(name)
        if schema is None:
            continue
        common = {struct["name"]: struct["fields"] for struct in definition.json.get("commonStructs", ())}
        for version in definition.versions:
            if version not in schema.versions:
                continue
            if (version in definition.flexible) != (version in schema.flexible):
                yield f"{name} {version}: flexible there or here, not both"
                continue
            is_flexible = version in definition.flexible
            theirs = list(_theirs(definition.json["fields"], common, version, name, is_flexible=is_flexible))
            ours = list(_ours(schema.root, schema, version, name))
            for line in [field for field in theirs if field not in ours]:
                yield f"{name} {version}: there {line}"
            for line in [field for field in ours if field not in theirs]:
                yield f"{name} {version}: here {line}"
            if sorted(map(str, theirs)) == sorted(map(str, ours)) and theirs != ours:
                yield f"{name} {version}: the fields are in another order"


def _cache() -> Path:
    return Path(os.environ.get("KAFKALITE_INTEROP_DIR", ".interop"))


def newest_client_jar() -> Path:
    """The jar of the newest client that the tests use; fetched if need be. Raises JarsMissing."""
    classes = newest_client_class_path(_cache())
    return next(Path(classes.split(os.pathsep)[0]).glob("jars/kafka-clients-*.jar"))


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="kafkalite.testing.kafka_jar", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("jar", type=Path, nargs="?", help="a jar of kafka-clients (default: fetched with Maven)")
    parser.add_argument("--server", help="class path of a server, whose settings are compared (default: as JAR)")
    arguments = parser.parse_args()
    jar = arguments.jar or newest_client_jar()
    definitions = read_definitions(jar)
    lines = list(missing(definitions))
    for line in lines or [f"{jar.name}: it has no API and no version that is not offered here"]:
        print(line)
    if arguments.jar is None or arguments.server:
        classes = arguments.server or server_class_path(_cache(), NEWEST_VERSION)
        for name in sorted(names_in(classes) - BROKER_SETTINGS):
            print(f"broker setting {name}: not known (BROKER_SETTINGS)")
    wrong = list(differences(definitions))
    for line in wrong:
        print("differs:", line)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
