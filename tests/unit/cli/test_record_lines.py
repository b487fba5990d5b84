"""Records as lines of JSON, places to begin, and the verbs that use them, on a real node."""

from __future__ import annotations

import json

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.client.consumed import ConsumedRecord
from kafkalite.testing.cluster import Cluster, cluster
from kafkalite_cli.parameters import At
from kafkalite_cli.records.consume import formatter
from kafkalite_cli.records.lines import LineError, RecordLine, decode_record, encode_record
from kafkalite_cli.records.positions import parse_start, record_filter
from tests.support.commands import Outcome
from tests.unit.cli.test_commands import kafkalite


def record(
    key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...] = ()
) -> ConsumedRecord:
    return ConsumedRecord("t", 3, 7, 1_700_000_000_000, key, value, headers)


@given(
    st.none() | st.binary(max_size=20),
    st.none() | st.binary(max_size=20),
    st.lists(
        st.tuples(st.text(st.characters(codec="utf-8"), max_size=5), st.none() | st.binary(max_size=5)), max_size=3
    ),
)
def test_what_is_written_is_read_back(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    line = encode_record(record(key, value, tuple(headers)))
    assert line.count(b"\n") == 1
    assert decode_record(line) == RecordLine(key, value, tuple(headers), 1_700_000_000_000, 3)


def test_what_a_person_writes() -> None:
    assert decode_record(b'{"value": {"late": 5}, "headers": {"h": "x", "none": null}}') == RecordLine(
        None, b'{"late":5}', (("h", b"x"), ("none", None))
    )
    assert decode_record(b'{"key": 7, "value": null}') == RecordLine(b"7", None)
    town = '{"key": ["Zürich"], "value": {"town":"Zürich"}}'.encode()
    assert decode_record(town) == RecordLine('["Zürich"]'.encode(), '{"town":"Zürich"}'.encode()), (
        "as other programs do"
    )
    for line, reason in (
        (b"{}", "no value"),
        (b"[1]", "not a JSON object"),
        (b"{", "not JSON"),
        (b'{"kay": 1, "value": ""}', "'kay' is not a field"),
        (b'{"value_base64": "!"}', "value_base64 is not base64"),
        (b'{"value": "", "partition": -1}', "partition is not a number"),
        (b'{"value": "", "headers": [["a"]]}', "a header is not a pair"),
        (b'{"value": "", "headers": {"a": 1}}', "header 'a' is neither text nor null"),
        (b'{"value": "\\ud800"}', "half a surrogate pair"),
        (b'{"value": {"n": NaN}}', "NaN is not a JSON number"),
        (b'{"value": {"n": 1e999}}', "1e999 is too large a number"),
    ):
        with pytest.raises(LineError, match=reason):
            decode_record(line)


def test_where_to_begin() -> None:
    assert [parse_start(text) for text in ("beginning", "end", "17")] == ["earliest", "latest", 17]
    assert parse_start("-15m") == At(900_000, is_ago=True)
    assert parse_start("2023-11-14T22:13:20Z") == parse_start("2023-11-14T22:13:20") == At(1_700_000_000_000)
    for wrong in ("yesterday", "-5", "-1y", "²"):
        with pytest.raises(click.BadParameter):
            parse_start(wrong)


def test_which_records_are_shown() -> None:
    shown = record_filter("k", "la.e", ["h=x", "other"])
    assert shown is not None
    assert shown(record(b"k", b"was late", (("h", b"x"), ("other", None))))
    assert not shown(record(b"k", b"was late", (("h", b"y"), ("other", None))))
    assert not shown(record(b"k", b"was late", (("h", b"x"),)))
    assert not shown(record(None, b"was late", (("h", b"x"), ("other", None))))
    assert not shown(record(b"k", None, (("h", b"x"), ("other", None))))
    assert record_filter(None, None, []) is None
    with pytest.raises(click.BadParameter):
        record_filter(None, "(", [])


async def run(on: Cluster, *arguments: str, stdin: bytes = b"") -> Outcome:
    return await kafkalite(*arguments, "--bootstrap", ",".join(on.bootstrap), stdin=stdin)


async def read(on: Cluster, *arguments: str) -> list[tuple[str | None, str | None]]:
    """(key, value) of what `consume` prints."""
    done = await run(on, "consume", *arguments, "--json")
    assert done.code == 0, done
    lines = [json.loads(line) for line in done.out.splitlines()]
    return [(line.get("key", line.get("key_base64")), line.get("value")) for line in lines]


async def test_records_go_out_and_come_back() -> None:
    lines = (
        b'{"key":"a","value":"1","headers":{"h":"x"},"timestamp":1700000000000}\n\n'
        b'{"key":"b","value":null,"timestamp":1700000060000}\n'
        b'{"key_base64":"/w==","value":{"late":5},"timestamp":1700000120000}\n'
    )
    whole = ("--from", "beginning", "--exit-at-end")
    async with cluster(1) as on:
        sent = await run(on, "produce", "made", "--input", "json", stdin=lines)
        assert (sent.code, sent.out) == (0, "3 acked\n"), "and the topic was created, as for any client"
        everything = [("a", "1"), ("b", None), ("/w==", '{"late":5}')]
        assert await read(on, "made", *whole) == everything
        assert await read(on, "made", "--last", "2") == everything[1:]
        assert await read(on, "made", "--from", "2023-11-14T22:13:21Z", "--exit-at-end") == everything[1:]
        assert await read(on, "made", *whole, "--key", "b") == everything[1:2]
        assert await read(on, "made", *whole, "--grep", "late") == everything[2:]
        assert await read(on, "made", *whole, "--header", "h") == everything[:1]
        copy = (await run(on, "consume", "made", *whole, "--json")).out
        assert (await run(on, "produce", "other", "--input", "json", stdin=copy.encode())).out == "3 acked\n"
        again = (await run(on, "consume", "other", *whole, "--json")).out
        assert again == copy.replace('"topic": "made"', '"topic": "other"')
        assert await read(on, "--pattern", "made|oth.*", *whole) == everything * 2
        wrong = await run(on, "produce", "made", "--input", "json", stdin=b'{"value": "fine"}\n{"valu": 1}\n')
        assert wrong.code == 2 and "line 2: 'valu' is not a field" in wrong.err and wrong.out == "1 acked\n"
        missing = await run(on, "consume", "nope", "--from", "beginning")
        assert (missing.code, missing.err) == (2, "kafkalite: there is no topic 'nope' (UNKNOWN_TOPIC_OR_PARTITION)\n")


async def test_verbs_that_destroy_want_a_yes_and_show_what_they_would_do() -> None:
    async with cluster(1) as on:
        assert (await run(on, "produce", "t", stdin=b"1\n2\n3\n4\n5\n")).code == 0
        for verb in (("delete-records", "t", "--before", "end"), ("delete-topic", "t")):
            unsure = await run(on, "admin", *verb)
            assert unsure.code == 2 and "add --yes" in unsure.err and "5 records" in unsure.err
            shown = await run(on, "admin", *verb, "--dry-run", "--json")
            assert shown.code == 0 and not shown.json["deleted"]
            assert [each["records"] for each in shown.json["partitions"]] == [5]
        gone = await run(on, "admin", "delete-records", "t", "--partition", "0", "--before", "3", "--yes", "--json")
        assert gone.code == 0 and gone.json["deleted"]
        assert [value for _, value in await read(on, "t", "--from", "beginning", "--exit-at-end")] == ["4", "5"]
        assert (await run(on, "admin", "delete-records", "t", "--before", "7", "--yes")).code == 2, (
            "of which partition?"
        )
        assert (await run(on, "admin", "delete-topic", "t", "--yes")).code == 0


async def test_settings_in_force_and_where_they_come_from() -> None:
    async with cluster(1) as on:
        assert (await run(on, "admin", "create-topic", "t", "--set", "retention.ms=5000")).code == 0
        assert (await run(on, "admin", "config", "set", "--broker", "1", "max.connections=77")).code == 0
        found = await run(on, "admin", "config", "get", "--topic", "t", "--all", "--json")
        assert found.json["settings"]["retention.ms"] == "5000" and found.json["sources"]["retention.ms"] == "topic"
        assert found.json["sources"]["cleanup.policy"] == "default"
        broker = await run(on, "admin", "config", "get", "--broker", "1", "max.connections", "log.dirs", "--json")
        assert broker.json["settings"]["max.connections"] == "77"
        assert broker.json["sources"] == {"max.connections": "broker", "log.dirs": "file"}
        for where in (("--topic", "t", "retention.msx"), ("--broker", "1", "nonsense"), ("--cluster", "nonsense")):
            typo = await run(on, "admin", "config", "get", *where)
            assert typo.code == 2 and "no such configuration" in typo.err, where
        assert (
            "did you mean retention.ms?"
            in (await run(on, "admin", "config", "get", "--topic", "t", "retention.msx")).err
        )
        assert (await run(on, "admin", "config", "get", "--cluster", "balancer.mode")).code == 0
        stops = await run(on, "admin", "config", "set", "--topic", "t", "min.insync.replicas=2")
        assert (stops.code, "min.insync.replicas=2 counts as 1" in stops.err) == (0, True)


def test_a_terminal_only_shows_what_records_have() -> None:
    shown = ConsumedRecord("t", 3, 7, 1, b"\x1b[31mk", b"a\tb\r\nc\x07\xff\xc2\x9b", (("h\x1b", b"\x00"), ("n", None)))
    template = "{key}|{value}|{headers}\\n"
    assert formatter(template, escapes=True)(shown) == b"\\x1b[31mk|a\tb\\r\nc\\x07\\xff\\x9b|h\\x1b=\\x00,n=\n"
    assert formatter(template)(shown) == b"\x1b[31mk|a\tb\r\nc\x07\xff\xc2\x9b|h\x1b=\x00,n=\n"
    assert formatter("{value}\\n", escapes=True)(shown) == b"a\tb\\r\nc\\x07\\xff\\x9b\n"
