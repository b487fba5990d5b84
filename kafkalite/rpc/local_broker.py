"""This node, as it presents itself to others."""

from __future__ import annotations

from kafkalite.model import NO_BROKER_EPOCH, BrokerEpoch, BrokerId
from kafkalite.rpc.greeting import Identity
from kafkalite.rpc.messages.connection import HelloRequest


class LocalBroker:
    """One for each process; every part that needs to know who we are has it.

    Attributes:
        broker_epoch: of the present registration; NO_BROKER_EPOCH before the first.
        cluster_id: "" until it has been read from ZooKeeper.
    """

    def __init__(self, broker_id: BrokerId) -> None:
        self.broker_id = broker_id
        self.broker_epoch: BrokerEpoch = NO_BROKER_EPOCH
        self.cluster_id = ""

    def identity(self) -> tuple[BrokerId, BrokerEpoch]:
        """The id, and the epoch of the present registration."""
        return self.broker_id, self.broker_epoch

    def greeting(self) -> Identity:
        """What the RPC listener answers to a hello."""
        return Identity(self.cluster_id, self.broker_id, self.broker_epoch)

    def hello(self, purpose: str) -> HelloRequest:
        """What this node says of itself on a connection to another one."""
        return HelloRequest(self.cluster_id, self.broker_id, self.broker_epoch, client_id=purpose)
