"""What a producer is set to."""

from __future__ import annotations

from kafkalite.lazy_dataclass import dataclass
from kafkalite.record.compression import Codec

#: Of a record, if nothing else is said: the topic's max.message.bytes may allow less, or more.
MAX_RECORD_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """As Kafka's producer configuration; `retries` None: as often as the delivery timeout allows."""

    acks: int = -1
    idempotent: bool = True
    linger_s: float = 0.005
    batch_bytes: int = 131_072
    codec: Codec = Codec.NONE
    delivery_timeout_s: float = 120.0
    request_timeout_s: float = 30.0
    max_in_flight: int = 5
    retries: int | None = None
    #: A request holds more than this only if one batch does.
    max_request_bytes: int = 4 * 1024 * 1024
    max_record_bytes: int = MAX_RECORD_BYTES

    def __post_init__(self) -> None:
        if self.acks not in (-1, 0, 1):
            raise ValueError(f"acks {self.acks}: 0, 1 or -1 (all)")
        if self.idempotent and (self.acks != -1 or not 1 <= self.max_in_flight <= 5):
            raise ValueError("an idempotent producer needs acks=all and at most 5 batches in flight")
        if self.max_in_flight < 1 or self.batch_bytes < 1:
            raise ValueError("max_in_flight and batch_bytes must be at least 1")
