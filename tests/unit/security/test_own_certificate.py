"""What a node says at its start about certificates that others will refuse."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kafkalite.config import broker_config
from kafkalite.errors import ConfigError
from kafkalite.security.node_security import NodeSecurity
from kafkalite.security.own_certificate import certificate_warnings
from kafkalite.security.tls import ServerTls, TlsFiles
from kafkalite.testing.certificates import Authority

_NODE = {"inter.broker.username": "node", "inter.broker.password": "hush"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def _warned(authority: Authority, keystore: str, **settings: object) -> list[str]:
    given: dict[str, object] = {
        "listener.security.protocol": "SASL_SSL",
        "ssl.keystore.location": keystore,
        "ssl.truststore.location": authority.truststore,
        "host": "node1.example",
        **_NODE,
    }
    return certificate_warnings(
        broker_config(given | {key.replace("_", "."): value for key, value in settings.items()})[0]
    )


def test_a_certificate_for_the_advertised_hosts(authority: Authority) -> None:
    keystore = authority.issue("good", hosts=("DNS:node1.example", "IP:10.0.0.1"))
    assert _warned(authority, keystore) == []
    assert (
        _warned(authority, keystore, host="0.0.0.0", advertised_rpc="10.0.0.1:1", advertised_listeners="M://10.0.0.1:2")
        == []
    )


def test_another_host(authority: Authority) -> None:
    keystore = authority.issue("other", hosts=("DNS:elsewhere.example",))
    found = _warned(authority, keystore)
    assert len(found) == 3
    assert "the other nodes will refuse" in found[0]
    assert "node1.example (listener RPC): certificate: " in found[0]
    assert "clients will refuse" in found[2]
    assert "(listener HTTP)" in found[2]


def test_another_authority_and_the_end_of_a_certificate(authority: Authority, tmp_path: Path) -> None:
    foreign = Authority(tmp_path, "another").issue("foreign", hosts=("DNS:node1.example",))
    found = _warned(authority, foreign)
    assert ["the other nodes" in each for each in found] == [True, True]  # which authorities clients trust is not known
    expired = authority.issue("old", hosts=("DNS:node1.example",), is_expired=True)
    assert all("expired" in each for each in _warned(authority, expired))
    assert len(_warned(authority, expired)) == 3


def test_hosts_that_are_not_checked(authority: Authority) -> None:
    keystore = authority.issue("unchecked", hosts=("DNS:elsewhere.example",))
    found = _warned(authority, keystore, ssl_endpoint_identification_algorithm="")
    assert ["clients" in each for each in found] == [True]


def test_a_store_that_is_not_pem(authority: Authority, tmp_path: Path) -> None:
    store = tmp_path / "store.p12"
    keystore = authority.issue("converted")
    subprocess.run(
        ["openssl", "pkcs12", "-export", "-in", keystore, "-passout", "pass:x", "-out", str(store)], check=True
    )
    for path in (str(store), authority.truststore):
        with pytest.raises(ConfigError, match=r"not PEM with a certificate and its key.*openssl pkcs12"):
            ServerTls(TlsFiles(path)).context()


def test_the_file_that_cannot_be_used_is_named(authority: Authority, tmp_path: Path) -> None:
    """The keystore was blamed for a truststore that was JKS, empty, or a directory."""
    keystore = authority.issue("named")
    for number, (content, says) in enumerate(
        (
            (b"\xfe\xed\xfe\xed\0\0\0\2", "not PEM with a certificate (a JKS store: keytool"),
            (b"", "not PEM with a certificate (a JKS"),
            (Path(keystore).read_bytes().replace(b"M", b"N"), "not PEM with a certificate (a JKS"),
            (None, "Is a directory"),
        )
    ):
        path = tmp_path / f"trust-{number}"
        if content is None:
            path.mkdir()
        else:
            path.write_bytes(content)
        with pytest.raises(ConfigError) as refused:
            ServerTls(TlsFiles(keystore, str(path))).context()
        assert str(refused.value).startswith(f"TLS: {path}: {says}"), refused.value
        with pytest.raises(ConfigError, match=re.escape(f"TLS: {path}: ")):
            ServerTls(TlsFiles(str(path), authority.truststore)).context()


def test_the_key_of_another_certificate(authority: Authority, tmp_path: Path) -> None:
    mixed = tmp_path / "mixed.pem"
    certificate, key = (
        Path(authority.issue(name)).with_suffix(end) for name, end in (("one", ".crt"), ("two", ".key"))
    )
    mixed.write_bytes(certificate.read_bytes() + key.read_bytes())
    with pytest.raises(
        ConfigError, match=r"^TLS: .*mixed\.pem: the key in it is not the key of its first certificate$"
    ):
        ServerTls(TlsFiles(str(mixed))).context()


def test_the_key_of_a_password_that_cannot_be_read(authority: Authority) -> None:
    config, _ = broker_config(
        {
            "listener.security.protocol": "SASL_SSL",
            "ssl.keystore.location": authority.issue("reader"),
            "ssl.truststore.location": authority.truststore,
            "inter.broker.username": "node",
            "inter.broker.password": "file:/nowhere",
        }
    )
    with pytest.raises(ConfigError, match=r"^inter\.broker\.password: "):
        NodeSecurity(config, entropy=bytes, now=lambda: 0.0, credentials=lambda mechanism, user: None)


def test_a_certificate_that_was_replaced_by_one_that_others_refuse(authority: Authority, tmp_path: Path) -> None:
    """The log said "tls.reloaded", and the node could not be reached any more."""
    store = tmp_path / "node.pem"
    store.write_bytes(Path(authority.issue("first", hosts=("DNS:node1.example",))).read_bytes())
    given = {
        "listener.security.protocol": "SASL_SSL",
        "ssl.keystore.location": str(store),
        "ssl.truststore.location": authority.truststore,
        "host": "node1.example",
        **_NODE,
    }
    security = NodeSecurity(
        broker_config(given)[0], entropy=bytes, now=lambda: 0.0, credentials=lambda mechanism, user: None
    )
    (listener,) = security.kafka.values()
    assert listener.tls is not None
    store.write_bytes(Path(authority.issue("second", hosts=("DNS:elsewhere.example",))).read_bytes())
    with capture_logs() as lines:
        listener.tls.context()
        listener.tls.context()
    assert [each["event"] for each in lines] == ["tls.reloaded", "security.weak"]
    assert "will refuse" in lines[1]["detail"] and "node1.example" in lines[1]["detail"]
