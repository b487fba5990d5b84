"""The configuration of security: what it takes, what it refuses, and what it never shows."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from kafkalite.admin.configs import _check
from kafkalite.config import BROKER_KEYS, BrokerConfig, broker_config, is_secured, load
from kafkalite.coordination.aiozk_adapter import access_of
from kafkalite.errors import ConfigError
from kafkalite.security.dialling import ClientSecurity
from kafkalite.security.files import PasswordFile, reveal
from kafkalite.telemetry.repeats import Repeats, kind_of

SASL = {
    "listener.security.protocol": "SASL_PLAINTEXT",
    "inter.broker.username": "node",
    "inter.broker.password": "hush",
}


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"listener.security.protocol": "TLS"}, "listener.security.protocol"),
        ({"listener.security.protocol": "SSL"}, "ssl.keystore.location"),
        ({"http.security.protocol": "SSL"}, "ssl.keystore.location"),
        ({"rpc.security.protocol": "SSL", "ssl.keystore.location": "x"}, "ssl.client.auth"),
        ({**SASL, "sasl.enabled.mechanisms": "GSSAPI"}, "sasl.enabled.mechanisms"),
        ({**SASL, "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512"}, "sasl.plain.users.location"),
        ({**SASL, "sasl.mechanism.inter.broker.protocol": "PLAIN"}, "sasl.mechanism.inter.broker.protocol"),
        ({"rpc.security.protocol": "SASL_PLAINTEXT"}, "inter.broker.username"),
        ({"zookeeper.set.acl": True}, "zookeeper.auth"),
        ({"inter.broker.password": 12345}, "inter.broker.password"),
    ],
)
def test_what_does_not_go_together_is_refused(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named) as refused:
        broker_config(settings)
    assert "hush" not in str(refused.value)
    assert "12345" not in str(refused.value)


def test_plain_text_is_the_default() -> None:
    assert not is_secured(BrokerConfig())
    assert is_secured(broker_config(SASL)[0])


def test_secrets_are_not_shown() -> None:
    secrets = [key for key, (spec, _) in BROKER_KEYS.items() if spec.metadata["secret"]]
    assert sorted(secrets) == [
        "delegation.token.secret.key",
        "inter.broker.password",
        "ssl.key.password",
        "zookeeper.auth",
    ]
    assert not [key for key in BROKER_KEYS if "password" in key and key not in secrets]
    environ = {"KAFKALITE_" + key.upper().replace(".", "_"): f"hush:{key}" for key in secrets}
    config, _ = load(None, environ, {})
    assert config.zookeeper_auth == "hush:zookeeper.auth"
    assert "hush" not in repr(config) + str(config) + repr(access_of(config))
    for key in secrets:  # nor may they be put where everybody reads them
        with pytest.raises(ConfigError, match="a secret"):
            _check("brokers", key, "hush")


def test_secrets_in_files(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("hush hush\nsecond line\n")
    assert reveal("k", f"file:{file}") == "hush hush"
    assert reveal("k", "as it is") == "as it is"
    with pytest.raises(ConfigError, match="k: "):
        reveal("k", f"file:{tmp_path}/none")
    file.write_text("user:pass\n")
    config = broker_config({"zookeeper.auth": f"file:{file}", "zookeeper.set.acl": True})[0]
    assert access_of(config).auth == (("digest", b"user:pass"),)
    file.write_text("user")
    with pytest.raises(ConfigError, match=r"zookeeper\.auth"):
        access_of(config)


def test_the_password_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text("# people\n\nalice=a=b c\n bob =x\n")
    users = PasswordFile(str(file))
    assert users.load() == {"alice": "a=b c", "bob": "x"}
    file.write_text("carol=longer than before\n")
    assert users.passwords() == {"carol": "longer than before"}
    file.write_text("carol\n")
    with capture_logs() as lines:
        for _ in range(3):
            assert users.passwords() == {"carol": "longer than before"}
    assert [line["event"] for line in lines] == ["users_file.not_read"]
    with pytest.raises(ConfigError, match="line 1"):
        users.load()


def test_a_clients_settings() -> None:
    given = {
        "security.protocol": "sasl_ssl",
        "ssl.truststore.location": "/ca.pem",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": 'org.apache.kafka.common.security.plain.PlainLoginModule required username="al ice" '
        'password="hu\\"sh";',
    }
    security = ClientSecurity.parse(given)
    assert security == ClientSecurity(
        "SASL_SSL", "/ca.pem", "", "", check_hostname=True, mechanism="PLAIN", username="al ice", password='hu"sh'
    )
    assert pickle.loads(pickle.dumps(security)) == security
    assert "sh" not in repr(security).replace("SHA", "")
    assert ClientSecurity.parse({}) is None


@pytest.mark.parametrize(
    "login",
    [
        {"sasl.username": "id", "sasl.password": "aG1hYw==", "sasl.tokenauth": "true"},
        # As Spark's own Kafka source writes it.
        {
            "sasl.jaas.config": 'x.ScramLoginModule required tokenauth=true serviceName="kafka" username="id" password="aG1hYw==";'
        },
    ],
)
def test_a_client_with_a_delegation_token(login: dict[str, str]) -> None:
    security = ClientSecurity.parse({"security.protocol": "SASL_PLAINTEXT", **login})
    assert security is not None and (security.is_token, security.username) == (True, "id")
    assert pickle.loads(pickle.dumps(security)) == security and "aG1" not in repr(security)
    credentials = security.open().credentials
    assert credentials is not None
    assert credentials.client(bytes).first().endswith(b",tokenauth=true")


@pytest.mark.parametrize(
    "wrong",
    [
        {"security.protocol": "SASL_SSL", "sasl.username": "a", "sasl.password": "b", "sasl.tokenauth": "yes"},
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "a",
            "sasl.password": "b",
            "sasl.tokenauth": "true",
        },
        {"security.protocol": "TLS"},
        {"security.protocol": "SASL_SSL", "sasl.username": "a"},
        {"security.protocol": "SSL", "sasl.mechanism": "GSSAPI"},
        {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "ldap"},
        {"sasl.passwort": "hush"},
    ],
)
def test_a_clients_settings_that_are_wrong(wrong: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as refused:
        ClientSecurity.parse(wrong)
    assert "hush" not in str(refused.value)


def test_what_repeats_is_told_once_in_a_while() -> None:
    now = [0.0]
    repeats = Repeats(lambda: now[0])
    assert [repeats.admit("a"), repeats.admit("a"), repeats.admit("b"), repeats.admit("a")] == [0, None, 0, None]
    now[0] = 10.0
    assert repeats.admit("a") == 2
    # 1023 and "a"; the first of the others stands for all of them, so that one peer's kinds do not silence the others.
    assert [repeats.admit(number) is not None for number in range(2000)].count(True) == 1024
    now[0] = 20.0
    assert [repeats.admit(number) for number in range(1023, 1025)] == [0, 0]
    now[0] = 30.0
    assert repeats.admit("new") == 0


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("frame header of 2466317712 bytes, limit 16384", "frame header of "),
        ("No key for kid: 'chosen'", "No key for kid: "),
        ("wrong password", "wrong password"),
    ],
)
def test_what_a_peer_has_chosen_makes_no_other_kind_of_line(reason: str, kind: str) -> None:
    assert kind_of(reason) == kind
