"""The commands of README and of every page under docs/ are executed as they stand there, several pages at a time: they mostly wait."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.documented.__main__ import run_page
from tests.documented.pages import ROOT, executed, pages

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]

NAMES = [str(path.relative_to(ROOT)) for path in pages() if executed(path)]
AT_ONCE = 4


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[int]]]:
    directory = tmp_path_factory.mktemp("pages")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(run_page, ROOT / name, directory / Path(name).stem) for name in NAMES}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", NAMES)
def test_the_page_is_as_it_is_printed(name: str, running: dict[str, Future[int]]) -> None:
    assert running[name].result() > 0
