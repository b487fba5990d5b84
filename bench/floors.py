"""What this machine does at this moment without us: the figures to divide by.

    python -m bench.floors [--seconds 1]

A bench that shares its machine gives other figures every minute; the ratio to a floor of the same minute stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path

import click
import uvloop

_MIB = 1 << 20
#: A produce request with a 1 KiB record and its answer, about.
REQUEST_BYTES, ANSWER_BYTES = 1180, 48
DEPTH = 64


def memcpy_mb_s(seconds: float) -> float:
    """Copying from one 64 MiB buffer into another."""
    source, target = bytearray(os.urandom(_MIB) * 64), memoryview(bytearray(64 * _MIB))
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        target[:] = source
        count += 1
    return count * 64 * _MIB / (time.perf_counter() - began) / 1e6


def file_write_mb_s(directory: Path, seconds: float) -> float:
    """Appending 1 MiB at a time to one file of the page cache, nothing synced; at most 2 GiB."""
    data = os.urandom(_MIB)
    path = directory / "floor"
    with path.open("wb", buffering=0) as file:
        began, count = time.perf_counter(), 0
        while time.perf_counter() - began < seconds and count < 2048:
            file.write(data)
            count += 1
        took = time.perf_counter() - began
    path.unlink()
    return count * _MIB / took / 1e6


class _Echo(asyncio.Protocol):
    """Answers every request's worth of bytes with an answer's worth, one write per read."""

    def __init__(self) -> None:
        self._received = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        whole, self._received = divmod(self._received, REQUEST_BYTES)
        if whole:
            self._transport.write(bytes(ANSWER_BYTES * whole))  # type: ignore[attr-defined]


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_Echo, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def echo(seconds: float) -> tuple[float, float, float]:
    """A uvloop echo in another process: requests/s with 64 under way; p50 and p99 in ms at 200/s."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.floors", "--serve", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None and process.stdin is not None
    try:
        port = int(await process.stdout.readline())
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        request = bytes(REQUEST_BYTES)
        writer.write(request * DEPTH)
        began, answered, left = time.perf_counter(), 0, 0
        while time.perf_counter() - began < seconds:
            whole, left = divmod(left + len(await reader.read(65536)), ANSWER_BYTES)
            answered += whole
            writer.write(request * whole)
        rate = answered / (time.perf_counter() - began)
        await reader.readexactly((DEPTH * ANSWER_BYTES) - left)
        took = []
        for _ in range(int(200 * seconds)):
            await asyncio.sleep(0.005)
            sent = time.perf_counter()
            writer.write(request)
            await reader.readexactly(ANSWER_BYTES)
            took.append((time.perf_counter() - sent) * 1e3)
        took.sort()
        writer.close()
        return rate, took[len(took) // 2], took[len(took) * 99 // 100]
    finally:
        process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def measure(directory: Path, seconds: float = 1.0) -> dict[str, float]:
    """All floors, one after the other."""
    rate, p50, p99 = await echo(seconds)
    return {
        "memcpy MB/s": await asyncio.to_thread(memcpy_mb_s, seconds),
        "file write MB/s": await asyncio.to_thread(file_write_mb_s, directory, seconds),
        "echo requests/s": rate,
        "echo p50 ms": p50,
        "echo p99 ms": p99,
        "load": os.getloadavg()[0],
    }


@click.command()
@click.option("--seconds", default=1.0, show_default=True, help="Per floor.")
@click.option("--serve", is_flag=True, hidden=True)
def main(seconds: float, *, serve: bool) -> None:
    """memcpy, file write and echo on this machine."""
    if serve:
        uvloop.run(_serve())
        return
    with tempfile.TemporaryDirectory(prefix="kafkalite-floors-") as directory:
        for name, value in uvloop.run(measure(Path(directory), seconds)).items():
            print(f"{name}: {value:,.2f}")


if __name__ == "__main__":
    main()
