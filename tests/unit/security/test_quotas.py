"""Whose limit counts, how long to wait, and what is forgotten."""

from __future__ import annotations

import tracemalloc
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.security import quotas as quotas_module
from kafkalite.security.connection_limits import ConnectionLimits, parse_overrides
from kafkalite.security.quotas import (
    CONNECTION_RATE,
    DEFAULT,
    MAX_THROTTLE_MS,
    Entity,
    Kind,
    Quotas,
    Rate,
    limit_text,
    parse_limit,
)

PRODUCE = Kind.PRODUCE
#: Kafka's order, the most specific first.
PRECEDENCE = [
    Entity("u", "c"),
    Entity("u", DEFAULT),
    Entity("u", None),
    Entity(DEFAULT, "c"),
    Entity(DEFAULT, DEFAULT),
    Entity(DEFAULT, None),
    Entity(None, "c"),
    Entity(None, DEFAULT),
]


def test_the_most_specific_limit_counts() -> None:
    for chosen in product([False, True], repeat=len(PRECEDENCE)):
        check_precedence(chosen)


def check_precedence(chosen: tuple[bool, ...]) -> None:
    quotas = Quotas()
    for number, (entity, is_set) in enumerate(zip(PRECEDENCE, chosen)):
        if is_set:
            quotas.put(entity, {PRODUCE: number + 1})
    expected = next((float(number + 1) for number, is_set in enumerate(chosen) if is_set), None)
    assert quotas.limit(PRODUCE, "u", "c") == expected
    assert quotas.limit(Kind.FETCH, "u", "c") is None
    assert quotas.is_active == any(chosen)


def test_who_shares_a_rate() -> None:
    """A user's clients share his limit; a default for users is one limit for each of them."""
    quotas = Quotas()
    quotas.put(Entity(DEFAULT, None), {PRODUCE: 100.0})
    assert quotas.count(PRODUCE, "u", "c1", 1000, 0) == 0
    assert quotas.count(PRODUCE, "u", "c2", 1000, 0) > 0
    assert quotas.count(PRODUCE, "v", "c1", 1000, 0) == 0
    quotas.put(Entity(DEFAULT, DEFAULT), {PRODUCE: 100.0})
    assert quotas.count(PRODUCE, "w", "c1", 1000, 0) == 0
    assert quotas.count(PRODUCE, "w", "c2", 1000, 0) == 0


def test_the_wait_is_kafkas() -> None:
    """O = 2000 B over W = 10 s is 200 B/s; (O - T) / T * W = (200 - 100) / 100 * 10 s."""
    quotas = Quotas(windows=11, window_s=1)
    quotas.put(Entity("u", None), {PRODUCE: 100.0})
    assert quotas.count(PRODUCE, "u", "", 2000, 5_000) == 10_000
    assert quotas.count(PRODUCE, "u", "", 0, 5_000) == 10_000
    # A burst counts until its window is gone: ten full ones and the one under way.
    assert quotas.count(PRODUCE, "u", "", 0, 15_999) == 9_001
    assert quotas.count(PRODUCE, "u", "", 0, 16_000) == 0
    assert quotas.most_at_once(PRODUCE, "u", "") == 1000


def test_a_request_quota_makes_nobody_wait_more_than_a_window() -> None:
    quotas = Quotas(windows=11, window_s=2)
    quotas.put(Entity("u", None), {Kind.REQUEST: 1.0})
    assert quotas.count(Kind.REQUEST, "u", "c", 1e9, 0) == 2000
    assert quotas.limits_requests


@given(st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 10_000)), max_size=40), st.integers(2, 12))
def test_a_rate_counts_what_is_in_its_windows_and_nothing_else(steps: list[tuple[int, int]], windows: int) -> None:
    rate = Rate(windows, 1_000)
    samples: list[list[float]] = []
    now = 0
    for wait, amount in steps:
        now += wait
        rate.add(amount, now)
        if not samples or now - samples[-1][0] >= 1_000:
            samples.append([now, 0.0])
        samples[-1][1] += amount
        live = [each for each in samples if now - each[0] < windows * 1_000]
        elapsed = now - live[0][0]
        span = elapsed + max(0, windows - 1 - elapsed // 1_000) * 1_000
        assert rate.per_second(now) == pytest.approx(sum(each[1] for each in live) * 1_000 / span)
        assert len(rate._samples) <= windows
    assert rate.per_second(now + windows * 1_000) == 0


def test_what_was_not_given_is_taken_back() -> None:
    quotas = Quotas()
    quotas.put(Entity("u", None), {Kind.FETCH: 100.0})
    assert quotas.count(Kind.FETCH, "u", "", 5000, 0) > 0
    quotas.take_back(Kind.FETCH, "u", "", 5000, 0)
    assert quotas.count(Kind.FETCH, "u", "", 1000, 0) == 0
    quotas.take_back(Kind.FETCH, "nobody", "", 1, 0)


def test_rates_are_bounded_and_idle_ones_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas_module, "MAX_SENSORS", 5)
    quotas = Quotas()
    quotas.put(Entity(None, DEFAULT), {PRODUCE: 10.0})
    for number in range(20):
        quotas.count(PRODUCE, "u", f"c{number}", 1000, number)
        assert len(quotas._rates) <= 5
    quotas.count(PRODUCE, "u", "later", 1, quotas_module.SENSOR_LIFE_MS + 18)
    assert len(quotas._rates) == 2  # the newest of before, and this one
    quotas.put(Entity(None, DEFAULT), {})
    assert (len(quotas._rates), quotas.is_active) == (0, False)


def test_choices_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas_module, "_MAX_CHOICES", 4)
    quotas = Quotas()
    quotas.put(Entity("u1", None), {PRODUCE: 10.0})
    for number in range(20):
        assert (quotas.limit(PRODUCE, f"u{number}", "") is None) == (number != 1)
        assert len(quotas._choices) <= 4


def test_limits_as_text() -> None:
    assert parse_limit("producer_byte_rate", "1048576") == 1048576
    assert parse_limit("producer_byte_rate", "1024.0") == 1024
    assert parse_limit("producer_byte_rate", str(2**63 - 1)) == 2.0**63  # Long.MAX_VALUE, as Kafka takes it
    assert limit_text("producer_byte_rate", 2.0**63) == str(2**63 - 1)
    assert parse_limit("request_percentage", "12.5") == 12.5
    for key, text in (
        ("producer_byte_rate", "1.5"), ("producer_byte_rate", "0"), ("consumer_byte_rate", "-1"),
        ("request_percentage", "nan"), ("request_percentage", "inf"), ("request_percentage", "much"),
        ("controller_mutation_rate", "0"),
        ("connection_creation_rate", "1.5"), ("connection_creation_rate", "2147483648"), ("leader_rate", "1"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"."):
            parse_limit(key, text)
    assert limit_text("producer_byte_rate", 1024.0) == "1024"
    assert limit_text("request_percentage", 12.5) == "12.5"


def test_nodes_have_a_least_number_of_connections() -> None:
    """A limit for clients that is too low would part the nodes; 0 shuts an address out on purpose."""
    limits = ConnectionLimits(1, parse_overrides("10.0.0.1:2,10.0.0.2:9,10.0.0.3:0"), least=4)

    def taken(host: str) -> int:
        return sum(limits.opened(host) for _ in range(20))

    assert [taken(f"10.0.0.{number}") for number in range(5)] == [4, 4, 9, 0, 4]
    limits.change(0, 0)
    assert taken("10.0.0.9") == 0


def test_connections_per_address() -> None:
    limits = ConnectionLimits(2, parse_overrides("10.0.0.1:3, [::1]:0"))
    assert [limits.opened("10.0.0.1") for _ in range(4)] == [True, True, True, False]
    assert [limits.opened("10.0.0.2") for _ in range(3)] == [True, True, False]
    assert not limits.opened("::1")
    limits.closed("10.0.0.2")
    assert limits.opened("10.0.0.2")
    for _ in range(2):
        limits.closed("10.0.0.2")
    for _ in range(3):
        limits.closed("10.0.0.1")
    assert limits._counts == {}
    for text in ("a", "a:", ":1", "a:-1", "a:x"):
        with pytest.raises(ValueError, match="HOST:COUNT"):
            parse_overrides(text)


def test_connections_of_all_addresses_together_come_at_a_rate() -> None:
    now, together = [0.0], [2.0]
    limits = ConnectionLimits(2**31 - 1, {}, rate_of_all=lambda: together[0], now=lambda: now[0])
    assert [limits.opened(f"10.0.0.{number}") for number in range(25)].count(True) == 20
    now[0] += 1.0
    assert [limits.opened(f"10.0.1.{number}") for number in range(25)].count(True) == 2
    together[0] = 0.0
    assert limits.opened("10.0.0.1")


def test_an_address_has_its_own_rate_or_the_one_of_all_addresses() -> None:
    quotas, now = Quotas(), [0.0]
    limits = ConnectionLimits(2**31 - 1, {}, rate=3, rate_of=quotas.connection_rate, now=lambda: now[0])

    def admitted(host: str) -> int:
        now[0] += 10_000
        return [limits.opened(host) for _ in range(100)].count(True)

    assert admitted("10.0.0.1") == 30
    quotas.put(Entity(ip=DEFAULT), {CONNECTION_RATE: 2})
    quotas.put(Entity(ip="10.0.0.1"), {CONNECTION_RATE: 1})
    assert (admitted("::ffff:10.0.0.1"), admitted("10.0.0.2")) == (10, 20)
    assert not quotas.is_active  # requests cost nothing more
    quotas.put(Entity(ip="10.0.0.1"), {})
    assert admitted("10.0.0.1") == 20
    assert quotas.entities() == {Entity(ip=DEFAULT): {CONNECTION_RATE: 2}}


def test_a_bucket_of_changes() -> None:
    quotas = Quotas(mutation_burst_s=10)
    assert quotas.mutate("u", "c", 1e9, 0, is_strict=True) == (True, 0)
    quotas.put(Entity("u", None), {Kind.MUTATION: 0.5})
    assert quotas.mutate("u", "c", 7, 1_000, is_strict=True) == (True, 0)
    assert quotas.mutate("u", "another", 1, 1_000, is_strict=True) == (False, 4_000)  # the user's clients share it
    assert quotas.mutate("u", "c", 1, 1_000, is_strict=False) == (True, 6_000)
    assert quotas.mutate("v", "c", 1e9, 1_000, is_strict=True) == (True, 0)
    assert quotas.mutate("u", "c", 1, 6_999, is_strict=True)[0] is False
    assert quotas.mutate("u", "c", 1, 7_000, is_strict=True) == (True, 0)
    # It never holds more than what comes in ten seconds.
    assert quotas.mutate("u", "c", 6, 10**9, is_strict=True) == (True, 0)
    assert quotas.mutate("u", "c", 1, 10**9, is_strict=True) == (False, 2_000)
    quotas.put(Entity("u", None), {})
    assert quotas.mutate("u", "c", 1e9, 10**9, is_strict=True) == (True, 0)


def test_connections_of_one_address_come_at_a_rate() -> None:
    """KIP-612: so that a client that reconnects does not evade its quotas. An honest one is not affected by the others."""
    now = [0.0]
    limits = ConnectionLimits(2**31 - 1, {}, rate=2, now=lambda: now[0])

    def connect(host: str) -> bool:
        admitted = limits.opened(host)
        if admitted:
            limits.closed(host)
        return admitted

    assert [connect("10.0.0.1") for _ in range(25)].count(True) == 20
    assert connect("::ffff:10.0.0.1") is False
    assert connect("10.0.0.2") is True
    now[0] += 1.0
    assert [connect("10.0.0.1") for _ in range(5)].count(True) == 2
    for number in range(10_000):
        connect(f"10.1.{number // 250}.{number % 250}")
    assert len(limits._lately) <= 4097


def test_what_is_owed_outlasts_the_windows() -> None:
    quotas = Quotas()
    quotas.put(Entity("u", None), {PRODUCE: 10.0, Kind.MUTATION: 1.0})
    wait_ms = quotas.count(PRODUCE, "u", "c", 10_000, 0)
    assert wait_ms > 900_000
    assert quotas.owed_ms(PRODUCE, "u", "another client", 100_000) == wait_ms - 100_000
    assert quotas.owed_ms(PRODUCE, "somebody else", "c", 0) == 0
    assert quotas.owed_ms(PRODUCE, "u", "c", wait_ms) == 0
    quotas.put(Entity("u", None), {PRODUCE: 1000.0})  # relieves those who wait
    assert quotas.owed_ms(PRODUCE, "u", "c", 0) == 0


def test_changes_that_are_owed_do_not_count_twice() -> None:
    quotas = Quotas()
    quotas.put(Entity("u", None), {Kind.MUTATION: 1.0})
    assert quotas.owed_ms(Kind.MUTATION, "u", "c", 0) == 0
    quotas.mutate("u", "c", 21, 0, is_strict=False)
    assert quotas.owed_ms(Kind.MUTATION, "u", "c", 4_000) == 6_000
    assert quotas.owed_ms(Kind.MUTATION, "u", "c", 4_000) == 6_000


def test_one_more_address_costs_the_same_however_many_there_are() -> None:
    looked_at: list[str] = []
    now = [0.0]

    def rate_of(host: str) -> float:
        looked_at.append(host)
        return 1.0

    limits = ConnectionLimits(2**31 - 1, {}, rate_of=rate_of, now=lambda: now[0])
    for number in range(5_000):
        limits.opened(f"10.1.{number // 250}.{number % 250}")
    looked_at.clear()
    assert limits.opened("10.2.0.1") is False  # addresses without an entry of their own share one rate
    assert len(looked_at) <= 6
    now[0] += 60.0  # nothing of the old ones counts any more: they make room for as many new ones
    for number in range(4_000):
        assert limits.opened(f"10.3.{number // 250}.{number % 250}") is True
    assert len(limits._lately) <= 4097


@pytest.mark.parametrize("limit", ["1e-320", "1e308", "1.7976931348623157e308"])
def test_any_limit_that_can_be_set_has_a_wait(limit: str) -> None:
    # Clients write Double.MAX_VALUE for "no limit": Kafka takes it, and AlterClientQuotas here does, too.
    quotas = Quotas()
    keys = ("request_percentage", "controller_mutation_rate")
    quotas.put(Entity(user="alice"), {key: parse_limit(key, limit) for key in keys})
    for now_ms in (1000, 1001):
        assert quotas.count(Kind.REQUEST, "alice", "app", 5.0, now_ms) in (0, 1000)
        for is_strict in (True, False):
            _, wait_ms = quotas.mutate("alice", "app", 5.0, now_ms, is_strict=is_strict)
            assert wait_ms in (0, MAX_THROTTLE_MS)
        assert quotas.owed_ms(Kind.MUTATION, "alice", "app", now_ms) in (0, MAX_THROTTLE_MS)


def test_long_client_ids_take_no_memory() -> None:
    quotas = Quotas()
    quotas.put(Entity(client_id=DEFAULT), {Kind.PRODUCE: 1000})
    tracemalloc.start()
    try:
        for number in range(200):
            quotas.count(Kind.PRODUCE, "u", f"{number:05}" * 6000, 1, 1000)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(quotas._rates) == 200
    assert kept < 200 * 3000, "a client chooses its id: 30 kB of it must not be kept"
    # The limit of one long id is found all the same, and clients are distinguished by its first characters.
    quotas.put(Entity(client_id="a" * 300), {Kind.PRODUCE: 5})
    assert (quotas.limit(Kind.PRODUCE, "u", "a" * 300), quotas.limit(Kind.PRODUCE, "u", "a" * 299)) == (5, 1000)
