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
from kafkalite.security.tls import ClientTls, ServerTls, TlsFiles, describe, handshake, shake_hands

#: X509_V_FLAG_NO_CHECK_TIME, which Python does not name: the dates of a certificate are shown only if it verifies.
_NO_CHECK_TIME = 0x200000


def certificate_warnings(config: BrokerConfig, only: str = "") -> list[str]:
    """What clients and nodes will refuse, one line for each listener, or of `only` this one. Raises ConfigError."""
    return [f"ssl.keystore.location: {text}" for _, text in refusals(config, only)]


def refusals(config: BrokerConfig, only: str = "") -> list[tuple[str, str]]:
    """Listener and what others will refuse there. Files that cannot be used are errors elsewhere.

    Raises ConfigError.
    """
    found = []
    for name, host, is_for_nodes in _with_tls(config):
        if only not in ("", name):
            continue
        own = for_listener(config, name)
        files = _files(own)
        checks_host = not is_for_nodes or bool(own.ssl_endpoint_identification_algorithm)
        if why := _refused(files, host if checks_host else "", by_nodes=is_for_nodes):
            others = "the other nodes" if is_for_nodes else "clients"
            found.append((name, f"{others} will refuse {files.keystore} at {host} (listener {name}): {why}"))
    return found


def periods(config: BrokerConfig) -> dict[str, tuple[float, float]]:
    """Keystore of a listener -> from when and until when its certificate is valid, in seconds of wall time. Raises ConfigError."""
    found = {}
    for name, _, _ in _with_tls(config):
        files = _files(for_listener(config, name))
        if files.keystore not in found:
            client = _trusting(files.keystore)
            client.verify_flags |= _NO_CHECK_TIME
            dates = handshake(ServerTls(files).context(), client)[0].getpeercert() or {}
            begin, end = (ssl.cert_time_to_seconds(str(dates[key])) for key in ("notBefore", "notAfter"))
            found[files.keystore] = (float(begin), float(end))
    return found


def _files(own: BrokerConfig) -> TlsFiles:
    password = reveal("ssl.key.password", own.ssl_key_password)
    return TlsFiles(own.ssl_keystore_location, own.ssl_truststore_location, password)


def _trusting(keystore: str) -> ssl.SSLContext:
    """A client's side that takes any host and trusts the certificate itself."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.load_verify_locations(keystore)
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return client


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
        client = _trusting(files.keystore)
        client.check_hostname = bool(host)
    try:
        shake_hands(server, client, host or None)
    except ssl.SSLError as error:
        return describe(error)
    return ""
