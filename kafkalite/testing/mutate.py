"""`make mutate`: does a test fail if a rule is wrong? Changes one operator or constant of a module at a time, and runs its tests.

python -m kafkalite.testing.mutate [MODULE …] [--seconds 600] [--list]

A mutant is killed by a test that fails, by a test that does not end, or by a module that cannot be imported. A mutant that survives is
printed with its line: either no test looks there, or the change makes no difference (write that down in EQUAL).
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import importlib
import importlib.abc
import importlib.machinery
import io
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

from kafkalite.lazy_dataclass import dataclass

#: Module -> the fast tests of its rules.
MODULES: dict[str, tuple[str, ...]] = {
    "kafkalite.controller.decisions.elections": (
        "tests/property/test_controller_elections.py",
        "tests/datadriven/test_controller.py",
    ),
    "kafkalite.coordinators.transactions.state": ("tests/unit/kafka/test_transaction_state.py",),
    "kafkalite.log.cleaner": ("tests/unit/log/test_cleaner.py",),
    "kafkalite.log.epoch_cache": (
        "tests/unit/log/test_epoch_cache.py",
        "tests/property/log/test_twins.py",
        "tests/unit/log/test_partition_log.py",
    ),
    "kafkalite.log.producer_state": (
        "tests/unit/log/test_transactions.py",
        "tests/unit/log/test_partition_log.py",
        "tests/property/log/test_twins.py",
    ),
    "kafkalite.log.retention": (
        "tests/unit/log/test_retention_rules.py",
        "tests/property/log/test_twins.py",
        "tests/unit/log/test_partition_log.py",
    ),
    "kafkalite.replica.decisions.follower": ("tests/unit/replica/test_isr.py", "tests/unit/replica/test_scenarios.py"),
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
}
#: (module, source line without indentation): changes of these lines that make no difference, each with its reason.
EQUAL: dict[tuple[str, str], str] = {
    ("kafkalite.replica.decisions.leader", "if end < lowest:"): "the lower one of two equal ends",
    (
        "kafkalite.replica.decisions.leader",
        "return lowest if lowest > mark else mark",
    ): "the higher one of two equal marks",
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
    """One change."""

    module: str
    line: int
    what: str
    source: str


def mutants(module: str, source: str) -> Iterator[Mutant]:
    """Every change of the module's functions, one at a time."""
    tree = ast.parse(source)
    count = sum(1 for _ in _sites(tree))
    for number in range(count):
        twin = copy.deepcopy(tree)
        node, change, what = list(_sites(twin))[number]
        change()
        yield Mutant(module, node.lineno, what, ast.unparse(ast.fix_missing_locations(twin)))


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


class _Mutated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from another source."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name != self._mutant.module:
            return None
        return importlib.machinery.ModuleSpec(name, self, origin=_file(name).as_posix())

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._mutant.source, f"<{self._mutant.what}>", "exec"), module.__dict__)


def _file(module: str) -> Path:
    return Path(*module.split(".")).with_suffix(".py")


def _passes(mutant: Mutant | None, tests: Sequence[str], patience_s: float) -> bool:
    """Whether the tests pass, in a child that has imported nothing of the project's yet."""
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            os.setpgid(0, 0)
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), 1)
                os.dup2(nowhere.fileno(), 2)
            for name in [name for name in sys.modules if name.partition(".")[0] == "kafkalite"]:
                del sys.modules[name]
            if mutant is not None:
                sys.meta_path.insert(0, _Mutated(mutant))
                # Now: pytest puts a finder of its own in front, which rewrites what belongs to a plugin's package.
                importlib.import_module(mutant.module)
            import pytest

            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *_QUIET, *tests]))
        os._exit(code)
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def run(module: str, tests: Sequence[str], seconds: float) -> tuple[int, int, list[Mutant]]:
    """(mutants there are, mutants tried, survivors); not all are tried if time is short, but evenly spread ones."""
    source = _file(module).read_text()
    every = list(mutants(module, source))
    began = time.monotonic()
    if not _passes(None, tests, 600.0):
        raise SystemExit(f"{module}: the tests fail without any change: {' '.join(tests)}")
    one_s = time.monotonic() - began
    count = max(1, min(len(every), int(seconds / max(one_s * 0.8, 0.1))))
    chosen = [every[number * len(every) // count] for number in range(count)]
    survivors = []
    lines = source.splitlines()
    for mutant in chosen:
        if _passes(mutant, tests, one_s * _PATIENCE + 10) and (module, lines[mutant.line - 1].strip()) not in EQUAL:
            survivors.append(mutant)
            print(f"  survives: {module}:{mutant.line} {mutant.what}: {lines[mutant.line - 1].strip()}", flush=True)
    return len(every), len(chosen), survivors


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kafkalite.testing.mutate", description=__doc__.split("\n")[0])
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"of {', '.join(MODULES)} (default all)")
    parser.add_argument("--seconds", type=float, default=900.0, help="for each module (default 900)")
    parser.add_argument("--list", action="store_true", help="print every mutant, run nothing")
    options = parser.parse_args(arguments)
    importlib.import_module("pytest")
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
