"""Folders, here or in an object store, by one interface: a path, or a URI (file:, s3a:, abfss:, hdfs:, gs:)."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from headgate.topology_runtime.errors import InvalidInput

URI = re.compile(r"^[a-z][a-z0-9+.-]+://")


@dataclass(frozen=True)
class DataPlace:
    """`uri`: as Spark takes it; `path`: as the file system takes it; `local`: on this machine's disks."""

    uri: str
    path: str
    local: bool

    @property
    def name(self) -> str:
        return self.path.rstrip("/").rpartition("/")[2]

    @property
    def parent(self) -> DataPlace:
        cut = len(self.name) + 1
        return DataPlace(self.uri.rstrip("/")[:-cut], self.path.rstrip("/")[:-cut], self.local)

    def __truediv__(self, name: str) -> DataPlace:
        return DataPlace(f"{self.uri.rstrip('/')}/{name}", f"{self.path.rstrip('/')}/{name}", self.local)

    def files(self) -> Any:
        """The pyarrow file system it is on. Credentials come from the environment, as for its own tools."""
        from pyarrow import fs

        return fs.LocalFileSystem() if self.local else _remote(self.uri.partition("://")[0], self._authority)

    @property
    def _authority(self) -> str:
        return self.uri.partition("://")[2].partition("/")[0]

    @property
    def draft(self) -> DataPlace:
        """Where to write what shall appear here whole. An object store shows nothing before its end anyway."""
        return self.parent / f"_{self.name}" if self.local else self

    def finish(self, draft: DataPlace) -> None:
        """Show here what was written to the draft."""
        if draft != self:
            self.files().move(draft.path, self.path)

    def children(self) -> list[tuple[DataPlace, bool]]:
        """What is in it, by name: (place, is it a folder?). Empty when it does not exist."""
        from pyarrow import fs

        infos = self.files().get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        found = [(self / info.base_name, info.type == fs.FileType.Directory) for info in infos]
        return sorted(found, key=lambda item: item[0].name)

    def sizes(self) -> list[tuple[str, int, int]]:
        """Of the files in it: (name, bytes, ns since 1970 of the last change)."""
        from pyarrow import fs

        infos = self.files().get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        files = [info for info in infos if info.type == fs.FileType.File]
        return sorted((info.base_name, info.size or 0, info.mtime_ns or 0) for info in files)

    def is_folder(self) -> bool:
        from pyarrow import fs

        return bool(self.files().get_file_info(self.path).type == fs.FileType.Directory)

    def is_file(self) -> bool:
        from pyarrow import fs

        return bool(self.files().get_file_info(self.path).type == fs.FileType.File)

    def read(self) -> bytes:
        """What is in it; of a compressed file (.gz) what was compressed. Raises OSError."""
        with self.files().open_input_stream(self.path) as stream:
            return bytes(stream.read())

    def write(self, content: bytes) -> None:
        """Whole or not at all."""
        files, draft = self.files(), self.draft
        files.create_dir(self.parent.path, recursive=True)
        with files.open_output_stream(draft.path) as stream:
            stream.write(content)
        self.finish(draft)

    def delete(self) -> None:
        self.files().delete_file(self.path)

    def delete_folder(self) -> None:
        """With all that is in it."""
        self.files().delete_dir(self.path)

    def move_to(self, other: DataPlace) -> None:
        """A file or a folder to a place where there is nothing yet; nothing happens when there is none here."""
        from pyarrow import fs

        files, kind = self.files(), self.files().get_file_info(self.path).type
        if kind == fs.FileType.NotFound:
            return
        if self.local or kind == fs.FileType.File:
            files.move(self.path, other.path)
            return
        fs.copy_files(self.path, other.path, source_filesystem=files, destination_filesystem=files)
        files.delete_dir(self.path)


@lru_cache(maxsize=16)
def _remote(scheme: str, authority: str) -> Any:
    """The file system of a bucket or container."""
    import pyarrow as pa
    from pyarrow import fs

    try:
        if scheme in ("s3", "s3a", "s3n"):
            return fs.S3FileSystem()
        return fs.FileSystem.from_uri(f"{scheme}://{authority}/")[0]
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InvalidInput(f"{scheme}://{authority} cannot be reached", cause=str(error)) from error


def place(text: str | os.PathLike[str]) -> DataPlace:
    """The place that a path or URI names."""
    text = os.fspath(text)
    if URI.match(text) and not text.startswith("file://"):
        scheme, _, rest = text.partition("://")
        authority, _, inside = rest.partition("/")
        if scheme.startswith("abfs"):
            path = f"{authority.partition('@')[0]}/{inside}"  # container, then what is in it
        else:
            path = f"/{inside}" if scheme == "hdfs" else rest
        return DataPlace(text.rstrip("/"), path.rstrip("/"), False)
    path = os.path.abspath(text.removeprefix("file://"))
    return DataPlace(Path(path).as_posix(), path, True)
