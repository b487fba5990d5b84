"""The name of a certificate's owner, as Kafka makes a principal of it. Pure.

Source: RFC 2253 (the text of a name, most specific part first), Java's X500Principal.getName, Kafka's SslPrincipalMapper.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kafkalite.errors import ConfigError
from kafkalite.lazy_dataclass import dataclass

#: OpenSSL's long names -> those that RFC 2253 knows.
_SHORT = {
    "commonName": "CN", "countryName": "C", "domainComponent": "DC", "localityName": "L", "organizationName": "O",
    "organizationalUnitName": "OU", "stateOrProvinceName": "ST", "streetAddress": "STREET", "userId": "UID",
}  # fmt: skip
_EMAIL_OID = "1.2.840.113549.1.9.1"
_IA5_STRING = 0x16
_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(,|$)")


def subject_name(certificate: Mapping[str, Any]) -> str:
    """The subject of a certificate as `ssl` describes it: "CN=alice,OU=ops,O=example"; "" if there is none.

    Attributes that RFC 2253 has no short name for keep OpenSSL's, but for the e-mail address, which Java writes in hex.
    """
    parts = []
    for relative in reversed(certificate.get("subject", ())):
        parts.append("+".join(_attribute(name, value) for name, value in relative))
    return ",".join(parts)


def _attribute(name: str, value: str) -> str:
    if name == "emailAddress":
        raw = value.encode()[:127]
        return f"{_EMAIL_OID}=#{bytes([_IA5_STRING, len(raw)]).hex()}{raw.hex()}"
    return f"{_SHORT.get(name, name)}={_escaped(value)}"


def _escaped(value: str) -> str:
    text = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    if text.startswith(("#", " ")):
        text = "\\" + text
    if text.endswith(" ") and len(text) > 1:
        text = text[:-1] + "\\ "
    return text


@dataclass(frozen=True, slots=True)
class MappingRule:
    """`RULE:pattern/replacement/[LU]`; no pattern is DEFAULT: the name as it is."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """The mapped name; None: the rule is not for this name."""
        if self.pattern is None:
            return name
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        mapped = re.sub(r"\$(\d)", lambda group: match[int(group[1])] or "", self.replacement)
        return mapped.lower() if self.case == "L" else mapped.upper() if self.case == "U" else mapped


def mapping_rules(text: str) -> tuple[MappingRule, ...]:
    """`ssl.principal.mapping.rules`, for example `RULE:^CN=([^,]*),.*$/$1/L,DEFAULT`. Raises ConfigError."""
    rules = []
    at = 0
    while at < len(text):
        match = _RULE.match(text, at)
        if match is None:
            raise ConfigError(
                f"ssl.principal.mapping.rules: {text[at:]!r} is not RULE:pattern/replacement/[LU] or DEFAULT"
            )
        at = match.end()
        if match[1]:
            rules.append(MappingRule(None))
            continue
        try:
            pattern = re.compile(match[2])
        except re.error as error:
            raise ConfigError(f"ssl.principal.mapping.rules: {match[2]!r}: {error}") from None
        if any(int(number) > pattern.groups for number in re.findall(r"\$(\d)", match[3])):
            raise ConfigError(
                f"ssl.principal.mapping.rules: {match[3]!r} names a group that {match[2]!r} does not have"
            )
        rules.append(MappingRule(pattern, match[3], match[4]))
    return tuple(rules)


def mapped_name(rules: Sequence[MappingRule], name: str) -> str | None:
    """What the first rule that fits makes of a certificate's name; None: no rule fits, the peer is refused (as by Kafka)."""
    for rule in rules:
        found = rule.apply(name)
        if found is not None:
            return found
    return None
