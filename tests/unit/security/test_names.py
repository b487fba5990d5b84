"""From a certificate to a principal."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.errors import ConfigError
from kafkalite.security.names import mapped_name, mapping_rules, subject_name


def subject(*parts: tuple[str, str]) -> dict[str, Any]:
    return {"subject": tuple((part,) for part in parts)}


def test_the_most_specific_part_comes_first() -> None:
    """As X500Principal.getName(RFC2253) and `openssl x509 -nameopt RFC2253` write it."""
    certificate = subject(("countryName", "DE"), ("organizationName", "A, B"), ("commonName", "alice"))
    assert subject_name(certificate) == "CN=alice,O=A\\, B,C=DE"


@pytest.mark.parametrize(
    ("value", "written"),
    [("a+b", "a\\+b"), ('"q"', '\\"q\\"'), (" x ", "\\ x\\ "), ("#1", "\\#1"), ("a;b<c>", "a\\;b\\<c\\>"), ("é", "é")],
)
def test_escapes(value: str, written: str) -> None:
    assert subject_name(subject(("commonName", value))) == f"CN={written}"


def test_an_address_is_written_as_java_writes_it() -> None:
    assert subject_name(subject(("emailAddress", "a@b"))) == "1.2.840.113549.1.9.1=#1603614062"


def test_several_attributes_at_one_level() -> None:
    certificate = {"subject": ((("commonName", "a"), ("userId", "u")),)}
    assert subject_name(certificate) == "CN=a+UID=u"
    assert subject_name({}) == ""


@pytest.mark.parametrize(
    ("rules", "name", "mapped"),
    [
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        ("RULE:^CN=(.*?),O=.*$/$1/", "CN=a,O=b", "a"),
        ("RULE:^CN=(.*?),O=.*$/$1@$1/U,DEFAULT", "CN=a,O=b", "A@A"),
        ("RULE:^CN=([^,]*),OU=(.*?),.*$/$1.$2/L, DEFAULT", "CN=A,OU=Ops,C=DE", "a.ops"),
        ("RULE:^nothing$/x/,DEFAULT", "CN=a", "CN=a"),
        ("RULE:^nothing$/x/", "CN=a", None),
    ],
)
def test_mapping_rules(rules: str, name: str, mapped: str | None) -> None:
    """The examples of Kafka's documentation of ssl.principal.mapping.rules."""
    assert mapped_name(mapping_rules(rules), name) == mapped


@pytest.mark.parametrize("rules", ["NONE", "RULE:a/b", "RULE:(/x/", "RULE:a/$1/", "RULE:a/b/X", "DEFAULT;DEFAULT"])
def test_rules_that_are_none(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        mapping_rules(rules)
