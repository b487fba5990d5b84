"""Every node has a Kafka listener: clients have no other."""

from __future__ import annotations

import pytest

from kafkalite.config import broker_config
from kafkalite.errors import ConfigError


def test_a_node_without_a_kafka_listener_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.port: -1 \(no listener\) is not taken any more"):
        broker_config({"kafka.port": "-1"})
    config, _ = broker_config({"kafka.port": "0"})
    assert config.kafka_port == 0
