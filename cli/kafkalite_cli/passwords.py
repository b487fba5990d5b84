"""Passwords that a command needs: from the terminal, or one line of stdin; never from the command line, which others may read."""

from __future__ import annotations

import os
import sys

import click

from kafkalite.errors import ConfigError


def read_password(variable: str | None = None, *, is_new: bool = False) -> str:
    """From this variable of the environment if it is set. `is_new`: a terminal asks twice. Raises ConfigError."""
    password = None if variable is None else os.environ.get(variable)
    if password is None and sys.stdin.isatty():
        password = str(click.prompt("password", hide_input=True, confirmation_prompt=is_new, err=True))
    elif password is None:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise ConfigError("no password: it is read from stdin" + (f", or from {variable}" if variable else ""))
    try:
        password.encode()
    except UnicodeEncodeError:
        raise ConfigError("the password is not UTF-8") from None
    return password
