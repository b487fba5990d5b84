"""Random walks of connections that log in, log in again or do not, and of delegation tokens (`same_answers` compares them)."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from kafkalite.errors import AuthenticationFailed, ErrorCode
from kafkalite.protocol import wire
from kafkalite.security.sasl import ClientCredentials

from .same_answers import Side
from .same_rights import USER, Right, give, take_all

#: Connections: nobody's on the listener of logins, that of a second user, and of a third.
RAW, OTHER, THIRD = "raw", "other", "third"
#: A client may log in again after this time (KIP-368).
_AGAIN_S = 1.1
#: A connection that is refused is closed within this time.
_CLOSES_S = 0.3


def _plain(user: str, password: str, acts_as: str = "") -> bytes:
    return f"{acts_as}\0{user}\0{password}".encode()


async def _said(s: Side, message: Any, version: int, label: str, connection: str = RAW) -> Any:
    """The answer; noted are its code and, after an error, whether the connection stays open.

    Before the login, Kafka closes with an answer or without one; which of the two says nothing.
    """
    answer = await s.ask(message, version, label, connection=connection, traced=False)
    code = None if answer is None else getattr(answer, "error_code", 0)
    state = "closed" if answer is None else ""
    if code and connection in s.clients:
        try:
            async with asyncio.timeout(_CLOSES_S):
                is_closed = await s.clients[connection].reader.read(1) == b""
        except TimeoutError:
            is_closed = False
        except ConnectionError:
            is_closed = True
        state = "closed" if is_closed else f"{code}, open"
        if is_closed:
            s.drop(connection)
            if code != ErrorCode.ILLEGAL_SASL_STATE:
                state = f"{code}, closed"
    s.note(label, state or code)
    return answer


async def who_is(s: Side, label: str, connection: str) -> None:
    """Whom a connection belongs to: the owner of the token that it asks for."""
    r = wire.CreateDelegationTokenRequest
    answer = await _said(s, r(None, None, [], 1_000), 3, label, connection)
    if answer is not None and answer.error_code == 0:
        s.note(label, f"{answer.principal_name} {answer.token_requester_principal_name}")


async def _scram(s: Side, connection: str, user: str, password: str, label: str, *, is_token: bool) -> bool:
    """A whole SCRAM login, of a user or with a token."""
    exchange = ClientCredentials("SCRAM-SHA-256", user, password, is_token=is_token).client(lambda n: b"x" * n)
    answer = await _said(s, wire.SaslHandshakeRequest("SCRAM-SHA-256"), 1, label, connection)
    token = exchange.first()
    before = len(s.trace)
    while answer is not None and answer.error_code == 0 and not exchange.is_complete:
        # An unknown user is refused at the first step or at the second.
        del s.trace[before:]
        answer = await _said(s, wire.SaslAuthenticateRequest(token), 2, label, connection)
        if answer is not None and answer.error_code == 0:
            try:
                token = exchange.step(bytes(answer.auth_bytes))
            except AuthenticationFailed as error:
                s.note(label, str(error))
                break
    return exchange.is_complete


async def handshakes(s: Side) -> None:
    """SaslHandshake and SaslAuthenticate in any order, good and bad, and what is answered in between."""
    mine, other = s.logins[USER], s.logins[OTHER]
    good = (mine.user, mine.password)
    tokens = {
        "good": _plain(*good), "as itself": _plain(*good, mine.user), "as another": _plain(*good, other.user),
        "wrong password": _plain(mine.user, "wrong"), "another": _plain(other.user, other.password), "nothing": b"", "garbage": b"\xff\xfe\xfd",
        "no password": f"\0{mine.user}".encode(), "empty password": _plain(mine.user, ""), "empty user": _plain("", mine.password),
        "more": _plain(*good) + b"\0x", "scram": b"n,,n=" + mine.user.encode() + b",r=abcdef", "spaces": _plain(mine.user + " ", mine.password),
    }  # fmt: skip
    for step in range(14):
        what = s.source.choice(
            ("handshake", "handshake", "handshake", "handshake", "authenticate", "authenticate", "authenticate", "authenticate",
             "versions", "acls", "who", "wait", "scram", "handshake wrong", "new", "list groups"),
        )  # fmt: skip
        label = f"{step} {what}"
        if what == "handshake":
            await _said(s, wire.SaslHandshakeRequest("PLAIN"), 1, label)
        elif what == "handshake wrong":
            name = s.source.choice(("GSSAPI", "SCRAM-SHA-512", "", "plain", "OAUTHBEARER", "SCRAM-SHA-256"))
            await _said(s, wire.SaslHandshakeRequest(name), 1, f"{label} {name}")
        elif what == "authenticate":
            kind = s.source.choice(("good", "good", "good", *tokens))
            await _said(s, wire.SaslAuthenticateRequest(tokens[kind]), s.source.randrange(3), f"{label} {kind}")
        elif what == "versions":
            await _said(s, wire.ApiVersionsRequest("a", "1"), s.source.choice((0, 3, 4)), label)
        elif what == "acls":
            await _said(s, wire.DescribeAclsRequest(1, None, 1, None, None, 1, 1), 3, label)
        elif what == "list groups":
            await _said(s, wire.ListGroupsRequest(), 4, label)
        elif what == "who":
            await who_is(s, label, RAW)
        elif what == "wait":
            await asyncio.sleep(_AGAIN_S)
        elif what == "scram":
            await _scram(s, RAW, mine.user, mine.password, label, is_token=False)
        else:
            s.drop(RAW)


async def _described(s: Side, connection: str, owners: list[str] | None) -> list[Any]:
    r = wire.DescribeDelegationTokenRequest
    asked = None if owners is None else [r.DescribeDelegationTokenOwner("User", each) for each in owners]
    answer = await s.ask(r(asked), 3, traced=False, connection=connection)
    return [] if answer is None else list(answer.tokens)


async def tokens(s: Side) -> None:
    """Delegation tokens of three users, with and without the rights to each other's."""
    users = {connection: s.logins[connection].user for connection in (USER, OTHER, THIRD)}
    rights: list[Right] = []
    for user in users.values():
        await take_all(s, user)
    for user in users.values():
        of_user: list[Right] = []
        for one in users.values():
            for operation in (13, 14):  # CREATE_TOKENS, DESCRIBE_TOKENS
                if s.source.random() < 0.25:
                    name, form = s.source.choice(((f"User:{one}", 3), ("*", 3), (f"User:{one}"[:7], 4), (one, 3)))
                    of_user.append((7, name, form, f"User:{user}", "*", operation, 3 if s.source.random() < 0.8 else 2))
        of_user = list(dict.fromkeys(of_user))
        await give(s, user, of_user)
        rights += of_user
    s.rights = str([each[:4] + each[5:] for each in rights])
    made: list[tuple[str, bytes]] = []
    ended: set[str] = set()
    r = wire.CreateDelegationTokenRequest
    for step in range(12):
        connection = s.source.choice((USER, OTHER, THIRD))
        what = s.source.choice(
            ("create", "create", "create", "renew", "expire", "describe", "describe", "log in", "expire now")
        )
        label = f"{step} {what} {connection}"
        if what == "create" or not made:
            owner: str | None = s.source.choice((None, *users.values(), "nobody"))
            kind = None if owner is None else s.source.choice(("User", "User", "User", "Group"))
            label += " Group" if kind == "Group" else ""
            renewers = [
                r.CreatableRenewers(s.source.choice(("User", "User", "Group")), each)
                for each in users.values()
                if s.source.random() < 0.3
            ]
            lifetime = s.source.choice((-1, 60_000, 1, 0, -5, 10**12))
            answer = await s.ask(
                r(kind, owner, renewers, lifetime), s.source.choice((2, 3, 3, 3)), label, connection=connection
            )
            if answer is not None and answer.error_code == 0:
                made.append((answer.token_id, bytes(answer.hmac)))
                if lifetime == 1:
                    ended.add(answer.token_id)
                    await asyncio.sleep(0.2)
                for _ in range(100):
                    seen = [each.token_id for each in await _described(s, connection, None)]
                    if answer.token_id in seen or lifetime == 1:
                        break
                    await asyncio.sleep(0.01)
            continue
        token_id, hmac = made[s.source.randrange(len(made))]
        if token_id in ended:
            label += " ended"
        if what == "renew":
            given = hmac if s.source.random() < 0.8 else b"nothing"
            await s.ask(
                wire.RenewDelegationTokenRequest(given, s.source.choice((-1, 0, 5_000, 10**12))),
                2,
                label,
                connection=connection,
            )
        elif what in ("expire", "expire now"):
            period = -1 if what == "expire now" else s.source.choice((0, 5_000, 10**12))
            answer = await s.ask(wire.ExpireDelegationTokenRequest(hmac, period), 2, label, connection=connection)
            if period == 0 and answer is not None and answer.error_code == 0:
                ended.add(token_id)
            await asyncio.sleep(0.1)
        elif what == "describe":
            d = wire.DescribeDelegationTokenRequest
            owners = s.source.choice((None, [], [*users.values()], [users[USER]], ["nobody"]))
            asked = None if owners is None else [d.DescribeDelegationTokenOwner("User", each) for each in owners]
            answer = await s.ask(d(asked), 3, label, connection=connection, traced=False)
            mine = sorted(
                (
                    number,
                    each.principal_name,
                    each.token_requester_principal_name,
                    sorted(one.principal_name for one in each.renewers),
                )
                for each in answer.tokens
                for number, (known, _) in enumerate(made)
                if known == each.token_id and known not in ended
            )
            s.note(label, str((answer.error_code, mine)))
        else:
            s.drop(RAW)
            password = base64.b64encode(hmac).decode() if s.source.random() < 0.8 else "wrong"
            is_in = await _scram(s, RAW, token_id, password, label, is_token=True)
            if token_id in ended:  # In Kafka it is a login until it is removed.
                if is_in and s.name == "ours":
                    s.note(label + " LET IN", token_id)
                s.drop(RAW)
            elif is_in:
                await who_is(s, f"{label} who", RAW)
                d = wire.DescribeDelegationTokenRequest
                answer = await s.ask(d(None), 3, label, connection=RAW, traced=False)
                s.note(label, str(None if answer is None else answer.error_code))
    for user in users.values():
        await take_all(s, user)


WALKS = {"handshakes": handshakes, "tokens": tokens}
