"""Writes values with confluent-kafka's serializers, or reads why records are in a dead-letter topic (one JSON list).

registry_writer.py BOOTSTRAP REGISTRY FORMAT '{"fields": "first" | "second" | "other" | null, "values": […]}'
registry_writer.py BOOTSTRAP TOPIC
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory, timestamp_pb2

#: The Avro place is a schema of its own, to which the others refer.
AVRO_PLACE = json.dumps({"type": "record", "name": "Place", "fields": [{"name": "name", "type": "string"}]})
JSON_PLACE = json.dumps({"type": "object", "properties": {"name": {"type": "string"}}})


def avro(registry: SchemaRegistryClient, which: str) -> Any:
    def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
        return {"name": name, "type": kind} | more

    if which == "other":
        text = json.dumps({"type": "record", "name": "R", "fields": [field("n", "string")]})
        return AvroSerializer(registry, text)
    fields = [
        field("n", "int" if which == "first" else "long"),
        field("place", "Place"),
        field("tags", {"type": "array", "items": "string"}, default=[]),
    ]
    if which == "second":
        at = {"type": "long", "logicalType": "timestamp-millis"}
        fields.append(field("at", ["null", at], default=None))
    registry.register_schema("place", Schema(AVRO_PLACE, "AVRO"))
    text = json.dumps({"type": "record", "name": "R", "fields": fields})
    serializer = AvroSerializer(registry, Schema(text, "AVRO", [SchemaReference("Place", "place", 1)]))
    return lambda value, context: serializer({"tags": []} | value | _moment(value), context)


def _moment(value: dict[str, Any]) -> dict[str, Any]:
    return {"at": datetime.fromisoformat(value["at"])} if "at" in value else {}


def protobuf(registry: SchemaRegistryClient, which: str) -> Any:
    """The place is in a file of its own, which the serializer registers as a reference."""
    field = descriptor_pb2.FieldDescriptorProto
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    common = descriptor_pb2.FileDescriptorProto(name="place.proto", syntax="proto3", package="a")
    common.message_type.add(name="Place").field.add(
        name="name", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL
    )
    pool.AddSerializedFile(common.SerializeToString())
    file = descriptor_pb2.FileDescriptorProto(name=f"{which}.proto", syntax="proto3", package="a")
    file.dependency.extend(["place.proto", "google/protobuf/timestamp.proto"])
    message = file.message_type.add(name="R")
    kind = {"first": field.TYPE_INT32, "second": field.TYPE_INT64, "other": field.TYPE_STRING}[which]
    message.field.add(name="n", number=1, type=kind, label=field.LABEL_OPTIONAL)
    message.field.add(name="place", number=2, type_name=".a.Place", type=field.TYPE_MESSAGE, label=field.LABEL_OPTIONAL)
    message.field.add(name="tags", number=3, type=field.TYPE_STRING, label=field.LABEL_REPEATED)
    if which == "second":
        name = ".google.protobuf.Timestamp"
        message.field.add(name="at", number=4, type_name=name, type=field.TYPE_MESSAGE, label=field.LABEL_OPTIONAL)
    pool.AddSerializedFile(file.SerializeToString())
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("a.R"))
    serializer = ProtobufSerializer(made, registry, {"use.deprecated.format": False})
    return lambda value, context: serializer(json_format.ParseDict(value, made()), context)


def json_schema(registry: SchemaRegistryClient, which: str) -> Any:
    properties: dict[str, Any] = {
        "n": {"type": "string" if which == "other" else "integer"},
        "place": {"$ref": "place.json"},
        "tags": {"type": "array", "items": {"type": "string"}},
    }
    if which == "second":
        properties["at"] = {"type": "string", "format": "date-time"}
    registry.register_schema("place.json", Schema(JSON_PLACE, "JSON"))
    text = json.dumps({"title": "R", "type": "object", "additionalProperties": False, "properties": properties})
    return JSONSerializer(Schema(text, "JSON", [SchemaReference("place.json", "place.json", 1)]), registry)


def write(bootstrap: str, url: str, format_: str, given: str) -> None:
    registry = SchemaRegistryClient({"url": url})
    wanted = json.loads(given)
    producer = Producer({"bootstrap.servers": bootstrap})
    which = wanted["fields"]
    serialize = (
        None if which is None else {"avro": avro, "protobuf": protobuf, "json": json_schema}[format_](registry, which)
    )
    # "other" is registered for another topic, as a producer with a wrong configuration would
    context = SerializationContext(f"{format_}-other" if which == "other" else format_, MessageField.VALUE)
    for value in wanted["values"]:
        producer.produce(format_, value.encode() if serialize is None else serialize(value, context))
    assert producer.flush(60) == 0


def errors(bootstrap: str, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "dead", "enable.auto.commit": False})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []
    while not consumer.position([TopicPartition(topic, 0)])[0].offset >= end:
        message = consumer.poll(1)
        if message is not None and not message.error():
            found += [value.decode() for name, value in message.headers() if name == "kafkalite.error"]
            if message.offset() >= end - 2:  # the last one is the marker of a transaction
                break
    print(json.dumps(found))


if __name__ == "__main__":
    errors(*sys.argv[1:]) if len(sys.argv) == 3 else write(*sys.argv[1:])
