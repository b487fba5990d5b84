"""Clusters of real processes whose nodes authenticate to each other, on a ZooKeeper that only they may change."""

from __future__ import annotations

import base64
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafkalite.security.dialling import ClientSecurity
from kafkalite.testing.certificates import Authority
from kafkalite.testing.processes import ProcessCluster
from tests.support.commands import kafkalite

#: Everything that must not be seen anywhere.
PASSWORDS = {
    "node": "nodes-hush-1",
    "admin": "admins-hush-2",
    "alice": "alices-hush-3",
    "bob": "bobs-hush-6",
    "mallory": "mallorys-hush-7",
}
PLAIN_PASSWORD = "plain-hush-4"
ZOOKEEPER_AUTH = "super:zookeeper-hush-5"
SECRETS = (*PASSWORDS.values(), PLAIN_PASSWORD, ZOOKEEPER_AUTH.partition(":")[2])

QUICK = {
    "zookeeper.session.timeout.ms": 5_000,
    "replica.lag.time.max.ms": 8_000,
    "controlled.shutdown.max.wait.ms": 5_000,
    "default.replication.factor": 3,
    "num.partitions": 3,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 100,
}


class SecuredCluster(ProcessCluster):
    """Three nodes. `protocol`: of all listeners (HTTP's comes from RPC's); SASL ones have the users of PASSWORDS, and `plain`.

    Attributes:
        authority: who signs; `keystore` is the nodes' own.
    """

    def __init__(self, directory: Path, protocol: str, settings: Mapping[str, object] | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.protocol = protocol
        self.authority = Authority(directory / "authority")
        self.keystore = self.authority.issue("node", subject="/O=kafkalite/CN=node")
        self._secrets = directory
        for name, text in (("zookeeper", ZOOKEEPER_AUTH), ("password", PASSWORDS["node"])):
            (directory / f"{name}.secret").write_text(text + "\n")
            (directory / f"{name}.secret").chmod(0o600)
        (directory / "plain.users").write_text(f"plain={PLAIN_PASSWORD}\n")
        (directory / "plain.users").chmod(0o600)
        own: dict[str, Any] = {
            "zookeeper.auth": f"file:{directory}/zookeeper.secret",
            "zookeeper.set.acl": "true",
            "listener.security.protocol": protocol,
            "rpc.security.protocol": protocol,
            "connection.failed.authentication.delay.ms": 20,
        }
        if protocol.endswith("SSL"):
            own |= {
                "ssl.keystore.location": self.keystore,
                "ssl.truststore.location": self.authority.truststore,
            }
        if protocol.startswith("SASL"):
            own |= {
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
                "sasl.plain.users.location": f"{directory}/plain.users",
                "inter.broker.username": "node",
                "inter.broker.password": f"file:{directory}/password.secret",
            }
        elif protocol == "SSL":
            own |= {"ssl.client.auth": "required"}
        super().__init__(directory / "cluster", settings={**QUICK, **own, **(settings or {})})

    def start_zookeeper(self) -> None:
        is_first = self.zookeeper is None
        super().start_zookeeper()
        if is_first and self.protocol.startswith("SASL"):
            for user in ("node", "admin"):
                self.command(
                    "admin", "users", "set", user, "--zookeeper", self.zookeeper_connect, stdin=PASSWORDS[user]
                )

    def command(self, *arguments: str, stdin: str = "", client_config: str = "", code: int = 0) -> str:
        """Run `kafkalite`; its output. Asserts the exit code."""
        environ = {
            "KAFKALITE_ZOOKEEPER_AUTH": ZOOKEEPER_AUTH,
            "KAFKALITE_ZOOKEEPER_SET_ACL": "true",
            "KAFKALITE_CLIENT_CONFIG": client_config,
        }
        given = stdin.encode() + b"\n" if stdin else b""
        done = kafkalite(*arguments, bootstrap=self.bootstrap, stdin=given, environ=environ)
        assert done.code == code, (arguments, done)
        assert not any(secret in done.out + done.err for secret in SECRETS)
        return done.out + done.err

    def security(self, user: str = "admin", mechanism: str = "SCRAM-SHA-512", password: str = "") -> ClientSecurity:
        """What a client of this cluster shows."""
        truststore = self.authority.truststore if self.protocol.endswith("SSL") else ""
        if not self.protocol.startswith("SASL"):
            return ClientSecurity(self.protocol, truststore, self.authority.issue(user))
        secret = password or (PLAIN_PASSWORD if mechanism == "PLAIN" else PASSWORDS[user])
        return ClientSecurity(
            self.protocol, truststore, "", "", check_hostname=True, mechanism=mechanism, username=user, password=secret
        )

    def client_config(self, user: str, password: str = "") -> str:
        """A file for `--client-config`."""
        security = self.security(user, password=password)
        path = self._secrets / f"client-{user}.toml"
        path.write_text(
            f"'security.protocol' = '{security.protocol}'\n'ssl.truststore.location' = '{security.truststore}'\n"
            f"'ssl.keystore.location' = '{security.keystore}'\n'sasl.mechanism' = '{security.mechanism}'\n"
            f"'sasl.username' = '{security.username}'\n'sasl.password' = '{security.password}'\n"
        )
        return str(path)

    def page(self, path: str, user: str | None, password: str = "", broker_id: int = 1) -> tuple[int, str]:
        """A page of a node for a user with that password (by default the right one; None: nobody): status and text."""
        request = urllib.request.Request(f"https://{self.http(broker_id)}{path}")
        if user is not None:
            text = f"{user}:{password or PASSWORDS[user]}".encode()
            request.add_header("Authorization", "Basic " + base64.b64encode(text).decode())
        context = ssl.create_default_context(cafile=self.authority.truststore)
        try:
            with urllib.request.urlopen(request, timeout=150, context=context) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def logs(self) -> str:
        """What all nodes have logged."""
        return "".join(node.log_path.read_text() for node in self.nodes.values())
