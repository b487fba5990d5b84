"""`make mutate`: does a test fail if a rule is wrong? Changes one operator or constant of a module at a time, and runs its tests.

python -m kafkalite.testing.mutate [MODULE …] [--seconds 600] [--list]

The tests are collected once. Each mutant has a child process, forked behind that, in which the module's functions get the changed code. A
mutant is killed by a test that fails or does not end. One that survives is printed with its line: either no test looks there, or the
change makes no difference (write that down in EQUAL).
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import importlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING

from kafkalite.lazy_dataclass import dataclass

if TYPE_CHECKING:
    import pytest

#: Module -> the fast tests of its rules.
MODULES: dict[str, tuple[str, ...]] = {
    "kafkalite.controller.decisions.elections": (
        "tests/property/test_controller_elections.py",
        "tests/datadriven/test_controller.py",
    ),
    "kafkalite.coordinators.transactions.state": ("tests/unit/kafka/test_transaction_state.py",),
    "kafkalite.log.cleaner": (
        "tests/unit/log/test_cleaner.py",
        "tests/unit/log/test_compaction_swap.py",
        "tests/unit/log/test_compaction_transactions.py",
        "tests/property/log/test_compaction.py",
    ),
    "kafkalite.log.rewriting": (
        "tests/unit/log/test_cleaner.py",
        "tests/unit/log/test_compaction_large_batches.py",
        "tests/property/log/test_compaction.py",
    ),
    "kafkalite.log.epoch_cache": (
        "tests/unit/log/test_epoch_cache.py",
        "tests/property/log/test_twins.py",
        "tests/unit/log/test_partition_log.py",
    ),
    "kafkalite.log.kept_producers": (
        "tests/unit/log/test_compaction_producers.py",
        "tests/property/log/test_compaction.py",
    ),
    "kafkalite.log.producer_state": (
        "tests/unit/log/test_producer_state.py",
        "tests/unit/log/test_formats.py",
        "tests/unit/log/test_transactions.py",
        "tests/unit/log/test_partition_log.py",
        "tests/property/log/test_twins.py",
    ),
    "kafkalite.log.retention": (
        "tests/unit/log/test_retention_rules.py",
        "tests/property/log/test_twins.py",
        "tests/unit/log/test_partition_log.py",
    ),
    "kafkalite.log.transaction_index": (
        "tests/unit/log/test_transaction_index.py",
        "tests/unit/log/test_transactions.py",
    ),
    "kafkalite.replica.decisions.follower": (
        "tests/unit/replica/test_truncation_rules.py",
        "tests/unit/replica/test_isr.py",
        "tests/unit/replica/test_scenarios.py",
    ),
    "kafkalite.replica.decisions.isr": (
        "tests/unit/replica/test_leader_rules.py",
        "tests/unit/replica/test_isr.py",
        "tests/property/test_high_watermark.py",
        "tests/unit/replica/test_scenarios.py",
    ),
    "kafkalite.replica.decisions.leader": (
        "tests/unit/replica/test_leader_rules.py",
        "tests/unit/replica/test_isr.py",
        "tests/property/test_high_watermark.py",
        "tests/unit/replica/test_scenarios.py",
    ),
    "kafkalite.replica.skipped_sequences": ("tests/unit/replica/test_skipped_sequences.py",),
}
#: (module, source line without indentation): changes of these lines that make no difference, each with its reason.
EQUAL: dict[tuple[str, str], str] = {
    ("kafkalite.log.producer_state", "self.timestamp = -1"): "set by the first thing written",
    ("kafkalite.log.producer_state", "self.quiet_since_s: float | None = None"): "an annotation",
    (
        "kafkalite.log.producer_state",
        "self.batches: list[tuple[BatchHeader, int, EndTransactionMarker | None]] = []",
    ): "an annotation",
    (
        "kafkalite.log.producer_state",
        "out = bytearray(_SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, 0, len(self._entries)))",
    ): "the checksum takes this place at the end",
    ("kafkalite.log.transaction_index", "self._entries: list[AbortedTxn] | None = None"): "an annotation",
    ("kafkalite.log.transaction_index", "self._synced = 0"): "set again before it is read: by `load` or `reset`",
    ("kafkalite.log.transaction_index", "if file.size() > size:"): "a file that is cut to its own size",
    (
        "kafkalite.log.epoch_cache",
        "return list(zip(self._epochs, self._starts, strict=True))",
    ): "both lists always have the same length",
    ("kafkalite.replica.decisions.leader", "if end < lowest:"): "the lower one of two equal ends",
    (
        "kafkalite.replica.decisions.leader",
        "return lowest if lowest > mark else mark",
    ): "the higher one of two equal marks",
    (
        "kafkalite.replica.skipped_sequences",
        "if error not in PASSING or len(records) < _HEAD_BYTES:",
    ): "no batch is as short as that: its header has 61 bytes",
}

_COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_BINARY: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd
}  # fmt: skip
#: Factor by which a run of tests may take longer before it counts as one that does not end.
_PATIENCE = 5.0
_QUIET = ("-W", "ignore::pytest.PytestAssertRewriteWarning")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change; `number` counts the places of the module where one can be made."""

    module: str
    line: int
    what: str
    number: int


def mutants(module: str, source: str) -> list[Mutant]:
    """Every change of the module's functions, one at a time."""
    sites = _sites(ast.parse(source))
    return [Mutant(module, node.lineno, what, number) for number, (node, _, what) in enumerate(sites)]


def mutated(source: str, mutant: Mutant) -> ast.Module:
    """The module with this change."""
    tree = ast.parse(source)
    for number, (_, change, _) in enumerate(_sites(tree)):
        if number == mutant.number:
            change()
            break
    return ast.fix_missing_locations(tree)


#: Where, how, and in words.
_Site = tuple[ast.expr, Callable[[], None], str]


def _sites(tree: ast.Module) -> Iterator[_Site]:
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for statement in function.body:
            for node in ast.walk(statement):
                yield from _changes(node)


def _changes(node: ast.AST) -> Iterator[_Site]:
    if isinstance(node, ast.Compare):
        for place, old in enumerate(node.ops):
            new = _COMPARE[type(old)]

            def compare(node: ast.Compare = node, place: int = place, new: type[ast.cmpop] = new) -> None:
                node.ops[place] = new()

            yield node, compare, f"{type(old).__name__} -> {new.__name__}"
    elif isinstance(node, ast.BoolOp):

        def boolean(node: ast.BoolOp = node) -> None:
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()

        yield node, boolean, "and <-> or"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):

        def keep(node: ast.UnaryOp = node) -> None:
            node.op = ast.Not()
            node.operand = ast.UnaryOp(ast.Not(), node.operand)

        yield node, keep, "not dropped"
    elif isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        other = _BINARY[type(node.op)]

        def binary(node: ast.BinOp = node, other: type[ast.operator] = other) -> None:
            node.op = other()

        yield node, binary, f"{type(node.op).__name__} -> {other.__name__}"
    elif isinstance(node, ast.Constant) and type(node.value) is bool:

        def flip(node: ast.Constant = node) -> None:
            node.value = not node.value

        yield node, flip, f"{node.value} -> {not node.value}"
    elif isinstance(node, ast.Constant) and type(node.value) is int:

        def add(node: ast.Constant = node) -> None:
            assert isinstance(node.value, int)
            node.value = node.value + 1

        yield node, add, f"{node.value} -> {node.value + 1}"


def _file(module: str) -> Path:
    return Path(*module.split(".")).with_suffix(".py")


def _functions(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _functions(each)


class Functions:
    """The functions of a module that is loaded, wherever they are bound."""

    def __init__(self, module: str) -> None:
        origin = importlib.import_module(module).__file__
        assert origin is not None
        self._origin = origin
        self._of: dict[tuple[str, int], list[FunctionType]] = {}
        for each in gc.get_objects():
            if type(each) is FunctionType and each.__code__.co_filename == origin:
                key = (each.__code__.co_qualname, each.__code__.co_firstlineno)
                self._of.setdefault(key, []).append(each)

    def take(self, tree: ast.Module) -> None:
        """From now on they do what the other tree says. Its functions are at the same lines."""
        for code in _functions(compile(tree, self._origin, "exec")):
            for function in self._of.get((code.co_qualname, code.co_firstlineno), ()):
                function.__code__ = code


class _InsteadOfTheTests:
    """A plugin: runs the collected tests for each mutant in a child process of its own, which is forked after all imports."""

    def __init__(self, module: str, seconds: float) -> None:
        self._module = module
        self._seconds = seconds
        self.there = self.tried = 0
        self.survivors: list[Mutant] = []
        self.error = ""

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Pytest's hook: what it does after it has collected."""
        source = _file(self._module).read_text()
        lines = source.splitlines()
        every = mutants(self._module, source)
        functions = Functions(self._module)
        began = time.monotonic()
        if not self._passes(session, None, 600.0):
            self.error = f"{self._module}: the tests fail without any change"
            return True
        one_s = time.monotonic() - began
        count = max(1, min(len(every), int(self._seconds / max(one_s * 0.8, 0.1))))
        for number in range(count):
            mutant = every[number * len(every) // count]
            line = lines[mutant.line - 1].strip()
            if (self._module, line) in EQUAL:
                continue
            change = (functions, mutated(source, mutant))
            if self._passes(session, change, one_s * _PATIENCE + 10):
                self.survivors.append(mutant)
                print(f"  survives: {self._module}:{mutant.line} {mutant.what}: {line}", file=sys.stderr, flush=True)
        self.there, self.tried = len(every), count
        return True

    @staticmethod
    def _passes(session: pytest.Session, change: tuple[Functions, ast.Module] | None, patience_s: float) -> bool:
        child = os.fork()
        if child == 0:
            code = 1
            with contextlib.suppress(BaseException):
                os.setpgid(0, 0)
                with open(os.devnull, "w") as nowhere:
                    os.dup2(nowhere.fileno(), 1)
                    os.dup2(nowhere.fileno(), 2)
                if change is not None:
                    change[0].take(change[1])
                from _pytest.main import pytest_runtestloop

                pytest_runtestloop(session)
                code = int(session.testsfailed > 0)
            os._exit(code)
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status) == 0
            time.sleep(0.01)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return False


def run(module: str, tests: Sequence[str], seconds: float) -> tuple[int, int, list[Mutant]]:
    """(mutants there are, mutants tried, survivors); not all are tried if time is short, but evenly spread ones."""
    import pytest

    plugin = _InsteadOfTheTests(module, seconds)
    collected = pytest.main(["-x", "-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", *_QUIET, *tests], [plugin])
    if plugin.error or not plugin.there:
        raise SystemExit(plugin.error or f"{module}: no tests ({collected!s}): {' '.join(tests)}")
    return plugin.there, plugin.tried, plugin.survivors


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kafkalite.testing.mutate", description=__doc__.split("\n")[0])
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"of {', '.join(MODULES)} (default all)")
    parser.add_argument("--seconds", type=float, default=900.0, help="for each module (default 900)")
    parser.add_argument("--list", action="store_true", help="print every mutant, run nothing")
    options = parser.parse_args(arguments)
    table = []
    for module in options.modules or sorted(MODULES):
        if options.list:
            for mutant in mutants(module, _file(module).read_text()):
                print(f"{mutant.module}:{mutant.line} {mutant.what}")
            continue
        there, tried, survivors = run(module, MODULES[module], options.seconds)
        table.append(f"{module:40} {there:8} {tried:6} {len(survivors):9}")
        print(table[-1], flush=True)
    if table:
        print("\n".join(["", f"{'module':40} {'mutants':>8} {'tried':>6} {'survivors':>9}", *table]))
    return 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "kafkalite.testing.mutate", *sys.argv[1:]])
    sys.exit(main())
