"""Files of a pipeline's own, local or in an object store: state beside the checkpoint, Spark's log of offsets in it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kafkalite_pipelines.definition import PipelineError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

#: In the checkpoint's directory. Spark does not look at names it does not know.
OWN = "kafkalite"


class Place:
    """A directory by path or URI (file, s3, gs, hdfs: what pyarrow.fs knows)."""

    def __init__(self, location: str) -> None:
        self.location = location.rstrip("/")
        self._opened: tuple[FileSystem, str] | None = None

    def read(self, name: str) -> str | None:
        """The text of a file; None if it does not exist."""
        from pyarrow.fs import FileType

        files, base = self._open()
        if files.get_file_info(f"{base}/{name}").type != FileType.File:
            return None
        with files.open_input_stream(f"{base}/{name}") as stream:
            return str(stream.read().decode())

    def write(self, name: str, text: str) -> None:
        """Replace a file as a whole where the file system can. Raises PipelineError: it cannot be written."""
        files, base = self._open()
        path = f"{base}/{name}"
        try:
            files.create_dir(path.rpartition("/")[0], recursive=True)
            with files.open_output_stream(f"{path}.new") as stream:
                stream.write(text.encode())
            files.move(f"{path}.new", path)
        except OSError as error:  # that of a full disk does not say of which
            raise PipelineError(f"{path} cannot be written: {error}") from error

    def remove(self, name: str) -> None:
        from pyarrow.fs import FileType

        files, base = self._open()
        if files.get_file_info(f"{base}/{name}").type == FileType.File:
            files.delete_file(f"{base}/{name}")

    def exists(self, name: str) -> bool:
        """Whether there is a file or a directory of this name."""
        from pyarrow.fs import FileType

        files, base = self._open()
        return bool(files.get_file_info(f"{base}/{name}").type != FileType.NotFound)

    def make(self) -> None:
        """The directory, if it does not exist."""
        files, base = self._open()
        files.create_dir(base, recursive=True)

    def remove_tree(self, name: str) -> None:
        """A directory with all that is in it; nothing if it does not exist."""
        from pyarrow.fs import FileType

        files, base = self._open()
        if files.get_file_info(f"{base}/{name}").type == FileType.Directory:
            files.delete_dir(f"{base}/{name}")

    def move(self, name: str, to: str) -> None:
        """A file or a directory, to a place where there is none; the directories above that are made."""
        files, base = self._open()
        files.create_dir(f"{base}/{to}".rpartition("/")[0], recursive=True)
        files.move(f"{base}/{name}", f"{base}/{to}")

    def names(self, directory: str) -> list[str]:
        """The files in a directory; none if it does not exist."""
        from pyarrow.fs import FileSelector

        files, base = self._open()
        found = files.get_file_info(FileSelector(f"{base}/{directory}", allow_not_found=True))
        return [info.base_name for info in found]

    def read_json(self, name: str) -> Any:
        text = self.read(name)
        return None if text is None else json.loads(text)

    def _open(self) -> tuple[FileSystem, str]:
        if self._opened is None:
            from pyarrow.fs import FileSystem, LocalFileSystem

            if "://" in self.location:
                self._opened = FileSystem.from_uri(self.location)
            else:
                self._opened = (LocalFileSystem(), self.location)
        return self._opened


class Checkpoint:
    """What Spark keeps of a query, read only: its id and the ends of its batches."""

    def __init__(self, location: str) -> None:
        self.place = Place(location)

    def query_id(self) -> str | None:
        """The id of the query; None if it has never been started."""
        metadata = self.place.read("metadata")
        return None if metadata is None else str(json.loads(metadata)["id"])

    def last_batch(self) -> int | None:
        """The newest batch that was planned; it may not be complete."""
        numbers = [int(name) for name in self.place.names("offsets") if name.isdigit()]
        return max(numbers, default=None)

    def offsets(self, batch_id: int) -> dict[str, dict[str, int]] | None:
        """topic -> partition -> the next offset after batch `batch_id`. Spark writes this before the batch runs.

        Steps may join other streams, in any order: the lines of other kinds of sources, or of none yet ("-"), are passed over.
        """
        from pyspark_kafkalite.stream_offsets import EXTRA

        text = self.place.read(f"offsets/{batch_id}")
        if text is None:
            return None
        found: dict[str, dict[str, int]] = {}
        for line in text.splitlines()[2:]:
            if EXTRA in line:
                position = json.loads(line)
                found |= {topic: dict(numbers) for topic, numbers in position.items() if topic != EXTRA}
        return found
