"""What a dataset is before it is prepared: its files, its published statistics, and the function that turns the one into the other."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from gt_bench.data.packed import PackedHeader
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.io import is_plain_name
from gt_bench.utils.versions import version_of

AT_MOST = 16 << 30  # bytes of a raw file whose size nobody states
Prepare = Callable[["DatasetSpec", Mapping[str, Path], Path], None]


@dataclass(frozen=True)
class RemoteFile:
    """One raw file.

    Attributes:
        path: its place below a mirror and below data/raw.
        urls: where it can be had, the official host first; empty for a file that only a mirror has.
        sha256: pinned digest; None where none is published: then that of the first use is pinned (`gt_bench.data.checksums`).
        bytes: its size, or None; then not more than `at_most` bytes of it are read.
        md5: the digest its host publishes, where that is not sha256.
        pickled: holds pickles, which only `gt_bench.data.safe_pickle` reads.
        pinned: the day on which `sha256` was pinned on first use; None where files.json has it.
        derived: how it was made, where it is not the original host's file.
    """

    path: str
    urls: tuple[str, ...] = ()
    sha256: str | None = None
    bytes: int | None = None
    licence: str | None = None
    note: str | None = None
    derived: str | None = None
    md5: str | None = None
    pickled: bool = False
    pinned: str | None = None
    at_most: int = AT_MOST

    def __post_init__(self) -> None:
        parts = PurePosixPath(self.path).parts
        if not parts or self.path.startswith("/") or ".." in parts:
            raise ValueError(f"a raw file's path must stay below data/raw; got {self.path!r}")


@dataclass(frozen=True)
class DatasetSpec:
    """One dataset: data plus its split protocol and metric.

    Attributes:
        prepare: prepare(spec, files by path, folder) packs the dataset into `folder`; runs no network code.
        also: metrics that are reported beside `metric` and decide nothing.
        expected: published statistics, held against the measured ones after every preparation.
        arguments: what `prepare` needs beyond the files (seeds, sizes, names); part of the digest.
        derived: says how, where the data are not the original host's; shown in every report.
        notes: flaws and choices that a user must see.
        needs: importable modules that only this preparation needs (for example rdkit), checked first.
    """

    name: str
    family: str
    task: str
    metric: str
    prepare: Prepare
    files: tuple[RemoteFile, ...] = ()
    expected: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    licence: str = "not stated"
    homepage: str = ""
    citation: str = ""
    notes: tuple[str, ...] = ()
    derived: str | None = None
    level: str = "graph"
    split_kind: str = "graph"
    needs: tuple[str, ...] = ()
    also: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not is_plain_name(self.name):
            raise DatasetError(
                f"a dataset cannot be named {self.name!r}: letters, digits, '.', '_' and '-', beginning with a letter or digit"
            )

    @cached_property
    def digest(self) -> str:
        """sha256 of what decides the packed bytes: files' digests, arguments, the version of the family's module."""
        decisive = {
            "name": self.name,
            "task": self.task,
            "metric": self.metric,
            "files": [[f.path, f.sha256 or f.md5] for f in self.files],
            "arguments": dict(self.arguments),
            **({"also": self.also} if self.also else {}),
            "version": version_of(self.prepare.__module__)
            if self.prepare.__module__.startswith("gt_bench.")
            else "custom",
        }
        return hashlib.sha256(json.dumps(decisive, sort_keys=True, default=str).encode()).hexdigest()

    def header(
        self,
        *,
        in_dim: Any,
        out_dim: int,
        edge_dim: Any = None,
        num_splits: int = 1,
        notes: tuple[str, ...] = (),
        **others: Any,
    ) -> PackedHeader:
        """The packed header with everything that the spec already knows."""
        return PackedHeader(
            name=self.name,
            task=self.task,
            metric=self.metric,
            also=list(self.also),
            level=self.level,
            in_dim=in_dim,
            edge_dim=edge_dim,
            out_dim=out_dim,
            split_kind=self.split_kind,
            num_splits=num_splits,
            derived=self.derived,
            notes=[*self.notes, *notes],
            provenance={
                "spec": self.digest,
                "files": {f.path: f.sha256 or f.md5 for f in self.files},
                "arguments": dict(self.arguments),
                "licence": self.licence,
                "homepage": self.homepage,
                "citation": self.citation,
            },
            **others,
        )


def file(path: str) -> RemoteFile:
    """The raw file of this path with its checksum and addresses (files.json). Raises KeyError for an unknown path."""
    entry = _files()[path]
    known = ("sha256", "bytes", "licence", "note", "derived", "md5")
    bound = entry["bytes"] or entry.get("at_most", AT_MOST)
    return RemoteFile(
        path,
        tuple(entry["urls"]),
        pickled=entry.get("pickled", False),
        at_most=bound,
        **{key: entry.get(key) for key in known},
    )


def files(*paths: str) -> tuple[RemoteFile, ...]:
    """`file` of each path."""
    return tuple(file(path) for path in paths)


def known_digests() -> dict[str, str]:
    """Path -> sha256 of every raw file that files.json pins."""
    return {path: entry["sha256"] for path, entry in _files().items() if entry["sha256"]}


@cache
def _files() -> dict[str, dict[str, Any]]:
    return json.loads((Path(__file__).parent / "files.json").read_text(encoding="utf-8"))
