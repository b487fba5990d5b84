"""One request in progress: the API that it is for, what its handler gets, and what it answers with.

Source: Kafka's RequestChannel.Request.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Coroutine, Generator
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from kafkalite.kafka.answers import COUNTED_BYTES
from kafkalite.kafka.encoded_answer import EncodedAnswer
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import Buffer
from kafkalite.protocol.codec import ELEMENTS_AT_ONCE, Decoder, decoder, encoding, small_encoder
from kafkalite.protocol.errors import TooManyAtOnce
from kafkalite.security.principal import Principal

if TYPE_CHECKING:
    from kafkalite.kafka.connection import KafkaConnection
    from kafkalite.kafka.throttle_accounting import ThrottleAccounting

_T = TypeVar("_T")
_PUT_HEAD = struct.Struct(">ii").pack_into


#: Returns the answer, or a coroutine or steps (`kafkalite.kafka.stepped`) that will, or None if it answers through `request.respond` itself.
Handler = Callable[["Request", Any], "Any | Coroutine[Any, Any, Any] | None"]
#: Makes the response in steps, and sends it through `request.respond`, at the end or later.
ManyHandler = Callable[["Request", Any], Generator[None, None, None]]

#: A message that stands for a request (connection, version, body), made without decoding all of it; None: it has to be decoded.
Recall = Callable[[Any, int, memoryview], Any]


@dataclass(frozen=True, slots=True)
class OfferedApi:
    """One API. `versions` are advertised, `served_versions` of them are not refused; `known_versions` can be decoded.

    Sets, not ranges: each request looks into all of them, and into a set that takes a third of the time.
    """

    key: int
    name: str
    versions: range
    served_versions: frozenset[int]
    known_versions: frozenset[int]
    flexible_requests: frozenset[int]
    flexible_responses: frozenset[int]
    handler: Handler
    #: For a request with too many elements for one turn of the loop; None: it is cut (`pieces`), or refused.
    many: ManyHandler | None = None
    #: Elements of a request that is used where it was received. One with more is used from a copy: its handler may take several turns of
    #: the loop, and after the first one the buffer has something else.
    in_place: int = ELEMENTS_AT_ONCE
    #: What stands for a request that hardly differs from the last one of its connection.
    recall: Recall | None = None
    #: It is started when all requests before it on its connection have been answered (Kafka serves all requests so).
    is_in_turn: bool = False
    #: It changes nothing: its steps end when its client is gone.
    is_read_only: bool = False

    @property
    def response_name(self) -> str:
        return self.name + "Response"


@cache
def request_decoder(api: str, version: int) -> Decoder:
    """See `codec.decoder`."""
    return decoder(api + "Request", version)


@dataclass(frozen=True, slots=True)
class Denied:
    """The parts of a request that were denied: topics, keys (groups or transactional ids), the cluster's settings."""

    topics: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    cluster: bool = False


NOTHING_DENIED = Denied()


def _nothing() -> None:
    return


class Request:
    """One request in progress. Its handler calls `respond` (or `respond_nothing`) exactly once."""

    __slots__ = (
        "abandoned",
        "api",
        "began",
        "buffers",
        "client_id",
        "connection",
        "correlation_id",
        "counted",
        "denied",
        "is_answered",
        "postponed",
        "returned",
        "throttle",
        "version",
    )  # fmt: skip

    def __init__(
        self, connection: KafkaConnection, api: OfferedApi | None, version: int, correlation_id: int, client_id: str
    ) -> None:
        self.connection = connection
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.denied = NOTHING_DENIED
        #: What it costs its client; None while no quota is set.
        self.throttle: ThrottleAccounting | None = None
        self.buffers: list[Buffer] = []
        #: Bytes of them that the listener counts as memory.
        self.counted = 0
        self.is_answered = False
        #: Starts it, while it waits for its turn.
        self.postponed: Callable[[], None] | None = None
        #: Called if the connection is lost before the answer: ends what waits for it.
        self.abandoned: Callable[[], None] = _nothing
        #: Monotonic seconds: when the handler was called, and when it returned.
        self.began = 0.0
        self.returned = 0.0

    @property
    def client_host(self) -> str:
        return self.connection.peer_host

    @property
    def principal(self) -> Principal:
        return self.connection.principal

    @property
    def listener_name(self) -> str:
        return self.connection.listener_name

    def client(self) -> str:
        """For the log: whose request it is."""
        return f"{self.principal} at {self.client_host}, client.id {self.client_id[:100]!r}"

    def respond(self, message: Any) -> None:
        """Answer in the request's own version."""
        assert self.api is not None
        if self.throttle is not None:
            self.throttle.settle(message)
        if type(message) is EncodedAnswer:
            self.respond_encoded(message.for_client())
            return
        has_tags = self.version in self.api.flexible_responses
        w = bytearray(9 if has_tags else 8)
        chunks: list[Buffer] = []
        try:
            chunks.append(small_encoder(self.api.response_name, self.version)(message, w, chunks))
        except TooManyAtOnce:
            self.connection.listener.respond_large(self, message)
            return
        except (struct.error, UnicodeEncodeError):  # a bug: the client must not wait for ever
            self.connection.abort()
            raise
        self._finish(w, chunks, sum(map(len, chunks)))

    def responding(self, message: Any) -> Generator[None, None, None]:
        """As `respond`, in steps."""
        assert self.api is not None
        if type(message) is EncodedAnswer:
            self.respond_encoded(message.for_client())
            return
        head = bytearray(9 if self.version in self.api.flexible_responses else 8)
        chunks: list[Buffer] = []
        steps = encoding(self.api.response_name, message, self.version, head, chunks)
        last = yield from self.while_read(steps)
        if last is not None:
            chunks.append(last)
            self._finish(head, chunks, sum(map(len, chunks)))

    def while_read(self, steps: Generator[None, None, _T]) -> Generator[None, None, _T | None]:
        """Steps that change nothing. They end when the connection does, however many requests it has sent ahead; then None."""
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                found: _T = stop.value
                return None if self.connection.is_closed else found
            if self.connection.is_closed:
                steps.close()
                return None
            yield

    def part(self) -> Request:
        """A request for some of its elements. It is answered with the others, and counts as the same client's."""
        part = Request(self.connection, self.api, self.version, self.correlation_id, self.client_id)
        part.throttle = self.throttle
        return part

    def respond_encoded(self, body: bytes) -> None:
        """Answer with a body that was encoded in the request's version."""
        assert self.api is not None
        w = bytearray(9 if self.version in self.api.flexible_responses else 8)
        w += body
        self._finish(w, [w], len(w))

    def settled_throttle_ms(self) -> int:
        """How long the client has to wait by its quotas, for an answer that is encoded elsewhere; counted with the call."""
        if self.throttle is None:
            return 0
        self.throttle.settle(None)
        return self.throttle.throttle_ms

    def respond_pieces(self, pieces: list[Buffer]) -> None:
        """Answer with a body in pieces that was encoded in the request's version."""
        assert self.api is not None
        w = bytearray(9 if self.version in self.api.flexible_responses else 8)
        self._finish(w, [w, *pieces], len(w) + sum(map(len, pieces)))

    def respond_raw(self, body: bytes) -> None:
        """Answer with a body encoded elsewhere, under the header without tags."""
        w = bytearray(8)
        w += body
        self._finish(w, [w], len(w))

    def _finish(self, head: bytearray, chunks: list[Buffer], size: int) -> None:
        _PUT_HEAD(head, 0, size - 4, self.correlation_id)
        self.buffers = chunks
        if size >= COUNTED_BYTES:
            self.counted = size
            self.connection.out.hold(size)
        self.respond_nothing()

    def respond_nothing(self) -> None:
        """The client expects no answer (Produce with acks=0)."""
        assert not self.is_answered, "a request was answered twice"
        if self.throttle is not None:
            self.throttle.settle(None)
        self.is_answered = True
        self.connection.listener.timed(self)
        self.connection.answered(self)
