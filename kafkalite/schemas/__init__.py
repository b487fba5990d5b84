"""A schema registry (Confluent's REST API and record format), coordinated by the leader of the topic `_schemas`.

Layers: formats (parsing and compatibility of Avro, JSON Schema, Protobuf), subjects (what is registered: pure), rest (the API:
pure), coordinator (loads, decides, appends), forwarding (from any node to that one).
"""

#: First segments of the paths of the API. They are here so that a node without schemas loads nothing else of this package.
ROOTS = ("subjects", "schemas", "config", "mode", "compatibility", "contexts")
