"""Suites of clients in Go, from the Go module proxy."""

from __future__ import annotations

import json

from tests.interop.conftest import install, scratch
from tests.suites.running import HERE, Outcome, Place, at_fixed_addresses, go_outcome, go_source, run

_FRANZ = "github.com/twmb/franz-go@v1.22.3"
_KAFKA_GO = "github.com/segmentio/kafka-go@v0.4.51"
_SARAMA = "github.com/IBM/sarama@v1.61.1"
_TOXIPROXY = "github.com/Shopify/toxiproxy/v2@v2.5.0"
_CONFLUENT = "github.com/confluentinc/confluent-kafka-go/v2@v2.11.1"
_WATERMILL = "github.com/ThreeDotsLabs/watermill-kafka/v3@v3.0.6"


async def franz_go(place: Place) -> Outcome:
    directory = scratch("franz-go-suite", HERE / "go_clients.py")
    module, _, version = _FRANZ.partition("@")
    install(directory, ["go", "mod", "init", "suites"], ["go", "get", f"{module}@{version}"])
    command = ["go", "test", "-mod=mod", "-count=1", "-v", "-timeout", "50m", "-run", place.only or "Test"]
    command.append("github.com/twmb/franz-go/pkg/kgo")
    text = await run(
        place, "franz-go", command, directory, KGO_SEEDS=place.kafka, KGO_TEST_RF="3", KGO_TEST_RECORDS="100000"
    )
    return go_outcome(text)


async def kafka_go(place: Place) -> Outcome:
    directory = scratch("kafka-go-suite", HERE / "go_clients.py")
    install(directory, go_source(_KAFKA_GO, "source"), ["sh", "-c", "cd source && go test -mod=mod -c -o ../tests ."])
    return go_outcome(await at_fixed_addresses(place, "kafka-go", directory))


async def sarama(place: Place) -> Outcome:
    directory = scratch("sarama-suite", HERE / "go_clients.py")
    install(
        directory,
        go_source(_SARAMA, "source"),
        ["sh", "-c", "cd source && go test -mod=mod -tags functional -c -o ../tests ."],
        go_source(_TOXIPROXY, "proxy"),
        ["sh", "-c", "cd proxy && go build -mod=mod -o ../toxiproxy ./cmd/server"],
    )
    return go_outcome(await at_fixed_addresses(place, "sarama", directory))


async def confluent_kafka_go(place: Place) -> Outcome:
    """Both protocols of groups. The module brings librdkafka compiled."""
    stand_in = HERE / "stand_in" / "compose"
    directory = scratch("confluent-kafka-go-suite", HERE / "go_clients.py", *sorted(stand_in.iterdir()))
    replaced = f"github.com/testcontainers/testcontainers-go/modules/compose={stand_in}"
    install(
        directory,
        go_source(_CONFLUENT, "source"),
        ["sh", "-c", f"cd source && go mod edit -replace {replaced} && go test -mod=mod -c -o ../tests ./kafka"],
    )
    source = directory / "source" / "kafka"
    (source / "testconf.json").write_text(json.dumps({"Brokers": place.kafka}))
    outcome: dict[str, str] = {}
    for protocol in ("classic", "consumer"):
        command = ["../../tests", "-test.v", "-test.timeout", "30m", "-test.run", place.only or "Test"]
        text = await run(
            place, f"confluent-kafka-go-{protocol}", command, source, TEST_CONSUMER_GROUP_PROTOCOL=protocol
        )
        outcome |= {f"{protocol}: {name}": state for name, state in go_outcome(text).items()}
    return outcome


async def watermill(place: Place) -> Outcome:
    """Its tests of publishers and subscribers, which it has for each broker that it knows; sarama below."""
    directory = scratch("watermill-suite", HERE / "go_clients.py")
    install(
        directory,
        go_source(_WATERMILL, "source"),
        ["sh", "-c", "cd source && go test -mod=mod -c -o ../tests ./pkg/kafka"],
    )
    command = ["../../../tests", "-test.v", "-test.short", "-test.timeout", "30m", "-test.run", place.only or "Test"]
    text = await run(
        place, "watermill", command, directory / "source" / "pkg" / "kafka", WATERMILL_TEST_KAFKA_BROKERS=place.kafka
    )
    return go_outcome(text)
