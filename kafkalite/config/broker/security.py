"""TLS, SASL, permissions, and access to ZooKeeper."""

from kafkalite.config.keys import INT_MAX, area, setting
from kafkalite.model import PROTOCOLS, SASL_MECHANISMS

CLIENT_AUTH = ("none", "requested", "required")


@area
class SecuritySettings:
    """TLS, SASL, permissions, and access to ZooKeeper."""

    authorizer_enabled: bool = setting(False, "whether requests are refused that no ACL in ZooKeeper allows")
    super_users: str = setting("", "users that may do everything: User:NAME;User:NAME")
    allow_everyone_if_no_acl_found: bool = setting(False, "whether every user may use a resource that has no ACL")
    listener_security_protocol: str = setting(
        "PLAINTEXT",
        "security protocol of all listeners: of the Kafka listener, and of the others unless they have a setting of their own",
        choices=PROTOCOLS,
    )
    rpc_security_protocol: str = setting(
        "",
        "security protocol of the RPC listener, which is for nodes; empty: as the Kafka listener to which nodes connect"
        " (inter.broker.listener.name)",
        choices=("", *PROTOCOLS),
    )
    http_security_protocol: str = setting(
        "",
        "security protocol of the HTTP listener; SASL_* means a login with name and password (HTTP Basic); empty: as the RPC listener",
        choices=("", *PROTOCOLS),
    )
    ssl_keystore_location: str = setting("", "PEM file: this node's certificate, its chain and its key")
    ssl_truststore_location: str = setting(
        "", "PEM file: the trusted certificate authorities; empty: those of the system"
    )
    ssl_key_password: str = setting(
        "",
        "password of the key in ssl.keystore.location, if it is encrypted; file:PATH reads it from a file",
        secret=True,
    )
    ssl_client_auth: str = setting(
        "none",
        "whether clients of the Kafka and the RPC listener need a certificate; an RPC listener that is SSL because the Kafka listener"
        " is requires one",
        choices=CLIENT_AUTH,
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        ("TLSv1.2", "TLSv1.3"), "versions of TLS that listeners accept: TLSv1.2, TLSv1.3"
    )
    ssl_cipher_suites: str = setting(
        "",
        "cipher suites of listeners, by their IANA or OpenSSL names, with commas between them; empty: those with forward secrecy and"
        " authenticated encryption",
    )
    http_ssl_client_auth: str = setting(
        "",
        "whether clients of the HTTP listener need a certificate; empty: the value of ssl.client.auth",
        choices=("", *CLIENT_AUTH),
    )
    http_bearer_tokens_location: str = setting(
        "", "file of NAME=TOKEN lines: users that log in on the HTTP listener with a token; read again on change"
    )
    http_allowed_hosts: str = setting(
        "",
        "host names, with commas between them, under which browsers reach the HTTP listener, for example that of a proxy in front of"
        " it; IP addresses, names without a dot, and the node's own names need no entry",
        is_set=True,
    )
    http_actions_enable: bool = setting(True, "whether the console can change the cluster; false: it only shows")
    ssl_endpoint_identification_algorithm: str = setting(
        "https",
        "https: the side that opens a connection checks the host in the certificate; empty: no check",
        choices=("https", ""),
    )
    ssl_principal_mapping_rules: str = setting(
        "DEFAULT", "rules that turn a certificate's subject into a user's name, as in Kafka"
    )
    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        "mechanisms with which clients may authenticate: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER",
    )
    sasl_oauthbearer_jwks_endpoint_url: str = setting(
        "",
        "where the keys of OAUTHBEARER's tokens are (a JWK set): file:///PATH, read again on change, or https://HOST/…",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        3_600_000,
        "interval at which the keys are fetched again from an https address; a token whose key is missing has them fetched sooner",
        low=1_000,
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = setting(
        (), "audiences (aud) of which a token must name one; empty: any"
    )
    sasl_oauthbearer_expected_issuer: str = setting("", "issuer (iss) that a token must name; empty: any")
    sasl_oauthbearer_sub_claim_name: str = setting("sub", "claim of a token that is the user's name")
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        30, "time by which the clocks of the tokens' issuer and of this node may differ", low=0, high=INT_MAX
    )
    delegation_token_secret_key: str = setting(
        "",
        "secret from which delegation tokens are made (KIP-48), the same on all nodes; file:PATH reads it from a file; empty: no tokens",
        secret=True,
    )
    delegation_token_max_lifetime_ms: int = setting(
        604_800_000, "time after which a delegation token cannot be renewed any more", low=1
    )
    delegation_token_expiry_time_ms: int = setting(
        86_400_000, "time after which a delegation token ends unless it is renewed", low=1
    )
    delegation_token_expiry_check_interval_ms: int = setting(
        3_600_000, "interval at which the controller removes expired delegation tokens", low=1
    )
    sasl_plain_users_location: str = setting(
        "", "file of NAME=PASSWORD lines: the users of SASL PLAIN; read again on change"
    )
    sasl_mechanism_inter_broker_protocol: str = setting(
        "SCRAM-SHA-512", "SASL mechanism with which nodes authenticate to each other", choices=SASL_MECHANISMS
    )
    inter_broker_username: str = setting("", "user of this node, if SASL is used between nodes")
    inter_broker_password: str = setting(
        "", "password of inter.broker.username; file:PATH reads it from a file", secret=True
    )
    broker_principals: str = setting(
        "", "principals that may act as nodes, `User:a;User:CN=b`; this node's own principal always may"
    )
    security_transition: str = setting(
        "",
        "step of the transition from plain text: accept: accept both, connect in plain text; offer: accept both, connect"
        " with security; empty: no transition (docs/security.md)",
        choices=("", "accept", "offer"),
    )
    connections_max_reauth_ms: int = setting(
        0,
        "lifetime of a SASL session on the Kafka and the RPC listener; clients authenticate again before its end (KIP-368); 0: no limit",
        low=0,
    )
    connection_failed_authentication_delay_ms: int = setting(
        100, "delay of the response to a failed authentication", low=0, high=10_000
    )
    zookeeper_auth: str = setting(
        "", "USER:PASSWORD for ZooKeeper's digest authentication; file:PATH reads it from a file", secret=True
    )
    zookeeper_set_acl: bool = setting(
        False, "whether znodes are created so that only the identity of zookeeper.auth may change them"
    )
    zookeeper_ssl_client_enable: bool = setting(False, "whether connections to ZooKeeper use TLS")
    zookeeper_ssl_truststore_location: str = setting(
        "", "PEM file: the authorities that sign ZooKeeper's certificate; empty: those of the system"
    )
    zookeeper_ssl_keystore_location: str = setting(
        "", "PEM file: this node's certificate and key for connections to ZooKeeper"
    )
    security_open_acknowledged: str = setting(
        "",
        "listeners (PLAINTEXT, EXTERNAL, RPC, HTTP, …) and ZOOKEEPER that are open on purpose, with commas between them: every client"
        " that reaches them may use them; health does not report them",
    )
