"""A listener's security without files: users in dictionaries."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any

from kafkalite.security.listener import ListenerSecurity
from kafkalite.security.principal import Principal
from kafkalite.security.sasl import MECHANISMS, KnownProofs
from kafkalite.security.scram import ScramCredential, make_credential

PASSWORDS = {"alice": "in wonderland", "node": "of the cluster"}
CREDENTIALS = {
    (mechanism, user): make_credential(mechanism, password, b"salt of " + user.encode())
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    for user, password in PASSWORDS.items()
}


def listener_security(
    passwords: Mapping[str, str] = PASSWORDS,
    credentials: Mapping[tuple[str, str], ScramCredential] = CREDENTIALS,
    **changes: Any,
) -> ListenerSecurity:
    """All mechanisms, no TLS; `node` may act as a node."""
    source = random.Random(3)
    arguments: dict[str, Any] = {
        "tls": None,
        "rules": (),
        "mechanisms": MECHANISMS,
        "node_principals": frozenset({Principal("User", "node")}),
        "failed_delay_ms": 1,
        "max_reauth_ms": 0,
        "now": time.monotonic,
    }
    proofs: dict[str, Any] = {
        "credentials": lambda mechanism, user: credentials.get((mechanism, user)),
        "passwords": lambda: passwords,
        "entropy": source.randbytes,
        "decoy_key": lambda: b"key",
    }
    for name in (each for each in ("tokens", "delegated") if each in changes):
        proofs[name] = changes.pop(name)
    return ListenerSecurity("test", known=KnownProofs(**proofs), **(arguments | changes))
