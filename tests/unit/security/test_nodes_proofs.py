"""A name is not a proof: who has the name of a node, but not a node's proof, is no node (ADR 64)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalite.config import broker_config
from kafkalite.errors import AuthenticationFailed
from kafkalite.security.listener import ListenerSecurity
from kafkalite.security.node_security import NodeSecurity
from kafkalite.security.principal import Principal
from kafkalite.security.sasl import ClientCredentials
from kafkalite.security.scram import make_credential
from kafkalite.security.tls import ClientTls, TlsFiles, shake_hands
from kafkalite.testing.certificates import Authority

_MECHANISM = "SCRAM-SHA-512"
_PASSWORDS = {"node": "of the nodes", "alice": "in wonderland", "CN=node1,O=example": "chosen by somebody"}
_CREDENTIALS = {name: make_credential(_MECHANISM, password, b"salt") for name, password in _PASSWORDS.items()}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("theirs"), "authority of partners")


def _security(**settings: Any) -> NodeSecurity:
    config, _ = broker_config(settings)
    return NodeSecurity(
        config, entropy=bytes, now=lambda: 0.0, credentials=lambda mechanism, user: _CREDENTIALS.get(user)
    )


def _log_in(listener: ListenerSecurity, user: str) -> Principal:
    """Raises AuthenticationFailed."""
    server = listener.exchange(_MECHANISM)
    assert server is not None
    client = ClientCredentials(_MECHANISM, user, _PASSWORDS[user]).client(bytes)
    data = client.first()
    while not client.is_complete:
        data = client.step(server.step(data))
    return listener.login(server, _MECHANISM, None, "10.0.0.9").principal


def _show(listener: ListenerSecurity, certificate: str, trusted: Authority) -> Principal:
    """Raises AuthenticationFailed."""
    assert listener.tls is not None
    context = ClientTls(TlsFiles(certificate, trusted.truststore), check_hostname=False).context()
    return listener.certified(shake_hands(listener.tls.context(), context))


def _two_listeners(ours: Authority, node: str, **more: Any) -> dict[str, Any]:
    """INTERNAL is the nodes', EXTERNAL takes certificates."""
    return {
        "listeners": "INTERNAL://127.0.0.1:0,EXTERNAL://127.0.0.1:0",
        "ssl.keystore.location": node,
        "ssl.truststore.location": ours.truststore,
        "listener.name.external.ssl.client.auth": "required",
        **more,
    }


def test_certificates_of_clients_do_not_make_nodes_where_nodes_log_in(ours: Authority) -> None:
    """A rule that leaves a name of a person's certificate can leave that of the nodes' user."""
    security = _security(
        **_two_listeners(
            ours,
            ours.issue("n1", subject="/O=example/CN=n1"),
            **{
                "listener.security.protocol.map": "INTERNAL:SASL_SSL,EXTERNAL:SSL",
                "rpc.security.protocol": "SASL_SSL",
                "sasl.enabled.mechanisms": _MECHANISM,
                "inter.broker.username": "node",
                "inter.broker.password": _PASSWORDS["node"],
                "listener.name.external.ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/",
            },
        )
    )
    external = security.kafka["EXTERNAL"]
    person = ours.issue("person", subject="/O=people/CN=node")
    with pytest.raises(AuthenticationFailed, match="name of a node"):
        _show(external, person, ours)
    alice = ours.issue("alice", subject="/O=people/CN=alice")
    assert _show(external, alice, ours) == Principal("User", "alice")
    assert _log_in(security.kafka["INTERNAL"], "node") == Principal("User", "node")
    assert security.rpc is not None and _log_in(security.rpc, "node") == Principal("User", "node")


@pytest.mark.parametrize("user", ["CN=node1,O=example", "alice"])
def test_passwords_do_not_make_nodes_where_nodes_have_certificates(ours: Authority, user: str) -> None:
    """A user may have any name, also that of a certificate."""
    security = _security(
        **_two_listeners(
            ours,
            ours.issue("node1", subject="/O=example/CN=node1"),
            **{
                "listener.security.protocol.map": "INTERNAL:SSL,EXTERNAL:SASL_SSL",
                "rpc.security.protocol": "SSL",
                "ssl.client.auth": "required",
                "sasl.enabled.mechanisms": _MECHANISM,
            },
        )
    )
    assert security.principals == {Principal("User", "CN=node1,O=example")}
    if user == "alice":
        assert _log_in(security.kafka["EXTERNAL"], user) == Principal("User", user)
    else:
        with pytest.raises(AuthenticationFailed, match="name of a node"):
            _log_in(security.kafka["EXTERNAL"], user)
    own = ours.issue("node1again", subject="/O=example/CN=node1")
    assert _show(security.kafka["INTERNAL"], own, ours) in security.principals


@pytest.mark.parametrize("is_of_another_authority", [True, False])
def test_another_authority_cannot_name_a_node(
    ours: Authority, theirs: Authority, *, is_of_another_authority: bool
) -> None:
    """A listener for partners trusts the partners' authority, and nodes do not."""
    trusted = theirs if is_of_another_authority else ours
    security = _security(
        **_two_listeners(
            ours,
            ours.issue("node1", subject="/O=example/CN=node1"),
            **{
                "listener.security.protocol.map": "INTERNAL:SSL,EXTERNAL:SSL",
                "rpc.security.protocol": "SSL",
                "ssl.client.auth": "required",
                "listener.name.external.ssl.truststore.location": trusted.truststore,
            },
        )
    )
    forged = trusted.issue("forged", subject="/O=example/CN=node1")
    both = Path(ours.truststore).parent / "both.pem"
    both.write_text(Path(ours.truststore).read_text() + Path(theirs.truststore).read_text())
    listener = security.kafka["EXTERNAL"]
    assert listener.tls is not None
    context = ClientTls(TlsFiles(forged, str(both)), check_hostname=False).context()
    connection = shake_hands(listener.tls.context(), context)
    if is_of_another_authority:
        with pytest.raises(AuthenticationFailed, match="name of a node"):
            listener.certified(connection)
    else:
        assert listener.certified(connection) in security.principals
