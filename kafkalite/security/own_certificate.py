"""Whether a node's own certificates are what others will accept: shown at its start and when they are replaced, before the first handshake fails."""

from __future__ import annotations

import ssl

from kafkalite.config import (
    BrokerConfig,
    advertised_http,
    advertised_rpc,
    for_listener,
    http_protocol,
    inter_broker_listener,
    kafka_listeners,
    rpc_protocol,
)
from kafkalite.listener_settings import HTTP, RPC
from kafkalite.security.files import reveal
from kafkalite.security.tls import ClientTls, ServerTls, TlsFiles, describe, shake_hands


def certificate_warnings(config: BrokerConfig, only: str = "") -> list[str]:
    """What clients and nodes will refuse, one line for each listener, or of `only` this one. Files that cannot be used are errors elsewhere.

    Raises ConfigError.
    """
    found = []
    for name, host, is_for_nodes in _with_tls(config):
        if only not in ("", name):
            continue
        own = for_listener(config, name)
        files = TlsFiles(
            own.ssl_keystore_location, own.ssl_truststore_location, reveal("ssl.key.password", own.ssl_key_password)
        )
        checks_host = not is_for_nodes or bool(own.ssl_endpoint_identification_algorithm)
        if why := _refused(files, host if checks_host else "", by_nodes=is_for_nodes):
            others = "the other nodes" if is_for_nodes else "clients"
            found.append(
                f"ssl.keystore.location: {others} will refuse {files.keystore} at {host} (listener {name}): {why}"
            )
    return found


def _with_tls(config: BrokerConfig) -> list[tuple[str, str, bool]]:
    """Name, advertised host, whether nodes connect to it."""
    between_nodes = inter_broker_listener(config).name
    found = []
    if rpc_protocol(config).endswith("SSL"):
        found.append((RPC, advertised_rpc(config, 0).host, True))
    found += [
        (each.name, each.address(0).host, each.name == between_nodes)
        for each in kafka_listeners(config)
        if each.protocol.endswith("SSL")
    ]
    if config.http_port >= 0 and http_protocol(config).endswith("SSL"):
        found.append((HTTP, advertised_http(config, 0).host, False))
    return found


def _refused(files: TlsFiles, host: str, *, by_nodes: bool) -> str:
    """Why a peer that dials `host` refuses the certificate; "" if it does not.

    Nodes trust our authorities; which ones clients trust is not known here: for them the certificate counts as trusted.
    """
    server = ServerTls(files).context()
    if by_nodes:
        client = ClientTls(TlsFiles(truststore=files.truststore), check_hostname=bool(host)).context()
    else:
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname = bool(host)
        client.load_verify_locations(files.keystore)
        client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        shake_hands(server, client, host or None)
    except ssl.SSLError as error:
        return describe(error)
    return ""
