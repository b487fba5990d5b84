"""`kafkalite admin tokens create | list | renew | expire`: delegation tokens (KIP-48).

A token's HMAC is a password. It is shown by `create`, and by `list --hmac`; no command takes it as an argument.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from kafkalite.client.admin.tokens import DelegationToken, create_token, describe_tokens, expire_token, renew_token
from kafkalite.client.async_client import AsyncClient
from kafkalite.errors import ErrorCode, api_error
from kafkalite.security.principal import Principal
from kafkalite_cli.invocation import Invocation, client_options, group_options
from kafkalite_cli.parameters import MAX_LONG, Whole

_MS = 1000
_MAX_S = MAX_LONG // _MS
#: Of the protocol: as the brokers are configured; at once.
_DEFAULT, _NOW = -1, -1


@click.group("tokens")
@group_options
def tokens(bootstrap: str | None) -> None:
    """Delegation tokens: log in as a user without the user's password, for a limited time."""


def _principals(context: click.Context, parameter: click.Parameter, values: Any) -> Any:
    """Raises click.BadParameter."""
    try:
        if isinstance(values, str):
            return Principal.parse(values)
        return tuple(Principal.parse(each) for each in values or ()) if values is not None else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _time(when_ms: int) -> str:
    try:
        return datetime.fromtimestamp(when_ms / _MS, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return str(when_ms)


def _as_json(token: DelegationToken, *, with_hmac: bool) -> dict[str, object]:
    found: dict[str, object] = {
        "token_id": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issued_ms": token.issued_ms,
        "expires_ms": token.expires_ms,
        "max_ms": token.max_ms,
    }
    return found | ({"hmac": base64.b64encode(token.hmac).decode()} if with_hmac else {})


@tokens.command("create")
@click.option("--owner", metavar="User:NAME", callback=_principals, help="Whose token. [default: your own]")
@click.option(
    "--renewer", "renewers", metavar="User:NAME", multiple=True, callback=_principals, help="Who may renew it."
)
@click.option("--max-life", "max_life_s", type=Whole(1, _MAX_S), metavar="SECONDS", help="[default: the brokers']")
@client_options
async def create(
    cli: Invocation, owner: Principal | None, renewers: Sequence[Principal], max_life_s: int | None
) -> None:
    """Create a token. A client logs in with SCRAM: the id is the user name, the HMAC the password, and sasl.tokenauth is true.

    Example:

    \b
      kafkalite admin tokens create --renewer User:scheduler --max-life 86400
    """

    lifetime = _DEFAULT if max_life_s is None else max_life_s * _MS
    async with cli.connect() as client:
        token = await create_token(client, owner=owner, renewers=renewers, max_lifetime_ms=lifetime)
    hmac = base64.b64encode(token.hmac).decode()
    text = f"token {token.token_id} of {token.owner} until {_time(token.expires_ms)}\nhmac {hmac}"
    cli.out.value(_as_json(token, with_hmac=True), text)


@tokens.command("list")
@click.option("--owner", "owners", metavar="User:NAME", multiple=True, callback=_principals, help="Of these only.")
@click.option("--hmac", "with_hmac", is_flag=True, help="With their HMACs, which are passwords.")
@client_options
async def list_(cli: Invocation, owners: Sequence[Principal], *, with_hmac: bool) -> None:
    """Your own tokens, those that you may renew, and those that ACLs let you see.

    Example:

    \b
      kafkalite admin tokens list --owner User:alice
    """
    async with cli.connect() as client:
        found = await describe_tokens(client, owners)
    rows = [
        (
            each.token_id,
            each.owner,
            each.requester,
            ",".join(each.renewers),
            _time(each.expires_ms),
            _time(each.max_ms),
            *((base64.b64encode(each.hmac).decode(),) if with_hmac else ()),
        )
        for each in found
    ]
    columns = ("token", "owner", "requester", "renewers", "expires", "latest", *(("hmac",) if with_hmac else ()))
    cli.out.listing({"tokens": [_as_json(each, with_hmac=with_hmac) for each in found]}, columns, rows)


async def _hmac_of(client: AsyncClient, token_id: str) -> bytes:
    """Raises ApiError."""
    for token in await describe_tokens(client):
        if token.token_id == token_id:
            return token.hmac
    raise api_error(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, f"there is no token {token_id!r} that this user may see")


async def _change(cli: Invocation, token_id: str, period_ms: int, change: Callable[..., Awaitable[int]]) -> None:
    async with cli.connect() as client:
        end_ms = await change(client, await _hmac_of(client, token_id), period_ms)
    cli.out.value({"token_id": token_id, "expires_ms": end_ms}, f"token {token_id} until {_time(end_ms)}")


@tokens.command("renew")
@click.argument("token_id")
@click.option("--period", "period_s", type=Whole(1, _MAX_S), metavar="SECONDS", help="[default: the brokers']")
@client_options
async def renew(cli: Invocation, token_id: str, period_s: int | None) -> None:
    """Extend a token's life, at most to its latest end. For its owner and its renewers.

    Example:

    \b
      kafkalite admin tokens renew 3qyxVRrUSvGzyD4yVCRzsw
    """
    period = _DEFAULT if period_s is None else period_s * _MS
    await _change(cli, token_id, period, renew_token)


@tokens.command("expire")
@click.argument("token_id")
@click.option("--after", "after_s", type=Whole(0, _MAX_S), metavar="SECONDS", help="[default: at once]")
@client_options
async def expire(cli: Invocation, token_id: str, after_s: int | None) -> None:
    """End a token, and the connections that use it. For its owner and its renewers.

    Example:

    \b
      kafkalite admin tokens expire 3qyxVRrUSvGzyD4yVCRzsw
    """
    period = _NOW if after_s is None else after_s * _MS
    await _change(cli, token_id, period, expire_token)
