"""The event loop of the tests: what was closed is closed when it ends, and what nobody closed fails its own test.

A transport that was closed waits for its peer: to read what was written, or, under TLS, to answer the end. asyncio's loop,
closed before that, leaves the socket to the collector of cycles, and whichever test runs then fails for it. So would one
that nobody closed.
"""

from __future__ import annotations

import asyncio
import warnings
from asyncio import sslproto


class ClosingLoop(asyncio.SelectorEventLoop):
    def close(self) -> None:
        if not self.is_closed() and not self.is_running():
            still_open = [each for each in list(self._transports.values()) if _is_open(each)]  # type: ignore[attr-defined]
            forgotten = [repr(each) for each in still_open if not _is_closed_by_us(each)]
            for transport in still_open:
                transport.abort()
            if still_open:
                self.run_until_complete(asyncio.sleep(0))
            super().close()
            if forgotten:
                warnings.warn(f"nobody closed {', '.join(forgotten)}", ResourceWarning, stacklevel=2)
        super().close()


class ClosingLoops(asyncio.DefaultEventLoopPolicy):
    """`asyncio.run` and `asyncio.new_event_loop` make such loops, in every thread."""

    _loop_factory = ClosingLoop


def _is_open(transport: asyncio.Transport) -> bool:
    return bool(transport.get_extra_info("socket").fileno() != -1)


def _is_closed_by_us(transport: asyncio.Transport) -> bool:
    if transport.is_closing():
        return True
    protocol = transport.get_protocol()
    if not isinstance(protocol, sslproto.SSLProtocol):
        return False
    application: asyncio.BaseTransport | None = protocol._app_transport
    return application is None or application.is_closing()
