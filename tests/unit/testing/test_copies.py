"""What may be removed from a disk: all but the last of what is committed."""

import random

import pytest

from kafkalite.testing.simulated.clock import SimClock
from kafkalite.testing.simulated.disk import SimDisk
from kafkalite.testing.simulated.loop import SimLoop
from kafkalite.testing.simulation.checkers.cluster import Violation
from kafkalite.testing.simulation.checkers.copies import Copies, partition_of
from tests.support.logs import build_batch

LOG = "00000000000000000000.log"


def test_the_last_copy_may_not_go_and_another_may() -> None:
    loop = SimLoop()  # type: ignore[abstract]
    disks = {name: SimDisk(loop, SimClock(loop), random.Random(1)) for name in ("one", "two")}
    copies = Copies(disks.items, ["/d"], lambda partition: 2, ["t"])
    batch = build_batch([(None, b"a"), (None, b"b")])

    def put(host: str, name: str, data: bytes) -> str:
        disks[host].makedirs(f"/d/{name}")
        disks[host].open(f"/d/{name}/{LOG}", create=True).append([data])
        return f"/d/{name}"

    mine = put("one", "t-0.0123abc-stray", batch)
    put("two", "t-0", b"")
    with pytest.raises(Violation, match="never removed"):
        copies.removing("one", mine)
    copies.removing("two", "/d/t-0")
    put("two", "u-0", batch)
    copies.removing("two", "/d/u-0")
    put("two", "t-0.0123abc-delete", batch)
    copies.removing("one", mine)
    assert not copies.is_complete_without("one", ("t", 0), ["two"]), "what is set aside serves nobody"
    put("one", "__share_group_state-0", batch)
    put("two", "__share_group_state-0", b"")  # its disk is an older copy
    put("two", "__share_group_state-0.0123abc-stray", batch)
    assert not copies.is_as_long_without("one", ("__share_group_state", 0), ["two"])
    assert copies.is_as_long_without("two", ("__share_group_state", 0), ["one"])
    assert not copies.is_as_long_without("two", ("__share_group_state", 0), []), "an empty one may be the only one"
    loop.close()


def test_names() -> None:
    assert partition_of("t-0") == (("t", 0), True)
    assert partition_of("a_b-12.00ff-stray") == (("a_b", 12), False)
    assert partition_of("t-0.00ff-future") is None
    assert partition_of("meta.properties") is None
