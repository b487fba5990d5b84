"""`kafkalite admin backup`: a cluster's topics and offsets as files, and back."""

from __future__ import annotations

import re
from pathlib import Path

import click

from kafkalite.wording import number_of
from kafkalite_cli.admin.backup.files import Manifest, check_records, finished_manifest
from kafkalite_cli.invocation import Invocation, client_options, group_options
from kafkalite_cli.new_files import keep_from_others
from kafkalite_cli.output import Output, confirm, run_watch, size_text
from kafkalite_cli.parameters import Bytes, Whole, json_option, parse_pattern

_MAX_PARALLEL = 64


@click.group()
@group_options
def backup(bootstrap: str | None) -> None:
    """Copy topics and groups' offsets into files, and back. Works with every broker that speaks Kafka's protocol."""


def _limit_options(command: click.decorators.FC) -> click.decorators.FC:
    command = click.option(
        "--parallel",
        type=Whole(1, _MAX_PARALLEL),
        default=4,
        show_default=True,
        metavar="N",
        help="Copy N partitions at the same time.",
    )(command)
    return click.option(
        "--limit", type=Bytes(), metavar="BYTES_PER_S", help="Copy at most this many bytes per second: 500kB, 20MB."
    )(command)


@backup.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic; may be given again.")
@click.option("--pattern", metavar="REGEX", help="Only topics whose whole name matches.")
@click.option("--no-groups", is_flag=True, help="Without the offsets of consumer groups.")
@_limit_options
@client_options
def create(
    cli: Invocation,
    directory: Path,
    topics: tuple[str, ...],
    pattern: str | None,
    *,
    no_groups: bool,
    parallel: int,
    limit: int | None,
) -> None:
    """Copy topics with their settings and records, and groups' offsets, into DIRECTORY.

    Copied are the records that are committed now; aborted transactions are left out. By default all topics are copied, except for those
    whose names begin with "__". Also ACLs and quotas, if they may be read (passwords cannot be read).

    After Ctrl-C or a crash, run the same command again: it continues where it was.

    Examples:

    \b
      kafkalite admin backup create /backup/monday
      kafkalite admin backup create /backup/orders --pattern 'orders[.].*' --limit 20MB
    """
    from kafkalite_cli.admin.backup.create import BackupSelection, create

    keep_from_others()
    parse_pattern(pattern or "", "--pattern")

    async def work() -> Manifest:
        async with cli.connect() as client:
            return await create(
                client,
                directory,
                BackupSelection(tuple(sorted(set(topics))), pattern, not no_groups),
                limit=limit,
                parallel=parallel,
                is_shown=not cli.out.as_json,
            )

    again = f"stopped: run the same command again to continue, or remove {directory}"
    _report(run_watch(work(), again), "copied", cli.out)


def _report(manifest: Manifest, what: str, out: Output) -> None:
    rows = [
        (topic.topic, len(topic.partitions), sum(p.records for p in topic.partitions), sum(p.size for p in topic.partitions))
        for topic in manifest.topics
    ]  # fmt: skip
    lost = [
        f"{topic.topic}-{part.partition}: offsets {first} to {after - 1} were deleted before they were copied"
        for topic in manifest.topics
        for part in topic.partitions
        for first, after in part.deleted
    ]
    names = ("topic", "partitions", "records", "bytes")
    if out.as_json:
        value = {
            "cluster_id": manifest.cluster_id,
            "started": manifest.started,
            "finished": manifest.finished,
            "topics": [dict(zip(names, row, strict=True)) for row in rows],
            "groups": len(manifest.groups),
            "acls": None if manifest.acls is None else len(manifest.acls),
            "quotas": None if manifest.quotas is None else len(manifest.quotas),
            "notes": [*manifest.notes, *lost],
        }
        out.value(value)
        return
    out.table(names, rows)
    records, size = sum(row[2] for row in rows), sum(row[3] for row in rows)
    groups = number_of(len(manifest.groups), "group")
    click.echo(f"\n{what}: {number_of(records, 'record')}, {size_text(size)}, {groups}")
    for note in [*manifest.notes, *lost]:
        click.echo(f"note: {note}")


@backup.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@json_option
def verify(directory: Path, *, as_json: bool) -> None:
    """Read a whole backup, and check every file, batch and count. Needs no cluster.

    Example:

    \b
      kafkalite admin backup verify /backup/monday
    """
    manifest = finished_manifest(directory)
    check_records(directory, manifest)
    _report(manifest, "whole", Output(as_json))


@backup.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option("--prefix", default="", metavar="TEXT", help="Restore topic T as TEXT + T.")
@click.option("--replace", is_flag=True, help="Delete topics that exist first; overwrite offsets of groups.")
@click.option("--replication-factor", type=Whole(1), metavar="N", help="Replicas each [default: as in the backup].")
@click.option("--without-setting", "left_out", multiple=True, metavar="KEY", help="Do not restore this topic setting.")
@click.option("--no-groups", is_flag=True, help="Without the offsets of consumer groups.")
@click.option("--acls", is_flag=True, help="Also add the backup's ACLs.")
@click.option("--quotas", is_flag=True, help="Also set the backup's quotas.")
@click.option(
    "--state",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where the restore keeps what it has created [default: a file in DIRECTORY].",
)
@click.option("--yes", is_flag=True, help="Do not ask (--replace).")
@_limit_options
@client_options
def restore(
    cli: Invocation,
    directory: Path,
    prefix: str,
    *,
    replace: bool,
    replication_factor: int | None,
    left_out: tuple[str, ...],
    no_groups: bool,
    acls: bool,
    quotas: bool,
    state: Path | None,
    yes: bool,
    parallel: int,
    limit: int | None,
) -> None:
    """Put the topics of a backup into this cluster, or another one, and compare every record.

    Topics that exist are not touched, unless you use --replace. Keys, values, headers, timestamps, partitions and settings are as they
    were. Offsets begin at 0, and groups' offsets are translated. Settings that would delete or change records (retention, compaction,
    LogAppendTime) are set after the records have been compared.

    After Ctrl-C or a crash, run the same command again: it continues where it was.

    Examples:

    \b
      kafkalite admin backup restore /backup/monday
      kafkalite admin backup restore /backup/monday --prefix restored. --no-groups
    """
    from kafkalite_cli.admin.backup.restore import Restore, Restored, RestoreState, Wishes

    manifest = finished_manifest(directory)
    wishes = Wishes(
        prefix, replication_factor, frozenset(left_out), replace, groups=not no_groups, acls=acls, quotas=quotas
    )

    async def work() -> Restored:
        async with cli.connect() as client:
            cluster_id = (await client.metadata(())).cluster_id
            name = re.sub(r"[^A-Za-z0-9_.-]", "_", f"restore-{cluster_id}-{prefix}").rstrip("-") + ".json"
            run = Restore(client, directory, manifest, wishes, RestoreState(state or directory / name))
            blocked = await run.obstacles()
            if blocked and replace:
                shown = ", ".join(blocked[:5]) + (f" and {len(blocked) - 5} more" if len(blocked) > 5 else "")
                confirm(f"Delete {shown} with all records, and restore from {directory}?", yes=yes)
            return await run.run(limit=limit, parallel=parallel, is_shown=not cli.out.as_json)

    done = run_watch(work(), "stopped: run the same command again to continue")
    value = {
        "records": done.records, "bytes": done.size, "restored_earlier": done.earlier, "topics": len(manifest.topics),
        "groups": done.groups, "acls": done.acls, "quotas": done.quotas, "notes": list(done.notes),
    }  # fmt: skip
    topics, groups = number_of(len(manifest.topics), "topic"), number_of(done.groups, "group")
    text = f"restored and compared: {topics}, {number_of(done.records, 'record')}, {size_text(done.size)}, {groups}"
    cli.out.value(value, "\n".join([text, *(f"note: {note}" for note in done.notes)]))
