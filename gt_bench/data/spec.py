"""What a dataset is before it is prepared: its raw files, its published statistics, and the function that packs it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from gt_bench.data.packed import PackedHeader
from gt_bench.utils.digest import digest_of
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.io import is_plain_name
from gt_bench.utils.versions import version_of

AT_MOST = 16 << 30  # maximum bytes of a raw file of unknown size
# prepare(spec, raw files by path, folder) packs a dataset into `folder`; raises DatasetError for damaged files
Prepare = Callable[["DatasetSpec", Mapping[str, Path], Path], None]


@dataclass(frozen=True)
class RemoteFile:
    """One raw file.

    Attributes:
        path: its path below a mirror and below data/raw.
        urls: its addresses, the official host first; empty for a file that only mirrors have.
        sha256: pinned digest. None if none is published: the digest found on first use is pinned then
            (`gt_bench.data.pins`).
        bytes: its size; None if unknown. Then at most `at_most` bytes are read.
        licence: its licence.
        note: a remark on the file.
        derived: how it was made, if it is not the original host's file.
        md5: the digest that its host publishes, if that is not sha256.
        pickled: it contains pickles, which only `gt_bench.data.safe_pickle` reads.
        pinned: the day on which `sha256` was pinned on first use; None if it is from files.json.
        at_most: maximum number of bytes.
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
    """One dataset: its data, split protocol and metric.

    Attributes:
        name: unique name.
        task: task, as in `gt_bench.config.tasks`.
        metric: the metric that selects and compares models.
        prepare: packs the dataset, see `Prepare`. It never uses the network.
        files: raw files.
        expected: published statistics, compared with the measured ones after every preparation.
        arguments: what `prepare` needs in addition to the files (seeds, sizes, names); part of the digest.
        licence: licence of the data.
        homepage: where the data are published.
        citation: the paper.
        notes: flaws and choices that a user must know.
        derived: how the data were made, if they are not the original host's; shown in every report.
        level: what a target belongs to.
        split_kind: what a split divides.
        needs: importable modules that only this preparation needs (for example rdkit); checked first.
        also: further reported metrics, which select nothing.
    """

    name: str
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
            remedy = "use letters, digits, '.', '_' and '-', beginning with a letter or digit"
            raise DatasetError(f"a dataset cannot be named {self.name!r}", value=self.name, remedy=remedy)

    @cached_property
    def digest(self) -> str:
        """sha256 of what decides the packed bytes: digests of files, arguments, version of the family's module."""
        module = self.prepare.__module__
        decisive = {
            "name": self.name,
            "task": self.task,
            "metric": self.metric,
            "files": [[f.path, f.sha256 or f.md5] for f in self.files],
            "arguments": dict(self.arguments),
            **({"also": self.also} if self.also else {}),
            "version": version_of(module) if module.startswith("gt_bench.") else "custom",
        }
        return digest_of(decisive, spaced=True, default=str)

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
        """Make the header of the packed dataset from the fields of the spec.

        Args:
            in_dim: width of continuous node features, or the vocabulary size of each categorical one.
            out_dim: number of classes or targets.
            edge_dim: as `in_dim`, of edge features; None if there are none.
            num_splits: number of splits.
            notes: notes in addition to those of the spec.
            others: further fields of `PackedHeader`.

        Returns:
            The header.
        """
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


def published(name: str, task: str, metric: str, prepare: Prepare, **others: Any) -> DatasetSpec:
    """Make the spec of a published dataset. What its source states about it is in published.json.

    Args:
        name: its name.
        task: its task.
        metric: its metric.
        prepare: packs it.
        others: further fields of the spec that decide the packed bytes.

    Returns:
        The spec, with the published statistics, licence, homepage, citation and notes.

    Raises:
        KeyError: the dataset is not in published.json.
    """
    stated = {key: value for key, value in _json("published.json")[name].items() if key != "expected_from"}
    return DatasetSpec(name, task, metric, prepare, **stated | {"notes": tuple(stated.get("notes", ()))}, **others)


def node_classification(name: str, prepare: Prepare, *, metric: str = "accuracy", **others: Any) -> DatasetSpec:
    """Make the spec of a published dataset of one graph with a class per node; arguments as of `published`."""
    return published(name, "node-classification", metric, prepare, level="node", split_kind="node", **others)


def files(*paths: str) -> tuple[RemoteFile, ...]:
    """Look up raw files in files.json.

    Args:
        paths: paths below data/raw.

    Returns:
        The files with their checksums and addresses.

    Raises:
        KeyError: a path is not in files.json.
    """
    return tuple(
        RemoteFile(
            path,
            tuple(entry["urls"]),
            pickled=entry.get("pickled", False),
            at_most=entry["bytes"] or entry.get("at_most", AT_MOST),
            **{key: entry.get(key) for key in ("sha256", "bytes", "licence", "note", "derived", "md5")},
        )
        for path, entry in ((path, file_entries()[path]) for path in paths)
    )


def known_digests() -> dict[str, str]:
    """Path -> sha256 of every raw file with a sha256 in files.json."""
    return {path: entry["sha256"] for path, entry in file_entries().items() if entry["sha256"]}


def file_entries() -> dict[str, dict[str, Any]]:
    """Read files.json: path -> addresses, digests, size and remarks of every raw file."""
    return _json("files.json")


@cache
def _json(name: str) -> dict[str, dict[str, Any]]:
    return json.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))
