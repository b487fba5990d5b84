"""How many moves the znode of a topic has room for at the same time. Pure.

ZooKeeper takes a megabyte. A topic of 10,000 partitions, all of which are moved at once, needs more: no write of it would succeed, hence
no move would go on. So a move begins only if there is room for all that its steps will add. The others wait in the request.
"""

from __future__ import annotations

from kafkalite.controller.decisions.state import Topic
from kafkalite.model import Replicas

#: Of a topic's znode. What is left to ZooKeeper's limit is for the states in the same transaction.
MAX_BYTES = 900_000
#: JSON besides the numbers of replicas: of a partition's assignment, and of all that is written about its move.
_PARTITION_BYTES = 16
_MOVE_BYTES = 200
#: In how many lists a replica of the target, or of the origin, may be (assignment, target, origin, step, dropping, adding, removing).
_LISTS = 4


def room_left(topic: Topic) -> int:
    """Bytes for further moves."""
    assigned = sum(
        _PARTITION_BYTES + _size(replicas) for number, replicas in topic.assignment.items() if number not in topic.moves
    )
    moving = sum(
        _PARTITION_BYTES + _size(move.origin) + size_of_move(move.origin, move.target) for move in topic.moves.values()
    )
    return MAX_BYTES - assigned - moving


def size_of_move(origin: Replicas, target: Replicas) -> int:
    """Bytes of a move, at most."""
    return _MOVE_BYTES + _LISTS * (_size(origin) + _size(target))


def _size(replicas: Replicas) -> int:
    return sum(len(str(replica)) + 1 for replica in replicas)
