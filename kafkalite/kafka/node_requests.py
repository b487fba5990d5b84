"""Requests that only nodes send each other."""

from __future__ import annotations

from kafkalite.config import inter_broker_listener
from kafkalite.coordinators.services import Services
from kafkalite.kafka.request import Request


def may_be_node(services: Services, request: Request) -> bool:
    """Whether a node may have sent this: it has authenticated as one, or nodes connect in plain text to this listener."""
    listener = inter_broker_listener(services.config).name
    security = services.security.get(listener)
    if security is None:
        return request.listener_name == listener
    login = request.connection.login
    return security.may_be_node(request.principal) and not (login is not None and login.token_id)
