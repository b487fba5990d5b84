"""What nodes say to each other (some of it is in `kafkalite.extension.messages`).

Each message is a frozen dataclass, packed by msgpack as an array of its fields in order (nested ones
likewise). Evolution is append-only: a new field goes to the end and has a default; a reader fills fields
that an older peer did not send and ignores those that it does not know. Kinds are never reused; a request
has an even kind, its response the next odd one.

Record bytes are not in the messages: they travel in the frame's body, in the order of the partitions, and
each partition entry contains the number of its bytes in the body (`records_size`).

Deadlines are in milliseconds from receipt. Error codes are Kafka's (`kafkalite.errors.ErrorCode`).
"""

from kafkalite.rpc.messages import (
    changes,
    connection,
    control,
    forwarding,
    groups,
    load,
    replication,
    schemas,
)
from kafkalite.rpc.messages.base import MIN_PROTOCOL_VERSION, PROTOCOL_VERSION, Message, by_kind, response_kind

#: The modules that hold messages; all of them register theirs when the package is imported.
AREAS = (
    "changes",
    "connection",
    "control",
    "forwarding",
    "groups",
    "load",
    "replication",
    "schemas",
)

__all__ = [
    "AREAS",
    "MIN_PROTOCOL_VERSION",
    "PROTOCOL_VERSION",
    "Message",
    "by_kind",
    "changes",
    "connection",
    "control",
    "forwarding",
    "groups",
    "load",
    "replication",
    "response_kind",
    "schemas",
]
