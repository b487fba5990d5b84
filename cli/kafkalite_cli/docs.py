"""`make docs`: writes the pages under docs/ that come from code. A test compares them with what is committed."""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NewType, Union, get_args, get_origin, get_type_hints

from kafkalite.rpc import messages
from kafkalite.rpc.messages import Message, by_kind, response_kind

ROOT = Path(__file__).resolve().parents[2]


def _type_text(hint: Any) -> str:
    if isinstance(hint, NewType):
        return str(hint.__name__)
    args = get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join("nil" if arg is type(None) else _type_text(arg) for arg in args)
    if get_origin(hint) is dict:
        return f"map of {_type_text(args[0])} to {_type_text(args[1])}"
    if args[1:] == (Ellipsis,):
        return f"[{_type_text(args[0])}]"
    if get_origin(hint) is tuple:
        return f"({', '.join(_type_text(arg) for arg in args)})"
    return str(hint.__name__)


def _fields(cls: type) -> list[str]:
    specs = dataclasses.fields(cls)
    if not specs:
        return ["No fields.", ""]
    hints = get_type_hints(cls)
    lines = ["| field | type | default |", "|---|---|---|"]
    for spec in specs:
        default = "" if spec.default is dataclasses.MISSING else f"`{spec.default!r}`"
        lines.append(f"| {spec.name} | {_type_text(hints[spec.name])} | {default} |")
    return [*lines, ""]


def _says(cls: type) -> list[str]:
    text = cls.__dict__.get("__doc__") or ""
    # A dataclass without a docstring of its own gets its signature as one.
    return [] if text.startswith(f"{cls.__name__}(") else [inspect.cleandoc(text), ""]


def _structures() -> list[type]:
    found = [
        cls for _, cls in sorted(vars(messages).items()) if dataclasses.is_dataclass(cls) and isinstance(cls, type)
    ]
    return [cls for cls in found if not issubclass(cls, Message) and cls.__module__ == messages.__name__]


def rpc_api() -> str:
    """The table of RPC messages."""
    lines = [
        "# RPC messages",
        "",
        "Written by `make docs` from kafkalite/rpc/messages.py; do not edit.",
        "",
        (
            f"Protocol version {messages.PROTOCOL_VERSION}, oldest spoken {messages.MIN_PROTOCOL_VERSION}. A frame is "
            "`u32 length | u32 header length | header | body`; the header is the msgpack array `[kind, correlation id, "
            "[fields in order]]`, the body raw record batches. A request has an even kind, its response the next one; "
            "ErrorResponse (1) may answer any. Fields are only ever appended, with a default: missing ones take it, "
            "unknown ones are ignored."
        ),
        "",
        "| kind | request | response |",
        "|---|---|---|",
    ]
    requests = [cls for kind, cls in sorted(by_kind.items()) if kind % 2 == 0]
    for cls in requests:
        answer = by_kind.get(response_kind(cls))
        told = "none: one way" if answer is None else f"[{answer.__name__}](#{answer.__name__.lower()})"
        lines.append(f"| {cls.kind} | [{cls.__name__}](#{cls.__name__.lower()}) | {told} |")
    lines.append("")
    for _, cls in sorted(by_kind.items()):
        lines += [f"## {cls.__name__}", "", f"Kind {cls.kind}.", "", *_says(cls), *_fields(cls)]
    lines += ["# Structures inside messages", ""]
    for structure in _structures():
        lines += [f"## {structure.__name__}", "", *_says(structure), *_fields(structure)]
    return "\n".join(lines).rstrip() + "\n"


#: Page (relative to the repository) and the function that writes it.
PAGES: dict[str, Callable[[], str]] = {"docs/rpc-api.md": rpc_api}


def main() -> None:
    """Write every page."""
    for name, page in PAGES.items():
        (ROOT / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
