"""Principals as ACLs write them."""

import pytest

from kafkalite.security.principal import ANONYMOUS, Principal


def test_a_principal_reads_back_as_it_was_written() -> None:
    for principal in (Principal("User", "alice"), Principal("User", "CN=a:b,O=c"), ANONYMOUS):
        assert Principal.parse(str(principal)) == principal


@pytest.mark.parametrize("text", ["", "alice", ":alice", "User:"])
def test_a_half_written_principal_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="KIND:NAME"):
        Principal.parse(text)
