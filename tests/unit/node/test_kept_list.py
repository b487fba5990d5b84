"""What a node keeps of its sessions and of the brokers that it has seen, and where."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kafkalite.node.earlier_sessions import EarlierSessions
from kafkalite.node.kept_list import KeptList
from tests.support.memory_disk import MemoryDisk

FILE = "kafkalite-sessions.json"


def pool(*online: str) -> Any:
    return SimpleNamespace(online=lambda: [SimpleNamespace(path=path) for path in online])


class Hanging(MemoryDisk):
    """Its /d1 never answers."""

    def read_file(self, path: str) -> bytes:
        assert not path.startswith("/d1"), "the node would wait for ever"
        return super().read_file(path)

    def write_file_atomic(self, path: str, data: bytes, *, durable: bool = True) -> None:
        assert not path.startswith("/d1"), "the node would wait for ever"
        super().write_file_atomic(path, data, durable=durable)


def test_a_directory_that_is_offline_is_not_touched() -> None:
    """A node whose first disk hung at the start was to start without it, and waited for it in its event loop."""
    disk = Hanging()
    disk.makedirs("/d2")
    sessions = EarlierSessions(disk, pool("/d2"))
    sessions.load()
    sessions.add(0xAB)
    again = EarlierSessions(disk, pool("/d2"))
    again.load()
    assert again.ids() == {0xAB}
    nowhere = EarlierSessions(disk, pool())
    nowhere.load()
    nowhere.add(1)


def test_sessions_in_a_copy_of_a_directory_do_not_count() -> None:
    """A second node on a copy of a running node's directory removed that node's registration, and took its id away from it."""
    disk = MemoryDisk()
    disk.makedirs("/d1")
    disk.makedirs("/copy")
    sessions = EarlierSessions(disk, pool("/d1"))
    sessions.load()
    sessions.add(0xAB)
    disk.write_file_atomic(f"/copy/{FILE}", disk.read_file(f"/d1/{FILE}"))
    copied = EarlierSessions(disk, pool("/copy"))
    copied.load()
    assert copied.ids() == frozenset()
    copied.add(0xCD)
    again = EarlierSessions(disk, pool("/d1", "/copy"))
    again.load()
    assert again.ids() == {0xAB, 0xCD}


def test_sessions_that_an_earlier_version_has_kept_count() -> None:
    disk = MemoryDisk()
    disk.makedirs("/d1")
    disk.write_file_atomic(f"/d1/{FILE}", b'["ab"]')
    sessions = EarlierSessions(disk, pool("/d1"))
    sessions.load()
    sessions.add(0xCD)
    again = EarlierSessions(disk, pool("/d1"))
    again.load()
    assert again.ids() == {0xAB, 0xCD}


def test_all_directories_that_are_online_count_and_damaged_files_do_not() -> None:
    disk = MemoryDisk()
    for path, data in (("/d1", b'["a"]'), ("/d2", b'["b", "zz"]'), ("/d3", b"\xff"), ("/d4", b'["c"]')):
        disk.makedirs(path)
        disk.write_file_atomic(f"{path}/{FILE}", data)
    kept = KeptList(disk, pool("/d1", "/d2", "/d3", "/d4", "/d5"), FILE)
    assert kept.load(lambda each: int(str(each), 16)) == {0xA, 0xC}
