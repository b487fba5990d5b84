"""Good requests about ACLs, quotas, credentials and delegation tokens. (`same_requests` has what they are about.)"""

# ruff: noqa: FBT003 - the fields of a request by their positions
from __future__ import annotations

import asyncio
from typing import Any

from kafkalite.protocol import wire

from .same_answers import Side
from .same_requests import (
    Follow,
    base,
    with_acl,
)


@base
async def CreateAcls(s: Side, version: int) -> tuple[Any, Follow]:
    r = wire.CreateAclsRequest
    creation = r.AclCreation(2, f"a{s.tag}", 3, "User:ann", "*", 3, 3)
    look = wire.DescribeAclsRequest(2, f"a{s.tag}", 1, None, None, 1, 1)
    return r([creation]), [(look, 3)]


@base
async def DescribeAcls(s: Side, version: int) -> tuple[Any, Follow]:
    return wire.DescribeAclsRequest(2, await with_acl(s), 3, "User:ann", "*", 3, 3), []


@base
async def DeleteAcls(s: Side, version: int) -> tuple[Any, Follow]:
    name = await with_acl(s)
    r = wire.DeleteAclsRequest
    look = wire.DescribeAclsRequest(2, name, 1, None, None, 1, 1)
    return r([r.DeleteAclsFilter(2, name, 3, "User:ann", "*", 3, 3)]), [(look, 3)]


@base
async def DescribeClientQuotas(s: Side, version: int) -> tuple[Any, Follow]:
    user = f"u{s.tag}"
    r = wire.AlterClientQuotasRequest
    await s.ask(
        r([r.EntryData([r.EntityData("user", user)], [r.OpData("consumer_byte_rate", 2000.0, False)])], False),
        1,
        traced=False,
    )
    await asyncio.sleep(0.05)
    d = wire.DescribeClientQuotasRequest
    return d([d.ComponentData("user", 0, user)], True), []


@base
async def AlterClientQuotas(s: Side, version: int) -> tuple[Any, Follow]:
    user = f"u{s.tag}"
    r = wire.AlterClientQuotasRequest
    d = wire.DescribeClientQuotasRequest
    request = r([r.EntryData([r.EntityData("user", user)], [r.OpData("consumer_byte_rate", 2000.0, False)])], False)
    return request, [(d([d.ComponentData("user", 0, user)], False), 1)]


@base
async def DescribeUserScramCredentials(s: Side, version: int) -> tuple[Any, Follow]:
    user = f"u{s.tag}"
    r = wire.AlterUserScramCredentialsRequest
    await s.ask(r([], [r.ScramCredentialUpsertion(user, 1, 4096, b"salt" * 4, b"p" * 32)]), 0, traced=False)
    await asyncio.sleep(0.05)
    d = wire.DescribeUserScramCredentialsRequest
    return d([d.UserName(user)]), []


@base
async def AlterUserScramCredentials(s: Side, version: int) -> tuple[Any, Follow]:
    user = f"u{s.tag}"
    r = wire.AlterUserScramCredentialsRequest
    if s.source.random() < 0.3:
        await s.ask(r([], [r.ScramCredentialUpsertion(user, 1, 4096, b"salt" * 4, b"p" * 32)]), 0, traced=False)
        await asyncio.sleep(0.05)
        request = r([r.ScramCredentialDeletion(user, 1)], [])
    else:
        request = r([], [r.ScramCredentialUpsertion(user, 1, 4096, b"salt" * 4, b"p" * 32)])
    d = wire.DescribeUserScramCredentialsRequest
    return request, [(d([d.UserName(user)]), 0)]


@base
async def SaslHandshake(s: Side, version: int) -> tuple[Any, Follow]:
    return wire.SaslHandshakeRequest("PLAIN"), []


@base
async def SaslAuthenticate(s: Side, version: int) -> tuple[Any, Follow]:
    return wire.SaslAuthenticateRequest(b"\x00a\x00b"), []


@base
async def CreateDelegationToken(s: Side, version: int) -> tuple[Any, Follow]:
    r = wire.CreateDelegationTokenRequest
    return r("User", "ann", [r.CreatableRenewers("User", "bob")], 100_000), []


@base
async def RenewDelegationToken(s: Side, version: int) -> tuple[Any, Follow]:
    return wire.RenewDelegationTokenRequest(b"12345", 1_000), []


@base
async def ExpireDelegationToken(s: Side, version: int) -> tuple[Any, Follow]:
    return wire.ExpireDelegationTokenRequest(b"12345", 1_000), []


@base
async def DescribeDelegationToken(s: Side, version: int) -> tuple[Any, Follow]:
    r = wire.DescribeDelegationTokenRequest
    return r([r.DescribeDelegationTokenOwner("User", "ann")]), []
