"""A simulated world: hosts with a disk, a clock and programs; one network; one ZooKeeper; one seed.

A program is a coroutine function that takes an Env. What happens to hosts is done from outside of all programs:

    world = SimWorld(seed=7)
    world.start("node1", program)
    world.run(main())           # main() runs outside, and calls world.crash("node1"), world.pause("node2"), ...
    world.close()
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, MutableMapping
from types import TracebackType
from typing import Any, TypeVar

import structlog

from kafkalite.env.seams import Env
from kafkalite.testing.simulated.clock import SimClock
from kafkalite.testing.simulated.disk import SimDisk
from kafkalite.testing.simulated.loop import SimLoop
from kafkalite.testing.simulated.network import Link, SimNetwork
from kafkalite.testing.simulated.process import SimProcess, current_process
from kafkalite.testing.simulated.zookeeper import SimZooKeeper

T = TypeVar("T")

Program = Callable[[Env], Coroutine[Any, Any, None]]
#: Called at a program's end: its process, and the exception it ended by (None: it returned).
OnExit = Callable[[SimProcess, BaseException | None], None]


class SimHost:
    """One machine."""

    def __init__(self, name: str, clock: SimClock, disk: SimDisk) -> None:
        self.name = name
        self.clock = clock
        self.disk = disk
        #: The program running on it now, or the last one.
        self.process: SimProcess | None = None
        self.powered = True

    @property
    def running(self) -> bool:
        """Whether a program is alive on it (perhaps stopped)."""
        return self.process is not None and self.process.alive


class SimWorld:
    """See the module's text.

    Args:
        seed: of everything that is drawn.
        link: the quality of every link that nobody says otherwise of.
        record: keep the whole trace as text (slow), to find where two runs part.
    """

    def __init__(self, seed: int, *, link: Link | None = None, record: bool = False) -> None:
        self.seed = seed
        # typeshed has them abstract; at run time each raises NotImplementedError, as it should here.
        self.loop = SimLoop(record=record)  # type: ignore[abstract]
        self.network = SimNetwork(
            self.loop, self.random("network"), default_link=link, on_fatal=lambda *what: self.bugs.append(what)
        )
        self.zookeeper = SimZooKeeper(self.random("zookeeper"), wall_ms=SimClock(self.loop).wall_ms)
        self.hosts: dict[str, SimHost] = {}
        #: Assertions that failed in a connection handler: (process, error).
        self.bugs: list[tuple[SimProcess | None, BaseException]] = []
        self.log = SimLog(self.loop)

    def random(self, name: str) -> random.Random:
        """A generator of its own for each purpose, so that one more draw here changes nothing there."""
        return random.Random(f"{self.seed}/{name}")

    def host(self, name: str) -> SimHost:
        """The host of this name, made when first asked for."""
        if name not in self.hosts:
            source = self.random(f"host/{name}")
            clock = SimClock(self.loop, skew_ms=source.randint(-200, 200), booted_s=source.randint(100, 100_000))
            disk = SimDisk(self.loop, clock, self.random(f"disk/{name}"))
            self.hosts[name] = SimHost(name, clock, disk)
            self.network.host(name)
        return self.hosts[name]

    def env(self, name: str, incarnation: int = 1) -> Env:
        """What a program on this host is given."""
        host = self.host(name)
        return Env(
            clock=host.clock,
            network=self.network.of(name),
            disk=host.disk,
            random=self.random(f"program/{name}/{incarnation}"),
            connect_coordinator=self.zookeeper.connector(name),
            entropy=self.random(f"entropy/{name}/{incarnation}").randbytes,
        )

    # --- running ---------------------------------------------------------------------------------

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main`, outside of all programs, until it returns. Log lines go to `self.log`."""
        with self.log:
            result: T = self.loop.run_until_complete(main)
            return result

    def close(self) -> None:
        """Let everything go; nothing of it acts any more."""
        self.log.tap = None
        with self.log, warnings.catch_warnings():
            # What is thrown away in the middle of something complains, for instance of coroutines not awaited.
            warnings.simplefilter("ignore")
            self.loop.close()

    # --- what happens to hosts -------------------------------------------------------------------

    def start(self, name: str, program: Program, on_exit: OnExit | None = None) -> SimProcess:
        """Start a program; the host must be powered and run no other."""
        host = self.host(name)
        assert host.powered and not host.running, f"{name} cannot start a program"
        process = host.process = self.loop.process(name)
        task = self.loop.start(process, program(self.env(name, process.incarnation)), f"{process}")

        def ended(task: asyncio.Task[None]) -> None:
            if process.alive:
                error = task.exception() if not task.cancelled() else None
                self._reap(host, process)
                if on_exit is not None:
                    on_exit(process, error)

        task.add_done_callback(ended, context=contextvars.Context())
        return process

    def _reap(self, host: SimHost, process: SimProcess) -> None:
        """What the kernel does when a process ends, however it ends."""
        self.loop.kill_process(process)
        self.network.process_died(process)
        host.disk.process_died(process)
        self.zookeeper.disconnect(host.name)

    def crash(self, name: str) -> None:
        """kill -9: the page cache survives, nothing of the program does."""
        host = self.host(name)
        if host.running:
            assert host.process is not None
            self._reap(host, host.process)

    def lose_power(self, name: str) -> None:
        """The plug is pulled: peers see silence, and what was not synced may be gone."""
        host = self.host(name)
        if not host.powered:
            return
        if host.process is not None:
            self.loop.kill_process(host.process)
        self.network.power_lost(name)
        host.disk.lose_power()
        host.powered = False

    def power_on(self, name: str) -> None:
        """The host is up again; start its program yourself."""
        host = self.host(name)
        if not host.powered:
            host.powered = True
            self.network.power_on(name)

    def pause(self, name: str) -> None:
        """SIGSTOP."""
        host = self.host(name)
        if host.running:
            assert host.process is not None
            self.loop.stop_process(host.process)

    def resume(self, name: str) -> None:
        """SIGCONT."""
        host = self.host(name)
        if host.running:
            assert host.process is not None
            self.loop.resume_process(host.process)


#: Older log lines are forgotten.
_LINES_KEPT = 20_000


class SimLog:
    """Takes structlog's output while it is entered: lines with virtual time and process, kept in memory, bounded.

    An event's name goes into the loop's trace; its values do not (a repr may show an address).
    """

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._lines: deque[tuple[int, str, str, dict[str, Any]]] = deque(maxlen=_LINES_KEPT)
        self._before: dict[str, Any] | None = None
        #: Called with each line's parts (seconds, process, level, event dict), if set.
        self.tap: Callable[[float, str, str, dict[str, Any]], None] | None = None

    def __enter__(self) -> SimLog:
        self._before = structlog.get_config() if structlog.is_configured() else None
        structlog.configure(processors=[self._take], cache_logger_on_first_use=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        structlog.reset_defaults()
        if self._before is not None:
            structlog.configure(**self._before)

    def _take(self, logger: object, level: str, event: MutableMapping[str, Any]) -> Any:
        running = current_process()
        process = "-" if running is None else running.name
        kept = dict(event)
        self._lines.append((self._loop.now_ns, process, level, kept))
        self._loop.trace(f"log {level} {kept.get('event')}")
        if self.tap is not None:
            self.tap(self._loop.time(), process, level, kept)
        raise structlog.DropEvent

    def lines(self) -> list[str]:
        """The last lines as text."""
        return [render(now_ns / 1e9, process, level, event) for now_ns, process, level, event in self._lines]

    def count(self, event: str) -> int:
        """How many kept lines have this event name."""
        return sum(line[3].get("event") == event for line in self._lines)


def render(seconds: float, process: str, level: str, event: dict[str, Any]) -> str:
    """A log line for people."""
    values = " ".join(f"{key}={value}" for key, value in event.items() if key not in ("event", "exc_info"))
    return f"{seconds:11.6f} {process:10} {level:7} {event.get('event')} {values}"
