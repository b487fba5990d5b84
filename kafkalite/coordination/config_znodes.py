"""/config: the settings of an entity, and the notices that they have changed. Pure. What it raises, and when: `znode_json`."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalite.coordination.znode_json import read, write


def encode_config(settings: Mapping[str, str]) -> bytes:
    """/config/<type>/<name>."""
    return write({"version": 1, "config": dict(sorted(settings.items()))})


def decode_config(data: bytes, path: str = "") -> dict[str, str]:
    """An entity's settings, sorted by key; an empty znode has none. Raises ZnodeError."""
    if not data:
        return {}
    reader = read(data, path)
    config = reader.fields.get("config")
    if not isinstance(config, dict):
        raise reader.fail("config", "not a JSON object")
    for key, value in config.items():
        if not isinstance(value, str):
            raise reader.fail(f"config.{key}", "not a string")
    return dict(sorted(config.items()))


def encode_config_change(entity_type: str, entity_name: str) -> bytes:
    """/config/changes/config_change_N: which entity to read again."""
    return write({"version": 2, "entity_path": f"{entity_type}/{entity_name}"})


def decode_config_change(data: bytes, path: str = "") -> tuple[str, str]:
    """(entity type, entity name); versions 1 and 2; users/U/clients/C is (users, U/clients/C). Raises ZnodeError."""
    reader = read(data, path)
    if reader.version(1, 2) == 1:
        return reader.text("entity_type"), reader.text("entity_name")
    entity_type, separator, entity_name = reader.text("entity_path").partition("/")
    user, clients, client = entity_name.partition("/clients/")
    is_nested = entity_type == "users" and bool(clients and user and client) and "/" not in user + client
    if not separator or not entity_type or not entity_name or ("/" in entity_name and not is_nested):
        raise reader.fail("entity_path", "not <type>/<name>")
    return entity_type, entity_name
