"""The authentication of a listener's connections. Shared by the Kafka and the RPC listener."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kafkalite.errors import AuthenticationFailed, PrincipalChanged
from kafkalite.lazy_dataclass import dataclass
from kafkalite.security.addresses import canonical, guesser
from kafkalite.security.attempts import Attempts, KnownUsers
from kafkalite.security.names import MappingRule, mapped_name
from kafkalite.security.principal import ANONYMOUS, Principal
from kafkalite.security.sasl import OAUTHBEARER, KnownProofs, SaslServer, sasl_server
from kafkalite.security.scram import ScramCredential
from kafkalite.security.tls import ServerTls, peer_name
from kafkalite.telemetry.logs import get_logger
from kafkalite.telemetry.repeats import Repeats, kind_of

if TYPE_CHECKING:
    pass

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SaslLogin:
    """What a connection has proved. `credential`: of SCRAM, as it was then."""

    principal: Principal
    mechanism: str
    credential: ScramCredential | None
    #: Time in seconds after which it ends, counted from the login; None: it does not.
    lifetime_s: float | None = None
    #: The delegation token that it was done with; empty: it was none.
    token_id: str = ""


class ListenerSecurity:
    """One listener's.

    Args:
        name: for the log.
        mechanisms: of SASL; none: it is not used here.
        node_principals: who may say hello as a node.
        failed_delay_ms: delay of the response to a failure.
        max_reauth_ms: KIP-368; 0 never.
        nodes_log_in, nodes_have_certificates: how nodes prove who they are: by SASL, by certificates of this listener's authority (ADR 64).
            Another proof of a node's name is somebody else's, and is refused.
        is_optional: a client that proves nothing is let in as ANONYMOUS, and as a node (`security.transition`).
    """

    def __init__(
        self,
        name: str,
        *,
        tls: ServerTls | None,
        rules: Sequence[MappingRule],
        mechanisms: Sequence[str],
        known: KnownProofs,
        node_principals: frozenset[Principal],
        failed_delay_ms: int,
        max_reauth_ms: int,
        now: Callable[[], float],
        is_optional: bool = False,
        nodes_log_in: bool = True,
        nodes_have_certificates: bool = True,
    ) -> None:
        self.name = name
        self.is_optional = is_optional
        self.tls = tls
        self.mechanisms = tuple(mechanisms)
        self.failed_delay_s = failed_delay_ms / 1000
        self.max_reauth_ms = max_reauth_ms
        self._rules = tuple(rules)
        self._proofs = known
        self._node_principals = node_principals
        self._nodes_log_in = nodes_log_in
        self._nodes_have_certificates = nodes_have_certificates
        self._repeats = Repeats(now)
        self._attempts = Attempts(now)
        self._known = KnownUsers()
        #: Authentications, for the metrics.
        self.succeeded = 0
        self.failed = 0

    @property
    def uses_sasl(self) -> bool:
        return bool(self.mechanisms)

    def exchange(self, mechanism: str) -> SaslServer | None:
        """A new SASL exchange; None if the mechanism is not offered here."""
        if mechanism not in self.mechanisms:
            return None
        return sasl_server(mechanism, self._proofs)

    def certified(self, connection: ssl.SSLObject | None) -> Principal:
        """The principal of the peer's certificate; ANONYMOUS without one. Raises AuthenticationFailed."""
        name = peer_name(connection)
        if not name:
            return ANONYMOUS
        mapped = mapped_name(self._rules, name)
        if not mapped:
            raise AuthenticationFailed("no rule of ssl.principal.mapping.rules fits the certificate")
        principal = Principal("User", mapped)
        if principal in self._node_principals and not self._nodes_have_certificates:
            raise AuthenticationFailed(
                "the certificate has the name of a node, and nodes have no certificates of this kind"
            )
        return principal

    def login(self, exchange: SaslServer, mechanism: str, before: SaslLogin | None, host: str) -> SaslLogin:
        """What a complete exchange has proved. Raises AuthenticationFailed.

        After many failures from one address a login from there fails, too, whatever its password, so that guessing takes time
        however many connections guess; a user that has logged in from there before is not affected.

        Args:
            before: the same connection's login until now: it may not become somebody else's (KIP-368).
        """
        principal = Principal("User", exchange.user)
        login = SaslLogin(principal, mechanism, exchange.credential, exchange.lifetime_s, exchange.token_id)
        if before is not None and before.principal != login.principal:
            raise PrincipalChanged("a connection logs in again as the same user only")
        if principal in self._node_principals:
            self._check_node(login)
        if not self.holds(login):
            raise AuthenticationFailed("the credential was changed meanwhile")
        known = (canonical(host), exchange.user)
        if before is None and known not in self._known and self._attempts.wait_s(guesser(host)) > 0:
            raise AuthenticationFailed("too many failed logins from this address")
        self._known.add(*known)
        return login

    def _check_node(self, login: SaslLogin) -> None:
        """A login as a node, with a proof that nodes do not use. Raises AuthenticationFailed."""
        # A person could choose this name at the identity provider, or have the right to tokens of other users.
        if login.mechanism == OAUTHBEARER or login.token_id:
            raise AuthenticationFailed("the token is for the user of the nodes, who log in without tokens")
        if not self._nodes_log_in:
            raise AuthenticationFailed("the login has the name of a node, and nodes do not log in")

    def holds(self, login: SaslLogin) -> bool:
        """Whether the credential is still the one that was proved; it is asked of a user whose credentials have changed.

        A node's counts until its next login, or a slip with the nodes' own user would stop the whole cluster at once.
        """
        if login.token_id:
            delegated = self._proofs.delegated(login.mechanism, login.token_id)
            return delegated is not None and delegated.credential == login.credential
        if login.credential is None or login.principal in self._node_principals:
            return True
        return self._proofs.credentials(login.mechanism, login.principal.name) == login.credential

    def may_be_node(self, principal: Principal) -> bool:
        """Whether a peer that has proved to be this one may act as a node of the cluster."""
        return principal in self._node_principals or (self.is_optional and principal == ANONYMOUS)

    def refused(self, peer: str, reason: str, *, mechanism: str = "", user: str = "") -> None:
        """One line for the operator; of many alike from one host only some.

        `user`: a name that exists. Other names are not logged: people type passwords where names belong.
        """
        self.failed += 1
        host = peer.rpartition(":")[0]
        if mechanism:
            self._attempts.begin(guesser(host))
        suppressed = self._repeats.admit((host, mechanism, user, kind_of(reason)))
        if suppressed is not None:
            _log.warning(
                "authentication.failed",
                listener=self.name,
                peer=peer,
                mechanism=mechanism,
                user=user,
                reason=reason,
                suppressed=suppressed,
            )
