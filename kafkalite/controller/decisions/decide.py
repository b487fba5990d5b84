"""`decide(state, event) -> (state, effects)`: all of the controller's policy, by kind of event. Pure."""

from __future__ import annotations

from typing import assert_never

from kafkalite.controller.decisions import (
    balance,
    broker_changes,
    partition_changes,
    partition_requests,
    reassignments,
    rebalancing,
    restarts,
    topic_changes,
    topic_writes,
)
from kafkalite.controller.decisions.effects import Decision, ReadStates
from kafkalite.controller.decisions.events import (
    BalanceDue,
    BalancerDue,
    BrokerCleared,
    BrokersChanged,
    BrokerSuspected,
    ClusterRead,
    ControlledShutdownReceived,
    DeletionsRequested,
    Event,
    InitialisationDue,
    IsrsChanged,
    MovesDue,
    PartitionRequests,
    PartitionsDrained,
    PartitionsRemoved,
    PreferredElectionRequested,
    ReassignmentRequested,
    ReplicasDoubtful,
    ReplicasFailed,
    ReplicasStopped,
    RestartsRequested,
    StatesDue,
    StatesRead,
    StatesWritten,
    Ticked,
    TopicsChanged,
    TopicsRemoved,
    TopicsWritten,
)
from kafkalite.controller.decisions.state import ControllerState


def decide(state: ControllerState, event: Event) -> Decision:  # noqa: C901 - a case per event
    """What follows from an event.

    Args:
        state: as the last decision left it.
        event: a full snapshot of what has changed, or the outcome of an earlier effect.
    Returns:
        The next state, and effects to be performed in their order. Each effect that ends as an event (reads, writes,
        Post) has that event, and all that follows from it, handled before the next one's and before any change from outside.
    """
    match event:
        case ClusterRead():
            return broker_changes.on_cluster_read(state, event)
        case BrokersChanged():
            return broker_changes.on_brokers_changed(state, event)
        case BrokerSuspected():
            return broker_changes.on_broker_suspected(state, event)
        case BrokerCleared():
            return broker_changes.on_broker_cleared(state, event)
        case InitialisationDue():
            return broker_changes.on_initialisation_due(state, event)
        case ControlledShutdownReceived():
            return broker_changes.on_controlled_shutdown(state, event)
        case TopicsChanged():
            return topic_changes.on_topics_changed(state, event)
        case DeletionsRequested():
            return topic_changes.on_deletions_requested(state, event)
        case ReplicasStopped():
            return topic_changes.on_replicas_stopped(state, event)
        case TopicsRemoved():
            return topic_changes.on_topics_removed(state, event)
        case PreferredElectionRequested():
            return partition_changes.on_preferred_election(state, event)
        case RestartsRequested():
            return restarts.on_restarts_requested(state, event)
        case ReplicasFailed():
            return restarts.on_replicas_failed(state, event)
        case ReplicasDoubtful():
            return partition_changes.on_replicas_doubtful(state, event)
        case ReassignmentRequested():
            return reassignments.on_reassignment_requested(state, event)
        case MovesDue():
            return reassignments.on_moves_due(state, event)
        case PartitionRequests():
            return partition_requests.on_partition_requests(state, event)
        case PartitionsDrained():
            return partition_requests.on_drained(state, event)
        case TopicsWritten():
            return topic_writes.on_topics_written(state, event)
        case PartitionsRemoved():
            return partition_requests.on_partitions_removed(state, event)
        case IsrsChanged():
            return partition_changes.on_isrs_changed(state, event)
        case StatesDue(partitions, purpose, chunk):
            return state, [ReadStates(partitions, purpose, chunk)]
        case StatesRead():
            return partition_changes.on_states_read(state, event)
        case StatesWritten():
            return partition_changes.on_states_written(state, event)
        case Ticked():
            return topic_changes.on_tick(state)
        case BalanceDue():
            return balance.on_balance_due(state, event)
        case BalancerDue():
            return rebalancing.on_balancer_due(state, event)
        case _:
            assert_never(event)
