"""Every error that crosses a boundary.

    KafkaliteError
      ApiError            an expected refusal; crosses the wire as `code`
      ProtocolError       a peer broke the framing or sent what cannot be decoded: close that connection
      CoordinatorError    ZooKeeper said no, or nothing (see kafkalite.coordination.coordinator)
      StorageError        a file operation failed; carries the directory (KIP-18)
      ConfigError         the configuration is wrong; the message names the key
      AuthenticationFailed  the peer is not who it says it is: close that connection

An AssertionError is a bug in kafkalite: it is never caught, the process exits.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import ClassVar


class ErrorCode(IntEnum):
    """Kafka's protocol error codes (numbers are the wire's)."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    INVALID_FETCH_SESSION_EPOCH = 71
    FETCH_SESSION_ID_NOT_FOUND = 70
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    UNKNOWN_TOPIC_ID = 100
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135


#: For what is asked with each request: Python 3.11 looks an attribute of an enumeration up in its slow way.
NO_ERROR = ErrorCode.NONE


class KafkaliteError(Exception):
    """Root of every error that kafkalite raises on purpose."""


class ProtocolError(KafkaliteError):
    """The peer broke the framing, or sent bytes that cannot be decoded. Close that connection."""


class ConfigError(KafkaliteError):
    """The configuration cannot be used. The message is one line that names the key."""


class StartupRefused(KafkaliteError):
    """This node must not start: foreign data directory, id in use. The message says why."""


class CannotListen(KafkaliteError):
    """A listener's address is in use, or none of this host's. It may be free later: the start may be tried again."""


class AuthenticationFailed(KafkaliteError):
    """The peer has not proved who it is. The text is for our log, never for the peer, and holds no secret."""


class PrincipalChanged(AuthenticationFailed):
    """The client has authenticated as another user than before. The error may say so: the client has that user's password, too."""


class StorageError(KafkaliteError):
    """A file operation failed in `directory` (one of the configured log directories)."""

    def __init__(self, message: str, *, directory: str, path: str = "") -> None:
        super().__init__(message)
        self.directory = directory
        self.path = path


class LogClosed(StorageError):
    """A log was used after it had been closed. This says nothing about the files, which may be another log's by now."""


class RecordFate(Enum):
    """What became of a record that was not acknowledged."""

    #: No byte of it has reached a broker, as far as the producer had to do with it.
    NEVER_SENT = "never sent"
    #: A broker has refused it, and has not appended it.
    REFUSED = "refused"
    #: It was sent, and may or may not be in the log.
    UNKNOWN = "unknown"


class ApiError(KafkaliteError):
    """An expected refusal, answered to the peer as `code`. One subclass per code, ever."""

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR
    retriable: ClassVar[bool] = False
    #: Single records of a batch that are wrong: (number within the batch, why); KIP-467.
    record_errors: tuple[tuple[int, str], ...] = ()
    #: Of a record, if a producer knows it.
    fate: RecordFate | None = None
    by_code: ClassVar[dict[ErrorCode, type[ApiError]]] = {}

    def __init_subclass__(cls) -> None:
        owner = ApiError.by_code.setdefault(cls.code, cls)
        if owner is not cls:
            raise TypeError(f"{cls.__name__} reuses {cls.code!r} of {owner.__name__}")


_RETRIABLE = {
    "CORRUPT_MESSAGE", "UNKNOWN_TOPIC_OR_PARTITION", "LEADER_NOT_AVAILABLE", "NOT_LEADER_OR_FOLLOWER",
    "REQUEST_TIMED_OUT", "REPLICA_NOT_AVAILABLE", "NETWORK_EXCEPTION", "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "NOT_CONTROLLER", "KAFKA_STORAGE_ERROR", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH",
    "OFFSET_NOT_AVAILABLE", "CONCURRENT_TRANSACTIONS", "UNSTABLE_OFFSET_COMMIT", "UNKNOWN_TOPIC_ID",
    "INCONSISTENT_TOPIC_ID", "SHARE_SESSION_NOT_FOUND", "INVALID_SHARE_SESSION_EPOCH", "SHARE_SESSION_LIMIT_REACHED", "FETCH_SESSION_ID_NOT_FOUND", "FETCH_SESSION_TOPIC_ID_ERROR", "INVALID_FETCH_SESSION_EPOCH",
    "PREFERRED_LEADER_NOT_AVAILABLE", "ELIGIBLE_LEADERS_NOT_AVAILABLE", "THROTTLING_QUOTA_EXCEEDED",
    "BROKER_NOT_AVAILABLE", "LISTENER_NOT_FOUND", "STALE_BROKER_EPOCH",
}  # fmt: skip


#: Characters of an error's text: it may show names of a request, and a string of Kafka's protocol has 32,767 bytes.
_MAX_TEXT = 4_000


def is_retriable(code: ErrorCode) -> bool:
    """Whether a client may send the same request again after refreshing its metadata."""
    return code.name in _RETRIABLE


def api_error(code: ErrorCode, message: str = "") -> ApiError:
    """The exception for `code`: an instance of the one class that owns that code. Of a long message the end is cut off."""
    owner = ApiError.by_code.get(code)
    if owner is None:
        name = "".join(word.capitalize() for word in code.name.split("_"))
        owner = type(name, (ApiError,), {"code": code, "retriable": is_retriable(code), "__module__": __name__})
    return owner(message[:_MAX_TEXT] or code.name)


def error_code(number: int) -> ErrorCode:
    """The code of this number; UNKNOWN_SERVER_ERROR for one that this version does not know."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
