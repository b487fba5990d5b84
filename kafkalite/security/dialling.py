"""What a client shows and asks for when it connects: our clients, and nodes among themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from kafkalite.errors import ConfigError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import PROTOCOLS, SASL_MECHANISMS

if TYPE_CHECKING:
    from kafkalite.security.sasl import ClientCredentials
    from kafkalite.security.tls import ClientTls

#: The keys that `ClientSecurity.parse` knows: Kafka's, librdkafka's for user and password, and `sasl.tokenauth`, which is an option of
#: Kafka's sasl.jaas.config: user and password are the id and the HMAC of a delegation token.
KEYS = (
    "security.protocol", "ssl.truststore.location", "ssl.keystore.location", "ssl.key.password",
    "ssl.endpoint.identification.algorithm", "sasl.mechanism", "sasl.username", "sasl.password", "sasl.jaas.config",
    "sasl.tokenauth",
)  # fmt: skip
_JAAS = re.compile(r'\b(username|password|tokenauth)\s*=\s*(?:"((?:\\.|[^"\\])*)"|([^\s;"]+))')


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """A plain value: pickles, compares, and shows no secret in its repr."""

    protocol: str = "PLAINTEXT"
    truststore: str = ""
    keystore: str = ""
    key_password: str = field(default="", repr=False)
    check_hostname: bool = True
    mechanism: str = "SCRAM-SHA-512"
    username: str = ""
    password: str = field(default="", repr=False)
    #: `username` is the id of a delegation token (KIP-48), `password` its HMAC.
    is_token: bool = False

    @property
    def uses_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    @classmethod
    def parse(cls, settings: Mapping[str, str]) -> ClientSecurity | None:
        """From settings under Kafka's names (KEYS); None: plain text, nothing to prove. Raises ConfigError."""
        for key in settings:
            if key not in KEYS:
                raise ConfigError(f"{key}: no such setting of a client's security")
        protocol = settings.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in PROTOCOLS:
            raise ConfigError(f"security.protocol: {protocol!r} is not one of {', '.join(PROTOCOLS)}")
        identification = settings.get("ssl.endpoint.identification.algorithm", "https").lower()
        if identification not in ("https", ""):
            raise ConfigError("ssl.endpoint.identification.algorithm must be https or empty")
        mechanism = settings.get("sasl.mechanism", "SCRAM-SHA-512").upper()
        if mechanism not in SASL_MECHANISMS:
            raise ConfigError(f"sasl.mechanism: {mechanism!r} is not one of {', '.join(SASL_MECHANISMS)}")
        jaas = {
            match[1]: re.sub(r"\\(.)", r"\1", match[2]) if match[2] is not None else match[3]
            for match in _JAAS.finditer(settings.get("sasl.jaas.config", ""))
        }
        username = settings.get("sasl.username", jaas.get("username", ""))
        password = settings.get("sasl.password", jaas.get("password", ""))
        if protocol.startswith("SASL") and not (username and password):
            raise ConfigError(f"security.protocol is {protocol}: sasl.username or sasl.password is missing")
        tokenauth = settings.get("sasl.tokenauth", jaas.get("tokenauth", "false")).lower()
        if tokenauth not in ("true", "false"):
            raise ConfigError("sasl.tokenauth must be true or false")
        if tokenauth == "true" and mechanism == "PLAIN":
            raise ConfigError("a delegation token (tokenauth) needs sasl.mechanism SCRAM-SHA-256 or SCRAM-SHA-512")
        if protocol == "PLAINTEXT":
            return None
        return cls(
            protocol,
            settings.get("ssl.truststore.location", ""),
            settings.get("ssl.keystore.location", ""),
            settings.get("ssl.key.password", ""),
            bool(identification),
            mechanism,
            username,
            password,
            tokenauth == "true",
        )

    def open(self, *, password_key: str = "sasl.password") -> Dialling:
        """`password_key`: the setting that has the password, for errors. Raises ConfigError when a file cannot be used."""
        # Here, so that a client in plain text loads none of it.
        from kafkalite.security.files import reveal
        from kafkalite.security.sasl import ClientCredentials
        from kafkalite.security.tls import ClientTls, TlsFiles

        tls = None
        if self.uses_tls:
            files = TlsFiles(self.keystore, self.truststore, reveal("ssl.key.password", self.key_password))
            tls = ClientTls(files, check_hostname=self.check_hostname)
            tls.context()
        credentials = None
        if self.uses_sasl:
            password = reveal(password_key, self.password)
            credentials = ClientCredentials(self.mechanism, self.username, password, is_token=self.is_token)
        return Dialling(tls, credentials)


@dataclass(frozen=True, slots=True)
class Dialling:
    """What a connection begins with: TLS or not, a SASL exchange or not."""

    tls: ClientTls | None
    credentials: ClientCredentials | None = field(default=None, repr=False)
