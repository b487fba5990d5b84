"""`kafkalite admin broker list | cordon | uncordon | decommission | replace`."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping

import click

from kafkalite.admin.decisions.decommissioning import Replacement, replace_broker, shares_rack
from kafkalite.client.admin.configs import ConfigResource, alter_configs, describe_configs
from kafkalite.client.async_client import AsyncClient
from kafkalite.coordination.broker_states import ACTIVE, BROKER_STATE, CORDONED, DRAINING, changed_text, state_of
from kafkalite.errors import ErrorCode, KafkaliteError, api_error
from kafkalite.extension.messages.balancing import BrokerBalance, DescribeBalanceRequest, DescribeBalanceResponse
from kafkalite.extension.messages.reassignment import (
    WantedReassignment,
)
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId, Replicas, TopicPartition
from kafkalite.wording import number_of
from kafkalite_cli.admin.move_progress import duration, named, watch
from kafkalite_cli.admin.move_requests import HOW_TO_RETURN, cancel_moves, moves_in_progress, request_moves
from kafkalite_cli.admin.refusals import refuse_unknown_broker
from kafkalite_cli.invocation import Invocation, client_options, group_options
from kafkalite_cli.output import Output, confirm, run_async, run_watch, size_text
from kafkalite_cli.parameters import Bytes, Whole, yes_option
from kafkalite_cli.zookeeper_note import note_zookeeper

#: Interval at which a drain is checked.
_WATCH_S = 1.0
#: Moves that a cancelled drain has begun are called off for at most this time.
_CANCEL_S = 30.0


@click.group("broker")
@group_options
def broker(bootstrap: str | None) -> None:
    """Cordon, drain and replace brokers."""


async def balance_of(client: AsyncClient, *, moves: int = 0, refresh: bool = False) -> DescribeBalanceResponse:
    """The balance as the controller sees it."""
    return await client.request(DescribeBalanceRequest(moves, refresh), DescribeBalanceResponse)


def broker_rows(brokers: tuple[BrokerBalance, ...]) -> list[tuple[object, ...]]:
    """For `broker list` and `balance status`."""
    return [
        (
            each.broker_id,
            _state_text(each),
            each.rack,
            each.replicas,
            each.preferred,
            each.leads,
            size_text(each.size_bytes),
            f"{size_text(each.rate)}/s",
            "" if each.total_bytes <= 0 else f"{100 - 100 * each.free_bytes // each.total_bytes} %",
        )
        for each in brokers
    ]


#: The columns of `broker_rows`.
COLUMNS = ("broker", "state", "rack", "replicas", "preferred", "leads", "size", "rate", "disks")


def _state_text(each: BrokerBalance) -> str:
    state = each.state
    if state == DRAINING and not each.replicas:
        # The count has what a move takes away no more; an older controller does not say whether there is such a move.
        left = {0: "drained: may be stopped", -1: "draining"}
        state = left.get(each.leaving, f"draining: {number_of(each.leaving, 'replica')} being moved away")
    if each.missing_s < 0:
        return state
    gone = "not alive" if not each.missing_s else f"not alive for {duration(each.missing_s)}"
    return gone if each.state == ACTIVE else f"{gone}, {each.state}"


@broker.command("list")
@client_options
async def list_(cli: Invocation) -> None:
    """Every broker with its state and its share of the load.

    PREFERRED counts partitions that it should lead, LEADS those that it leads now.

    Example:

    \b
      kafkalite admin broker list
    """
    async with cli.connect() as client:
        answer = await balance_of(client, refresh=True)
        await note_zookeeper(client, cli.out)
    value = {"brokers": [dataclasses.asdict(each) for each in answer.brokers]}
    cli.out.listing(value, COLUMNS, broker_rows(answer.brokers))


# --- cordon --------------------------------------------------------------------------------------


@broker.command("cordon")
@click.argument("brokers", nargs=-1, required=True, type=Whole(0), metavar="BROKER…")
@client_options
async def cordon(cli: Invocation, brokers: tuple[int, ...]) -> None:
    """Give brokers no new replicas; they keep what they have.

    New topics and partitions, plans and the balancer leave them out, and a request that names one is refused.

    Example:

    \b
      kafkalite admin broker cordon 3
    """
    await _set_states(cli, brokers, CORDONED)


@broker.command("uncordon")
@click.argument("brokers", nargs=-1, required=True, type=Whole(0), metavar="BROKER…")
@client_options
async def uncordon(cli: Invocation, brokers: tuple[int, ...]) -> None:
    """Let brokers take new replicas again. A drain ends; moves that it has begun go on (see decommission --cancel).

    Example:

    \b
      kafkalite admin broker uncordon 3
    """
    await _set_states(cli, brokers, ACTIVE)


async def _set_states(cli: Invocation, brokers: tuple[int, ...], state: str) -> None:
    async with cli.connect() as client:
        for each in brokers:
            await refuse_unknown_broker(client, each)
        for each in dict.fromkeys(brokers):
            await set_state(client, BrokerId(each), state)
            cli.out.value({"broker_id": each, "state": state}, changed_text(BrokerId(each), state))


async def set_state(client: AsyncClient, broker_id: BrokerId, state: str) -> None:
    """Write broker.state. Raises ApiError: the cluster refuses."""
    resource = ConfigResource.broker(broker_id)
    if state == ACTIVE:
        await alter_configs(client, resource, {}, [BROKER_STATE])
    else:
        await alter_configs(client, resource, {BROKER_STATE: state})


async def read_state(client: AsyncClient, broker_id: BrokerId) -> str:
    """The state as ZooKeeper has it."""
    return state_of((await describe_configs(client, ConfigResource.broker(broker_id))).own)


# --- decommission --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Left:
    """What a broker that is being drained still has.

    `hosted`: replicas that the broker itself reports, -1 if it does not answer. `waits_for`: brokers that take over replicas, and are not alive.
    """

    assigned: int
    moving: int
    hosted: int
    size_bytes: int
    waits_for: tuple[BrokerId, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.assigned and not self.moving and self.hosted <= 0

    def text(self) -> str:
        if not self.assigned and not self.moving:
            return f"{number_of(max(self.hosted, 0), 'replica')} to be removed from its disks"
        size = f", {size_text(self.size_bytes)}" if self.size_bytes > 0 else ""
        absent = f", to {named(self.waits_for)}" if self.waits_for else ""
        return f"{number_of(self.assigned, 'replica')} left{size}; {self.moving} being moved{absent}"


@broker.command("decommission")
@click.argument("broker_id", type=Whole(0), metavar="BROKER")
@click.option(
    "--cancel",
    is_flag=True,
    help="Stop the drain: moves that it has begun are called off, and the broker takes replicas again.",
)
@click.option("--no-watch", is_flag=True, help="Return at once; the drain goes on.")
@client_options
def decommission(cli: Invocation, broker_id: int, *, cancel: bool, no_watch: bool) -> None:
    """Move all replicas away from a broker, and say when it may be stopped.

    The controller moves them in small batches (balancer.max.moves, balancer.throttle.bytes.per.second), also if this command is
    interrupted or the controller changes. Refused if the other brokers could not hold the replicas. A broker that is dead already can be
    drained, too.

    Examples:

    \b
      kafkalite admin broker decommission 3
      kafkalite admin broker decommission 3 --cancel
    """
    target, out = BrokerId(broker_id), cli.out
    if cancel:
        run_async(_cancel(cli, target))
        return

    async def work() -> None:
        async with cli.connect() as client:
            await refuse_unknown_broker(client, target)
            await set_state(client, target, DRAINING)
            if no_watch:
                text = f"broker {target} is being drained; `kafkalite admin broker decommission {target}` shows the progress"
                out.value({"broker_id": target, "state": DRAINING}, text)
                return
            await _watch_drain(client, target, out)

    run_watch(
        work(),
        f"the drain goes on; `kafkalite admin broker decommission {target}` shows it again, and with --cancel ends it",
    )


async def _watch_drain(client: AsyncClient, target: BrokerId, out: Output) -> None:
    """Until the broker holds nothing. Raises ApiError if somebody ends the drain."""
    last, shown = "", ""
    while True:
        left = await _what_is_left(client, target)
        if left.is_empty:
            break
        if left.text() != last:
            last = left.text()
            out.value({"broker_id": target, **dataclasses.asdict(left), "done": False}, f"broker {target}: {last}")
        if await read_state(client, target) != DRAINING:
            raise api_error(ErrorCode.INVALID_REQUEST, f"broker {target} is not being drained any more")
        stuck = (await balance_of(client)).stuck
        reason = f"{stuck[0].topic}-{stuck[0].partition}: {stuck[0].reason}" if stuck else ""
        if reason and reason != shown:
            click.echo(f"kafkalite: waits: {reason}", err=True)
        shown = reason
        await asyncio.sleep(_WATCH_S)
    out.value(
        {"broker_id": target, "assigned": 0, "done": True}, f"broker {target} holds nothing: it may be stopped now"
    )


async def _what_is_left(client: AsyncClient, target: BrokerId) -> _Left:
    metadata = await client.metadata()
    mine = [
        TopicPartition(topic.topic, entry.partition)
        for topic in metadata.topics
        for entry in topic.partitions
        if target in entry.replicas
    ]
    moving = [
        each for each in await moves_in_progress(client) if target in (*each.origin, *each.replicas, *each.dropping)
    ]
    # Files on a broker that is not alive are removed when it returns; nothing waits for that.
    is_alive = target in client.view.brokers
    under_way = [each for each in moving if is_alive or target in (*each.replicas, *each.target)]
    hosted, size = -1, 0
    if is_alive:
        answer = (await client.describe_replicas(timeout_s=min(client.timeout_s, 5.0))).get(target)
        if answer is not None and not isinstance(answer, KafkaliteError):
            hosted, size = len(answer.replicas), sum(each.size_bytes for each in answer.replicas)
    absent = {each for move in under_way for each in move.target} - set(client.view.brokers) - {target}
    return _Left(len(mine), len(under_way), hosted, size, tuple(sorted(absent)))


async def _cancel(cli: Invocation, target: BrokerId) -> None:
    """May be repeated: the broker stays cordoned until all moves are called off."""
    async with cli.connect() as client:
        await refuse_unknown_broker(client, target)
        if await read_state(client, target) not in (DRAINING, CORDONED):
            going = len(await _leaving(client, target))
            hint = f"; moves away from it: {going} (`kafkalite admin reassign cancel` ends them)" if going else ""
            raise api_error(ErrorCode.INVALID_REQUEST, f"broker {target} is not being drained{hint}")
        await set_state(client, target, CORDONED)
        called_off: set[TopicPartition] = set()
        deadline = client.now() + min(cli.timeout_s, _CANCEL_S)
        quiet = 0
        # A controller that has not heard of it yet may begin another move.
        while quiet < 2 and client.now() < deadline:
            leaving = await _leaving(client, target)
            quiet = 0 if leaving else quiet + 1
            if leaving:
                called_off |= await cancel_moves(client, leaving, is_atomic=False)
            await asyncio.sleep(_WATCH_S)
        await set_state(client, target, ACTIVE)
        count = len(called_off)
        text = f"{changed_text(target, ACTIVE)}; {count} {'move was' if count == 1 else 'moves were'} called off"
        cli.out.value({"broker_id": target, "state": ACTIVE, "called_off": count}, text)


async def _leaving(client: AsyncClient, target: BrokerId) -> list[TopicPartition]:
    """Partitions that are being moved away from the broker, and are still on it."""
    return [
        TopicPartition(each.topic, each.partition)
        for each in await moves_in_progress(client)
        if target in each.origin and target not in each.target and target in each.replicas
    ]


# --- replace -------------------------------------------------------------------------------------


@broker.command("replace")
@click.argument("old", type=Whole(0))
@click.argument("new", type=Whole(0))
@click.option("--throttle", type=Bytes(), metavar="BYTES_PER_S", help="Limit per leader, for the new replicas.")
@click.option("--max-partitions", type=Whole(1), metavar="P", help="Partitions moved at once.")
@click.option("--dry-run", is_flag=True, help="Show what would move; nothing is moved.")
@yes_option
@click.option("--no-watch", is_flag=True, help="Return at once; the moves go on.")
@client_options
def replace(
    cli: Invocation,
    old: int,
    new: int,
    throttle: int | None,
    max_partitions: int | None,
    *,
    dry_run: bool,
    yes: bool,
    no_watch: bool,
) -> None:
    """Put the broker NEW in the place of OLD, which is dead: it gets OLD's replicas and preferred leaderships.

    NEW must be alive. If OLD is alive, use `decommission`. Start OLD's id with empty disks instead if you want to keep the id.

    Example:

    \b
      kafkalite admin broker replace 2 5
    """
    out, gone, fresh = cli.out, BrokerId(old), BrokerId(new)

    async def work() -> None:
        async with cli.connect() as client:
            assignment, racks = await _assignment(client)
            if gone in racks:
                reason = f"broker {gone} is alive: `kafkalite admin broker decommission {gone}` moves its replicas away"
                raise api_error(ErrorCode.INVALID_REQUEST, reason)
            if fresh not in racks:
                await refuse_unknown_broker(client, fresh)
                raise api_error(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {fresh} is not alive")
            moves = await moves_in_progress(client)
            begun = [each for each in moves if gone in each.origin and fresh in each.target]
            ends = {TopicPartition(each.topic, each.partition): each.target for each in moves}
            assignment = {partition: ends.get(partition, replicas) for partition, replicas in assignment.items()}
            made = replace_broker(gone, fresh, assignment)
            under_way = {TopicPartition(each.topic, each.partition): each.target for each in begun}
            _report(gone, fresh, made, len(begun), racks, assignment, out)
            if dry_run or not (made.targets or begun):
                return
            if not made.targets:
                if not no_watch:
                    await watch(client, out, wanted=under_way)
                return
            confirm(f"Move {number_of(len(made.targets), 'replica')} of broker {gone} to broker {fresh}?", yes=yes)
            wanted = tuple(WantedReassignment(*p, target, throttle or 0) for p, target in sorted(made.targets.items()))
            await request_moves(client, wanted, limits=(0, max_partitions or 0, 0))
            if not no_watch:
                await watch(client, out, wanted={**under_way, **made.targets})

    run_watch(work(), HOW_TO_RETURN)


async def _assignment(client: AsyncClient) -> tuple[dict[TopicPartition, Replicas], dict[BrokerId, str | None]]:
    answer = await client.metadata()
    assignment = {
        TopicPartition(topic.topic, entry.partition): entry.replicas
        for topic in answer.topics
        for entry in topic.partitions
    }
    return assignment, {each.broker_id: each.rack for each in answer.brokers}


def _report(
    gone: BrokerId,
    fresh: BrokerId,
    made: Replacement,
    begun: int,
    racks: Mapping[BrokerId, str | None],
    assignment: Mapping[TopicPartition, Replicas],
    out: Output,
) -> None:
    targets, kept = made.targets, made.kept
    doubled = shares_rack(targets, racks, assignment)
    value = {
        "old": gone,
        "new": fresh,
        "partitions": [{"topic": p.topic, "partition": p.partition, "replicas": list(r)} for p, r in targets.items()],
        "kept": [str(each) for each in kept],
        "under_way": begun,
        "on_one_rack": [str(each) for each in doubled],
    }
    text = f"{number_of(len(targets), 'replica')} of broker {gone} go to broker {fresh}"
    if begun:
        text += f"; {begun} more by moves that are under way already"
    out.value(value, text if targets or kept or begun else f"broker {gone} has no replicas")
    if kept:
        named = ", ".join(map(str, kept[:5])) + (", …" if len(kept) > 5 else "")
        text = f"broker {fresh} has a replica of {named} already; `kafkalite admin broker decommission {gone}` moves the rest"
        click.echo(f"kafkalite: {text}", err=True)
    if doubled:
        click.echo(
            f"kafkalite: {number_of(len(doubled), 'partition')} would have more replicas on one rack: broker {fresh} is on rack {racks.get(fresh)}",
            err=True,
        )
