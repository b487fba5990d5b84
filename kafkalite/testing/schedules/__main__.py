"""`python -m kafkalite.testing.schedules`."""

from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path

import click

from kafkalite.testing.schedules import SCHEDULES, lacking, run


@click.command()
@click.argument("names", nargs=-1)
@click.option("--list", "listed", is_flag=True, help="List which there are.")
@click.option("--seed", default=None, type=int, help="Default: drawn, and printed.")
@click.option("--rate", default=500.0, show_default=True, help="Records a second.")
@click.option("--pace", default=1.0, show_default=True, help="Factor of every length of time.")
@click.option("--keep", default=None, type=click.Path(path_type=Path), help="Leave data and logs here.")
def main(
    names: tuple[str, ...], *, listed: bool, seed: int | None, rate: float, pace: float, keep: Path | None
) -> None:
    """Play fault schedules, one after the other (default: all)."""
    if listed:
        for name, schedule in SCHEDULES.items():
            click.echo(f"{name:28}{schedule.title}")
        return
    failed = False
    for name in names or SCHEDULES:
        if needed := lacking(name):
            click.echo(f"{name}: not played, it needs {needed}")
            failed = failed or bool(names)
            continue
        drawn = seed if seed is not None else random.SystemRandom().randrange(10**6)
        click.echo(f"{name}: seed {drawn}")
        with tempfile.TemporaryDirectory(prefix="kafkalite-schedule-") as temporary:
            directory = keep / f"{name}-{drawn}" if keep is not None else Path(temporary)
            verdict = asyncio.run(run(name, directory, seed=drawn, rate=rate, pace=pace, say=click.echo))
        click.echo(
            f"  acked = {len(verdict.tally.acked)}, failed = {len(verdict.tally.failed)}, read = {verdict.census.read}, "
            f"longest silence = {verdict.tally.longest_silence_s:.1f} s, in sync after {verdict.healed_s:.1f} s, "
            f"peak memory = {verdict.peak_memory_bytes >> 20} MB"
        )
        for each in verdict.wrong:
            click.echo(f"  WRONG: {each}")
        failed = failed or bool(verdict.wrong)
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
