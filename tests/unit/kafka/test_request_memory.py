"""Memory of half received requests: who waits for it, and for how long."""

from __future__ import annotations

from kafkalite.kafka.request_memory import FrameMemory

MB = 2**20


class Peer:
    """A connection of one user."""

    def __init__(self, user: str) -> None:
        self.user = user
        self.frame_began = 0.0
        self.is_starving = self.is_refused = False

    def starve(self) -> None:
        self.is_starving = True

    def feed(self) -> None:
        self.is_starving = False

    def refuse(self, what: str, detail: str) -> None:
        self.is_refused = True


def test_who_fills_the_memory_delays_nobody_else() -> None:
    """Three hundred connections with a megabyte each of a request that does not go on: they are given up one after the other, a second
    each, and everybody else waited for all of them."""
    memory = FrameMemory(256 * MB, lambda: False)
    hogs = [Peer("hog") for _ in range(300)]
    for hog in hogs:
        memory.take(hog, MB)
    assert [hog.is_starving for hog in hogs].count(True) > 40
    honest = [Peer("shop"), Peer("billing")]
    for _ in range(10):
        for each in honest:
            memory.take(each, MB)
            assert not each.is_starving
    assert memory.bytes < 1.5 * 256 * MB
    for each in honest:
        memory.give(each, 10 * MB)
    for hog in hogs:
        memory.give(hog, MB)
    assert memory.bytes == 0


def test_a_buffer_belongs_to_whom_it_was_made_for() -> None:
    """A client logs in while its next request is half received: what it gives back is what it took."""
    memory = FrameMemory(10 * MB, lambda: False)
    peer, other = Peer("10.0.0.1"), Peer("10.0.0.1")
    memory.take(peer, MB)
    memory.take(other, MB)
    peer.user = "User:shop"
    memory.take(peer, MB)
    memory.give(peer, 2 * MB)
    assert memory.bytes == MB
    memory.give(other, MB)
    assert memory.bytes == 0 and len(memory._room) == 0
