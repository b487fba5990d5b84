"""A node, a client and Spark in plain text load nothing of TLS, SASL or SCRAM: they start as fast as before."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAMS = {
    "node": "from kafkalite.config import BrokerConfig; from kafkalite.env.real import real_env; "
    "from kafkalite.node.node import Node; "
    "import asyncio; asyncio.run(asyncio.sleep(0, Node(BrokerConfig(broker_id=1), real_env())))",
    "client": "from kafkalite.client.async_client import AsyncClient; AsyncClient.connect('h:1')",
    "blocking client": "from kafkalite.client.blocking import BlockingClient; BlockingClient('h:1')",
    "spark": "import pyspark_kafkalite.options; from kafkalite.client.transactions import TransactionalClient",
}
_NOT_NEEDED = ("tls", "http_login", "scram", "sasl", "listener", "names", "files", "node_security")


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_plain_text_loads_none_of_it(program: str) -> None:
    tell = f"import sys; print([name for name in {_NOT_NEEDED!r} if 'kafkalite.security.' + name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", f"{PROGRAMS[program]}; {tell}"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr
