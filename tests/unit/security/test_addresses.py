"""Addresses compare as addresses, in ACLs and limits; the Host header of the status page has a name of the node."""

from __future__ import annotations

import pytest

from kafkalite.config import broker_config, http_names
from kafkalite.http.own_names import is_own_name
from kafkalite.security.acl import AclEntry, Operation, Pattern, Permission, ResourceType
from kafkalite.security.addresses import canonical
from kafkalite.security.authorizer import Authorizer
from kafkalite.security.connection_limits import ConnectionLimits, parse_overrides
from kafkalite.security.principal import Principal


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("0:0:0:0:0:0:0:1", "::1"),
        ("2001:DB8::0:1", "2001:db8::1"),
        ("10.0.0.7", "::ffff:10.0.0.7"),
        ("::ffff:a00:7", "10.0.0.7"),
        ("fe80::1%eth0", "fe80:0::1%eth0"),
        ("somewhere", "somewhere"),
    ],
)
def test_spellings_of_one_address(written: str, seen: str) -> None:
    assert canonical(written) == canonical(seen)
    rules, ann = Authorizer(), Principal("User", "ann")
    everybody = AclEntry("User:*", "*", Operation.READ, Permission.ALLOW)
    denied = AclEntry("User:ann", written, Operation.ALL, Permission.DENY)
    rules.put(Pattern(ResourceType.TOPIC, "t"), [everybody, denied])
    assert not rules.authorize(ann, seen, Operation.READ, ResourceType.TOPIC, "t")
    assert not rules.authorize_any(ann, seen, Operation.READ, ResourceType.TOPIC)
    assert rules.authorize(ann, "10.0.0.8", Operation.READ, ResourceType.TOPIC, "t")
    limits = ConnectionLimits(9, parse_overrides(f"[{written}]:1"))
    assert [limits.opened(seen), limits.opened(written)] == [True, False]
    limits.closed(written)
    assert limits.opened(seen)


@pytest.mark.parametrize(
    ("written", "within", "outside"),
    [
        ("10.0.0.0/8", "10.255.0.7", "11.0.0.7"),
        ("10.1.2.3/8", "::ffff:10.0.0.7", "2001:db8::7"),
        ("10.0.0.6/31", "10.0.0.7", "10.0.0.8"),
        ("10.0.0.7/32", "10.0.0.7", "10.0.0.6"),
        ("0.0.0.0/0", "192.168.0.7", "2001:db8::7"),
        ("2001:DB8::/32", "2001:db8:0:0:0:0:0:7", "2001:db9::7"),
        ("::/0", "fe80::1%eth0", "10.0.0.7"),
    ],
)
def test_a_range_of_addresses(written: str, within: str, outside: str) -> None:
    """KIP-1276."""
    topic, ann = Pattern(ResourceType.TOPIC, "t"), Principal("User", "ann")
    everybody = AclEntry("User:*", "*", Operation.READ, Permission.ALLOW)
    for entry in (
        AclEntry("User:ann", written, Operation.READ, Permission.ALLOW),
        AclEntry("User:ann", written, Operation.ALL, Permission.DENY),
    ):
        assert entry.problem() is None
        is_meant = entry.permission is Permission.ALLOW
        rules = Authorizer()
        rules.put(topic, [entry] if is_meant else [entry, everybody])
        assert rules.authorize(ann, within, Operation.READ, ResourceType.TOPIC, "t") is is_meant
        assert rules.authorize_any(ann, within, Operation.READ, ResourceType.TOPIC) is is_meant
        assert rules.authorize(ann, outside, Operation.READ, ResourceType.TOPIC, "t") is not is_meant
        assert rules.authorize_any(ann, outside, Operation.READ, ResourceType.TOPIC) is not is_meant


@pytest.mark.parametrize(
    "written",
    ["10.0.0.0/33", "10.0.0.0/", "/8", "10.0.0/8", "10.0.0.0/255.0.0.0", "10.0.0.0/8/9", "10.0.0.0/-1", "10.0.0.0 /8", "10.0.0.0/8 ",
     "300.0.0.0/8", "2001:db8::/129", "::ffff:10.0.0.0/104", "a b/c", "10.0.0.0/\u0661"],
)  # fmt: skip
def test_what_is_no_range(written: str) -> None:
    entry = AclEntry("User:ann", written, Operation.READ, Permission.ALLOW)
    assert "range" in str(entry.problem())
    rules = Authorizer()
    rules.put(Pattern(ResourceType.TOPIC, "t"), [entry])  # it may have been written before
    assert not rules.authorize(Principal("User", "ann"), "10.0.0.7", Operation.READ, ResourceType.TOPIC, "t")


def test_names_of_the_status_page() -> None:
    config, _ = broker_config(
        {
            "host": "0.0.0.0",
            "advertised.listeners": "A://broker1.example:9092",
            "advertised.rpc": "node1.internal:1",
            "http.allowed.hosts": "status.example, Other.Example",
        }
    )
    names = http_names(config)
    for own in (
        "127.0.0.1:9292", "[::1]:9292", "10.0.0.1", "localhost:9292", "a.localhost", "node1", "broker1.example:9292",
        "BROKER1.example.", "node1.internal", "status.example", "other.example:80",
    ):  # fmt: skip
        assert is_own_name(own, names), own
    for foreign in (
        "evil.example",
        "evil.example:9292",
        "127.0.0.1.evil.example",
        "a@localhost",
        "",
        "x y",
        "[::1].evil.example",
    ):
        assert not is_own_name(foreign, names), foreign
