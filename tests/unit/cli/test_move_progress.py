"""What commands say that watch moves."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kafkalite.client.admin.moves import Part, Tracker
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.cluster_view import ClusterView
from kafkalite.client.results import Metadata
from kafkalite.errors import ErrorCode
from kafkalite.extension.messages.reassignment import ListReassignmentsRequest, ListReassignmentsResponse, Reassignment
from kafkalite.model import BrokerId, LeaderEpoch, TopicId, TopicPartition
from kafkalite.partition_values import PartitionMetadata, TopicMetadata
from kafkalite_cli.admin.move_progress import MovesEnded, line, watch
from kafkalite_cli.output import Output


class _NothingMoves:
    """A cluster in which no reassignment is in progress, and t-0 has these replicas, one look after the other."""

    def __init__(self, *replicas: tuple[int, ...]) -> None:
        self._replicas = list(replicas)
        self.view = ClusterView()
        self.backoff = self
        self.timeout_s = 1.0

    def pause_s(self, attempts: int) -> float:
        return 0.0

    async def request(
        self, request: ListReassignmentsRequest, response: type[ListReassignmentsResponse]
    ) -> ListReassignmentsResponse:
        return response(ErrorCode.NONE)

    async def metadata(self, topics: set[str]) -> Metadata:
        assert topics == {"t"}
        ids = tuple(map(BrokerId, self._replicas.pop(0) if len(self._replicas) > 1 else self._replicas[0]))
        partition = PartitionMetadata(0, 0, ids[0], LeaderEpoch(1), ids, ids)
        return Metadata("c", BrokerId(1), (), (TopicMetadata("t", 0, TopicId("id"), (partition,)),))

    def now(self) -> float:
        return 0.0


T0 = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("wanted", "says"),
    [({T0: (2, 1)}, "all reassignments are done"), (None, "no reassignment is in progress")],
)
async def test_moves_that_were_done_before_the_first_look(
    wanted: dict[TopicPartition, tuple[int, ...]] | None, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    client = cast(AsyncClient, _NothingMoves((1, 3), (2, 1)))  # the first node has not heard of the end yet
    await watch(client, Output(as_json=False), wanted=wanted)
    assert capsys.readouterr().out == says + "\n"


async def test_moves_that_somebody_else_has_cancelled_are_not_done(capsys: pytest.CaptureFixture[str]) -> None:
    """It said "all reassignments are done", and ended with 0."""
    client = cast(AsyncClient, _NothingMoves((1, 3)))
    with pytest.raises(
        MovesEnded, match="1 of 1 partition did not get the requested replicas: t-0 has 1,3 and not 2,1"
    ):
        await watch(client, Output(as_json=False), wanted={T0: (2, 1)})
    assert capsys.readouterr().out == ""


class _ACancelledMove(_NothingMoves):
    """t-0 goes from 1,3 to 2,1 at the first look."""

    is_over = False

    async def request(self, request: Any, response: Any) -> Any:
        was_over, self.is_over = self.is_over, True
        move = Reassignment("t", 0, ids(1, 3, 2), ids(2, 1), ids(1, 3), ids(2, 1, 3), (), ids(1, 3), BrokerId(1))
        return response(ErrorCode.NONE, "", () if was_over else (move,))

    async def metadata(self, topics: Any) -> Metadata:
        return await super().metadata({"t"})

    async def describe_replicas(self, topics: Any, *, timeout_s: float) -> dict[BrokerId, Any]:
        return {}


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


async def test_whoever_watches_learns_that_moves_were_cancelled(capsys: pytest.CaptureFixture[str]) -> None:
    """`status --watch` said "all reassignments are done", and ended with 0."""
    with pytest.raises(MovesEnded, match="t-0 has 1,3 and not 2,1"):
        await watch(cast(AsyncClient, _ACancelledMove((1, 3))), Output(as_json=False))
    await watch(cast(AsyncClient, _ACancelledMove((2, 1))), Output(as_json=False))
    assert capsys.readouterr().out.endswith("all reassignments are done\n")


def test_progress_names_the_broker_that_a_move_waits_for() -> None:
    """A move to a broker that has died stood still, and nothing said why."""
    tracker = Tracker()
    tracker.take([Part(T0, 100, 40, is_under_way=True, replicas=(1, 2, 4), target=(1, 4), origin=(1, 2))], 0.0)
    assert line(tracker, [BrokerId(4)]).endswith("; waits for broker 4, which is not alive")
    assert line(tracker).endswith("(40 %)")


def test_a_move_that_is_replaced_begins_again() -> None:
    """What had been copied for the first move counted for the second one, too: 60 % while a sixth was there."""
    tracker = Tracker()

    def part(done: int, *target: int) -> Part:
        return Part(T0, 100, done, is_under_way=True, replicas=(1, *target), target=target, origin=(1, 2))

    tracker.take([part(80, 4, 2)], 0.0)
    tracker.take([part(90, 4, 2)], 1.0)
    tracker.take([part(5, 3, 2)], 2.0)
    assert (tracker.done_bytes, tracker.total_bytes, tracker.rate) == (5, 100, 0.0)
    tracker.take([part(15, 3, 2)], 4.0)
    assert (tracker.done_bytes, tracker.eta_s) == (15, 17.0)


def test_no_time_left_is_computed_from_half_a_second() -> None:
    """Replicas get a megabyte at once: 2.6 MB/s and 18 s were shown for a move at 0.9 MB/s."""
    tracker = Tracker()
    for now, done in ((0.0, 0), (0.5, 40), (1.9, 40)):
        tracker.take([Part(T0, 100, done, is_under_way=True, replicas=(1, 2), target=(1, 2), origin=(1,))], now)
        assert line(tracker).endswith(f"({done} %)")
    tracker.take([Part(T0, 100, 50, is_under_way=True, replicas=(1, 2), target=(1, 2), origin=(1,))], 2.0)
    assert (tracker.rate, tracker.eta_s) == (25.0, 2.0)
