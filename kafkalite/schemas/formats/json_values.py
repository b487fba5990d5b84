"""Whether a document is valid under a JSON Schema, in a bounded number of steps.

The package jsonschema has no such bound: references that double with each level, patterns that backtrack, or long lists of
values keep it busy for minutes. What is not understood here raises `Unclear`: the caller then takes the document for refused.
Which keywords a draft has is read from the package's tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import attrs
import jsonschema
import jsonschema.validators

from kafkalite.coordinators.patterns import search
from kafkalite.errors import ApiError
from kafkalite.schemas.schema import InvalidSchema

#: Of one comparison: half a second or so.
MAX_STEPS = 200_000
_MAX_LEVELS = 120
#: What Python compiles to check the patterns of one schema: characters of one pattern; patterns and classes of all. It takes up to 4 ms for a
#: class ([!-\uffff]), and keeps the last 512 patterns.
_MAX_PATTERN, _MAX_CLASSES = 1_000, 300
#: These stand beside no other keyword before the draft 2019-09: a $ref counts alone.
_REF_ALONE = frozenset({"draft-03", "draft-04", "draft-06", "draft-07"})
#: No assertions, or read together with another keyword.
_NO_ASSERTIONS = frozenset({"format", "$dynamicAnchor", "contentEncoding", "contentMediaType"})


class Unclear(Exception):
    """The schema has something that is not understood here."""


class Steps:
    """What is left of a comparison's steps."""

    def __init__(self, most: int = MAX_STEPS) -> None:
        self._left = most

    def take(self, count: int = 1) -> None:
        """Raises InvalidSchema: none is left."""
        self._left -= count
        if self._left < 0:
            raise InvalidSchema("the schemas are too large to be compared")


class References(Protocol):
    """A schema that can follow its $refs."""

    def target(self, reference: str, document: str = "") -> tuple[Any, str]:
        """What `reference` means in that document, and in which document it is. Raises InvalidSchema: nothing."""
        ...


def identity(value: Any, steps: Steps) -> Any:
    """Equal for values that are equal in JSON (1 and 1.0, not 1 and true), and hashable."""
    steps.take()
    if isinstance(value, dict):
        return ("object", frozenset((key, identity(each, steps)) for key, each in value.items()))
    if isinstance(value, list):
        return ("array", tuple(identity(each, steps) for each in value))
    return ("boolean", value) if isinstance(value, bool) else value


def check(cls: Any, value: Any) -> None:
    """Whether it is a schema of this draft. Raises jsonschema.SchemaError.

    As the package's check_schema, which compares each element of a list with each other one, and compiles every pattern. Patterns that would
    cost too much are taken as they are: they are not used with Python's own `re`.
    """
    left = _MAX_CLASSES

    def is_pattern(text: object) -> bool:
        nonlocal left
        if not isinstance(text, str) or len(text) > _MAX_PATTERN:
            return True
        left -= 1 + text.count("[")
        return left < 0 or bool(re.compile(text))

    formats = jsonschema.FormatChecker(())
    formats.checkers = {**cls.FORMAT_CHECKER.checkers, "regex": (is_pattern, re.error)}
    checker = jsonschema.validators.extend(cls, {"uniqueItems": _has_unique_items})
    # Otherwise the parts of the draft's own schema are checked by the package's class.
    checker.evolve = lambda self, **changes: attrs.evolve(self, **changes)
    for error in checker(cls.META_SCHEMA, format_checker=formats).iter_errors(value):
        raise jsonschema.SchemaError.create_from(error)


def _has_unique_items(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterable[Any]:
    if wanted and isinstance(value, list) and not _are_unique(value, Steps(len(value) + MAX_STEPS)):
        yield jsonschema.ValidationError("the elements are not unique")


def _are_unique(values: list[Any], steps: Steps) -> bool:
    return len({identity(each, steps) for each in values}) == len(values)


class Values:
    """Documents under one schema.

    Args:
        cls: the package's class of the schema's draft.
    """

    def __init__(self, schema: References, cls: Any, steps: Steps) -> None:
        self._schema = schema
        self._types = cls.TYPE_CHECKER
        self._words = cls.VALIDATORS
        self._is_ref_alone = any(draft in cls.META_SCHEMA.get("$schema", "") for draft in _REF_ALONE)
        self._steps = steps
        #: By the id of the list, which the schema keeps.
        self._listed: dict[int, frozenset[Any]] = {}
        self._patterns: dict[str, Callable[[str], bool]] = {}
        self._document = ""
        self._level = 0

    def accept(self, value: Any, schema: Any) -> bool:
        """Whether `value` is valid under a part of the schema. Raises Unclear, InvalidSchema (too many steps)."""
        self._steps.take()
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise Unclear
        if self._level >= _MAX_LEVELS:
            raise Unclear
        self._level += 1
        try:
            if self._is_ref_alone and "$ref" in schema:
                return self._ref(value, schema["$ref"], schema)
            return all(self._holds(word, value, argument, schema) for word, argument in schema.items())
        finally:
            self._level -= 1

    def _holds(self, word: str, value: Any, argument: Any, schema: Mapping[str, Any]) -> bool:
        if word not in self._words or word in _NO_ASSERTIONS:
            return True
        known = _WORDS.get(word)
        if known is None:
            raise Unclear
        self._steps.take()
        try:
            return known(self, value, argument, schema)
        except (TypeError, ValueError, KeyError, OverflowError, ZeroDivisionError):
            raise Unclear from None  # an argument of an older draft's form, or a number out of range

    def _ref(self, value: Any, argument: Any, schema: Mapping[str, Any]) -> bool:
        try:
            target, document = self._schema.target(argument, self._document)
        except InvalidSchema:
            raise Unclear from None
        before, self._document = self._document, document
        try:
            return self.accept(value, target)
        finally:
            self._document = before

    # --- any value ---

    def _type(self, value: Any, argument: Any, schema: Mapping[str, Any]) -> bool:
        wanted = [argument] if isinstance(argument, str) else argument
        try:
            return any(self._types.is_type(value, each) for each in wanted)
        except jsonschema.exceptions.UndefinedTypeCheck:
            raise Unclear from None

    def _enum(self, value: Any, argument: Any, schema: Mapping[str, Any]) -> bool:
        listed = self._listed.get(id(argument))
        if listed is None:
            listed = self._listed[id(argument)] = frozenset(identity(each, self._steps) for each in argument)
        return identity(value, self._steps) in listed

    def _const(self, value: Any, argument: Any, schema: Mapping[str, Any]) -> bool:
        return bool(identity(value, self._steps) == identity(argument, self._steps))

    def _all_of(self, value: Any, argument: Any, schema: Mapping[str, Any]) -> bool:
        return all(self.accept(value, part) for part in argument)

    def _any_of(self, value: Any, argument: Any, schema: Mapping[str, Any]) -> bool:
        return any(self.accept(value, part) for part in argument)

    def _one_of(self, value: Any, argument: Any, schema: Mapping[str, Any]) -> bool:
        return sum(self.accept(value, part) for part in argument) == 1

    def _not(self, value: Any, argument: Any, schema: Mapping[str, Any]) -> bool:
        return not self.accept(value, argument)

    def _if(self, value: Any, argument: Any, schema: Mapping[str, Any]) -> bool:
        return self.accept(value, schema.get("then" if self.accept(value, argument) else "else", True))

    # --- numbers and strings ---

    def _multiple_of(self, value: Any, argument: Any, schema: Mapping[str, Any]) -> bool:
        if not _is_number(value):
            return True
        if isinstance(value, int) and isinstance(argument, int):
            return value % argument == 0
        return float(value / argument).is_integer()

    def _pattern(self, value: Any, argument: Any, schema: Mapping[str, Any]) -> bool:
        return not isinstance(value, str) or self._finds(argument, value)

    def _finds(self, pattern: str, text: str) -> bool:
        finds = self._patterns.get(pattern)
        if finds is None:
            self._steps.take(len(pattern))
            try:
                finds = self._patterns[pattern] = search(pattern)
            except ApiError:
                raise Unclear from None
        self._steps.take(1 + len(text) // 100)
        return finds(text)

    # --- arrays ---

    def _items(self, value: Any, argument: Any, schema: Mapping[str, Any]) -> bool:
        if not isinstance(value, list):
            return True
        if isinstance(argument, list):
            return all(self.accept(each, part) for each, part in zip(value, argument, strict=False))
        first = len(schema.get("prefixItems", ())) if "prefixItems" in self._words else 0
        return all(self.accept(each, argument) for each in value[first:])

    def _additional_items(self, value: Any, argument: Any, schema: Mapping[str, Any]) -> bool:
        first = schema.get("items", True)
        if not isinstance(value, list) or not isinstance(first, list):
            return True
        return all(self.accept(each, argument) for each in value[len(first) :])

    def _contains(self, value: Any, argument: Any, schema: Mapping[str, Any]) -> bool:
        if not isinstance(value, list):
            return True
        count = sum(self.accept(each, argument) for each in value)
        least, most = schema.get("minContains", 1), schema.get("maxContains", len(value))
        if "minContains" in schema and "unevaluatedItems" not in self._words:
            least, most = 1, len(value)  # of a later draft
        return bool(least <= count <= most)

    def _unique_items(self, value: Any, argument: Any, schema: Mapping[str, Any]) -> bool:
        return not argument or not isinstance(value, list) or _are_unique(value, self._steps)

    # --- objects ---

    def _required(self, value: Any, argument: Any, schema: Mapping[str, Any]) -> bool:
        if isinstance(argument, bool):
            raise Unclear  # draft 3
        self._steps.take(len(argument))
        return not isinstance(value, dict) or all(name in value for name in argument)

    def _properties(self, value: Any, argument: Any, schema: Mapping[str, Any]) -> bool:
        if not isinstance(value, dict):
            return True
        return all(self.accept(each, argument[name]) for name, each in value.items() if name in argument)

    def _pattern_properties(self, value: Any, argument: Any, schema: Mapping[str, Any]) -> bool:
        if not isinstance(value, dict):
            return True
        return all(
            self.accept(each, part)
            for pattern, part in argument.items()
            for name, each in value.items()
            if self._finds(pattern, name)
        )

    def _additional_properties(self, value: Any, argument: Any, schema: Mapping[str, Any]) -> bool:
        if not isinstance(value, dict):
            return True
        named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        return all(
            self.accept(each, argument)
            for name, each in value.items()
            if name not in named and not any(self._finds(pattern, name) for pattern in patterns)
        )

    def _property_names(self, value: Any, argument: Any, schema: Mapping[str, Any]) -> bool:
        return not isinstance(value, dict) or all(self.accept(name, argument) for name in value)

    def _dependencies(self, value: Any, argument: Any, schema: Mapping[str, Any]) -> bool:
        if not isinstance(value, dict):
            return True
        self._steps.take(len(argument))
        for name, needed in argument.items():
            if name not in value:
                continue
            if isinstance(needed, list | str):
                names = [needed] if isinstance(needed, str) else needed
                self._steps.take(len(names))
                if not all(each in value for each in names):
                    return False
            elif not self.accept(value, needed):
                return False
        return True


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_Word = Callable[[Values, Any, Any, Mapping[str, Any]], bool]


def _limit(applies: Callable[[Any], bool], holds: Callable[[Any, Any], bool]) -> _Word:
    def check_limit(values: Values, value: Any, argument: Any, schema: Mapping[str, Any]) -> bool:
        if isinstance(argument, bool):
            raise Unclear  # exclusiveMaximum of draft 4
        if any(isinstance(schema.get(each), bool) for each in ("exclusiveMaximum", "exclusiveMinimum")):
            raise Unclear
        return not applies(value) or bool(holds(value, argument))

    return check_limit


def _is(*types: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, types)


_WORDS: dict[str, _Word] = {
    "$ref": Values._ref,
    "type": Values._type,
    "enum": Values._enum,
    "const": Values._const,
    "allOf": Values._all_of,
    "anyOf": Values._any_of,
    "oneOf": Values._one_of,
    "not": Values._not,
    "if": Values._if,
    "multipleOf": Values._multiple_of,
    "maximum": _limit(_is_number, lambda value, most: value <= most),
    "minimum": _limit(_is_number, lambda value, least: value >= least),
    "exclusiveMaximum": _limit(_is_number, lambda value, most: value < most),
    "exclusiveMinimum": _limit(_is_number, lambda value, least: value > least),
    "maxLength": _limit(_is(str), lambda value, most: len(value) <= most),
    "minLength": _limit(_is(str), lambda value, least: len(value) >= least),
    "maxItems": _limit(_is(list), lambda value, most: len(value) <= most),
    "minItems": _limit(_is(list), lambda value, least: len(value) >= least),
    "maxProperties": _limit(_is(dict), lambda value, most: len(value) <= most),
    "minProperties": _limit(_is(dict), lambda value, least: len(value) >= least),
    "pattern": Values._pattern,
    "items": Values._items,
    "prefixItems": Values._items,
    "additionalItems": Values._additional_items,
    "contains": Values._contains,
    "uniqueItems": Values._unique_items,
    "required": Values._required,
    "properties": Values._properties,
    "patternProperties": Values._pattern_properties,
    "additionalProperties": Values._additional_properties,
    "propertyNames": Values._property_names,
    "dependencies": Values._dependencies,
    "dependentRequired": Values._dependencies,
    "dependentSchemas": Values._dependencies,
}
