"""Names that others typed reach a terminal as text."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from kafkalite_cli.output import Output
from kafkalite_cli.visible import visible

_TITLE, _COLOUR = "g\x1b]0;PWNED\x07", "\x1b[31mred"


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("group-1", "group-1"),
        ("Grüße 日本", "Grüße 日本"),
        (_TITLE, "g\\x1b]0;PWNED\\x07"),
        (_COLOUR, "\\x1b[31mred"),
        ("a\nb\r\tc\x7f\x9b", "a\\nb\\r\\tc\\x7f\\x9b"),
        ("abc\u202edef\u2066\u200b", "abc\\u202edef\\u2066\\u200b"),
        ("one\u2028two", "one\\u2028two"),
    ],
)
def test_what_is_shown(typed: str, shown: str) -> None:
    assert visible(typed) == shown


def test_a_table_has_a_row_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=False).table(("group", "state"), [(f"x\ny  Stable{_TITLE}", "Dead"), ("z", None)])
    out = capsys.readouterr().out
    assert out.count("\n") == 3
    assert out.isprintable() or set(out) - {"\n"} == set(filter(str.isprintable, out))
    Output(as_json=False).value({}, f"first\n{_COLOUR}")
    assert capsys.readouterr().out == "first\n\\x1b[31mred\n"


def test_errors_are_escaped_too() -> None:
    from kafkalite_cli.main import _print_error

    runner = CliRunner()
    with runner.isolation() as (_, err, _output):
        _print_error(f"no group {_TITLE}", "GROUP_ID_NOT_FOUND", wants_json=False)
        assert b"\x1b" not in err.getvalue()
        assert b"\\x1b]0;PWNED" in err.getvalue()
