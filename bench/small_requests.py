"""One 1 KiB record per request, from librdkafka with five requests in flight: CPU of all brokers per request.

Rows of bench.beside_kafka. CPU time counts, not the rate: it is nearly the same on a busy machine. Needs pip (confluent-kafka).
"""

from __future__ import annotations

import subprocess
import time

from bench.peers import PeerLoad, Side, scratch_python

PRODUCER = """
import sys, time, confluent_kafka as c
k = c.Producer({
    'bootstrap.servers': sys.argv[1], 'linger.ms': 0, 'batch.num.messages': 1, 'acks': 'all',
    'max.in.flight.requests.per.connection': int(sys.argv[4]), 'queue.buffering.max.messages': 1000000,
})
value = b'x' * 1024
began = time.monotonic()
for n in range(int(sys.argv[3])):
    k.produce(sys.argv[2], value, partition=0)
    if not n % 1000:
        k.poll(0)
assert k.flush(300) == 0
print(time.monotonic() - began)
"""


def measure(side: Side, load: PeerLoad, factor: int, records: int, in_flight: int) -> tuple[float, float]:
    """(us of all nodes' CPU per request, requests per second)."""
    topic = f"small-{factor}-{time.monotonic_ns()}"
    load.ask("create", side.bootstrap, topic, 1, factor)
    command = [str(scratch_python()), "-c", PRODUCER, side.bootstrap, topic]
    subprocess.run([*command, "500", "5"], check=True, capture_output=True)
    before = sum(side.cpu_seconds())
    took = float(
        subprocess.run([*command, str(records), str(in_flight)], check=True, capture_output=True, text=True).stdout
    )
    used = sum(side.cpu_seconds()) - before
    load.ask("delete", side.bootstrap, topic)
    return used / records * 1e6, records / took
