"""aiokafka against a cluster: one JSON line of what it saw."""

import asyncio
import json
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

BOOTSTRAP = sys.argv[1]
TOPIC = "aiokafka"
CODECS = (None, "gzip", "snappy", "lz4", "zstd")
PER_CODEC = 20


async def consumer(topic=TOPIC, **settings):
    made = AIOKafkaConsumer(
        topic,
        bootstrap_servers=BOOTSTRAP,
        group_id="aiokafka-group-" + topic,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6000,
        heartbeat_interval_ms=500,
        **settings,
    )
    await made.start()
    return made


async def main():
    seen: dict[str, Any] = {}
    admin = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)
    await admin.start()
    await admin.create_topics([NewTopic(TOPIC, 3, 3), NewTopic("aiokafka-txn", 1, 3)])
    for codec in CODECS:
        producer = AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, compression_type=codec, enable_idempotence=True)
        await producer.start()
        for index in range(PER_CODEC):
            value = b"v%d" % index * 30
            await producer.send_and_wait(TOPIC, value, key=b"%d" % index, headers=[("codec", str(codec).encode())])
        await producer.stop()
    total = PER_CODEC * len(CODECS)
    members = [await consumer()]
    async with asyncio.timeout(150):
        got = [await members[0].getone() for _ in range(total)]
    seen["consumed"] = len(got)
    seen["headers"] = sorted({dict(record.headers)["codec"].decode() for record in got})
    await members[0].commit()
    members += [await consumer(), await consumer()]
    async with asyncio.timeout(150):
        while sorted(len(member.assignment()) for member in members) != [1, 1, 1]:
            await asyncio.sleep(0.1)
    seen["assigned"] = sorted(p.partition for member in members for p in member.assignment())
    seen["positions"] = sum([await member.position(p) for member in members for p in member.assignment()])
    for member in members:
        await member.stop()

    producer = AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id="aiokafka-txn")
    await producer.start()
    for word, commits in ((b"kept", True), (b"dropped", False), (b"last", True)):
        await producer.begin_transaction()
        await producer.send_and_wait("aiokafka-txn", word)
        await (producer.commit_transaction() if commits else producer.abort_transaction())
    await producer.stop()
    reader = await consumer("aiokafka-txn", isolation_level="read_committed")
    async with asyncio.timeout(150):
        seen["committed"] = [(await reader.getone()).value.decode() for _ in range(2)]
    await reader.stop()
    seen["topics"] = sorted(name for name in await admin.list_topics() if not name.startswith("__"))
    await admin.close()
    print(json.dumps(seen))


asyncio.run(main())
