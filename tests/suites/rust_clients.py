"""Suites of clients in Rust: the tests that their crates bring."""

from __future__ import annotations

from tests.interop.conftest import install, scratch
from tests.suites.running import HERE, Outcome, Place, run, rust_outcome

_RDKAFKA = "rdkafka@0.39.0"
_RSKAFKA = "rskafka@0.6.0"


def _crate(crate: str) -> list[list[str]]:
    """Commands that copy a crate into `source` and compile its tests, with the Rust that is here."""
    name, _, version = crate.partition("@")
    manifest = f'[package]\\nname = "fetched"\\nversion = "0.0.0"\\n[lib]\\npath = "lib.rs"\\n[dependencies]\\n{name} = "={version}"\\n'
    find = f'"${{CARGO_HOME:-$HOME/.cargo}}"/registry/src/*/{name}-{version}'
    return [
        ["sh", "-c", f"printf '{manifest}' > Cargo.toml && touch lib.rs && cargo fetch -q && cp -r {find} source"],
        ["sh", "-c", "rm -f Cargo.toml source/rust-toolchain* && cd source && cargo test -q --no-run --test '*'"],
    ]


async def _tests(place: Place, name: str, crate: str, **environment: str) -> Outcome:
    directory = scratch(f"{name}-suite", HERE / "rust_clients.py")
    install(directory, *_crate(crate))
    command = ["cargo", "test", "--no-fail-fast", "--test", "*", "--"]
    if place.only:
        command.append(place.only)
    return rust_outcome(await run(place, name, command, directory / "source", **environment))


async def rust_rdkafka(place: Place) -> Outcome:
    return await _tests(place, "rust-rdkafka", _RDKAFKA, KAFKA_HOST=place.kafka, KAFKA_VERSION="4.0")


async def rskafka(place: Place) -> Outcome:
    """A client of its own, in Rust alone."""
    return await _tests(
        place, "rskafka", _RSKAFKA, KAFKA_CONNECT=place.kafka, TEST_INTEGRATION="1", TEST_BROKER_IMPL="kafka"
    )
