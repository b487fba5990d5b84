"""`kafkalite admin rolling-restart`: one broker after the other, each when all replicas are in sync and the leaders are back."""

from __future__ import annotations

import asyncio
import shlex

import click

from kafkalite.client.admin.refusals import refuse
from kafkalite.client.async_client import AsyncClient
from kafkalite.errors import ErrorCode, KafkaliteError, api_error
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerEpoch, BrokerId, is_under_replicated
from kafkalite.protocol import wire
from kafkalite_cli.admin.refusals import refuse_unknown_broker
from kafkalite_cli.invocation import Invocation, client_options
from kafkalite_cli.output import Output, run_async, run_watch
from kafkalite_cli.parameters import Real, parse_brokers

#: Interval at which the cluster is checked.
_LOOK_S = 0.5
#: A wait that takes longer is mentioned.
_NOTE_S = 5.0
#: ElectionType of ElectLeaders (KIP-460).
_PREFERRED = 0


@dataclass(frozen=True, slots=True)
class _Step:
    broker_id: BrokerId
    host: str
    command: str


@click.command("rolling-restart")
@click.option(
    "--command",
    metavar="COMMAND",
    help="Restarts one broker; {id} and {host} stand for its id and host. Without it, the plan is printed.",
)
@click.option("--brokers", metavar="1,2,3", help="Only these, in this order [default: all, the controller last].")
@click.option(
    "--step-timeout",
    "step_s",
    type=Real(1, 86_400),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit of each wait.",
)
@click.option("--dry-run", is_flag=True, help="Print the plan only.")
@client_options
def rolling_restart(cli: Invocation, command: str | None, brokers: str | None, step_s: float, *, dry_run: bool) -> None:
    """Restart the brokers one after the other, without a pause for clients with acks=all.

    Before each broker all replicas must be in sync. After its restart the command waits until it has registered again and all replicas are in
    sync, and gives it its leaderships back. The first step that fails or takes too long ends the command; --brokers continues from there.

    Examples:

    \b
      kafkalite admin rolling-restart
      kafkalite admin rolling-restart --command 'ssh {host} systemctl restart kafkalite'
    """
    chosen = None if brokers is None else parse_brokers(brokers, "--brokers")
    out = cli.out

    async def work() -> None:
        async with cli.connect() as client:
            steps = await _steps(client, chosen, command)
            if command is None or dry_run:
                _show(steps, out)
                return
            for at, step in enumerate(steps):
                left = ",".join(str(each.broker_id) for each in steps[at:])
                try:
                    await _restart(client, step, step_s, out)
                except KafkaliteError:
                    click.echo(f"kafkalite: stopped before the end; continue with --brokers {left}", err=True)
                    raise

    if command is None or dry_run:
        run_async(work())
    else:
        run_watch(work(), "stopped between two steps; `kafkalite admin health` shows the state, --brokers continues")


async def _steps(client: AsyncClient, chosen: tuple[BrokerId, ...] | None, command: str | None) -> list[_Step]:
    cluster = await client.describe_cluster()
    alive = {each.broker_id: each for each in cluster.brokers}
    order = chosen or tuple(sorted(alive, key=lambda broker: (broker == cluster.controller_id, broker)))
    gone = [each for each in order if each not in alive]
    if gone:
        await refuse_unknown_broker(client, gone[0])
        raise api_error(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {gone[0]} is not alive")
    text = command or "systemctl restart kafkalite"
    return [
        _Step(
            each,
            alive[each].kafka_host,
            text.replace("{id}", str(each)).replace("{host}", shlex.quote(alive[each].kafka_host)),
        )
        for each in order
    ]


def _show(steps: list[_Step], out: Output) -> None:
    if out.as_json:
        out.value({"steps": [{"broker_id": s.broker_id, "host": s.host, "command": s.command} for s in steps]})
        return
    for number, step in enumerate(steps, start=1):
        click.echo(f"{number}. broker {step.broker_id} on {step.host}")
        click.echo("   wait: kafkalite admin health        (no partition.under_replicated)")
        click.echo(f"   run:  {step.command}")
        click.echo("   wait: kafkalite admin health        (broker back, all replicas in sync)")
        click.echo("   run:  kafkalite admin elect --preferred --all")


async def _restart(client: AsyncClient, step: _Step, step_s: float, out: Output) -> None:
    """Raises KafkaliteError: the command failed, or a wait took too long."""
    began = client.now()
    await _until_in_sync(client, step_s, f"before the restart of broker {step.broker_id}")
    epoch = await _epoch_of(client, step.broker_id)
    process = await asyncio.create_subprocess_shell(step.command)
    code = await process.wait()
    if code:
        raise KafkaliteError(f"broker {step.broker_id} was not restarted: {step.command!r} ended with {code}")
    await _until_back(client, step.broker_id, epoch, step_s)
    await _until_in_sync(client, step_s, f"after the restart of broker {step.broker_id}")
    request = wire.ElectLeadersRequest(_PREFERRED, None, int(client.timeout_s * 1000))
    answer = await client.call_controller(request)
    refuse(answer.error_code, "")
    seconds = client.now() - began
    out.value(
        {"broker_id": step.broker_id, "restarted": True, "seconds": round(seconds, 1)},
        f"broker {step.broker_id}: restarted, in sync, its leaders are back ({seconds:.0f} s)",
    )


class _Wait:
    """Of one step; says once what it waits for, if that takes long."""

    def __init__(self, client: AsyncClient, step_s: float) -> None:
        self._client = client
        self._step_s = step_s
        self._began = client.now()
        self._is_noted = False

    def has_time(self) -> bool:
        return self._client.now() < self._began + self._step_s

    def note(self, what: str) -> None:
        """On stderr."""
        if not self._is_noted and self._client.now() > self._began + _NOTE_S:
            self._is_noted = True
            click.echo(f"note: {what}; waiting up to {self._step_s:g} s (--step-timeout)", err=True)


def _more(late: list[str]) -> str:
    return f" and {len(late) - 1} more" if len(late) > 1 else ""


async def _epoch_of(client: AsyncClient, broker_id: BrokerId) -> BrokerEpoch:
    """Just before the restart: a session that ends during the steps before changes it, too. Raises ApiError: the broker is not alive."""
    for each in (await client.describe_cluster()).brokers:
        if each.broker_id == broker_id:
            return each.broker_epoch
    raise api_error(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not alive")


async def _until_back(client: AsyncClient, broker_id: BrokerId, before: BrokerEpoch, step_s: float) -> None:
    """Until the broker has another epoch than `before`. Raises ApiError."""
    wait = _Wait(client, step_s)
    while wait.has_time():
        try:
            cluster = await client.describe_cluster()
        except KafkaliteError:
            await asyncio.sleep(_LOOK_S)
            continue
        if any(each.broker_id == broker_id and each.broker_epoch != before for each in cluster.brokers):
            return
        wait.note(f"broker {broker_id} has not registered again yet")
        await asyncio.sleep(_LOOK_S)
    raise api_error(
        ErrorCode.REQUEST_TIMED_OUT,
        f"broker {broker_id} has not registered again within {step_s:g} s: was it restarted?",
    )


async def _until_in_sync(client: AsyncClient, step_s: float, when: str) -> None:
    """Until every partition has a leader and all replicas in sync. Raises ApiError."""
    wait = _Wait(client, step_s)
    late = ["the cluster"]
    while wait.has_time():
        try:
            topics = (await client.describe_topics()).topics
        except KafkaliteError:
            await asyncio.sleep(_LOOK_S)
            continue
        late = [
            f"{topic.topic}-{each.partition}"
            for topic in topics
            for each in topic.partitions
            if each.leader < 0 or is_under_replicated(each.replicas, each.isr, each.adding)
        ]
        if not late:
            return
        wait.note(f"{late[0]}{_more(late)}: not all replicas in sync, {when}")
        await asyncio.sleep(_LOOK_S)
    reason = f"{late[0]}{_more(late)}: not all replicas in sync within {step_s:g} s, {when}"
    raise api_error(ErrorCode.REQUEST_TIMED_OUT, reason)
