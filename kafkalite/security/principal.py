"""Who is at the other end of a connection, as Kafka's ACLs name it."""

from __future__ import annotations

from kafkalite.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """A name and what kind of name it is; written `User:alice`. Kafka knows one kind, `User` (KafkaPrincipal)."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Principal:
        """`User:alice`; the name may hold colons (a certificate's). Raises ValueError."""
        kind, colon, name = text.partition(":")
        if not (kind and colon and name):
            raise ValueError(f"{text!r} is not KIND:NAME")
        return cls(kind, name)


#: A client that has not authenticated.
ANONYMOUS = Principal("User", "ANONYMOUS")
