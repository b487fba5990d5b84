"""SaslHandshake, SaslAuthenticate, and the SCRAM users: DescribeUserScramCredentials, AlterUserScramCredentials (KIP-554)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkalite.coordinators.services import Services
from kafkalite.errors import ErrorCode
from kafkalite.kafka.request import Handler, Request
from kafkalite.kafka.stepped import Steps, sliced
from kafkalite.protocol import wire
from kafkalite.rpc.messages.changes import SETTINGS
from kafkalite.security.principal import Principal

#: The numbers of KIP-554.
_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_NUMBERS = {name: number for number, name in _MECHANISMS.items()}
_OF_NODES = (
    "the user is the nodes': only a user of super.users may change its credentials, or somebody with the nodes' access to ZooKeeper"
    " (admin users set --zookeeper)"
)

if TYPE_CHECKING:  # the classes are made when a request of their kind comes
    _Deletion = wire.AlterUserScramCredentialsRequest.ScramCredentialDeletion
    _Upsertion = wire.AlterUserScramCredentialsRequest.ScramCredentialUpsertion


class SaslHandlers:
    def __init__(self, services: Services) -> None:
        self._services = services

    def table(self) -> dict[str, Handler]:
        return {
            "SaslHandshake": self.handshake,
            "SaslAuthenticate": self.authenticate,
            "DescribeUserScramCredentials": self.describe_users,
            "AlterUserScramCredentials": self.alter_users,
        }

    def handshake(self, request: Request, message: wire.SaslHandshakeRequest) -> wire.SaslHandshakeResponse | None:
        authenticator = request.connection.authenticator
        if authenticator is None:
            return wire.SaslHandshakeResponse(int(ErrorCode.ILLEGAL_SASL_STATE), ())
        return authenticator.handshake(request, message)

    def authenticate(
        self, request: Request, message: wire.SaslAuthenticateRequest
    ) -> wire.SaslAuthenticateResponse | None:
        authenticator = request.connection.authenticator
        if authenticator is None:
            return wire.SaslAuthenticateResponse(
                int(ErrorCode.ILLEGAL_SASL_STATE), "SASL is not possible on this listener, or at this point", b""
            )
        return authenticator.authenticate(request, message)

    async def describe_users(
        self, request: Request, message: wire.DescribeUserScramCredentialsRequest
    ) -> wire.DescribeUserScramCredentialsResponse:
        named = Counter(user.name for user in message.users or ())
        found = await self._services.scram_users(list(named) or None)  # none named: all, as in Kafka
        return await sliced(request, self._described(named, found))

    def _described(
        self, named: Mapping[str, int], found: Mapping[str, Mapping[str, int]]
    ) -> Steps[wire.DescribeUserScramCredentialsResponse]:
        """`named`: how often each user was, `found`: user -> mechanism -> iterations."""
        response = wire.DescribeUserScramCredentialsResponse
        result = response.DescribeUserScramCredentialsResult
        results = []
        for name in named or sorted(found):
            yield
            if named.get(name, 1) > 1:
                text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
                results.append(result(name, int(ErrorCode.DUPLICATE_RESOURCE), text, ()))
            elif name not in found:
                text = f"Attempt to describe a user credential that does not exist: {name}"
                results.append(result(name, int(ErrorCode.RESOURCE_NOT_FOUND), text, ()))
            else:
                infos = [
                    response.CredentialInfo(_NUMBERS[mechanism], iterations)
                    for mechanism, iterations in sorted(found[name].items())
                ]
                results.append(result(name, 0, None, infos))
        return response(results=results)

    async def alter_users(
        self, request: Request, message: wire.AlterUserScramCredentialsRequest
    ) -> wire.AlterUserScramCredentialsResponse:
        """All that is asked of one user, or nothing of it."""
        response = wire.AlterUserScramCredentialsResponse
        result = response.AlterUserScramCredentialsResult
        results = []
        by_name: dict[str, tuple[list[_Deletion], list[_Upsertion]]] = {}
        for deletion in message.deletions:
            by_name.setdefault(deletion.name, ([], []))[0].append(deletion)
        for upsertion in message.upsertions:
            by_name.setdefault(upsertion.name, ([], []))[1].append(upsertion)
        for name, (deletions, upsertions) in by_name.items():
            code, text = self._check_alteration(name, deletions, upsertions)
            if not code and not self._may_alter(request, name):
                code, text = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, _OF_NODES
            if not code:
                code, text = await self._change(name, deletions, upsertions)
            if not code:
                self._services.rights.access.changed(request, "user.credentials_changed", user=name)
            results.append(result(name, int(code), text or None))
        if not all(each.error_code for each in results):
            await self._services.known_everywhere(SETTINGS)
        return response(results=results)

    def _may_alter(self, request: Request, name: str) -> bool:
        """A user who sets the password of the nodes' user can act as a node: the right to alter the cluster is not enough (ADR 64)."""
        if Principal("User", name) not in self._services.node_principals:
            return True
        return self._services.rights.access.is_super_user(request)

    def _check_alteration(
        self, name: str, deletions: list[_Deletion], upsertions: list[_Upsertion]
    ) -> tuple[ErrorCode, str]:
        from kafkalite.security.scram import (  # loaded only where SCRAM is used
            MAX_ITERATIONS,
            MIN_ITERATIONS,
            MIN_SALT_BYTES,
        )

        numbers = [entry.mechanism for entry in deletions] + [entry.mechanism for entry in upsertions]
        if not name:
            return ErrorCode.UNACCEPTABLE_CREDENTIAL, "the user name is empty"
        if any(number not in _MECHANISMS for number in numbers):
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "neither SCRAM-SHA-256 nor SCRAM-SHA-512"
        if len(set(numbers)) != len(numbers):
            return ErrorCode.DUPLICATE_RESOURCE, "a mechanism is named more than once"
        for entry in upsertions:
            if not MIN_ITERATIONS <= entry.iterations <= MAX_ITERATIONS:
                return ErrorCode.UNACCEPTABLE_CREDENTIAL, f"iterations: {MIN_ITERATIONS} to {MAX_ITERATIONS}"
            if len(entry.salt) < MIN_SALT_BYTES or not entry.salted_password:
                text = f"the salt has less than {MIN_SALT_BYTES} bytes, or there is no salted password"
                return ErrorCode.UNACCEPTABLE_CREDENTIAL, text
        return ErrorCode.NONE, ""

    async def _change(
        self, name: str, deletions: list[_Deletion], upsertions: list[_Upsertion]
    ) -> tuple[ErrorCode, str]:
        from kafkalite.security.scram import credential_of

        changes: dict[str, str | None] = {}
        if deletions:
            there = (await self._services.scram_users([name])).get(name, {})
            for entry in deletions:
                if _MECHANISMS[entry.mechanism] not in there:
                    return ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
                changes[_MECHANISMS[entry.mechanism]] = None
        for upsertion in upsertions:
            mechanism = _MECHANISMS[upsertion.mechanism]
            credential = credential_of(
                mechanism, bytes(upsertion.salted_password), bytes(upsertion.salt), upsertion.iterations
            )
            changes[mechanism] = credential.text()
        await self._services.alter_scram_user(name, changes)
        return ErrorCode.NONE, ""
