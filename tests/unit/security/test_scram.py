"""SCRAM against the vectors of its RFCs, and against peers that do not mean well."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.coordination.scram_users import credential
from kafkalite.errors import AuthenticationFailed
from kafkalite.security import scram
from kafkalite.security.sasl import MECHANISMS, PLAIN, ClientCredentials, KnownProofs, PlainServer, sasl_server
from kafkalite.security.scram import ScramClient, ScramCredential, ScramServer, make_credential

#: mechanism, hash, client nonce, server nonce, salt, proof, server signature; the user is "user", the password "pencil".
#: RFC 5802 section 5 (its hash is SHA-1, which is not offered), RFC 7677 section 3.
VECTORS = [
    ("SCRAM-SHA-1", "sha1", "fyko+d2lbbFgONRv9qkxdawL", "3rfcNHYJY1ZVvWVs7j", "QSXCR+Q6sek8bf92",
     "v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=", "rmF9pqV8S7suAoZWja4dJRkFsKQ="),
    ("SCRAM-SHA-256", "sha256", "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", "W22ZaJ0SNY7soEsUEjb6gQ==",
     "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="),
]  # fmt: skip
MECHANISM = "SCRAM-SHA-512"
CREDENTIAL = make_credential(MECHANISM, "pencil", b"some salt")
KEY = b"decoy key"


def server(nonce: str = "theirs", user: str = "user", credential: ScramCredential = CREDENTIAL) -> ScramServer:
    return ScramServer(MECHANISM, lambda name: credential if name == user else None, nonce, KEY)


def client(password: str = "pencil", user: str = "user") -> ScramClient:
    return ScramClient(MECHANISM, user, password, "ours")


@pytest.mark.parametrize(("mechanism", "hash_name", "ours", "theirs", "salt", "proof", "signature"), VECTORS)
def test_vectors(
    monkeypatch: pytest.MonkeyPatch,
    mechanism: str, hash_name: str, ours: str, theirs: str, salt: str, proof: str, signature: str,
) -> None:  # fmt: skip
    monkeypatch.setitem(scram.MECHANISMS, mechanism, hash_name)
    credential = make_credential(mechanism, "pencil", base64.b64decode(salt), 4096)
    there = ScramServer(mechanism, {"user": credential}.get, theirs, KEY)
    here = ScramClient(mechanism, "user", "pencil", ours)
    assert here.first() == f"n,,n=user,r={ours}".encode()
    challenge = there.step(here.first())
    assert challenge == f"r={ours}{theirs},s={salt},i=4096".encode()
    final = here.step(challenge)
    assert final == f"c=biws,r={ours}{theirs},p={proof}".encode()
    verdict = there.step(final)
    assert verdict == f"v={signature}".encode()
    assert here.step(verdict) == b""
    assert here.is_complete
    assert there.is_complete
    assert there.user == "user"


def test_sha_512_is_what_the_rfc_says_with_another_hash() -> None:
    """There is no vector: the formulas of RFC 5802 section 3, written down once more."""
    salted = hashlib.pbkdf2_hmac("sha512", b"pencil", b"some salt", 4096)
    key = hmac.digest(salted, b"Client Key", "sha512")
    assert CREDENTIAL.stored_key == hashlib.sha512(key).digest()
    assert CREDENTIAL.server_key == hmac.digest(salted, b"Server Key", "sha512")
    here, there = client(), server()
    challenge = there.step(here.first())
    final = here.step(challenge).decode()
    bare, _, proof = final.rpartition(",p=")
    signed = hmac.digest(CREDENTIAL.stored_key, f"n=user,r=ours,{challenge.decode()},{bare}".encode(), "sha512")
    assert bytes(a ^ b for a, b in zip(base64.b64decode(proof), signed, strict=True)) == key


@given(
    st.text(min_size=1).filter(lambda name: "\0" not in name), st.text(min_size=1).filter(lambda word: "\0" not in word)
)
def test_any_name_and_password(name: str, password: str) -> None:
    if not (name + password).isprintable():
        return
    for mechanism in MECHANISMS:
        credentials = {} if mechanism == PLAIN else {name: make_credential(mechanism, password, b"saltsalt")}
        known = KnownProofs(
            passwords=lambda: {name: password},
            credentials=lambda _, user, held=credentials: held.get(user),  # type: ignore[misc]
            entropy=bytes,
            decoy_key=lambda: KEY,
        )
        there = sasl_server(mechanism, known)
        here = ClientCredentials(mechanism, name, password).client(bytes)
        sent = here.first()
        while not here.is_complete:
            sent = here.step(there.step(sent))
        assert there.is_complete
        assert there.user == name


def test_an_unknown_user_walks_the_same_way_as_a_wrong_password() -> None:
    """Same number of steps, answers of the same form and length, a salt that stays, the same end."""
    challenges = []
    for user in ("user", "nobody", "nobody"):
        there, here = (
            server(credential=make_credential(MECHANISM, "pencil", b"s" * scram.SALT_BYTES)),
            client("x", user),
        )
        challenge = there.step(here.first())
        challenges.append(challenge)
        with pytest.raises(AuthenticationFailed):
            there.step(here.step(challenge))
        assert not there.is_complete
        assert there.is_known == (user == "user")
    assert len({len(challenge) for challenge in challenges}) == 1
    assert challenges[1] == challenges[2] != challenges[0]


def test_no_password_opens_a_decoy() -> None:
    """Even who knows that the stored key of a decoy is zeros has no client key for it."""
    decoy = scram.decoy(MECHANISM, "nobody", KEY)
    there = server()
    there.step(client(user="nobody").first())
    message = b"c=biws,r=ourstheirs,p=" + base64.b64encode(bytes(64))
    with pytest.raises(AuthenticationFailed, match="unknown user"):
        there.step(message)
    assert decoy.stored_key == bytes(64)


def test_a_replayed_final_message_is_refused() -> None:
    here, there = client(), server("first")
    final = here.step(there.step(here.first()))
    there.step(final)
    again = server("second")
    again.step(client().first())
    with pytest.raises(AuthenticationFailed, match="nonce"):
        again.step(final)
    with pytest.raises(AuthenticationFailed):
        there.step(final)


def test_a_client_that_repeats_its_nonce_is_refused_as_in_kafka_4() -> None:
    here, there = client(), server()
    final = here.step(there.step(here.first())).decode()
    twice = re.sub(r"r=([^,]*?)theirs", r"r=\1\1theirs", final)
    assert twice != final
    with pytest.raises(AuthenticationFailed, match=r"librdkafka before 2\.6\.1"):
        there.step(twice.encode())


@pytest.mark.parametrize("extension", [b"t=1", b"tokenauth=1", b"tokenauth=false", b"a=1,b=2"])
def test_other_extensions_mean_nothing(extension: bytes) -> None:
    """As in Kafka."""
    there = server()
    assert there.step(b"n,,n=user,r=x," + extension).startswith(b"r=x")
    assert (there.user, there.token_id, there.is_known) == ("user", "", True)


@pytest.mark.parametrize(
    "first",
    [
        b"", b"\xff", b"n,,", b"n,,n=,r=x", b"n,,n=user", b"n,,n=user,r=", b"n,,n=user,r=a b", b"p=tls-unique,,n=user,r=x",
        b"n,a=other,n=user,r=x", b"n,,n=us=er,r=x", b"n,,m=1,n=user,r=x", b"n" * 9000,
        b"n,,n=user,r=x,t", b"n,,n=user,r=x,t=",
    ],
)  # fmt: skip
def test_malformed_first_messages(first: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        server().step(first)


def test_other_channel_bindings_and_proofs_are_refused() -> None:
    for change in (
        lambda final: final.replace(b"biws", base64.b64encode(b"y,,")),
        lambda final: final.replace(b"p=", b"p=AAAA"),
        lambda final: final[: final.index(b"p=")] + b"p=AAAA",
        lambda final: final[: final.index(b",p=")],
        lambda final: final.replace(b"r=ours", b"r=Ours"),
        lambda final: b"",
    ):
        here, there = client(), server()
        with pytest.raises(AuthenticationFailed):
            there.step(change(here.step(there.step(here.first()))))
        assert not there.is_complete


@given(st.lists(st.binary(max_size=200), max_size=3))
def test_noise_fails_and_nothing_else(messages: list[bytes]) -> None:
    there = server()
    with pytest.raises(AuthenticationFailed):
        for message in [*messages, b"", b""]:
            there.step(message)
    assert not there.is_complete


@given(st.binary(max_size=200))
def test_a_client_takes_noise_for_a_failure(noise: bytes) -> None:
    here = client()
    here.first()
    with pytest.raises(AuthenticationFailed):
        here.step(noise)


@pytest.mark.parametrize(
    "challenge",
    [
        "r=another,s=c2FsdA==,i=4096", "r=ours,s=c2FsdA==,i=4096", "r=oursx,s=c2FsdA==,i=1",
        "r=oursx,s=c2FsdA==,i=99999999", "r=oursx,s=c2FsdA,i=4096", "e=no", "m=x,r=oursx,s=c2FsdA==,i=4096",
    ],
)  # fmt: skip
def test_challenges_that_no_client_answers(challenge: str) -> None:
    """An old nonce, too few iterations, so many that they would keep us busy for minutes."""
    with pytest.raises(AuthenticationFailed):
        client().step(challenge.encode())


@pytest.mark.parametrize("verdict", [b"v=AAAA", b"e=invalid-proof", b"", b"v=?"])
def test_a_server_that_does_not_know_the_password_is_found_out(verdict: bytes) -> None:
    here, there = client(), server()
    here.step(there.step(here.first()))
    with pytest.raises(AuthenticationFailed, match="not genuine"):
        here.step(verdict)
    assert not here.is_complete


def test_credentials_are_written_as_kafka_writes_them() -> None:
    text = CREDENTIAL.text()
    assert text.split(",")[0] == "salt=c29tZSBzYWx0"
    assert [part.partition("=")[0] for part in text.split(",")] == ["salt", "stored_key", "server_key", "iterations"]
    assert ScramCredential.parse(MECHANISM, text) == CREDENTIAL
    assert "c29tZSBzYWx0" not in repr(CREDENTIAL)
    assert repr(CREDENTIAL) == "ScramCredential(iterations=4096)"


@pytest.mark.parametrize(
    "text",
    ["", "salt=AAAA", CREDENTIAL.text().replace("4096", "4095"),
     CREDENTIAL.text().replace("4096", "2147483648"), CREDENTIAL.text().replace("salt=", "salt=!"),
     CREDENTIAL.text()[:30] + ",iterations=4096", make_credential("SCRAM-SHA-256", "x", b"saltsalt").text()],
)  # fmt: skip
def test_text_that_is_no_credential(text: str) -> None:
    with pytest.raises(ValueError, match=MECHANISM) as refused:
        ScramCredential.parse(MECHANISM, text)
    assert "stored_key=" not in str(refused.value)


def test_iterations_have_bounds() -> None:
    for iterations in (4095, 16_385):
        with pytest.raises(ValueError, match="iterations"):
            make_credential(MECHANISM, "x", b"saltsalt", iterations)


@pytest.mark.parametrize(
    "message",
    [b"", b"\0", b"\0user\0", b"\0\0pencil", b"other\0user\0pencil", b"\0user\0pencil\0x", b"\xff\0user\0pencil"],
)
def test_malformed_plain(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        PlainServer({"user": "pencil"}).step(message)


def test_plain_refuses_by_the_same_error() -> None:
    for message, known in ((b"\0user\0wrong", True), (b"\0nobody\0wrong", False), (b"\0nobody\0\0", False)):
        there = PlainServer({"user": "pencil"})
        with pytest.raises(AuthenticationFailed):
            there.step(message)
        assert there.is_known in (known, False)
        assert not there.is_complete


def test_a_client_computes_a_salted_password_once() -> None:
    credentials = ClientCredentials(MECHANISM, "user", "pencil")
    for number in range(3):
        here, there = credentials.client(lambda size, n=number: bytes([n]) * size), server()  # type: ignore[misc]
        here.step(there.step(here.first()))
    assert len(credentials._salted) == 1


@pytest.mark.parametrize("mechanism", sorted(scram.MECHANISMS))
def test_the_first_answer_takes_the_same_work_for_everybody(mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """5 µs more for a user that does not exist could be noticed from outside in 2,000 tries."""
    settings = {mechanism: make_credential(mechanism, "pencil", b"salt of 24 bytes........").text()}
    credential(settings, mechanism)
    work: list[str] = []
    digest, parse = scram._hmac, ScramCredential.parse

    def counted_digest(name: str, key: bytes, data: bytes) -> bytes:
        work.append("hmac")
        return digest(name, key, data)

    def counted_parse(mechanism: str, text: str) -> ScramCredential:
        work.append("parse")
        return parse(mechanism, text)

    monkeypatch.setattr(scram, "_hmac", counted_digest)
    monkeypatch.setattr(ScramCredential, "parse", counted_parse)
    done: dict[str, list[str]] = {}
    for user in ("alice", "nobody"):
        server = ScramServer(
            mechanism, lambda name: credential(settings if name == "alice" else {}, mechanism), "nonce", KEY
        )
        first = server.step(f"n,,n={user},r=abc".encode())
        nonce = first.decode().partition(",")[0]
        with pytest.raises(AuthenticationFailed):
            server.step(f"c=biws,{nonce},p={base64.b64encode(bytes(64)).decode()}".encode())
        done[user] = work.copy()
        work.clear()
    assert done["alice"] == done["nobody"] and "hmac" in done["alice"]
