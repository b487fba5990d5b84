"""The source of an encoder."""

from __future__ import annotations

from kafkalite.protocol.compiling.source import FIXED, Source, fixed
from kafkalite.protocol.schema import Field, Struct


class EncoderSource(Source):
    def length(self, depth: int, expression: str, *, is_flexible: bool, is_short: bool) -> None:
        if is_flexible:
            self.emit(depth, f"w += VARINTS[{expression} + 1] if {expression} < 2047 else varint({expression} + 1)")
        else:
            self.emit(depth, f"w += {self.struct_format('h' if is_short else 'i')[0]}_p({expression})")

    def null(self, *, is_flexible: bool, is_short: bool) -> str:
        return repr(b"\x00" if is_flexible else b"\xff\xff" if is_short else b"\xff\xff\xff\xff")

    def value(self, depth: int, field: Field, source: str) -> None:
        is_nullable = self.version in field.nullable
        is_flexible = self.field_is_flexible(field)
        if field.is_array:
            if is_nullable:
                self.emit(depth, f"if {source} is None: w += {self.null(is_flexible=is_flexible, is_short=False)}")
                self.emit(depth, "else:")
                depth += 1
            self.array(depth, field, source, is_flexible=is_flexible)
        elif field.struct is not None:
            if is_nullable:
                self.emit(depth, f"if {source} is None: w += b'\\xff'")
                self.emit(depth, "else:")
                depth += 1
                self.emit(depth, "w += b'\\x01'")
            self.struct(depth, field.struct, source)
        else:
            self.scalar(depth, field, source, is_nullable=is_nullable)

    def array(self, depth: int, field: Field, source: str, *, is_flexible: bool) -> None:
        self.emit(depth, f"n = count({source})")
        self.length(depth, "n", is_flexible=is_flexible, is_short=False)
        code = FIXED.get(field.type) if field.struct is None else None
        if code is not None and code != "16s":
            self.emit(depth, f"if n: w += pack('>%d{code}' % n, *{source})")
            return
        if self.counts:
            self.emit(depth, "room -= n")
            self.emit(depth, "if room < 0: raise TooManyAtOnce('too many elements')")
        element = self.variable()
        self.emit(depth, f"for {element} in {source}:")
        self.pace(depth + 1)
        if field.struct is not None:
            self.struct(depth + 1, field.struct, element)
        else:
            self.scalar(depth + 1, field, element, is_nullable=False)

    def scalar(self, depth: int, field: Field, source: str, *, is_nullable: bool) -> None:
        code = FIXED.get(field.type)
        if code is not None:
            self.emit(depth, f"w += {self.struct_format(code)[0]}_p({source})")
            return
        is_flexible = self.field_is_flexible(field)
        if is_nullable or field.type == "records":
            self.emit(
                depth,
                f"if {source} is None: w += {self.null(is_flexible=is_flexible, is_short=field.type == 'string')}",
            )
            self.emit(depth, "else:")
            depth += 1
        if field.type == "string":
            text = self.variable()
            self.emit(depth, f"{text} = {source}.encode(); n = count({text})")
            self.length(depth, "n", is_flexible=is_flexible, is_short=True)
            self.emit(depth, f"w += {text}")
        elif field.type == "records":
            self.emit(depth, f"n = records_size({source})")
            self.length(depth, "n", is_flexible=is_flexible, is_short=False)
            self.emit(depth, f"if n: w = put_records({source}, w, chunks, n)")
        else:
            self.emit(depth, f"n = count({source})")
            self.length(depth, "n", is_flexible=is_flexible, is_short=False)
            self.emit(depth, f"w += {source}")

    def struct(self, depth: int, owner: Struct, source: str) -> None:
        plain, tagged = self.split(owner)
        position = 0
        while position < len(plain):
            run: list[Field] = []
            while position < len(plain) and fixed(plain[position]):
                run.append(plain[position])
                position += 1
            if run:
                name, _ = self.struct_format("".join(fixed(field) or "" for field in run))
                self.emit(depth, f"w += {name}_p({', '.join(f'{source}.{field.name}' for field in run)})")
            if position < len(plain):
                local = self.variable()
                self.emit(depth, f"{local} = {source}.{plain[position].name}")
                self.value(depth, plain[position], local)
                position += 1
        if self.is_flexible:
            self.tags(depth, tagged, source)
        elif not plain:
            self.emit(depth, "pass")

    def tags(self, depth: int, tagged: list[Field], source: str) -> None:
        if not tagged:
            self.emit(depth, "w += b'\\0'")
            return
        present = [f"({source}.{field.name} != {self.default(field)})" for field in tagged]
        for index, field in enumerate(tagged):
            if field.is_array and field.default != "null":  # () and [] are the same default
                present[index] = f"(count({source}.{field.name}) != 0)"
        self.emit(depth, f"w += varint({' + '.join(present)})")
        for field, condition in zip(tagged, present, strict=True):
            saved, local = self.variable(), self.variable()
            self.emit(depth, f"if {condition}:")
            self.emit(depth + 1, f"{saved} = w; w = bytearray(); {local} = {source}.{field.name}")
            self.value(depth + 1, field, local)
            self.emit(depth + 1, f"{saved} += varint({field.tag}); {saved} += varint(count(w)); {saved} += w")
            self.emit(depth + 1, f"w = {saved}")
