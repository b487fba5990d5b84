"""Which combinations of listener, protocol, authorizer, authentication of nodes and address start, warn or do not start."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.config import broker_config, for_listener, http_protocol, rpc_protocol
from kafkalite.errors import ConfigError
from kafkalite.security.posture import posture

_TLS = {"ssl.keystore.location": "node.pem"}
_NODE = {"inter.broker.username": "node", "inter.broker.password": "hush"}
_ZK = {"zookeeper.connect": "zk1:2181,zk2:2181"}
_ACL = {"zookeeper.auth": "a:b", "zookeeper.set.acl": True}
_SASL = {"listener.security.protocol": "SASL_SSL", **_TLS, **_NODE}
_MTLS = {"listener.security.protocol": "SSL", "ssl.client.auth": "required", **_TLS}
_AUTHORIZER = {"authorizer.enabled": True, "super.users": "User:admin"}
_LAN = {"host": "10.0.0.1"}
_ALL = {"host": "0.0.0.0", "advertised.rpc": "n1:9192", "advertised.listeners": "MAIN://n1:9092"}
_TWO = {
    "listeners": "INTERNAL://10.0.0.1:9092,EXTERNAL://10.0.0.1:9093",
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:SASL_SSL",
    **_TLS,
}
_PLAIN = {
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.plain.users.location": "users",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    **_NODE,
}
_TOKENS = {
    "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "https://issuer.example/keys",
}
_OFFER = {"security.transition": "offer"}
_ACK = "security.open.acknowledged"

#: (settings, refusal: what its text has; "" it starts), names of what is open, what the warnings have)
_CASES: list[tuple[dict[str, Any], str, list[str], list[str]]] = [
    # nothing is secured
    ({}, "", [], []),
    ({"host": "localhost"}, "", [], []),
    ({"host": "::1"}, "", [], []),
    (_LAN, "", ["PLAINTEXT", "RPC", "HTTP"], []),
    (_LAN | {"http.port": -1}, "", ["PLAINTEXT", "RPC"], []),
    (_LAN | {_ACK: "plaintext, RPC,HTTP"}, "", [], []),
    (_LAN | {_ACK: "RPC"}, "", ["PLAINTEXT", "HTTP"], []),
    (_LAN | {_ACK: "RCP"}, "security.open.acknowledged: there is no listener RCP", [], []),
    (_ALL, "", ["MAIN", "RPC", "HTTP"], []),
    ({"host": "0.0.0.0"}, "set advertised.listeners", [], []),
    (_ALL | {"advertised.listeners": "MAIN://224.0.0.1:9092"}, "no client can connect to 224.0.0.1", [], []),
    (
        _ALL | {"advertised.listeners": "MAIN://localhost:9092", _ACK: "MAIN,RPC,HTTP"},
        "",
        [],
        ["clients get localhost"],
    ),
    (_ALL | {"advertised.rpc": "127.0.0.1:9192", _ACK: "MAIN,RPC,HTTP"}, "", [], ["advertised.rpc: 127.0.0.1"]),
    # one key secures every listener
    (_LAN | _SASL, "", [], []),
    (_LAN | _SASL | _ZK, "", ["ZOOKEEPER"], []),
    (_LAN | _SASL | _ZK | {_ACK: "ZOOKEEPER"}, "", [], []),
    (_LAN | _SASL | _ZK | _ACL, "", [], []),
    (_LAN | _SASL | _AUTHORIZER, "", [], []),
    (_LAN | {"listener.security.protocol": "SASL_SSL", **_TLS}, "inter.broker.username", [], []),
    (_LAN | {"listener.security.protocol": "SASL_SSL", **_NODE}, "ssl.keystore.location", [], []),
    (_LAN | _MTLS, "", [], []),
    (_LAN | _MTLS | _AUTHORIZER, "", [], []),
    # TLS, but anybody may connect; nodes know each other all the same
    (_LAN | {"listener.security.protocol": "SSL", **_TLS}, "", ["SSL", "HTTP"], []),
    (
        _LAN | {"listener.security.protocol": "SSL", **_TLS, **_AUTHORIZER},
        "nodes do not authenticate on listener SSL",
        [],
        [],
    ),
    (_LAN | {"rpc.security.protocol": "SSL", **_TLS}, "listener.name.rpc.ssl.client.auth", [], []),
    # contradictions
    (
        _LAN | _SASL | {"rpc.security.protocol": "PLAINTEXT"},
        "can act as a node. Set rpc.security.protocol=SASL_SSL",
        [],
        [],
    ),
    (_LAN | _SASL | {"rpc.security.protocol": "PLAINTEXT", _ACK: "RPC,HTTP"}, "", [], []),
    (_SASL | {"rpc.security.protocol": "PLAINTEXT"}, "", [], ["every process on this machine can act as a node"]),
    (_LAN | _SASL | {"http.security.protocol": "PLAINTEXT"}, "", ["HTTP"], []),
    (_LAN | _SASL | _AUTHORIZER | {"http.security.protocol": "PLAINTEXT"}, "", [], []),
    (
        _LAN | {"rpc.security.protocol": "SASL_SSL", **_TLS, **_NODE},
        "may do everything. Set listener.security.protocol=SASL_SSL",
        [],
        [],
    ),
    (_LAN | {"rpc.security.protocol": "SASL_SSL", _ACK: "PLAINTEXT", **_TLS, **_NODE}, "", [], []),
    # an authorizer without nodes that authenticate
    (_AUTHORIZER, "nodes do not authenticate on listener PLAINTEXT", [], []),
    (_AUTHORIZER | {"super.users": "User:a;User:ANONYMOUS"}, "", [], ["User:ANONYMOUS is a super user"]),
    (_AUTHORIZER | {"allow.everyone.if.no.acl.found": True}, "", [], ["allow.everyone.if.no.acl.found is true"]),
    (_AUTHORIZER | {"rpc.security.protocol": "SASL_SSL", **_TLS, **_NODE}, "on listener PLAINTEXT", [], []),
    ({"super.users": "User:admin"}, "", [], ["super.users has no effect"]),
    # principals that mean something else than they seem to
    (_LAN | _SASL | _AUTHORIZER | {"broker.principals": "User:ANONYMOUS"}, "every client that does not log in", [], []),
    (_LAN | _SASL | _AUTHORIZER | {"broker.principals": "User:*"}, "", [], ["broker.principals: User:* is one user"]),
    (_LAN | _SASL | _AUTHORIZER | {"super.users": "User:*"}, "", [], ["super.users: User:* is one user of that name"]),
    (_LAN | _SASL | _AUTHORIZER | {"super.users": "User:a,User:b"}, "", [], ["separated by semicolons"]),
    (_LAN | _SASL | _AUTHORIZER | {"super.users": "User:CN=a,O=b"}, "", [], []),
    (_LAN | _SASL | _AUTHORIZER | {"super.users": "user:admin"}, "", [], ["user:admin is nobody"]),
    (_LAN | _SASL | _AUTHORIZER | {"super.users": ""}, "", [], ["super.users is empty"]),
    (_LAN | _SASL | _AUTHORIZER | {"super.users": "admin"}, "super.users: 'admin' is not KIND:NAME", [], []),
    (
        _LAN | _MTLS | _AUTHORIZER | {"ssl.principal.mapping.rules": "RULE:.*/node/"},
        "",
        [],
        ["ssl.principal.mapping.rules: every certificate is User:node"],
    ),
    (_LAN | _MTLS | {"ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/,DEFAULT"}, "", [], []),
    # checks that are off
    (_LAN | _SASL | {"ssl.endpoint.identification.algorithm": ""}, "", [], ["can pose as a node"]),
    (_LAN | _SASL | _TOKENS, "", [], ["sasl.oauthbearer.expected.audience is empty"]),
    (_LAN | _SASL | _TOKENS | {"sasl.oauthbearer.expected.audience": "kafka"}, "", [], []),
    (
        _LAN | _SASL | {"http.security.protocol": "PLAINTEXT", "http.bearer.tokens.location": "tokens"},
        "",
        [],
        ["http.security.protocol is PLAINTEXT: tokens are accepted from this machine only"],
    ),
    # several Kafka listeners
    (_LAN | _TWO, "every client that reaches RPC can act as a node", [], []),
    (_LAN | _TWO | {_ACK: "RPC"}, "", ["INTERNAL", "HTTP"], []),
    (_LAN | _TWO | {_ACK: "RPC,INTERNAL,HTTP"}, "", [], []),
    (_LAN | _TWO | _NODE | {"rpc.security.protocol": "SASL_SSL"}, "", ["INTERNAL"], []),
    (_LAN | _TWO | _NODE | {"inter.broker.listener.name": "EXTERNAL"}, "", ["INTERNAL"], []),
    (_LAN | _TWO | _NODE | _AUTHORIZER, "nodes do not authenticate on listener INTERNAL", [], []),
    (_LAN | _TWO | _NODE | _AUTHORIZER | {"inter.broker.listener.name": "EXTERNAL"}, "", [], []),
    ({"listeners": "RPC://h:1", "listener.security.protocol.map": "RPC:SSL", **_TLS}, "cannot be named RPC", [], []),
    (_LAN | _TWO | {"listener.name.externl.ssl.client.auth": "none"}, "there is no listener EXTERNL", [], []),
    (
        _LAN
        | {"listeners": "A://10.0.0.1:1,B://10.0.0.1:2", "listener.security.protocol.map": "A:SSL,B:SSL", **_TLS}
        | {"listener.name.a.ssl.client.auth": "required", "http.port": -1},
        "",
        ["B"],
        [],
    ),
    # passwords in the clear
    (_LAN | _PLAIN | {"listener.security.protocol": "SASL_PLAINTEXT"}, "", [], ["takes passwords without encryption"]),
    (_PLAIN | {"listener.security.protocol": "SASL_PLAINTEXT"}, "", [], []),
    (_LAN | _NODE | {"listener.security.protocol": "SASL_PLAINTEXT"}, "", [], ["accepted from this machine only"]),
    # in transition
    (_LAN | _SASL | _OFFER, "", ["SASL_SSL", "RPC", "HTTP"], ["until it is removed"]),
    (_LAN | _SASL | _AUTHORIZER | {"security.transition": "accept"}, "remove security.transition", [], []),
    (_LAN | _SASL | _AUTHORIZER | _OFFER, "", ["RPC"], ["until it is removed"]),
    # settings of a security that is not there
    (_TLS, "", [], ["ssl.keystore.location has no effect"]),
    (_NODE, "", [], ["inter.broker.username has no effect"]),
    (_OFFER, "", [], ["security.transition has no effect"]),
]


@pytest.mark.parametrize(("settings", "refusal", "exposed", "warned"), _CASES)
def test_what_starts(settings: dict[str, Any], refusal: str, exposed: list[str], warned: list[str]) -> None:
    try:
        found = posture(broker_config(settings)[0])
    except ConfigError as error:
        assert refusal, error
        assert refusal in str(error)
        return
    assert bool(found.refusals) == bool(refusal), found
    if refusal:
        assert refusal in "; ".join(found.refusals)
        return
    assert [each.name for each in found.exposures] == exposed
    for text in warned:
        assert any(text in warning for warning in found.warnings), found.warnings
    if not warned:
        assert not [each for each in found.warnings if "accepted from this machine" not in each], found.warnings
    assert all("hush" not in text for text in (*found.warnings, *found.refusals))


def test_one_key_secures_all_listeners() -> None:
    config, _ = broker_config(_SASL)
    assert (rpc_protocol(config), http_protocol(config)) == ("SASL_SSL", "SASL_SSL")
    config, _ = broker_config(_MTLS)
    assert (rpc_protocol(config), http_protocol(config)) == ("SSL", "SSL")
    config, _ = broker_config({"listener.security.protocol": "SSL", **_TLS})
    assert (for_listener(config, "SSL").ssl_client_auth, for_listener(config, "RPC").ssl_client_auth) == (
        "none",
        "required",
    )


def test_a_listener_has_settings_of_its_own() -> None:
    config, _ = broker_config(
        {
            "listeners": "IN.SIDE://h:1,OUT://h:2",
            "listener.security.protocol.map": "IN.SIDE:SSL,OUT:SSL",
            "ssl.client.auth": "required",
            **_TLS,
            "listener.name.in.side.ssl.client.auth": "none",
            "listener.name.out.ssl.keystore.location": "out.pem",
            "listener.name.out.ssl.key.password": "hush",
            "listener.name.http.ssl.client.auth": "requested",
            "listener.name.rpc.ssl.truststore.location": "nodes.pem",
        }
    )
    inside, out = for_listener(config, "IN.SIDE"), for_listener(config, "OUT")
    assert (inside.ssl_client_auth, inside.ssl_keystore_location) == ("none", "node.pem")
    assert (out.ssl_client_auth, out.ssl_keystore_location, out.ssl_key_password) == ("required", "out.pem", "hush")
    assert for_listener(config, "HTTP").ssl_client_auth == "requested"
    assert for_listener(config, "RPC").ssl_truststore_location == "nodes.pem"
    assert "hush" not in repr(config)
    for wrong in (
        "listener.name.out.retention.ms",
        "listener.name.out.ssl.client.auth.x",
        "listener.name.ssl.client.auth",
    ):
        with pytest.raises(ConfigError, match="no such configuration"):
            broker_config({wrong: "1"})
    with pytest.raises(ConfigError, match=r"ssl\.client\.auth"):
        broker_config({"listener.name.plaintext.ssl.client.auth": "maybe"})
