"""Random messages of every kind and version through our codec and through kio: the same bytes, both ways.

Runs with an interpreter that has kio; argv: seed, rounds. Prints one JSON line: what was compared, what differed.
"""

import importlib
import io
import json
import random
import re
import sys

from kio.serial import entity_reader, entity_writer

from kafkalite.protocol import codec
from kafkalite.protocol.schema import schemas
from kafkalite.protocol.structs import classes

#: Tags from here on are ours (KIP-435's current batch): kio passes them over.
OUR_TAGS = 400
INTEGERS = {"int8": 7, "int16": 15, "uint16": 16, "int32": 31, "uint32": 32, "int64": 63}


class Maker:
    """Random messages of our classes, as far as kio can represent them."""

    def __init__(self, source, schema, version):
        self.source = source
        self.schema = schema
        self.version = version
        self.classes = classes(schema.name)

    def struct(self, owner):
        live = [field for field in owner.fields if self.version in field.versions and (field.tag or 0) < OUR_TAGS]
        return self.classes[owner.name](**{field.name: self.value(field) for field in live})

    def value(self, field):
        if self.version in field.nullable and field.struct is None and self.source.random() < 0.2:
            return None
        if field.is_array:
            return [self.one(field) for _ in range(self.source.choice((0, 1, 3)))]
        return self.one(field)

    def one(self, field):
        source = self.source
        if field.struct is not None:
            return self.struct(field.struct)
        if field.type == "bool":
            return source.random() < 0.5
        if field.type == "string":
            return "".join(source.choices("abcäß€", k=source.randrange(12)))
        if field.type in ("bytes", "records"):
            return source.randbytes(source.choice((0, 5, 200)))
        if field.type == "uuid":
            return source.randbytes(16)
        if field.type == "float64":
            return source.uniform(-1e9, 1e9)
        # kio makes enumerations of error codes, and durations and dates of milliseconds.
        if "error_code" in field.name:
            return source.randrange(0, 100)
        if field.name.endswith("_ms") or "time" in field.name:
            return source.randrange(1, 2**31 - 1)
        if field.name == "key_type" or field.type == "int8":
            return source.randrange(0, 3)
        return source.getrandbits(INTEGERS[field.type]) >> source.choice((0, 5, 20))


def kio_class(schema, version):
    """kio's class for this message, or None."""
    for suffix in ("Request", "Response"):
        if schema.name.endswith(suffix):
            package = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", schema.name.removesuffix(suffix)).lower()
            try:
                module = importlib.import_module(f"kio.schema.{package}.v{version}.{suffix.lower()}")
            except ModuleNotFoundError:
                return None
            return getattr(module, schema.name)
    return None


def main():
    seed, rounds = int(sys.argv[1]), int(sys.argv[2])
    compared, differing = 0, []
    for schema in schemas().values():
        for version in schema.versions:
            other = kio_class(schema, version)
            if other is None:
                continue
            for number in range(rounds):
                maker = Maker(random.Random(f"{seed}/{schema.name}/{version}/{number}"), schema, version)
                message = maker.struct(schema.root)
                mine = codec.encode(message, version)
                try:
                    read = entity_reader(other)(memoryview(mine), 0)
                    written = io.BytesIO()
                    entity_writer(other)(written, read[0])
                    theirs = written.getvalue()
                    problem = "" if theirs == mine and read[1] == len(mine) else "other bytes"
                    if not problem and codec.encode(codec.decode(schema.name, version, theirs), version) != mine:
                        problem = "we read something else"
                except Exception as error:  # noqa: BLE001  whatever kio raises is a difference
                    problem = f"{type(error).__name__}: {error}"
                if problem:
                    differing.append(f"{schema.name} v{version} round {number}: {problem}")
                compared += 1
    print(json.dumps({"compared": compared, "differing": differing}))


main()
