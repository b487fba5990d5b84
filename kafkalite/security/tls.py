"""TLS from PEM files, read again when they change: a client's next handshake takes the new ones, a node's one that begins a second later.

A handshake of a client looks at the files. A node has one event loop, which must not wait for a disk: a thread looks (`node/security_health`).

Resumption is off, so that every connection is a handshake with today's certificates and today's authorities. Tickets are an option of OpenSSL.
Its cache of sessions is not, in Python: a peer of TLS 1.2 can name a session there. So a listener changes its context once there are any.
"""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from kafkalite.errors import ConfigError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.security.names import subject_name
from kafkalite.security.tls_policy import TlsPolicy
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: ssl.client.auth -> what a server asks of its clients.
CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


_ANY = TlsPolicy()
_CONVERT = (
    "a JKS store: keytool -importkeystore -srckeystore store.jks -destkeystore store.p12 -deststoretype PKCS12; "
    "a PKCS#12 store: openssl pkcs12 -in store.p12"
)
#: Time in seconds for which a context serves peers of TLS 1.2: one context for each of them would take a millisecond and 24 kB.
_CONTEXT_S = 1.0


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """What a side of TLS is configured with.

    Args:
        keystore: PEM: our certificate, its chain, its key. Empty: we have none (clients only).
        truststore: PEM: the authorities we trust. Empty: those of the system.
        key_password: of the key; empty: it is not encrypted.
    """

    keystore: str = ""
    truststore: str = ""
    key_password: str = field(default="", repr=False)

    def stamp(self) -> tuple[object, ...]:
        """Other than before: a file has changed. Raises OSError."""
        stats = [os.stat(path) for path in (self.keystore, self.truststore) if path]
        return tuple((stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats)

    def load_into(self, context: ssl.SSLContext, policy: TlsPolicy = _ANY) -> ssl.SSLContext:
        """Raises OSError (ssl.SSLError is one)."""
        policy.apply(context)
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
        if self.keystore:
            # With a password, even an empty one, OpenSSL does not ask for it on the terminal.
            with _named(self.keystore):
                context.load_cert_chain(self.keystore, password=self.key_password)
        if self.truststore:
            with _named(self.truststore):
                context.load_verify_locations(self.truststore)
            # Any certificate in it is an anchor, as in Java; without this OpenSSL takes the first one with the issuer's name.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        elif context.verify_mode != ssl.CERT_NONE:
            context.load_default_certs()
        return context


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """OpenSSL's errors do not say which of two files cannot be used."""
    try:
        yield
    except OSError as error:
        error.filename = path
        raise


def _reason(error: OSError | ValueError, files: TlsFiles) -> str:
    """Why files cannot be used.

    Of a file that is not PEM, and of one without a key, OpenSSL says no more than "PEM lib".
    """
    if not isinstance(error, OSError):
        return f"{files.keystore or files.truststore}: {error}"
    path = error.filename or files.keystore or files.truststore
    if not isinstance(error, ssl.SSLError):
        return f"{path}: {error.strerror or error}"
    if path != files.keystore:
        return f"{path}: not PEM with a certificate ({_CONVERT} -nokeys -out store.pem)"
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"{path}: the key in it is not the key of its first certificate"
    if "PEM lib" in str(error):
        return f"{path}: not PEM with a certificate and its key, or another password ({_CONVERT} -nodes -out store.pem)"
    return f"{path}: {error}"


class _Reloading:
    """A context that follows its files. While they cannot be used, the last good ones stay; one log line says so."""

    unusable = "tls.not_reloaded"

    def __init__(self, files: TlsFiles) -> None:
        self.files = files
        self._stamp: tuple[object, ...] = ()
        self._context: ssl.SSLContext | None = None
        #: Why the files that are there now cannot be used; empty: they are.
        self.complaint = ""
        #: What others will refuse of files that were replaced, one line each.
        self.doubts: Callable[[], Sequence[str]] = tuple
        #: A thread calls `refresh`: the files are not looked at for each handshake.
        self.is_watched = False

    @property
    def paths(self) -> tuple[str, ...]:
        """The files."""
        return tuple(filter(None, (self.files.keystore, self.files.truststore)))

    def _make(self) -> ssl.SSLContext:
        raise NotImplementedError

    def context(self) -> ssl.SSLContext:
        """For the next handshake. Raises ConfigError if there has never been a good one."""
        return self._context if self.is_watched and self._context is not None else self._read()

    def refresh(self) -> None:
        """Look whether the files have changed. To be called by a thread."""
        with contextlib.suppress(ConfigError):  # the next handshake has it
            self._read()

    def _read(self) -> ssl.SSLContext:
        try:
            stamp = self.files.stamp()
            if stamp != self._stamp or self._context is None:
                known = self._context is not None
                self._stamp = stamp
                self._context = self._make()
                self.complaint = ""
                if known:
                    _log.info("tls.reloaded", keystore=self.files.keystore, truststore=self.files.truststore)
                    with contextlib.suppress(ConfigError):
                        for doubt in self.doubts():
                            _log.warning("security.weak", detail=doubt)
        except (OSError, ValueError) as error:  # ValueError: a password that is too long
            if not isinstance(error, ssl.SSLError):
                self._stamp = ()  # it was not what is in the files: the next handshake tries again
            text = _reason(error, self.files)
            if self._context is None:
                raise ConfigError(f"TLS: {text}") from None
            if text != self.complaint:
                self.complaint = text
                _log.error("tls.not_reloaded", error=text)
        return self._context


class ServerTls(_Reloading):
    """A listener's side. `client_auth`: a key of CLIENT_AUTH. `takes_plain`: a peer that does not begin with TLS is served without it."""

    def __init__(
        self, files: TlsFiles, client_auth: str = "none", *, policy: TlsPolicy = _ANY, takes_plain: bool = False
    ) -> None:
        super().__init__(files)
        self.policy = policy
        self.client_auth = client_auth
        self.takes_plain = takes_plain
        #: Handshakes that came to nothing, for the metrics; counted by the listener.
        self.refused = 0
        self._next_s = 0.0

    def context_at(self, now_s: float) -> ssl.SSLContext:
        """For the next handshake of a listener: without sessions of TLS 1.2 that are older than a second. Raises ConfigError."""
        context = self.context()
        if self.is_watched or now_s < self._next_s:
            return context
        return self._without_sessions(context, now_s)

    def refresh(self) -> None:
        super().refresh()
        if self._context is not None:
            self._without_sessions(self._context, 0.0)

    def _without_sessions(self, context: ssl.SSLContext, now_s: float) -> ssl.SSLContext:
        if not context.session_stats()["number"]:
            return context
        self._next_s = now_s + _CONTEXT_S
        with contextlib.suppress(OSError, ValueError):  # `_read` reports what is wrong with the files
            self._context = context = self._make()
        return context

    def _make(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = CLIENT_AUTH[self.client_auth]
        context.num_tickets = 0
        return self.files.load_into(context, self.policy)


class ClientTls(_Reloading):
    """The side that connects. `check_hostname`: the server's certificate must be for the host that was dialled."""

    def __init__(self, files: TlsFiles, *, check_hostname: bool = True) -> None:
        super().__init__(files)
        self.check_hostname = check_hostname

    def _make(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.check_hostname
        return self.files.load_into(context)


def peer_name(connection: ssl.SSLObject | ssl.SSLSocket | None) -> str:
    """The subject of the verified certificate at the other end; "" if it has shown none."""
    certificate: Mapping[str, Any] | None = connection.getpeercert() if connection is not None else None
    return subject_name(certificate) if certificate else ""


def own_name(files: TlsFiles) -> str:
    """The subject of our own certificate, learnt by shaking hands with ourselves in memory.

    So it is known at the start, too, that the key fits the certificate, and that peers that trust our authorities trust us.
    Raises ConfigError.
    """
    server_context = ServerTls(files, "required").context()
    client_context = ClientTls(files, check_hostname=False).context()
    try:
        return peer_name(shake_hands(server_context, client_context))
    except ssl.SSLError as error:
        raise ConfigError(f"ssl.keystore.location: our own certificate does not verify: {error}") from None


def shake_hands(
    server_context: ssl.SSLContext, client_context: ssl.SSLContext, host: str | None = None
) -> ssl.SSLObject:
    """A handshake in memory; the server's side of it. `host`: what the client dials. Raises ssl.SSLError."""
    return handshake(server_context, client_context, host)[1]


def handshake(
    server_context: ssl.SSLContext, client_context: ssl.SSLContext, host: str | None = None
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """The same: the client's side and the server's."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=host)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    sides = [client, server]
    for _ in range(10):  # two round trips do
        sides = [side for side in sides if not _shaken(side)]
        if not sides:
            return client, server
    raise ssl.SSLError("no handshake")


def _shaken(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def describe(error: BaseException) -> str:
    """Why a handshake failed, in a few words without OpenSSL's file and line."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST"):
            return "the peer does not speak TLS"
        return str(error.reason or error).replace("_", " ").lower()
    if isinstance(error, ConnectionResetError):
        return "the peer has closed the connection; perhaps it does not trust the certificate"
    return str(error) or type(error).__name__
