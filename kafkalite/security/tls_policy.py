"""Which versions of TLS and which cipher suites a listener accepts: `ssl.enabled.protocols`, `ssl.cipher.suites`. Pure."""

from __future__ import annotations

import ssl
from collections.abc import Sequence

from kafkalite.errors import ConfigError
from kafkalite.lazy_dataclass import dataclass

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
#: Of TLS 1.3; Python cannot turn off single ones.
_TLS13 = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
#: Of TLS 1.2: forward secrecy and authenticated encryption (RFC 9325, section 4.2).
_DEFAULT = "ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:DHE+CHACHA20"


@dataclass(frozen=True, slots=True)
class TlsPolicy:
    """What a side of TLS accepts. `ciphers`: of TLS 1.2, in OpenSSL's notation."""

    oldest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    ciphers: str = _DEFAULT

    def apply(self, context: ssl.SSLContext) -> None:
        """Set it on a context."""
        context.minimum_version = self.oldest
        context.maximum_version = self.newest
        context.set_ciphers(self.ciphers)


def tls_policy(protocols: Sequence[str], cipher_suites: str) -> TlsPolicy:
    """From the two settings. Raises ConfigError."""
    unknown = [name for name in protocols if name not in VERSIONS]
    if unknown:
        raise ConfigError(f"ssl.enabled.protocols: {unknown[0]!r} is not one of {', '.join(VERSIONS)}")
    enabled = {VERSIONS[name] for name in protocols}
    ciphers = _DEFAULT
    names = [part.strip() for part in cipher_suites.split(",") if part.strip()]
    if names:
        new = [name for name in names if name in _TLS13]
        old = [_openssl_name(name) for name in names if name not in _TLS13]
        if new and len(set(new)) < len(_TLS13):
            raise ConfigError(
                "ssl.cipher.suites: single suites of TLS 1.3 cannot be turned off: name all of them"
                f" ({', '.join(sorted(_TLS13))}) or none"
            )
        if not new:
            enabled.discard(ssl.TLSVersion.TLSv1_3)
        if old:
            ciphers = ":".join(old)
        else:
            enabled.discard(ssl.TLSVersion.TLSv1_2)
        if not enabled:
            raise ConfigError("ssl.cipher.suites: no version of ssl.enabled.protocols has any of these suites")
    return TlsPolicy(min(enabled), max(enabled), ciphers)


def _openssl_name(name: str) -> str:
    """OpenSSL's name of a suite of TLS 1.2, from its IANA name or its own. Raises ConfigError."""
    short = name
    if name.startswith("TLS_") and "_WITH_" in name:
        exchange, _, cipher = name.removeprefix("TLS_").partition("_WITH_")
        cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305").replace("_CBC_", "_")
        cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_", "-")
        short = cipher if exchange == "RSA" else f"{exchange.replace('_', '-')}-{cipher}"
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_ciphers(short)
        known = {each["name"] for each in context.get_ciphers()}
    except ssl.SSLError:
        known = set()
    if short not in known:
        raise ConfigError(f"ssl.cipher.suites: OpenSSL does not know {name!r}")
    return short
