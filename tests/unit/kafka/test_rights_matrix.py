"""The matrix API x version x right: tests/vectors/rights.txt, row by row, through the guard and handlers that are shipped.

The table is written down apart from `kafkalite.security.requirements`, so that a change of either shows. An API or a
version that is offered without a row fails, and so does a row for nothing.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.kafka.apis import OFFERED, is_served
from kafkalite.lazy_dataclass import dataclass
from kafkalite.protocol.schema import schemas
from kafkalite.security.acl import OPERATIONS, Operation, ResourceType

from .api_requests import CODES, NAMES, REFUSALS, request_of
from .conftest import Broker, FrameClient
from .rights import allow, client_of, codes_in, forget_all, restore
from .test_authorization import broker as broker  # the fixture

TABLE = Path(__file__).parents[2] / "vectors" / "rights.txt"
Right = tuple[ResourceType, Operation]


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """`needs`: each is a set of rights one of which is enough. `listed`: a list that is empty without them."""

    api: str
    versions: range
    needs: tuple[tuple[Right, ...], ...]
    refusals: frozenset[ErrorCode]
    listed: str

    def __str__(self) -> str:
        return f"{self.api} {self.versions.start}-{self.versions.stop - 1}"


def parse(line: str) -> MatrixRow:
    api, versions, needs, answer = (part.strip() for part in re.split(r" \| ", line))
    low, _, high = versions.partition("-")
    rights = []
    for need in [] if needs == "-" else needs.split():
        choices = [each.rstrip("?").split(":") for each in need.split("|")]
        rights.append(tuple((ResourceType[kind], Operation[operation]) for kind, operation in choices))
    listed = answer.removeprefix("empty ") if answer.startswith("empty ") else ""
    names = [] if listed or answer == "-" else answer.split()
    codes = frozenset(ErrorCode[f"{name}_AUTHORIZATION_FAILED"] for name in names)
    return MatrixRow(api, range(int(low), int(high or low) + 1), tuple(rights), codes, listed)


ROWS = [parse(line) for line in TABLE.read_text().splitlines() if line and not line.startswith("#")]


def test_every_api_and_version_has_one_row_and_every_row_an_api() -> None:
    described = [(row.api, version) for row in ROWS for version in row.versions]
    served = [
        (api, version)
        for api, (low, high) in OFFERED.items()
        for version in range(low, high + 1)
        if is_served(api, version)
    ]
    assert sorted(described) == sorted(served)
    assert {row.api + "Request" for row in ROWS} <= schemas().keys()


def test_a_row_names_rights_that_exist() -> None:
    for row in ROWS:
        for kind, operation in (right for choices in row.needs for right in choices):
            assert operation in OPERATIONS[kind], str(row)
        assert bool(row.needs) == bool(row.refusals or row.listed), str(row)
        assert row.refusals <= {CODES[kind] for choices in row.needs for kind, _ in choices[:1]}, str(row)


def grant(broker: Broker, rights: list[Right]) -> None:
    """Exactly these to ann."""
    forget_all(broker)
    for kind in {kind for kind, _ in rights}:
        allow(broker, "ann", kind, NAMES[kind], *(operation for each, operation in rights if each is kind))


@pytest.fixture
async def ann(broker: Broker) -> AsyncIterator[FrameClient]:
    yield await client_of(broker, "ann")


async def refusals_of(row: MatrixRow, version: int, broker: Broker, client: FrameClient) -> set[int]:
    """The refusals in the answer; an empty list counts as the code 0."""
    answer = await client.ask(request_of(row.api, version, broker), version)
    found = set(codes_in(answer)) & REFUSALS
    return found | ({0} if row.listed and not list(getattr(answer, row.listed)) else set())


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_nobody_without_a_right(row: MatrixRow, broker: Broker, ann: FrameClient) -> None:
    expected = {int(code) for code in row.refusals} or ({0} if row.listed else set())
    for version in row.versions:
        assert await refusals_of(row, version, broker, ann) == expected, version


def _all_but(row: MatrixRow) -> Iterator[tuple[list[Right], Right]]:
    """Every right of the row but one, with the one."""
    for missing in row.needs:
        yield [choices[0] for choices in row.needs if choices is not missing], missing[0]


def _other_operations(row: MatrixRow) -> list[Right]:
    """Everything on these resources that is not asked for and does not bring it along."""
    needed = {right for choices in row.needs for right in choices}
    brings = {Operation.DESCRIBE: {3, 4, 6, 7}, Operation.DESCRIBE_CONFIGS: {11}}
    return [
        (kind, operation)
        for kind in {kind for kind, _ in needed}
        for operation in OPERATIONS[kind]
        if not any(kind is its and (operation is one or operation in brings.get(one, ())) for its, one in needed)
    ]


@pytest.mark.parametrize("row", [row for row in ROWS if row.needs], ids=str)
async def test_exactly_the_right_is_enough_and_nothing_less(row: MatrixRow, broker: Broker, ann: FrameClient) -> None:
    choices_at = [(index, choice) for index, choices in enumerate(row.needs) for choice in choices]
    for version in row.versions:
        for rights, (kind, _) in _all_but(row):
            grant(broker, rights)
            code = 0 if row.listed else CODES[kind]
            assert await refusals_of(row, version, broker, ann) == {code}, (version, rights)
        grant(broker, _other_operations(row))
        assert await refusals_of(row, version, broker, ann), (version, "other operations of the same resources")
        for index, choice in choices_at:
            grant(broker, [choice if at == index else choices[0] for at, choices in enumerate(row.needs)])
            assert not await refusals_of(row, version, broker, ann), (version, choice)
            forget_all(broker)
            await restore(broker)


@pytest.mark.parametrize("row", [row for row in ROWS if not row.needs], ids=str)
async def test_what_needs_no_right_is_answered(row: MatrixRow, broker: Broker, ann: FrameClient) -> None:
    for version in row.versions:
        assert await ann.ask(request_of(row.api, version, broker), version) is not None
