"""confluent-kafka's registry client and serializers against the registry of the nodes: one JSON object with what was seen."""

from __future__ import annotations

import json
import sys
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.timestamp_pb2 import Timestamp

bootstrap, *urls = sys.argv[1:]
AVRO = json.dumps({"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}]})
WIDER = AVRO.replace('"int"', '"long"')
JSON = json.dumps({"title": "J", "type": "object", "properties": {"x": {"type": "integer"}}})
seen: dict[str, Any] = {}

registry = SchemaRegistryClient({"url": urls[0]})
other = SchemaRegistryClient({"url": urls[-1]})
first = registry.register_schema("t-value", Schema(AVRO, "AVRO"))
seen["same id elsewhere"] = other.register_schema("t-value", Schema(AVRO, "AVRO")) == first
seen["second"] = other.register_schema("t-value", Schema(WIDER, "AVRO")) - first
seen["versions"] = registry.get_versions("t-value")
try:
    registry.register_schema("t-value", Schema(AVRO.replace('"int"', '"string"'), "AVRO"))
except SchemaRegistryError as error:
    seen["incompatible"] = error.http_status_code
seen["test"] = registry.test_compatibility("t-value", Schema(AVRO, "AVRO"))
seen["level"] = [other.set_compatibility("t-value", "FULL")["compatibility"], registry.get_compatibility("t-value")]
turned = '{"fields": [{"type": {"type": "int"}, "name": "x"}], "name": "A", "type": "record"}'
seen["normalized"] = registry.register_schema("t-value", Schema(turned, "AVRO"), normalize_schemas=True) == first
seen["new subject fits"] = registry.test_compatibility("new-value", Schema(AVRO, "AVRO"))
seen["lookup"] = registry.lookup_schema("t-value", Schema(AVRO, "AVRO")).version

producer = Producer({"bootstrap.servers": bootstrap})
for topic, serializer, value in (
    ("avro", AvroSerializer(registry, AVRO), {"x": 1}),
    ("json", JSONSerializer(JSON, registry), {"x": 2}),
    ("proto", ProtobufSerializer(Timestamp, registry), Timestamp(seconds=3)),
):
    context = SerializationContext(topic, MessageField.VALUE)
    producer.produce(topic, serializer(value, context))
producer.flush(60)

consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "schemas", "auto.offset.reset": "earliest"})
consumer.subscribe(["avro", "json", "proto"])
readers = {
    "avro": AvroDeserializer(SchemaRegistryClient({"url": urls[-1]})),
    "json": JSONDeserializer(JSON),
    "proto": ProtobufDeserializer(Timestamp),
}
read: dict[str, Any] = {}
while len(read) < len(readers):
    message = consumer.poll(1)
    if message is not None and not message.error():
        context = SerializationContext(message.topic(), MessageField.VALUE)
        value = readers[message.topic()](message.value(), context)
        read[message.topic()] = value.seconds if isinstance(value, Timestamp) else value["x"]
consumer.close()
seen["read"] = dict(sorted(read.items()))
seen["subjects"] = registry.get_subjects()
print(json.dumps(seen))
