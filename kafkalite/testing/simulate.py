"""`python -m kafkalite.testing.simulate`: one seed in detail, or many.

--seed 7                       draw, run and print it; run it again and compare
--seeds 500 [--start N] [--jobs 2]   many seeds; exit code 1 names those that failed
--seeds 40 --faults file,settings    the same clusters and clients, with many faults of these kinds and no others
--seeds 40 --harsh              more nodes, smaller segments, shorter sessions, several faults within a second
--plant F8 [--at-most 500]      put a classic error into the program, and look for the first seed that finds it
--every-disk-operation [--jobs 2]   one short run for each operation of a node's disks, with a fault exactly there
--disk-operation 456:and_power      one of these, in detail
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from kafkalite.testing.simulation import disk_operations
from kafkalite.testing.simulation.harsh import draw_harsh
from kafkalite.testing.simulation.plan import FaultKind, Plan, draw
from kafkalite.testing.simulation.plants import PLANTS
from kafkalite.testing.simulation.result import Result
from kafkalite.testing.simulation.run import simulate

T = TypeVar("T")
#: Seed -> its plan.
Draws = Callable[[int], Plan]

#: One in this number of seeds is run twice, and the traces must be equal.
_TWICE_EVERY = 10


def _one(seed: int, draws: Draws = draw) -> Result:
    result = simulate(seed, draws=draws)
    if result.ok and seed % _TWICE_EVERY == 0:
        again = simulate(seed, draws=draws)
        if again.trace_hash != result.trace_hash:
            result.violation = f"the second run differs: trace {result.trace_hash} and {again.trace_hash}"
    return result


def run_seed(seed: int, *, show_log: bool, once: bool, draws: Draws = draw) -> int:
    """Print one seed's plan and result; returns the exit code."""
    print("\n".join(draws(seed).lines()), flush=True)
    result = simulate(seed, watch=(lambda line: print(line)) if show_log else None, draws=draws)
    if not result.ok and not show_log:
        print("  the last log lines:")
        print("\n".join(f"    {line}" for line in result.log[-60:]))
    print(result.line())
    if once:
        return 0 if result.ok else 1
    again = simulate(seed, draws=draws)
    if again.trace_hash != result.trace_hash:
        print(f"NOT DETERMINISTIC: the second run's trace is {again.trace_hash}")
        return 1
    print("  the second run was the same, event for event")
    return 0 if result.ok else 1


def run_seeds(start: int, count: int, jobs: int, draws: Draws = draw) -> int:
    """Run many seeds in `jobs` processes; returns the exit code."""
    results = _run_many(partial(_one, draws=draws), range(start, start + count), jobs, "seeds")
    return summarize(f"{len(results)} seeds from {start}", results)


def run_disk_operations(jobs: int) -> int:
    """Every operation of the disks of one node, with faults; returns the exit code."""
    operations = disk_operations.listed()
    print(f"{len(operations)} operations: {disk_operations.kinds(operations)}", flush=True)
    cases = disk_operations.cases(operations)
    results = _run_many(disk_operations.run_case, cases, jobs, "faults", runs_per_process=200)
    return summarize(f"{len(results)} faults at {len(operations)} operations", results)


def run_disk_operation(case: disk_operations.Case, *, show_log: bool) -> int:
    """One of them in detail; returns the exit code."""
    result = disk_operations.run_case(case, watch=(lambda line: print(line)) if show_log else None)
    if not result.ok and not show_log:
        print("\n".join(result.log[-60:]))
    print(result.line())
    return 0 if result.ok else 1


def _run_many(
    run: Callable[[T], Result], what: Sequence[T], jobs: int, unit: str, *, runs_per_process: int = 25
) -> list[Result]:
    """All of them, in `jobs` processes, telling how far it is and what fails."""
    results: list[Result] = []
    failed = 0
    context = multiprocessing.get_context("spawn")
    # A process ends after some runs: what failed ones leave behind goes with it.
    with context.Pool(jobs, initializer=_begin_process, maxtasksperchild=runs_per_process) as pool:
        for result in pool.imap_unordered(run, what):
            result.log = result.log[-5:]
            results.append(result)
            if not result.ok:
                failed += 1
                print(f"\r{result.line()}", flush=True)
            if sys.stdout.isatty():
                print(f"\r{len(results)}/{len(what)} {unit}, {failed} failed", end="", flush=True)
            elif len(results) % 50 == 0:
                print(f"{len(results)}/{len(what)} {unit}, {failed} failed", flush=True)
    if sys.stdout.isatty():
        print()
    return results


def _begin_process() -> None:
    """The modules stay for as long as the process: collections of garbage need not look at them."""
    gc.collect()
    gc.freeze()


def find_plant(name: str, start: int, count: int) -> int:
    """Run seeds with the error `name` planted in this process until one finds it; 0 if one did."""
    PLANTS[name](setattr)
    for tried, seed in enumerate(range(start, start + count), 1):
        result = simulate(seed)
        if not result.ok:
            print(f"{name}: found after {tried} seeds")
            print(result.line())
            return 0
    print(f"{name}: {count} seeds have not found it")
    return 1


def _by_seed(result: Result) -> int:
    return result.seed


def summarize(what: str, results: Sequence[Result]) -> int:
    """Print the summary of many runs; returns the exit code."""
    failed = [result.name or str(result.seed) for result in sorted(results, key=_by_seed) if not result.ok]
    acked = sum(result.stats.get("acked", 0) for result in results)
    virtual_s, cpu_s = sum(result.virtual_s for result in results), sum(result.cpu_s for result in results)
    print(
        f"{what}: {len(results) - len(failed)} ok, {len(failed)} failed; "
        f"{acked} records acknowledged; {virtual_s:.0f} s of virtual time in {cpu_s:.0f} s of CPU"
    )
    if failed:
        print("failed: " + " ".join(failed))
    return 1 if failed else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kafkalite.testing.simulate", description=__doc__.split("\n")[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seed", type=int, help="run this one, twice, and print everything about it")
    what.add_argument("--seeds", type=int, metavar="COUNT", help="number of seeds")
    what.add_argument("--plant", choices=sorted(PLANTS), help="an error to put in and to be found")
    what.add_argument("--every-disk-operation", action="store_true", help="a fault at each operation of a node's disks")
    what.add_argument("--disk-operation", metavar="NUMBER:FAULT", help="one of these")
    parser.add_argument("--at-most", type=int, default=500, help="with --plant: give up after COUNT seeds")
    parser.add_argument("--start", type=int, default=1, help="the first of --seeds (default 1)")
    parser.add_argument("--jobs", type=int, default=1, help="processes for many runs (default 1)")
    parser.add_argument("--log", action="store_true", help="with one run: print every log line as it is written")
    parser.add_argument("--once", action="store_true", help="with --seed: do not run it a second time")
    parser.add_argument(
        "--faults",
        metavar="KIND,KIND",
        help=f"with seeds: only faults of these kinds: {', '.join(k.value for k in FaultKind)}",
    )
    parser.add_argument("--harsh", action="store_true", help="with seeds: more nodes, smaller segments, more at once")
    options = parser.parse_args(arguments)
    only = None if options.faults is None else frozenset(FaultKind(each) for each in options.faults.split(",") if each)
    draws = partial(draw_harsh if options.harsh else draw, only=only)
    if options.seed is not None:
        return run_seed(options.seed, show_log=options.log, once=options.once, draws=draws)
    if options.plant is not None:
        return find_plant(options.plant, options.start, options.at_most)
    if options.every_disk_operation:
        return run_disk_operations(options.jobs)
    if options.disk_operation is not None:
        number, _, how = options.disk_operation.partition(":")
        case = disk_operations.Case(int(number), disk_operations.How(how or "error"))
        return run_disk_operation(case, show_log=options.log)
    return run_seeds(options.start, options.seeds, options.jobs, draws)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of strings are ordered by a hash that is drawn per process: pin it, for this and its children.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "kafkalite.testing.simulate", *sys.argv[1:]])
    sys.exit(main())
