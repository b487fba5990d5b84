"""Logins over HTTP without HTTP: what a header says, what it is held against, how often one may try."""

from __future__ import annotations

import base64

import pytest

from kafkalite.errors import AuthenticationFailed
from kafkalite.security import attempts as attempts_module
from kafkalite.security.attempts import BURST, REGAIN_S, Attempts
from kafkalite.security.http_login import BASIC, BEARER, HttpLogin, Logins, parse
from kafkalite.security.scram import ScramCredential, decoy, make_credential

SCRAM = {
    ("SCRAM-SHA-256", "ann"): make_credential("SCRAM-SHA-256", "wonder", b"saltsalt"),
    ("SCRAM-SHA-512", "bob"): make_credential("SCRAM-SHA-512", "builder", b"saltsalt"),
    ("SCRAM-SHA-256", "bob"): make_credential("SCRAM-SHA-256", "builder", b"other salt"),
}
TOKENS = {"scraper": "t0ken-a", "other": "t0ken-b="}


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


def logins(*mechanisms: str, plain: dict[str, str] | None = None, credentials: object = None) -> Logins:
    known = SCRAM if credentials is None else credentials
    assert isinstance(known, dict)
    return Logins(
        mechanisms=mechanisms,
        passwords=lambda: plain or {},
        credentials=lambda mechanism, user: known.get((mechanism, user)),
        tokens=lambda: TOKENS,
        key=b"key",
    )


def test_headers() -> None:
    assert parse(basic("ann:won:der")) == HttpLogin(BASIC, "ann", "won:der")
    assert parse(basic("CN=ä,O=b:ü")) == HttpLogin(BASIC, "CN=ä,O=b", "ü")
    assert parse("bearer abc-._~+/==") == HttpLogin(BEARER, "", "abc-._~+/==")
    assert "won" not in repr(parse(basic("ann:won:der")))


@pytest.mark.parametrize(
    "header",
    ["", "Basic", "Basic !", "Basic é", "Basic " + base64.b64encode(b"\xff:x").decode(), basic("ann"), basic(":x"), basic("ann:"),
     "Bearer", "Bearer a b", "Bearer hush\x00", "Digest hush", "Basic " + "hush" * 2000],
)  # fmt: skip
def test_headers_that_say_nothing(header: str) -> None:
    with pytest.raises(AuthenticationFailed) as refused:
        parse(header)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("user", "password", "fits", "is_known"),
    [
        ("ann", "wonder", True, True),
        ("ann", "builder", False, True),
        ("bob", "builder", True, True),
        ("eve", "in the file", True, True),
        ("eve", "no", False, True),
        ("nobody", "wonder", False, False),
        ("nobody", "\0\0\0\0", False, False),
    ],
)
def test_names_and_passwords(user: str, password: str, *, fits: bool, is_known: bool) -> None:
    all_kinds = logins("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", plain={"eve": "in the file"})
    evidence = all_kinds.evidence(user)
    assert (evidence.fits(password), evidence.is_known) == (fits, is_known)
    assert evidence.scram is not None  # known or not: the same work


def test_mechanisms_that_are_not_enabled_have_no_users() -> None:
    assert not logins("SCRAM-SHA-512").evidence("ann").fits("wonder")
    assert not logins("SCRAM-SHA-512", plain={"eve": "x"}).evidence("eve").fits("x")
    only_plain = logins("PLAIN", plain={"eve": "x"})
    assert only_plain.evidence("eve").fits("x")
    assert not only_plain.evidence("ann").fits("wonder")
    assert logins().schemes == (BEARER,)


def test_a_decoy_fits_nothing_and_looks_like_the_real_ones() -> None:
    found = decoy("SCRAM-SHA-512", "nobody", b"key")
    assert found.iterations == 8192  # what `admin users set` gives
    assert decoy("SCRAM-SHA-512", "nobody", b"key") == found
    assert not any(found.stored_key)


def test_what_fitted_is_remembered_until_the_password_changes() -> None:
    known: dict[tuple[str, str], ScramCredential] = dict(SCRAM)
    asked = logins("SCRAM-SHA-256", credentials=known)
    login = HttpLogin(BASIC, "ann", "wonder")
    assert not asked.is_remembered(login, asked.evidence("ann"))
    asked.remember(login, asked.evidence("ann"))
    assert asked.is_remembered(login, asked.evidence("ann"))
    assert not asked.is_remembered(HttpLogin(BASIC, "ann", "guess"), asked.evidence("ann"))
    known["SCRAM-SHA-256", "ann"] = make_credential("SCRAM-SHA-256", "wonder2", b"saltsalt")
    assert not asked.is_remembered(login, asked.evidence("ann"))
    del known["SCRAM-SHA-256", "ann"]
    assert not asked.is_remembered(login, asked.evidence("ann"))


def test_tokens() -> None:
    assert logins().owner(HttpLogin(BEARER, "", "t0ken-b=")) == "other"
    assert logins().owner(HttpLogin(BEARER, "", "t0ken-b")) is None
    assert logins().owner(HttpLogin(BEARER, "", "")) is None


def test_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    attempts = Attempts(lambda: now[0])
    for _ in range(BURST):
        assert attempts.wait_s("a") == 0
        attempts.begin("a")
    assert attempts.wait_s("a") == REGAIN_S
    assert attempts.wait_s("b") == 0
    now[0] += REGAIN_S
    assert attempts.wait_s("a") == 0
    attempts.begin("a")
    assert attempts.wait_s("a") == REGAIN_S
    attempts.succeeded("a")
    assert attempts.wait_s("a") == 0
    monkeypatch.setattr(attempts_module, "MAX_HOSTS", 100)
    for number in range(1000):  # addresses beyond those that are distinguished share one count
        attempts.begin(f"host {number}")
    assert len(attempts._counts) == 101
    assert attempts.wait_s("an unknown host") > 0
    now[0] += 1000 * REGAIN_S
    attempts.begin("an unknown host")
    assert len(attempts._counts) == 1
