"""The source of a decoder."""

from __future__ import annotations

import struct

from kafkalite.protocol.compiling.source import FIXED, FunctionSource, fixed
from kafkalite.protocol.schema import Field, Struct


class DecoderSource(FunctionSource):
    def length(self, depth: int, target: str, *, is_flexible: bool, is_short: bool) -> None:
        if is_flexible:
            self.emit(depth, f"{target} = buf[pos]; pos += 1")
            self.emit(depth, f"if {target} > 127: {target}, pos = read_varint(buf, pos - 1)")
            self.emit(depth, f"{target} -= 1")
        else:
            name, size = self.struct_format("h" if is_short else "i")
            self.emit(depth, f"{target} = {name}_u(buf, pos)[0]; pos += {size}")

    def value(self, depth: int, field: Field, target: str) -> None:
        is_nullable = self.version in field.nullable
        if field.is_array:
            self.array(depth, field, target, is_nullable=is_nullable)
        elif field.struct is not None:
            if is_nullable:
                self.emit(depth, "pos += 1")
                self.emit(depth, f"if buf[pos - 1] > 127: {target} = None")
                self.emit(depth, "else:")
                self.struct(depth + 1, field.struct, target)
            else:
                self.struct(depth, field.struct, target)
        else:
            self.scalar(depth, field, target, is_nullable=is_nullable)

    def array(self, depth: int, field: Field, target: str, *, is_nullable: bool) -> None:
        n = self.variable()
        self.length(depth, n, is_flexible=self.field_is_flexible(field), is_short=False)
        self.emit(depth, f"if {n} < 0:")
        self.emit(depth + 1, f"{target} = None" if is_nullable else f"raise WireError('{field.name} may not be null')")
        self.emit(depth, f"elif {n} > MAX_ELEMENTS or {n} > end - pos:")
        self.emit(depth + 1, f"raise WireError('{field.name} has too many elements')")
        self.emit(depth, "else:")
        if self.counts:
            self.emit(depth + 1, f"room -= {n}")
            self.emit(depth + 1, "if room < 0: raise TooManyAtOnce('the request has too many elements')")
        code = FIXED.get(field.type) if field.struct is None else None
        if code is not None and code != "16s":
            self.emit(depth + 1, f"{target} = list(unpack_from('>%d{code}' % {n}, buf, pos))")
            self.emit(depth + 1, f"pos += {n} * {struct.calcsize('>' + code)}")
            return
        element = self.variable()
        self.emit(depth + 1, f"{target} = []")
        self.emit(depth + 1, f"for _ in range({n}):")
        self.pace(depth + 2)
        if field.struct is not None:
            self.struct(depth + 2, field.struct, element)
        else:
            self.scalar(depth + 2, field, element, is_nullable=False)
        self.emit(depth + 2, f"{target}.append({element})")

    def scalar(self, depth: int, field: Field, target: str, *, is_nullable: bool) -> None:
        code = FIXED.get(field.type)
        if code is not None:
            name, size = self.struct_format(code)
            self.emit(depth, f"{target} = {name}_u(buf, pos)[0]; pos += {size}")
            return
        n = self.variable()
        self.length(depth, n, is_flexible=self.field_is_flexible(field), is_short=field.type == "string")
        self.emit(depth, f"if {n} < 0:")
        may_be_null = is_nullable or field.type == "records"
        self.emit(depth + 1, f"{target} = None" if may_be_null else f"raise WireError('{field.name} may not be null')")
        self.emit(depth, "else:")
        if field.type == "string" and self.field_is_flexible(field):
            self.emit(depth + 1, f"if {n} > MAX_STRING: raise WireError('{field.name} is too long')")
        self.emit(depth + 1, f"if {n} > end - pos: raise WireError('{field.name} overruns the frame')")
        piece = f"buf[pos:pos + {n}]"
        form = {"string": f"to_str({piece}, 'utf-8')", "bytes": f"to_bytes({piece})", "records": piece}[field.type]
        self.emit(depth + 1, f"{target} = {form}; pos += {n}")

    def struct(self, depth: int, owner: Struct, target: str) -> None:
        plain, tagged = self.split(owner)
        values: dict[str, str] = {}
        position = 0
        while position < len(plain):
            run: list[Field] = []
            while position < len(plain) and fixed(plain[position]):
                run.append(plain[position])
                position += 1
            if run:
                name, size = self.struct_format("".join(fixed(field) or "" for field in run))
                for field in run:
                    values[field.name] = self.variable()
                names = "".join(values[field.name] + ", " for field in run)
                self.emit(depth, f"{names}= {name}_u(buf, pos); pos += {size}")
            if position < len(plain):
                values[plain[position].name] = self.variable()
                self.value(depth, plain[position], values[plain[position].name])
                position += 1
        if self.is_flexible:
            self.tags(depth, tagged, values)
        # As __init__ does it, but without that call: it takes longer than all the rest.
        self.emit(depth, f"{target} = new(C_{owner.name})")
        for field in owner.fields:
            self.emit(depth, f"{target}.{field.name} = {values.get(field.name) or self.default(field)}")

    def tags(self, depth: int, tagged: list[Field], values: dict[str, str]) -> None:
        for field in tagged:
            values[field.name] = self.variable()
            self.emit(depth, f"{values[field.name]} = {self.default(field)}")
        n, key, stop = self.variable(), self.variable(), self.variable()
        self.emit(depth, "if not buf[pos]: pos += 1")
        self.emit(depth, "else:")
        self.emit(depth + 1, f"{n}, pos = read_varint(buf, pos)")
        if self.counts:
            self.emit(depth + 1, f"room -= {n}")
            self.emit(depth + 1, "if room < 0: raise TooManyAtOnce('the request has too many tagged fields')")
        self.emit(depth + 1, f"for _ in range({n}):")
        self.pace(depth + 2)
        self.emit(depth + 2, f"{key}, pos = read_varint(buf, pos)")
        self.emit(depth + 2, f"{stop}, pos = read_varint(buf, pos)")
        self.emit(depth + 2, f"{stop} += pos")
        self.emit(depth + 2, f"if {stop} > end: raise WireError('a tagged field overruns the frame')")
        for index, field in enumerate(tagged):
            self.emit(depth + 2, f"{'elif' if index else 'if'} {key} == {field.tag}:")
            self.value(depth + 3, field, values[field.name])
            self.emit(depth + 3, f"if pos != {stop}: raise WireError('{field.name} is not as long as its tag says')")
        self.emit(depth + 2, f"pos = {stop}")
