"""The entries of a DescribeConfigs response."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from kafkalite.lazy_dataclass import dataclass
from kafkalite.protocol import wire

if TYPE_CHECKING:  # the classes are made when a request of their kind comes
    ConfigEntry = wire.DescribeConfigsResponse.DescribeConfigsResourceResult


class ConfigSource(IntEnum):
    """Kafka's ConfigSource."""

    TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT, CLIENT_METRICS, GROUP = 1, 2, 3, 4, 5, 7, 8


class ConfigType(IntEnum):
    """Kafka's ConfigDef.Type, as DescribeConfigs numbers them."""

    BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, PASSWORD = 1, 2, 3, 4, 5, 6, 7, 9


#: Where a value comes from: (source, name of the setting there, value).
Origin = tuple[ConfigSource, str, str]


@dataclass(frozen=True, slots=True)
class ConfigQuery:
    """What a request wants to see of one resource. `names`: None: all."""

    names: frozenset[str] | None
    with_synonyms: bool
    with_documentation: bool

    @classmethod
    def of(
        cls, resource: wire.DescribeConfigsRequest.DescribeConfigsResource, message: wire.DescribeConfigsRequest
    ) -> ConfigQuery:
        # Nothing named is everything, as with Kafka: clients send either.
        names = frozenset(resource.configuration_keys or ()) or None
        return cls(names, message.include_synonyms, message.include_documentation)

    def wants(self, name: str) -> bool:
        return self.names is None or name in self.names

    def entry(
        self,
        name: str,
        value: str,
        origins: Sequence[Origin],
        kind: ConfigType,
        doc: str = "",
        *,
        is_read_only: bool = False,
    ) -> ConfigEntry:
        """`origins`: the strongest first; none: the value is the default. A password is not shown."""
        response = wire.DescribeConfigsResponse
        is_secret = kind == ConfigType.PASSWORD
        source = origins[0][0] if origins else ConfigSource.DEFAULT
        return response.DescribeConfigsResourceResult(
            name=name,
            value=None if is_secret else value,
            read_only=is_read_only,
            is_default=source == ConfigSource.DEFAULT,
            config_source=source,
            is_sensitive=is_secret,
            synonyms=[
                response.DescribeConfigsSynonym(each, None if is_secret else text, origin)
                for origin, each, text in (origins if self.with_synonyms else ())
            ],
            config_type=kind,
            documentation=doc if self.with_documentation else None,
        )
