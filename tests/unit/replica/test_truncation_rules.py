"""Where a follower cuts its log, one boundary at a time (`make mutate`)."""

from __future__ import annotations

import pytest

from kafkalite.model import LeaderEpoch, Offset
from kafkalite.replica.decisions.follower import Divergence, truncation_offset

#: Epoch -> the last epoch of ours that is not above it, and where it ends: epoch 2 ends at 50, epoch 4 at 90.
OURS = {2: (2, 50), 3: (2, 50), 4: (4, 90)}


@pytest.mark.checklist("F1")
@pytest.mark.checklist("F2")
@pytest.mark.parametrize(
    ("epoch", "leaders_end", "cut"),
    [
        (4, 70, 70),  # the same epoch: the nearer of the two ends
        (4, 95, 90),
        (3, 40, 50),  # we do not have epoch 3: all of our epoch 2 may stay, wherever the leader's epoch 3 ends
        (3, 60, 50),
    ],
)
def test_the_epoch_that_both_have_decides(epoch: int, leaders_end: int, cut: int) -> None:
    def epoch_end(asked: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        found, end = OURS[asked]
        return LeaderEpoch(found), Offset(end)

    divergence = Divergence(LeaderEpoch(epoch), Offset(leaders_end))
    found = truncation_offset(epoch_end, log_start_offset=Offset(0), log_end_offset=Offset(90), divergence=divergence)
    assert found == cut


@pytest.mark.checklist("F2")
@pytest.mark.parametrize(("leaders_end", "cut"), [(39, None), (40, 40), (41, 40)])
def test_a_leader_whose_later_epoch_began_before_the_own_start_is_copied_from_its_beginning(
    leaders_end: int, cut: int | None
) -> None:
    def epoch_end(asked: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        return LeaderEpoch(-1), Offset(-1)

    divergence = Divergence(LeaderEpoch(1), Offset(leaders_end))
    assert cut == truncation_offset(
        epoch_end, log_start_offset=Offset(40), log_end_offset=Offset(90), divergence=divergence
    )
