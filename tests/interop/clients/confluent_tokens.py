"""OAUTHBEARER of librdkafka: a token from a callback, one that is spoilt, and one from a token server (method=oidc).

Arguments: JSON with bootstrap, authority, token, url. Prints one line of JSON: by name, the offset or the error of one record.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from confluent_kafka import Producer

given = json.loads(sys.argv[1])
common = {
    "bootstrap.servers": given["bootstrap"],
    "security.protocol": "SASL_SSL",
    "ssl.ca.location": given["authority"],
    "sasl.mechanisms": "OAUTHBEARER",
    "log_level": 0,
}


def produced(**own: Any) -> str:
    """What becomes of one record."""
    outcome: list[str] = []
    causes: list[str] = []
    producer = Producer({**common, "error_cb": lambda error: causes.append(error.name()), **own})
    producer.produce("orders", b"x", on_delivery=lambda error, _: outcome.append(error.name() if error else "written"))
    deadline = time.monotonic() + 90
    while not outcome and "_AUTHENTICATION" not in causes and time.monotonic() < deadline:
        producer.poll(0.1)
    return outcome[0] if outcome else ",".join(sorted(set(causes)))


token = given["token"]
spoilt = token[:-20] + ("A" * 20)
oidc = {
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "alice",
    "sasl.oauthbearer.client.secret": "hush",
    "sasl.oauthbearer.token.endpoint.url": given["url"],
}
print(
    json.dumps(
        {
            "callback": produced(oauth_cb=lambda _: (token, time.time() + 300)),
            "spoilt": produced(oauth_cb=lambda _: (spoilt, time.time() + 300)),
            "oidc": produced(**oidc),
        }
    )
)
