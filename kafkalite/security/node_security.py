"""A node's security, from its configuration. Made only if there is any: a plain node loads none of this."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kafkalite.config import BrokerConfig, http_protocol, inter_broker_listener, kafka_listeners
from kafkalite.errors import ConfigError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.security.dialling import ClientSecurity, Dialling
from kafkalite.security.files import PasswordFile, reveal
from kafkalite.security.http_login import Logins
from kafkalite.security.listener import ListenerSecurity
from kafkalite.security.names import mapped_name, mapping_rules
from kafkalite.security.principal import Principal
from kafkalite.security.sasl import Entropy
from kafkalite.security.scram import ScramCredential
from kafkalite.security.tls import ClientTls, ServerTls, TlsFiles, own_name

if TYPE_CHECKING:
    from kafkalite.security.oauth import RemoteKeys, TokenChecker


@dataclass(frozen=True, slots=True)
class HttpSecurity:
    """The HTTP listener's. `logins` None: only certificates say who asks, if anything does."""

    listener: ListenerSecurity
    logins: Logins | None

    @property
    def schemes(self) -> tuple[str, ...]:
        """How one logs in here."""
        return self.logins.schemes if self.logins is not None else ()


class NodeSecurity:
    """See the module. Raises ConfigError when a file cannot be used.

    Attributes:
        kafka: what the Kafka listeners ask for, by name, without those that ask for nothing (PLAINTEXT).
        rpc: what this listener asks for; None: nothing.
        http: the HTTP listener's; None: plain text, and nobody can say who they are.
        to_rpc, to_kafka: what this node shows to the others' listeners.
        principals: who may act as a node.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        entropy: Entropy,
        now: Callable[[], float],
        credentials: Callable[[str, str], ScramCredential | None],
        wall: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._config = config
        #: What checks the tokens of OAUTHBEARER, and its keys if they come from a server.
        self.tokens, self.remote_keys = _token_checker(config, wall)
        self._entropy = entropy
        self._now = now
        self._credentials = credentials
        self._files = TlsFiles(
            config.ssl_keystore_location,
            config.ssl_truststore_location,
            reveal("ssl.key.password", config.ssl_key_password),
        )
        self._rules = mapping_rules(config.ssl_principal_mapping_rules)
        self._passwords = PasswordFile(config.sasl_plain_users_location)
        #: Of this process only: a decoy's salt may change at a restart.
        self._decoy_key = entropy(32)
        self.principals = self._node_principals()
        auth = config.ssl_client_auth
        self.kafka = self._kafka_listeners(auth)
        self.rpc = self._listener("rpc", config.rpc_security_protocol, auth)
        self.http = self._http()
        self.to_rpc = self._dialling(config.rpc_security_protocol)
        self.to_kafka = self._dialling(inter_broker_listener(config).protocol)

    def listeners(self) -> list[ListenerSecurity]:
        """Of all listeners that ask for something, by name."""
        http = self.http.listener if self.http is not None else None
        return [each for each in (http, *self.kafka.values(), self.rpc) if each is not None]

    def issuer_tls(self) -> ClientTls:
        """For the server that has the keys of tokens: trusted as nodes are, or by the system's authorities."""
        return ClientTls(TlsFiles("", self._config.ssl_truststore_location, ""), check_hostname=True)

    def _kafka_listeners(self, client_auth: str) -> dict[str, ListenerSecurity]:
        listeners = kafka_listeners(self._config)
        return {
            each.name: self._open_listener(
                "kafka" if len(listeners) == 1 else f"kafka.{each.name}", each.protocol, client_auth
            )
            for each in listeners
            if each.protocol != "PLAINTEXT"
        }

    def _node_principals(self) -> frozenset[Principal]:
        config = self._config
        found: set[Principal] = set()
        for part in filter(None, (part.strip() for part in config.broker_principals.split(";"))):
            try:
                found.add(Principal.parse(part))
            except ValueError as error:
                raise ConfigError(f"broker.principals: {error}") from None
        if config.rpc_security_protocol == "SSL" or (
            inter_broker_listener(config).protocol == "SSL" and config.ssl_client_auth != "none"
        ):
            name = mapped_name(self._rules, own_name(self._files))
            if not name:
                raise ConfigError("ssl.principal.mapping.rules: no rule fits this node's own certificate")
            found.add(Principal("User", name))
        if config.inter_broker_username:
            found.add(Principal("User", config.inter_broker_username))
        return frozenset(found)

    def _http(self) -> HttpSecurity | None:
        config = self._config
        protocol = http_protocol(config)
        if config.http_port < 0 or (protocol == "PLAINTEXT" and not config.http_bearer_tokens_location):
            return None
        tokens = None
        if config.http_bearer_tokens_location:
            tokens = PasswordFile(config.http_bearer_tokens_location, "http.bearer.tokens.location")
            tokens.load()
        listener = self._open_listener("http", protocol, config.http_ssl_client_auth or config.ssl_client_auth)
        if tokens is None and not listener.uses_sasl:
            return HttpSecurity(listener, None)
        return HttpSecurity(
            listener,
            Logins(
                mechanisms=listener.mechanisms,
                passwords=self._passwords.passwords,
                credentials=self._credentials,
                tokens=tokens.passwords if tokens is not None else None,
                key=self._decoy_key,
            ),
        )

    def _listener(self, name: str, protocol: str, client_auth: str) -> ListenerSecurity | None:
        return None if protocol == "PLAINTEXT" else self._open_listener(name, protocol, client_auth)

    def _open_listener(self, name: str, protocol: str, client_auth: str) -> ListenerSecurity:
        config = self._config
        tls = None
        if protocol.endswith("SSL"):
            tls = ServerTls(self._files, client_auth, takes_plain=bool(config.security_transition))
            tls.context()
        uses_sasl = protocol.startswith("SASL")
        passwords: Callable[[], Mapping[str, str]] = dict
        if uses_sasl and "PLAIN" in config.sasl_enabled_mechanisms:
            self._passwords.load()
            passwords = self._passwords.passwords
        return ListenerSecurity(
            name,
            tls=tls,
            rules=self._rules,
            mechanisms=config.sasl_enabled_mechanisms if uses_sasl else (),
            credentials=self._credentials,
            passwords=passwords,
            node_principals=self.principals,
            entropy=self._entropy,
            decoy_key=self._decoy_key,
            failed_delay_ms=config.connection_failed_authentication_delay_ms,
            max_reauth_ms=config.connections_max_reauth_ms,
            now=self._now,
            is_optional=bool(config.security_transition),
            tokens=self.tokens if uses_sasl else None,
        )

    def _dialling(self, protocol: str) -> Dialling:
        config = self._config
        if config.security_transition == "accept":
            return Dialling(None)
        return ClientSecurity(
            protocol,
            config.ssl_truststore_location,
            config.ssl_keystore_location,
            config.ssl_key_password,
            bool(config.ssl_endpoint_identification_algorithm),
            config.sasl_mechanism_inter_broker_protocol,
            config.inter_broker_username,
            config.inter_broker_password,
        ).open()


def _token_checker(config: BrokerConfig, wall: Callable[[], float]) -> tuple[TokenChecker | None, RemoteKeys | None]:
    """None if OAUTHBEARER is not used. Raises ConfigError."""
    protocols = [each.protocol for each in kafka_listeners(config)]
    protocols += [config.rpc_security_protocol, http_protocol(config)]
    if "OAUTHBEARER" not in config.sasl_enabled_mechanisms or not any(each.startswith("SASL") for each in protocols):
        return None, None
    from kafkalite.security.oauth import KeyFile, RemoteKeys, TokenChecker, TokenRules

    rules = TokenRules(
        config.sasl_oauthbearer_expected_audience,
        config.sasl_oauthbearer_expected_issuer,
        config.sasl_oauthbearer_sub_claim_name,
        config.sasl_oauthbearer_clock_skew_seconds,
    )
    url = config.sasl_oauthbearer_jwks_endpoint_url
    if url.startswith("file:"):
        checker = TokenChecker(rules, KeyFile(url.removeprefix("file:").replace("//", "", 1)).text, wall)
        checker.load()
        return checker, None
    remote = RemoteKeys.parse(url, config.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000)
    return TokenChecker(rules, remote.text, wall), remote
