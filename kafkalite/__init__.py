"""kafkalite: Kafka's replicated log, with its controller-based replication, as one process per host."""

__version__ = "0.1.0"
