"""Where things are in ZooKeeper (Kafka's layout; invariants 3 to 11). Pure; all paths are without the chroot."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote, unquote

from kafkalite.errors import ConfigError
from kafkalite.model import BrokerId, Endpoint, TopicPartition

_DEFAULT_PORT = 2181

CLUSTER_ID = "/cluster/id"
#: What decoys for users that do not exist are made from; the nodes' secret.
DECOY_KEY = "/cluster/decoy_key"
#: Written by nodes for the time that ZooKeeper gives to the write.
CLOCK = "/cluster/clock"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
#: How often each broker has started.
BROKER_STARTS = "/brokers/starts"
TOPICS = "/brokers/topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"
DELETE_TOPICS = "/admin/delete_topics"
#: Replicas of deleted topics that dead brokers still have, by topic id.
DELETED_TOPICS = "/admin/deleted_topics"
#: The last states of topics whose znodes have vanished without a request, by topic id.
VANISHED_TOPICS = "/admin/vanished_topics"
PARTITIONS_ADD = "/admin/partitions_add"
PARTITIONS_REMOVE = "/admin/partitions_remove"
RESTART_PARTITIONS = "/restart_partitions"
#: Create this one with sequential=True.
RESTART_REQUEST_PREFIX = "/restart_partitions/req-"
CONFIG_TOPICS = "/config/topics"
CONFIG_BROKERS = "/config/brokers"
CONFIG_USERS = "/config/users"
CONFIG_GROUPS = "/config/groups"
CONFIG_CLIENT_METRICS = "/config/client-metrics"
#: Levels that UpdateFeatures has chosen: the settings of its default entity.
CONFIG_FEATURES = "/config/features"
CONFIG_CHANGES = "/config/changes"
#: Create this one with sequential=True.
CONFIG_CHANGE_PREFIX = "/config/changes/config_change_"
LATEST_PRODUCER_ID_BLOCK = "/latest_producer_id_block"
CONFIG_CLIENTS = "/config/clients"
CONFIG_IPS = "/config/ips"
#: ACLs of literal patterns: /kafka-acl/TYPE/NAME; of prefixed ones under the second.
ACL = "/kafka-acl"
ACL_PREFIXED = "/kafka-acl-extended/prefixed"
ACL_CHANGES = "/kafka-acl-changes"
ACL_EXTENDED_CHANGES = "/kafka-acl-extended-changes"
#: What a notification's name begins with, under either.
ACL_CHANGE_NAME = "acl_changes_"
DELEGATION_TOKENS = "/delegation_token"
#: What is known of each delegation token, by its identifier.
TOKENS = "/delegation_token/tokens"
TOKEN_CHANGES = "/delegation_token/token_changes"
#: What a notification's name begins with.
TOKEN_CHANGE_NAME = "token_change_"
#: The entity name of settings that hold for every broker.
DEFAULT_ENTITY = "<default>"

#: Made by every node when it starts, so that watches on children can be armed.
PERSISTENT = (
    "/admin",
    "/brokers",
    BROKER_IDS,
    BROKER_STARTS,
    TOPICS,
    "/cluster",
    "/config",
    CONFIG_BROKERS,
    CONFIG_CHANGES,
    CONFIG_CLIENTS,
    CONFIG_CLIENT_METRICS,
    CONFIG_FEATURES,
    CONFIG_GROUPS,
    CONFIG_IPS,
    CONFIG_TOPICS,
    CONFIG_USERS,
    DELETED_TOPICS,
    PARTITIONS_ADD,
    PARTITIONS_REMOVE,
    RESTART_PARTITIONS,
    VANISHED_TOPICS,
)


def broker(broker_id: int) -> str:
    """The registration of a broker (ephemeral)."""
    return f"{BROKER_IDS}/{broker_id}"


def broker_starts(broker_id: int) -> str:
    """How often a broker has started."""
    return f"{BROKER_STARTS}/{broker_id}"


def decimal(name: str) -> int | None:
    """The number that a znode is named by, 31 bits at most; None if it is not the number's one name.

    "01" or "１" would name a second znode for one broker, and thousands of digits are no int at all (ValueError).
    """
    if not (name.isascii() and name.isdigit()) or len(name) > 10 or str(int(name)) != name or int(name) >= 2**31:
        return None
    return int(name)


def broker_ids(children: Iterable[str]) -> tuple[list[BrokerId], list[str]]:
    """Of the names under /brokers/ids: the ids, sorted, and the names that are no ids."""
    ids: list[BrokerId] = []
    malformed: list[str] = []
    for name in children:
        number = decimal(name)
        if number is not None:
            ids.append(BrokerId(number))
        else:
            malformed.append(name)
    return sorted(ids), sorted(malformed)


def topic(name: str) -> str:
    """The assignment of a topic."""
    return f"{TOPICS}/{name}"


def topic_partitions(name: str) -> str:
    """The parent of a topic's partitions."""
    return f"{TOPICS}/{name}/partitions"


def partition(topic_partition: TopicPartition) -> str:
    """The parent of a partition's state."""
    return f"{TOPICS}/{topic_partition.topic}/partitions/{topic_partition.partition}"


def partition_state(topic_partition: TopicPartition) -> str:
    """Leader and ISR of a partition."""
    return f"{TOPICS}/{topic_partition.topic}/partitions/{topic_partition.partition}/state"


def delete_topic(topic_name: str) -> str:
    """Kafka's request to delete one topic; ours are in the data of its parent."""
    return f"{DELETE_TOPICS}/{topic_name}"


def deleted_topic(topic_id: str) -> str:
    """The replicas of a deleted topic that dead brokers still have."""
    return f"{DELETED_TOPICS}/{topic_id}"


def vanished_topic(topic_id: str) -> str:
    """The last states of a topic whose znode has vanished."""
    return f"{VANISHED_TOPICS}/{topic_id}"


def partitions_add(topic_name: str) -> str:
    """The parent of a topic's partitions that are to be added."""
    return f"{PARTITIONS_ADD}/{topic_name}"


def partition_add(topic_partition: TopicPartition) -> str:
    """The request to add one partition."""
    return f"{PARTITIONS_ADD}/{topic_partition.topic}/{topic_partition.partition}"


def partitions_remove(topic_name: str) -> str:
    """The parent of a topic's partitions that are to be removed."""
    return f"{PARTITIONS_REMOVE}/{topic_name}"


def partition_remove(topic_partition: TopicPartition) -> str:
    """The request to remove one partition."""
    return f"{PARTITIONS_REMOVE}/{topic_partition.topic}/{topic_partition.partition}"


def config_topic(name: str) -> str:
    """A topic's own settings."""
    return f"{CONFIG_TOPICS}/{name}"


def config_entity(entity_type: str, entity_name: str) -> str:
    """The settings of any entity, as a change notification names it ("topics", "t")."""
    return f"/config/{entity_type}/{entity_name}"


def token(token_id: str) -> str:
    """A delegation token."""
    return f"{TOKENS}/{token_id}"


def sanitize(name: str) -> str:
    """A user's or client's name as part of a path: Kafka's Sanitizer, which encodes like a URL.

    ZooKeeper has no znodes named `.` and `..`, and Kafka no users of those names; encoded they are names like others.
    """
    return name.replace(".", "%2E") if name in (".", "..") else quote(name, safe="").replace("~", "%7E")


def desanitize(name: str) -> str:
    """The name again. Raises ValueError if it is not what `sanitize` makes."""
    plain = unquote(name, errors="strict")
    if sanitize(plain) != name:
        raise ValueError(f"{name!r} is not encoded as Kafka does it")
    return plain


def parent(path: str) -> str:
    """The path of the znode above; "/" for those at the top."""
    return path[: path.rfind("/")] or "/"


def split_connect_string(connect: str) -> tuple[tuple[Endpoint, ...], str]:
    """("h1:2181,h2/kafka") -> (endpoints, "/kafka"); the chroot is "" if there is none. Raises ConfigError."""
    hosts, slash, chroot = connect.strip().partition("/")
    chroot = slash + chroot.rstrip("/") if chroot.strip("/") else ""
    if "//" in chroot or any(part in (".", "..") for part in chroot.split("/")):
        raise ConfigError(f"zookeeper.connect: {chroot!r} is not a path")
    if "," in chroot:
        raise ConfigError(f"zookeeper.connect: {chroot!r}: the chroot is given once, after the last address")
    endpoints: list[Endpoint] = []
    for item in hosts.split(","):
        host, colon, port = item.strip().rpartition(":")
        if not colon:
            host, port = item.strip(), str(_DEFAULT_PORT)
        host = host.removeprefix("[").removesuffix("]")
        if not host or not (port.isascii() and port.isdigit()) or len(port) > 5 or not 0 < int(port) <= 65535:
            raise ConfigError(f"zookeeper.connect: {item.strip()!r} is not host:port")
        endpoints.append(Endpoint(host, int(port)))
    return tuple(endpoints), chroot
