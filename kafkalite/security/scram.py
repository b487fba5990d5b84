"""SCRAM-SHA-256 and SCRAM-SHA-512 as two state machines, a server's and a client's. Pure: nonces are given, bytes go in
and come out.

Source: RFC 5802 (messages, proofs), RFC 7677 (SHA-256, at least 4096 iterations), Kafka's ScramSaslServer,
ScramFormatter and ScramCredentialUtils (the text of a credential). As in Kafka, and unlike the RFC, names and passwords
are taken as UTF-8 without SASLprep, and there is no channel binding.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import field

from kafkalite.errors import AuthenticationFailed
from kafkalite.lazy_dataclass import dataclass

#: Mechanism -> hashlib's name of its hash.
MECHANISMS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
#: RFC 7677's floor, and what Kafka refuses to exceed (AlterUserScramCredentials).
MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16_384
#: Of credentials that our command line makes.
DEFAULT_ITERATIONS = 8192
#: Largest number of iterations that a client accepts from a server (other servers allow more than we do).
MAX_CLIENT_ITERATIONS = 200_000
SALT_BYTES = 24
NONCE_BYTES = 24
#: No message of an honest peer is longer.
_MAX_MESSAGE_BYTES = 8192
MIN_SALT_BYTES = 4
#: The extension with which a client says that its user name is a delegation token (Kafka's ScramExtensions). Others mean nothing.
_TOKEN_EXTENSION = ",tokenauth=true"
_NONCE = r"[\x21-\x2b\x2d-\x7e]{1,256}"
_CLIENT_FIRST = re.compile(rf"([ny]),(?:a=([^,]*))?,n=([^,]+),r=({_NONCE})((?:,[a-zA-Z]+=[^,]+)*)")
_SERVER_FIRST = re.compile(rf"r=({_NONCE}),s=([A-Za-z0-9+/=]+),i=([1-9][0-9]{{0,8}})(?:,[a-zA-Z]=[^,]*)*")
_CLIENT_FINAL = re.compile(rf"(c=([A-Za-z0-9+/=]+),r=({_NONCE})(?:,[a-oq-zA-Z]=[^,]*)*),p=([A-Za-z0-9+/=]+)")


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a server keeps of a password. As good as the password against this server: `repr` shows none of it."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    def text(self) -> str:
        """As Kafka keeps it under /config/users/NAME."""
        return (
            f"salt={_to_text(self.salt)},stored_key={_to_text(self.stored_key)},"
            f"server_key={_to_text(self.server_key)},iterations={self.iterations}"
        )

    @classmethod
    def parse(cls, mechanism: str, text: str) -> ScramCredential:
        """Raises ValueError, without the text in it."""
        fields = dict(part.partition("=")[::2] for part in text.split(","))
        size = hashlib.new(MECHANISMS[mechanism]).digest_size
        try:
            salt, stored_key, server_key = (_from_text(fields[name]) for name in ("salt", "stored_key", "server_key"))
            iterations = int(fields["iterations"])
        except (KeyError, ValueError):
            raise ValueError(f"no {mechanism} credential: salt, stored_key, server_key and iterations") from None
        if len(stored_key) != size or len(server_key) != size or len(salt) < MIN_SALT_BYTES:
            raise ValueError(f"no {mechanism} credential: a key or the salt has a wrong length")
        if not MIN_ITERATIONS <= iterations < 2**31:  # in answers it is an int32
            raise ValueError(f"{mechanism}: {iterations} iterations; the least is {MIN_ITERATIONS}")
        return cls(salt, stored_key, server_key, iterations)


@dataclass(frozen=True, slots=True)
class Delegated:
    """What a delegation token stands for: its owner's name, the credential of a login, and the time left in seconds."""

    owner: str
    credential: ScramCredential
    lifetime_s: float


def _to_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _from_text(text: str) -> bytes:
    """Raises ValueError."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def _hmac(hash_name: str, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, hash_name)


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """RFC 5802's SaltedPassword: slow on purpose (some milliseconds)."""
    return hashlib.pbkdf2_hmac(MECHANISMS[mechanism], password.encode(), salt, iterations)


def credential_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """The credential for a salted password."""
    name = MECHANISMS[mechanism]
    stored_key = hashlib.new(name, _hmac(name, salted, b"Client Key")).digest()
    return ScramCredential(salt, stored_key, _hmac(name, salted, b"Server Key"), iterations)


def make_credential(mechanism: str, password: str, salt: bytes, iterations: int = MIN_ITERATIONS) -> ScramCredential:
    """The credential for a password. Raises ValueError."""
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise ValueError(f"{iterations} iterations; {MIN_ITERATIONS} to {MAX_ITERATIONS} are allowed")
    if not password:
        raise ValueError("the password is empty")
    return credential_of(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


def decoy(mechanism: str, name: str, key: bytes) -> ScramCredential:
    """What a user that does not exist is tried against: always the same salt for one name, and no password fits.

    Args:
        key: a secret of the cluster: all nodes must give the same answer. Without it nobody can distinguish a decoy's salt from a real one's.
    """
    hash_name = MECHANISMS[mechanism]
    size = hashlib.new(hash_name).digest_size
    salt = _hmac("sha256", key, b"salt" + name.encode())[:SALT_BYTES]
    # Zeros as stored key: nobody knows a client key with this hash. As many iterations as real ones have, as a rule.
    return ScramCredential(salt, bytes(size), _hmac(hash_name, key, name.encode()), DEFAULT_ITERATIONS)


class ScramServer:
    """The server's side of one exchange: `step` twice.

    Args:
        lookup: the credential of a user, None if there is none for this mechanism.
        nonce: ours: printable ASCII without a comma, never used before.
        decoy_key: see `decoy`.
        tokens: what a delegation token stands for, None if there is no such token.

    Attributes:
        user: who the client says it is, after the first step; of a token, its owner. `is_known`: whether there is such a user.
        token_id: the delegation token of the login; empty: it is none.
        is_complete: whether the client has proved it. `credential`: against which (a decoy's, if there is no such user).
    """

    def __init__(
        self,
        mechanism: str,
        lookup: Callable[[str], ScramCredential | None],
        nonce: str,
        decoy_key: bytes,
        tokens: Callable[[str], Delegated | None] = lambda token_id: None,
    ) -> None:
        self.mechanism = mechanism
        self.user = ""
        self.token_id = ""
        self.is_known = False
        self.is_complete = False
        self.lifetime_s: float | None = None
        self._hash = MECHANISMS[mechanism]
        self._lookup = lookup
        self._tokens = tokens
        self._own_nonce = nonce
        self._decoy_key = decoy_key
        self._nonce = ""
        self._binding = b""
        self._messages = ""
        self.credential: ScramCredential | None = None

    def step(self, data: bytes) -> bytes:
        """The answer to the client's next message. Raises AuthenticationFailed; the exchange is over then."""
        if self.is_complete:
            raise AuthenticationFailed("a message after the last one")
        text = _decoded(data)
        return (self._final(text) if self.credential is not None else self._first(text)).encode()

    def _first(self, text: str) -> str:
        match = _CLIENT_FIRST.fullmatch(text)
        if match is None:
            raise AuthenticationFailed("malformed first message")
        flag, acting_as, name, nonce, extensions = match.groups()
        self.user = _unescaped(name)
        if acting_as is not None and _unescaped(acting_as) != self.user:
            raise AuthenticationFailed("acting for another user is not offered")
        named = (each.partition("=") for each in extensions.split(","))
        is_token = any(name == "tokenauth" and value.lower() == "true" for name, _, value in named)
        # Made for everybody: the few microseconds that it takes can be measured from outside.
        false = decoy(self.mechanism, self.user, self._decoy_key)
        found = self._of_token(self.user) if is_token else self._lookup(self.user)
        self.is_known = found is not None
        self.credential = found or false
        self._nonce = nonce + self._own_nonce
        header = f"{flag},{'' if acting_as is None else 'a=' + acting_as},"
        self._binding = header.encode()
        answer = f"r={self._nonce},s={_to_text(self.credential.salt)},i={self.credential.iterations}"
        self._messages = f"{text.removeprefix(header)},{answer}"
        return answer

    def _of_token(self, token_id: str) -> ScramCredential | None:
        self.token_id = token_id
        delegated = self._tokens(token_id)
        if delegated is None:
            return None
        self.user, self.lifetime_s = delegated.owner, delegated.lifetime_s
        return delegated.credential

    def _final(self, text: str) -> str:
        credential = self.credential
        assert credential is not None
        match = _CLIENT_FINAL.fullmatch(text)
        if match is None:
            raise AuthenticationFailed("malformed final message")
        without_proof, binding, nonce, proof_text = match.groups()
        try:
            bound, proof = _from_text(binding), _from_text(proof_text)
        except ValueError:
            raise AuthenticationFailed("malformed final message") from None
        # Everything is computed before anything is compared: a wrong password and an unknown user take the same time.
        message = f"{self._messages},{without_proof}".encode()
        signature = _hmac(self._hash, credential.stored_key, message)
        client_key = bytes(a ^ b for a, b in zip(signature, proof, strict=False))
        proves = hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), credential.stored_key)
        answer = f"v={_to_text(_hmac(self._hash, credential.server_key, message))}"
        if nonce != self._nonce and nonce.endswith(self._nonce):
            raise AuthenticationFailed(
                "the client repeats its nonce (librdkafka before 2.6.1; Kafka 4 refuses that, too)"
            )
        if nonce != self._nonce:
            raise AuthenticationFailed("the nonce belongs to another exchange")
        if bound != self._binding:
            raise AuthenticationFailed("a different channel binding than announced")
        if len(proof) != len(signature) or not proves or not self.is_known:
            unknown = "unknown delegation token" if self.token_id else "unknown user"
            raise AuthenticationFailed("wrong password" if self.is_known else unknown)
        self.is_complete = True
        return answer


class ScramClient:
    """The client's side of one exchange: `first`, then `step` until `is_complete`.

    Args:
        nonce: printable ASCII without a comma, never used before.
        salted: computes `salted_password`; a client that connects often passes a caching one.
        is_token: `user` is the id of a delegation token and `password` its HMAC (KIP-48).
    """

    def __init__(
        self,
        mechanism: str,
        user: str,
        password: str,
        nonce: str,
        salted: Callable[[str, str, bytes, int], bytes] = salted_password,
        *,
        is_token: bool = False,
    ) -> None:
        self.is_complete = False
        self._mechanism = mechanism
        self._hash = MECHANISMS[mechanism]
        self._password = password
        self._salted = salted
        self._nonce = nonce
        self._bare = f"n={_escaped(user)},r={nonce}{_TOKEN_EXTENSION if is_token else ''}"
        self._server_signature: bytes | None = None

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def step(self, data: bytes) -> bytes:
        """The answer to the server's next message; b"" after the last. Raises AuthenticationFailed."""
        text = _decoded(data)
        if self.is_complete:
            raise AuthenticationFailed("a message after the last one")
        if self._server_signature is None:
            return self._final(text).encode()
        proof = text.removeprefix("v=").partition(",")[0]
        try:
            ok = text.startswith("v=") and hmac.compare_digest(_from_text(proof), self._server_signature)
        except ValueError:
            ok = False
        if not ok:
            raise AuthenticationFailed("the server does not know the password: it is not genuine")
        self.is_complete = True
        return b""

    def _final(self, text: str) -> str:
        match = _SERVER_FIRST.fullmatch(text)
        if match is None:
            raise AuthenticationFailed("malformed answer of the server")
        nonce, salt_text, iterations = match[1], match[2], int(match[3])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise AuthenticationFailed("the server's nonce does not continue ours")
        if not MIN_ITERATIONS <= iterations <= MAX_CLIENT_ITERATIONS:
            raise AuthenticationFailed(f"the server asks for {iterations} iterations")
        try:
            salt = _from_text(salt_text)
        except ValueError:
            raise AuthenticationFailed("malformed answer of the server") from None
        salted = self._salted(self._mechanism, self._password, salt, iterations)
        client_key = _hmac(self._hash, salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        without_proof = f"c=biws,r={nonce}"  # biws: base64 of "n,,"
        message = f"{self._bare},{text},{without_proof}".encode()
        signature = _hmac(self._hash, stored_key, message)
        self._server_signature = _hmac(self._hash, _hmac(self._hash, salted, b"Server Key"), message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{without_proof},p={_to_text(proof)}"


def nonce_text(entropy: bytes) -> str:
    """Random bytes as a nonce: base64 has no comma."""
    return base64.b64encode(entropy).decode()


def _decoded(data: bytes) -> str:
    if len(data) > _MAX_MESSAGE_BYTES:
        raise AuthenticationFailed("a message that is too long")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed("a message that is not UTF-8") from None


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(name: str) -> str:
    """RFC 5802's saslname. Raises AuthenticationFailed."""
    if re.search(r"=(?!2C|3D)", name):
        raise AuthenticationFailed("a user name with an unescaped equals sign")
    return name.replace("=2C", ",").replace("=3D", "=")
