"""The clients that a worker keeps between tasks."""

from __future__ import annotations

import os
from typing import cast

import pytest

from pyspark_kafkalite import clients
from pyspark_kafkalite.clients import LogClient
from pyspark_kafkalite.options import ClientOptions


class Client:
    is_open = True

    def close(self) -> None:
        self.is_open = False


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Client]:
    made: list[Client] = []

    def connect(options: ClientOptions) -> Client:
        made.append(Client())
        return made[-1]

    monkeypatch.setattr(clients, "connect", connect)
    monkeypatch.setattr(clients, "_clients", {})
    return made


def test_tasks_with_the_same_options_share_a_client(made: list[Client]) -> None:
    assert clients.shared(ClientOptions(("a:1",))) is clients.shared(ClientOptions(("a:1",)))
    assert clients.shared(ClientOptions(("b:1",))) is not clients.shared(ClientOptions(("a:1",)))


def test_a_worker_that_lives_on_keeps_the_last_few(made: list[Client]) -> None:
    first = ClientOptions(("a:1",))
    kept = clients.shared(first)
    for n in range(50):
        clients.shared(ClientOptions(("a:1",), client_id=f"query-{n}"))
        assert clients.shared(first) is kept  # used all the time
    assert sum(client.is_open for client in made) == clients.KEPT_CLIENTS
    assert made[-1].is_open and made[0].is_open


def test_the_parent_s_clients_are_left_alone(made: list[Client], monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork shares its sockets: to end a session on one would end the parent's."""
    options = ClientOptions(("a:1",))
    before = clients.shared(options)
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    for n in range(50):
        assert clients.shared(ClientOptions(("a:1",), client_id=f"query-{n}")) is not before
    assert before is cast(LogClient, made[0]) and made[0].is_open
