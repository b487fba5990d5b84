"""A fault at each kind of disk operation (all of them: `python -m kafkalite.testing.simulate --every-disk-operation`)."""

from __future__ import annotations

import functools

import pytest

from kafkalite.testing.simulation import disk_operations
from kafkalite.testing.simulation.disk_operations import Case, DiskOperations, How
from kafkalite.testing.simulation.plants import PLANTS

#: Every kind of operation that SimDisk counts.
KINDS = (
    "append", "exists", "free_bytes", "listdir", "lock", "makedirs", "open", "read_at", "remove", "remove_tree", "rename", "sync",
    "sync_dir", "thread", "total_bytes", "truncate", "write_at",
)  # fmt: skip


@functools.cache
def listed() -> tuple[list[tuple[str, str]], list[str]]:
    """The operations of the run without a fault, and its log."""
    lines: list[str] = []
    run = DiskOperations(watch=lines.append)
    result = run.run()
    assert result.violation is None, result.line()
    return run.operations, lines


def test_the_workload_does_what_it_says() -> None:
    operations, lines = listed()
    assert {kind for kind, _ in operations} == set(KINDS)
    paths = " ".join(path for _, path in operations)
    for part in (
        "-future/", "-delete", ".log.deleted", "leader-epoch-checkpoint", "recovery-point-offset-checkpoint", ".snapshot",
        "replication-offset-checkpoint", "log-start-offset-checkpoint", "meta.properties",
    ):  # fmt: skip
        assert part in paths, part
    told = " ".join(lines)
    for event in ("disk_move.done", "replica.truncated", "node.stopped clean=True"):
        assert event in told, event


@pytest.mark.checklist("F28")
@pytest.mark.checklist(82)
@pytest.mark.parametrize("place", range(len(KINDS)), ids=KINDS)
def test_a_fault_at_each_kind_of_operation(place: int) -> None:
    case = disk_operations.few(listed()[0])[place]
    result = disk_operations.run_case(case)
    assert result.violation is None, "\n".join([*result.log[-30:], result.line()])


def test_a_replica_that_is_made_anew_in_the_isr_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTS["F28"](monkeypatch.setattr)
    operations, _ = listed()
    writes = [n for n, (kind, path) in enumerate(operations) if kind == "append" and path.endswith(".log")]
    # Not each of them: the replica may be out of the ISR already, or nothing may be committed yet.
    violations = [disk_operations.run_case(Case(n, How.DEAD)).violation or "" for n in writes[::4]]
    # Without its doubt, the empty replica may lead: what had been committed is below no high watermark any more.
    assert any("the high watermark goes up within an epoch" in each and "HW 0" in each for each in violations)


@pytest.mark.parametrize(
    ("kind", "path", "how"),
    [
        # The new disk died in the midst of an exchange: the move's task met a KeyError, and the sound old copy was removed.
        ("append", "{disk}/replication-offset-checkpoint.tmp", How.ERROR),
        # A node whose disk hung did not start again, for as long as the disk did not answer.
        ("thread", "/data1/short-0", How.HANG),
    ],
)
def test_what_was_found(kind: str, path: str, how: How) -> None:
    operations, _ = listed()
    # Of the checkpoint: the one in the exchange, right before the future log gets its name.
    exchange = max(n for n, (each, at) in enumerate(operations) if each == "rename" and at.endswith("-future"))
    disk = operations[exchange][1].rpartition("/")[0]
    found = [n for n, (each, at) in enumerate(operations) if (each, at) == (kind, path.format(disk=disk))]
    chosen = max(n for n in found if n < exchange) if kind == "append" else found[0]
    result = disk_operations.run_case(Case(chosen, how))
    assert result.violation is None, "\n".join([*result.log[-30:], result.line()])
