"""A node's security, from its configuration. Made only if there is any: a plain node loads none of this."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kafkalite.config import (
    BrokerConfig,
    for_listener,
    http_protocol,
    inter_broker_listener,
    kafka_listeners,
    rpc_protocol,
)
from kafkalite.errors import ConfigError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.listener_settings import HTTP, RPC
from kafkalite.security.dialling import ClientSecurity, Dialling
from kafkalite.security.files import PasswordFile, WatchedFiles, reveal
from kafkalite.security.http_login import Logins
from kafkalite.security.listener import ListenerSecurity
from kafkalite.security.names import mapped_name, mapping_rules
from kafkalite.security.own_certificate import certificate_warnings
from kafkalite.security.principal import Principal
from kafkalite.security.sasl import OAUTHBEARER, Entropy, KnownProofs
from kafkalite.security.scram import Delegated, ScramCredential
from kafkalite.security.tls import ClientTls, ServerTls, TlsFiles, own_name
from kafkalite.security.tls_policy import tls_policy

if TYPE_CHECKING:
    from kafkalite.security.oauth import KeyFile, RemoteKeys, TokenChecker


@dataclass(frozen=True, slots=True)
class HttpSecurity:
    """The security of the HTTP listener. `logins` None: only a certificate can say who the client is."""

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
        delegated: Callable[[str, str], Delegated | None] = lambda mechanism, token_id: None,
    ) -> None:
        self._config = config
        self._wall = wall
        self._delegated = delegated
        #: What checks the tokens of OAUTHBEARER, and its keys if they come from a server; made with the first listener.
        self._tokens: TokenChecker | None = None
        self.remote_keys: RemoteKeys | None = None
        self._entropy = entropy
        self._now = now
        self._credentials = credentials
        self._password_files: dict[str, PasswordFile] = {}
        self._key_files: list[KeyFile] = []
        #: For the server that has the keys of tokens: trusted as nodes are, or by the system's authorities.
        self.issuer_tls = ClientTls(TlsFiles("", config.ssl_truststore_location, ""), check_hostname=True)
        #: The cluster's, when it is known (`use_decoy_key`); before the listeners are bound.
        self._decoy_key = entropy(32)
        self._own_key = entropy(32)
        self.principals = self._node_principals()
        self.kafka = self._kafka_listeners()
        self.rpc = self._listener("rpc", RPC, rpc_protocol(config))
        self.http = self._http()
        between_nodes = inter_broker_listener(config)
        self.to_rpc = self._dialling(RPC, rpc_protocol(config))
        self.to_kafka = self._dialling(between_nodes.name, between_nodes.protocol)

    def use_decoy_key(self, key: bytes) -> None:
        """The cluster's secret: two nodes, or one before and after a restart, give the same answer about a user that is not there."""
        self._decoy_key = key

    def listeners(self) -> list[ListenerSecurity]:
        """Of all listeners that ask for something, by name."""
        http = self.http.listener if self.http is not None else None
        return [each for each in (http, *self.kafka.values(), self.rpc) if each is not None]

    def unread(self) -> dict[str, str]:
        """Files of users and places of keys -> why their present content cannot be used: what was read before stays in force."""
        found: dict[str, str] = {}
        for path, file in self._password_files.items():
            file.passwords()
            if file.complaint:
                found[path] = file.complaint
        if self._tokens is not None and (why := self._tokens.refusal()):
            found[self._config.sasl_oauthbearer_jwks_endpoint_url] = why
        return found

    def readers(self) -> list[WatchedFiles]:
        """What reads files of users and keys, and of what this node shows to others."""
        to_issuer = self.issuer_tls if self.remote_keys is not None else None
        dialling = [tls for tls in (self.to_rpc.tls, self.to_kafka.tls, to_issuer) if tls is not None]
        return [*self._password_files.values(), *self._key_files, *dialling]

    def _kafka_listeners(self) -> dict[str, ListenerSecurity]:
        listeners = kafka_listeners(self._config)
        return {
            each.name: self._open_listener(
                "kafka" if len(listeners) == 1 else f"kafka.{each.name}",
                each.name,
                each.protocol,
                delegated=self._delegated,
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
        for protocol, own in self._between_nodes():
            if protocol == "SSL" and own.ssl_client_auth != "none":
                mapped = mapped_name(mapping_rules(own.ssl_principal_mapping_rules), own_name(_files(own)))
                if not mapped:
                    raise ConfigError("ssl.principal.mapping.rules: no rule fits this node's own certificate")
                found.add(Principal("User", mapped))
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
            tokens = self._password_file(config.http_bearer_tokens_location, "http.bearer.tokens.location")
            tokens.load()
        listener = self._open_listener("http", HTTP, protocol)
        if tokens is None and not listener.uses_sasl:
            return HttpSecurity(listener, None)
        return HttpSecurity(
            listener,
            Logins(
                mechanisms=listener.mechanisms,
                passwords=self._plain_users(for_listener(config, HTTP)) if listener.uses_sasl else dict,
                credentials=self._credentials,
                tokens=tokens.passwords if tokens is not None else None,
                key=self._own_key,
            ),
        )

    def _listener(self, label: str, name: str, protocol: str) -> ListenerSecurity | None:
        return None if protocol == "PLAINTEXT" else self._open_listener(label, name, protocol)

    def _open_listener(
        self,
        label: str,
        name: str,
        protocol: str,
        *,
        delegated: Callable[[str, str], Delegated | None] = lambda mechanism, token_id: None,
    ) -> ListenerSecurity:
        """`label`: for the log and the metrics; `name`: of `listener.name.NAME.…`, in capitals.

        `delegated`: delegation tokens, on listeners for clients.
        """
        own = for_listener(self._config, name)
        is_optional = bool(own.security_transition)
        tls = None
        if protocol.endswith("SSL"):
            policy = tls_policy(own.ssl_enabled_protocols, own.ssl_cipher_suites)
            tls = ServerTls(_files(own), own.ssl_client_auth, policy=policy, takes_plain=is_optional)
            tls.context()
            tls.doubts = partial(certificate_warnings, self._config, name)
        uses_sasl = protocol.startswith("SASL")
        passwords: Callable[[], Mapping[str, str]] = self._plain_users(own) if uses_sasl else dict
        return ListenerSecurity(
            label,
            tls=tls,
            rules=mapping_rules(own.ssl_principal_mapping_rules),
            mechanisms=own.sasl_enabled_mechanisms if uses_sasl else (),
            known=KnownProofs(
                passwords=passwords,
                credentials=self._credentials,
                entropy=self._entropy,
                decoy_key=lambda: self._decoy_key,
                tokens=self._token_checker() if uses_sasl and OAUTHBEARER in own.sasl_enabled_mechanisms else None,
                delegated=delegated,
            ),
            node_principals=self.principals,
            failed_delay_ms=own.connection_failed_authentication_delay_ms,
            max_reauth_ms=own.connections_max_reauth_ms,
            now=self._now,
            is_optional=is_optional,
            nodes_log_in=any(protocol.startswith("SASL") for protocol, _ in self._between_nodes()),
            nodes_have_certificates=any(
                protocol == "SSL" and settings.ssl_truststore_location == own.ssl_truststore_location
                for protocol, settings in self._between_nodes()
            ),
        )

    def _between_nodes(self) -> list[tuple[str, BrokerConfig]]:
        """Protocol and settings of the two listeners to which nodes connect."""
        config, kafka = self._config, inter_broker_listener(self._config)
        return [
            (rpc_protocol(config), for_listener(config, RPC)),
            (kafka.protocol, for_listener(config, kafka.name)),
        ]

    def _token_checker(self) -> TokenChecker:
        """One for all listeners. Raises ConfigError."""
        if self._tokens is not None:
            return self._tokens
        from kafkalite.security.oauth import KeyFile, RemoteKeys, TokenChecker, TokenRules

        config = self._config
        rules = TokenRules(
            config.sasl_oauthbearer_expected_audience,
            config.sasl_oauthbearer_expected_issuer,
            config.sasl_oauthbearer_sub_claim_name,
            config.sasl_oauthbearer_clock_skew_seconds,
        )
        url = config.sasl_oauthbearer_jwks_endpoint_url
        if url.startswith("file:"):
            keys = KeyFile(_path_of(url))
            keys.load()
            self._key_files.append(keys)
            self._tokens = TokenChecker(rules, keys, self._wall)
            self._tokens.load()
        else:
            self.remote_keys = RemoteKeys.parse(url, config.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000)
            self._tokens = TokenChecker(rules, self.remote_keys, self._wall, self.remote_keys.want)
        return self._tokens

    def _plain_users(self, own: BrokerConfig) -> Callable[[], Mapping[str, str]]:
        """Users and passwords of PLAIN, read once already; none where it is not offered. Raises ConfigError."""
        if "PLAIN" not in own.sasl_enabled_mechanisms:
            return dict
        file = self._password_file(own.sasl_plain_users_location, "sasl.plain.users.location")
        file.load()
        return file.passwords

    def _password_file(self, path: str, key: str) -> PasswordFile:
        """One object per file, however many listeners use it."""
        if path not in self._password_files:
            self._password_files[path] = PasswordFile(path, key)
        return self._password_files[path]

    def _dialling(self, name: str, protocol: str) -> Dialling:
        own = for_listener(self._config, name)
        if own.security_transition == "accept":
            return Dialling(None)
        return ClientSecurity(
            protocol,
            own.ssl_truststore_location,
            own.ssl_keystore_location,
            own.ssl_key_password,
            bool(own.ssl_endpoint_identification_algorithm),
            own.sasl_mechanism_inter_broker_protocol,
            own.inter_broker_username,
            own.inter_broker_password,
        ).open(password_key="inter.broker.password")


def _files(own: BrokerConfig) -> TlsFiles:
    """Raises ConfigError."""
    return TlsFiles(
        own.ssl_keystore_location, own.ssl_truststore_location, reveal("ssl.key.password", own.ssl_key_password)
    )


def _path_of(url: str) -> str:
    """Of a `file:` URL."""
    return url.removeprefix("file:").replace("//", "", 1)
