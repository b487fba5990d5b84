"""A schema registry (Confluent's REST API and record format), coordinated by the leader of the topic `_schemas`.

Layers: formats (parsing and compatibility of Avro, JSON Schema, Protobuf), subjects (what is registered: pure), rest (the API:
pure), coordinator (loads, decides, appends), forwarding (from any node to that one).
"""
