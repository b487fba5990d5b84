"""Delegation tokens as Kafka keeps them in ZooKeeper: /delegation_token/tokens/ID. Pure; the HMAC is not among it.

Source: Kafka 3.9's DelegationTokenManagerZk (version 3 of the JSON; before it there was no requester) and ZkData.
"""

from __future__ import annotations

from kafkalite.coordination import paths
from kafkalite.coordination.znode_json import INT64_MAX, JsonReader, read, write
from kafkalite.security.principal import Principal
from kafkalite.security.tokens import Token

_VERSION = 3
#: The first version that names who asked for the token.
_WITH_REQUESTER = 3


def encode_token(token: Token) -> bytes:
    """What is kept of a token."""
    return write(
        {
            "version": _VERSION,
            "owner": paths.sanitize(str(token.owner)),
            "tokenRequester": paths.sanitize(str(token.requester)),
            "renewers": [paths.sanitize(str(each)) for each in token.renewers],
            "issueTimestamp": token.issued_ms,
            "maxTimestamp": token.max_ms,
            "expiryTimestamp": token.expires_ms,
            "tokenId": token.token_id,
        }
    )


def decode_token(data: bytes, token_id: str) -> Token:
    """Raises ZnodeError if anything of it means nothing."""
    reader = read(data, paths.token(token_id))
    version = reader.version(1, 2, 3)
    if reader.text("tokenId") != token_id:
        raise reader.fail("tokenId", "not the name of the znode")
    owner = _principal(reader, "owner", reader.text("owner"))
    requester = owner
    if version >= _WITH_REQUESTER:
        requester = _principal(reader, "tokenRequester", reader.text("tokenRequester"))
    renewers = tuple(_principal(reader, "renewers", each) for each in reader.items("renewers"))
    issued, latest, expires = (
        reader.integer(name, 0, INT64_MAX) for name in ("issueTimestamp", "maxTimestamp", "expiryTimestamp")
    )
    return Token(token_id, owner, requester, renewers, issued, expires, latest)


def _principal(reader: JsonReader, name: str, value: object) -> Principal:
    try:
        if not isinstance(value, str):
            raise ValueError("not a string")
        return Principal.parse(paths.desanitize(value))
    except ValueError as error:
        raise reader.fail(name, str(error)) from None
