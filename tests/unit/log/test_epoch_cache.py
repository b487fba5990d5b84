"""Which leader epoch begins where: what a change of the cache reports, because the file is written only then."""

from __future__ import annotations

from kafkalite.log.epoch_cache import LeaderEpochCache


def cache() -> LeaderEpochCache:
    made = LeaderEpochCache()
    for epoch, start in ((1, 0), (3, 10), (4, 20)):
        assert made.assign(epoch, start)
    return made


def test_a_cut_forgets_what_begins_at_or_behind_it_and_says_whether_it_did() -> None:
    one = cache()
    assert not one.truncate_from_end(21)
    assert one.latest_epoch == 4
    assert one.truncate_from_end(20)
    assert one.latest_epoch == 3 and one.epoch_at(20) == 3
    assert one.truncate_from_end(0)
    assert one.latest_epoch == -1
    assert not one.truncate_from_end(0)


def test_what_spans_the_new_start_begins_there() -> None:
    one = cache()
    assert not one.truncate_from_start(0), "it begins there already"
    assert one.truncate_from_start(5), "the first epoch begins later"
    assert (one.epoch_at(4), one.epoch_at(5), one.epoch_at(10)) == (-1, 1, 3)
    assert not one.truncate_from_start(3), "before the first entry"
    assert one.truncate_from_start(10), "an epoch's own start: what is before it goes"
    assert (one.epoch_at(9), one.epoch_at(10)) == (-1, 3)
    assert one.truncate_from_start(25)
    assert (one.epoch_at(24), one.epoch_at(25)) == (-1, 4)


def test_where_an_epoch_ends() -> None:
    one = cache()
    assert one.end_offset_for(0, 30) == (-1, -1)
    assert [one.end_offset_for(epoch, 30) for epoch in (1, 2, 3, 4, 9)] == [(1, 10), (1, 10), (3, 20), (4, 30), (4, 30)]


def test_an_epoch_is_noted_once_and_a_lower_start_takes_the_place_of_later_ones() -> None:
    one = cache()
    assert not one.assign(4, 25), "it began at 20"
    assert one.assign(5, 20), "the one before has no record"
    assert (one.epoch_at(19), one.epoch_at(20)) == (3, 5)
    assert one.assign(4, 30), "what is newer was wrong"
    assert (one.epoch_at(29), one.epoch_at(30)) == (3, 4)
    assert one.clear() and not one.clear()


def test_what_is_known_of_an_epoch_stays() -> None:
    one = cache()
    assert not one.assign(-1, 30), "no leader"
    assert not one.assign(4, 20), "the same again"
    assert one.assign(3, 12), "the epoch behind it goes, its own start stays"
    assert one.entries() == [(1, 0), (3, 10)]
    first = LeaderEpochCache()
    assert first.assign(0, 0) and not first.assign(0, 0)
    assert first.entries() == [(0, 0)]
