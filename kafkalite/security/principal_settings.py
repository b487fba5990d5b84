"""Settings that name principals and mean something else than they seem to. Pure."""

from __future__ import annotations

from kafkalite.config import BrokerConfig, for_listener
from kafkalite.errors import ConfigError
from kafkalite.security.principal import ANONYMOUS, Principal

#: Names of certificates that have nothing in common: a rule that makes one user of them makes it of all.
_STRANGERS = ("CN=a1,O=b2", "OU=x9,C=DE")


def _listed(key: str, text: str) -> list[Principal]:
    """Raises ConfigError."""
    try:
        return [Principal.parse(part.strip()) for part in text.split(";") if part.strip()]
    except ValueError as error:
        raise ConfigError(f"{key}: {error}") from None


def principal_warnings(config: BrokerConfig, listeners: tuple[str, ...]) -> list[str]:
    """`listeners`: those with TLS that take users from certificates. Raises ConfigError."""
    found = []
    for key, text in (("super.users", config.super_users), ("broker.principals", config.broker_principals)):
        for each in _listed(key, text):
            if key == "broker.principals" and each == ANONYMOUS:
                raise ConfigError(
                    f"{key}: {each} is every client that does not log in: each of them could act as a node. Remove it"
                )
            if each.kind != ANONYMOUS.kind:
                found.append(f"{key}: {each} is nobody: users are written {ANONYMOUS.kind}:NAME")
            elif each.name == "*":
                found.append(f"{key}: {each} is one user of that name, not every user")
            elif f",{ANONYMOUS.kind}:" in each.name:
                found.append(f"{key}: {each} is one user: names are separated by semicolons")
    if config.authorizer_enabled and not config.super_users.strip() and not config.allow_everyone_if_no_acl_found:
        found.append("super.users is empty: no user can change permissions unless an ACL allows it")
    return found + (_mapping_warnings(config, listeners) if listeners else [])


def _mapping_warnings(config: BrokerConfig, listeners: tuple[str, ...]) -> list[str]:
    from kafkalite.security.names import mapped_name, mapping_rules  # a node in plain text does not load it

    found = []
    for name in listeners:
        rules = mapping_rules(for_listener(config, name).ssl_principal_mapping_rules)
        mapped = {mapped_name(rules, stranger) for stranger in _STRANGERS}
        if len(mapped) == 1 and (user := mapped.pop()):
            found.append(
                f"ssl.principal.mapping.rules: every certificate is {ANONYMOUS.kind}:{user} on listener {name}, also those of clients"
            )
    return found
