"""ACLs as Kafka writes them into ZooKeeper: paths, JSON, notifications. Pure; see `kafkalite.coordination.znode_json`.

Sources: Kafka 3.9's ZkData (ZkAclStore, LiteralAclChangeStore, ExtendedAclChangeStore) and AclEntry.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable

from kafkalite.coordination import paths
from kafkalite.coordination.znode_json import ZnodeError, parse
from kafkalite.security.acl import (
    OPERATIONS,
    AclEntry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from kafkalite.security.acl_rules import in_order

#: Name of a directory -> the type of its resources.
RESOURCE_TYPES = {kind.title: kind for kind in OPERATIONS}
_OPERATIONS = {operation.title.lower(): operation for operation in Operation if operation > Operation.ANY}
_PERMISSIONS = {permission.title.lower(): permission for permission in Permission if permission > Permission.ANY}
_TYPES_BY_NAME = {kind.name: kind for kind in OPERATIONS}
_VERSION = 1


def type_path(pattern_type: PatternType, resource_type: ResourceType) -> str:
    """The parent of the patterns of one kind."""
    root = paths.ACL_PREFIXED if pattern_type is PatternType.PREFIXED else paths.ACL
    return f"{root}/{resource_type.title}"


def pattern_path(pattern: Pattern) -> str:
    """Where a pattern's entries are."""
    return f"{type_path(pattern.pattern_type, pattern.resource_type)}/{pattern.name}"


def encode_acls(entries: Iterable[AclEntry]) -> bytes:
    """/kafka-acl/Topic/t"""
    acls = [
        {
            "principal": entry.principal,
            "permissionType": entry.permission.title,
            "operation": entry.operation.title,
            "host": entry.host,
        }
        for entry in in_order(frozenset(entries))
    ]
    return json.dumps({"version": _VERSION, "acls": acls}, separators=(",", ":")).encode()


def decode_acls(data: bytes, pattern: Pattern) -> frozenset[AclEntry]:
    """A pattern's entries. Raises ZnodeError if any of them is malformed: half a rule set may allow too much."""
    if not data:
        return frozenset()
    path = pattern_path(pattern)
    acls = _object(data, path).get("acls")
    if not isinstance(acls, list):
        raise ZnodeError(path, "acls: not a list")
    if (problem := pattern.problem()) is not None:
        raise ZnodeError(path, problem)
    entries = set()
    for number, acl in enumerate(acls):
        try:
            entries.add(_entry(acl))
        except ValueError as error:
            raise ZnodeError(path, f"acls[{number}]{error}") from None
    return frozenset(entries)


def _entry(acl: object) -> AclEntry:
    """Raises ValueError."""
    if not isinstance(acl, dict):
        raise ValueError(": not a JSON object")
    texts = []
    for name in ("principal", "host", "operation", "permissionType"):
        text = acl.get(name)
        if not isinstance(text, str):
            raise ValueError(f".{name}: not a string")
        texts.append(text)
    operation, permission = _OPERATIONS.get(texts[2].lower()), _PERMISSIONS.get(texts[3].lower())
    if operation is None:
        raise ValueError(f".operation: {texts[2]!r} is unknown")
    if permission is None:
        raise ValueError(f".permissionType: {texts[3]!r} is unknown")
    # The same few words in hundreds of thousands of entries.
    entry = AclEntry(sys.intern(texts[0]), sys.intern(texts[1]), operation, permission)
    if (problem := entry.problem()) is not None:
        raise ValueError(f": {problem}")
    return entry


def _object(data: bytes, path: str) -> dict[str, object]:
    value = parse(data, path)
    if not isinstance(value, dict):
        raise ZnodeError(path, "not a JSON object")
    if value.get("version") != _VERSION or isinstance(value["version"], bool):
        raise ZnodeError(path, f"version {value.get('version')!r}, not {_VERSION}")
    return value


def change_prefix(pattern: Pattern) -> str:
    """The path, short of its number, of the notification that a pattern's entries have changed."""
    is_literal = pattern.pattern_type is PatternType.LITERAL
    return f"{paths.ACL_CHANGES if is_literal else paths.ACL_EXTENDED_CHANGES}/{paths.ACL_CHANGE_NAME}"


def encode_change(pattern: Pattern) -> bytes:
    """What that notification holds."""
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{pattern.resource_type.name}:{pattern.name}".encode()
    value = {
        "version": _VERSION,
        "resourceType": pattern.resource_type.name,
        "name": pattern.name,
        "patternType": pattern.pattern_type.name,
    }
    return json.dumps(value, separators=(",", ":")).encode()


def decode_change(data: bytes, path: str) -> Pattern:
    """The pattern to read again. Raises ZnodeError."""
    if path.startswith(paths.ACL_CHANGES + "/"):
        try:
            kind, colon, name = data.decode().partition(":")
        except UnicodeDecodeError:
            raise ZnodeError(path, "not text") from None
        pattern_type: PatternType | None = PatternType.LITERAL
    else:
        value = _object(data, path)
        kind, name, colon = str(value.get("resourceType")), str(value.get("name", "")), ":"
        pattern_type = {"PREFIXED": PatternType.PREFIXED, "LITERAL": PatternType.LITERAL}.get(
            str(value.get("patternType")).upper()
        )
    resource_type = _TYPES_BY_NAME.get(kind.upper())
    if resource_type is None or pattern_type is None or not colon or not name or "/" in name:
        raise ZnodeError(path, "not a resource pattern")
    return Pattern(resource_type, name, pattern_type)
