"""User-supplied datasets.

A dataset is a folder of CSV, an npz file, `file.py:load`, `pyg:Planetoid/Cora`, a Data object, or one of an installed
package (entry points `gt_bench.datasets`). A dataset that has been used once is listed in datasets.yaml of the current
folder (gt_bench/data/declared.py). Every command then knows it by its name.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from gt_bench.config.schema import validated
from gt_bench.data.custom.dataset import METRICS, check, level_of_task
from gt_bench.data.custom.edges import LINK
from gt_bench.data.custom.frames import tables_of, to_csv
from gt_bench.data.custom.pyg import graphs_of
from gt_bench.data.custom.readers import BY, Given, Reader
from gt_bench.data.custom.splits import SplitSection, section_of
from gt_bench.data.custom.table import Table
from gt_bench.data.declared import (
    FILE,
    GROUP,
    USUAL_METRIC,
    Entry,
    entries,
    level_in,
    level_of,
    package_of,
    source_of,
    spec_of,
    task_in,
)
from gt_bench.data.registry import catalog
from gt_bench.schemas import Settings
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.io import held as held_lock
from gt_bench.utils.io import is_plain_name, make_folder, write_bytes

HELD = Path("data/own")  # where data of a program are stored
Split = str | Mapping[str, object]  # as `gt_bench.data.custom.splits.section_of` reads it
FORMS = "a dataset is a name, a folder of CSV, an npz file, file.py:load or pyg:Class/Name (docs/add_a_dataset.md)"


def named(
    text: str,
    task: str | None = None,
    metric: str | None = None,
    undirected: bool | None = None,
    split: Split | None = None,
    inductive: bool | None = None,
) -> str:
    """Returns the name of the dataset of `text`. A file, folder or `pyg:` name is added to datasets.yaml.

    Args:
        text: a name, or where the data are.
        task: of the data, if it differs from what the targets suggest.
        metric: of the data, if it differs from what the targets suggest.
        undirected: whether the reverse of each edge is added; None: the value in datasets.yaml, otherwise no.
        split: how the data are split, see `gt_bench.data.custom.splits.section_of`; None: as in datasets.yaml,
            otherwise the split of the data or ten random ones.
        inductive: whether training sees neither validation nor test nodes; None: as in datasets.yaml, otherwise no.

    Raises:
        DatasetError: the name is taken, or the task cannot be determined from the data.
    """
    file, function = Path(text.partition(":")[0]), text.partition(":")[2] or "load"
    if not text.startswith("pyg:") and not (file.suffix in (".npz", ".py") or "/" in text or (text and file.is_dir())):
        _check_free(text)
        return text
    if text.startswith("pyg:"):
        stem = text.replace(":", "-", 1)
    elif not file.exists():
        raise DatasetError(f"{file}: there is no such file or folder; {FORMS}")
    elif file.is_file() and file.suffix not in (".npz", ".py"):
        raise DatasetError(f"{file}: a file of this kind is no dataset; {FORMS}")
    else:
        stem = file.stem if file.suffix else file.resolve().name
        stem += f"-{function}" if file.suffix == ".py" and function != "load" else ""
    ascii_only = unicodedata.normalize("NFKD", stem).encode("ascii", "ignore").decode()
    name = re.sub(r"[^a-z0-9.]+", "-", ascii_only.lower()).strip("-.")
    if not name:
        raise DatasetError(
            f"{text}: a dataset is called by its file or folder, in letters from a to z and digits; rename that"
        )
    return _declare(name, text, source_of(text), Said(task, metric, undirected, split, inductive))


def held(
    data: Any,
    name: str = "own-data",
    task: str | None = None,
    metric: str | None = None,
    undirected: bool | None = None,
    split: Split | None = None,
    inductive: bool | None = None,
) -> str:
    """Stores data of a program, and adds them to datasets.yaml.

    Args:
        data: a Data object, a list of them, DataFrames, a networkx graph, or a list of them. Graphs become
            data/own/NAME.npz, tables a folder data/own/NAME of CSV files.
        name: name of the dataset.
        task: as for `named`.
        metric: as for `named`.
        undirected: as for `named`.
        split: as for `named`.
        inductive: as for `named`.

    Returns:
        The name.

    Raises:
        DatasetError: the data are invalid, or the name is taken.
    """
    if not is_plain_name(name):
        raise DatasetError(
            f"a dataset cannot be named {name!r}: letters, digits, '.', '_' and '-', beginning with a letter or digit"
        )
    said = Said(task, metric, undirected, split, inductive)
    if (tables := tables_of(data, name)) is not None:
        return _held_tables(tables, name, said)
    path = HELD / f"{name}.npz"
    _check_place(name, str(path), entries().get(name))
    graphs = graphs_of(data, name)
    if isinstance(graphs, Iterator):  # it can be read once, and is read twice below
        graphs = list(graphs)
    of_edges = task in METRICS and level_of_task(task) == "edge"
    level = "edge" if of_edges else level_of(graphs, name)
    read = "link" if task == LINK else level
    section = said.section(entries().get(name))
    reader = Reader(Given(lambda: graphs, "", name), read, (1.0, 0.0, 0.0), 1, 0, section=section)
    blocks = list(reader.blocks())
    axes = {"edge_index": -1, "split": -1}
    arrays: dict[str, Any] = {
        key: np.concatenate([block[key] for block in blocks], axis=axes.get(key, 0))
        for key in blocks[0]
        if key != "target"
    }
    if section and section.column:
        arrays[f"{BY}{section.column}"] = arrays.pop("by")
    if reader.remarks:
        arrays["remarks"] = np.array(reader.remarks)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)
    return _declare(name, str(path), path, said, level)


def _held_tables(tables: Mapping[str, Table], name: str, said: Said) -> str:
    """Writes tables as a folder of CSV files, and adds it to datasets.yaml."""
    _check_place(name, str(HELD / name), entries().get(name))
    folder = make_folder(HELD / name)
    for path in folder.iterdir():
        if path.stem not in tables:
            path.unlink()
    for table, content in tables.items():
        write_bytes(folder / f"{table}.csv", to_csv(content).encode())
    return _declare(name, str(folder), folder, said)


def _check_free(name: str) -> None:
    """Raises DatasetError where an installed package names a dataset as the benchmark does."""
    for entry in entry_points(group=GROUP, name=name) if name in catalog() else ():
        what = f"the entry point {entry.name} = {entry.value!r} of {package_of(entry)} (group {GROUP})"
        raise DatasetError(
            f"{what}: the name is taken by a dataset of the benchmark; rename it in that package's pyproject.toml"
        )


def _declare(
    name: str,
    text: str,
    source: Path | Given,
    said: Said,
    level: str | None = None,
) -> str:
    if name in catalog():
        raise DatasetError(
            f"{text}: its name {name!r} is taken by a dataset of the benchmark; rename the file or folder"
        )
    content = entries()
    before = content.get(name)
    if (known := _check_place(name, text, before)) and said.agrees(known):
        return name
    section = said.section(before)
    chosen = said.task or task_in(source, level or level_in(source), text, section)
    entry: Settings = {"source": text, "task": chosen, "metric": said.metric or USUAL_METRIC.get(chosen, "accuracy")}
    entry |= said.kept(before)
    spec = spec_of(name, validated(Entry, entry, text))
    check(spec)  # what the data do not fit is not written
    with held_lock(make_folder(Path("data/.locks")) / f"{FILE}.lock"):  # another process may have added one meanwhile
        content = entries()
        write_bytes(FILE, yaml.safe_dump(content | {name: entry}, sort_keys=False, width=140).encode())
    print(
        f"{text} is the dataset {name!r} from here on: {entry['task']}, "
        f"{entry['metric']}{''.join(f', {key}' for key in ('undirected', 'inductive') if key in entry)} ({FILE})",
        flush=True,
    )
    return name


@dataclass(frozen=True)
class Said:
    """What a command states of user-supplied data; None: as in datasets.yaml, otherwise by the data.

    Attributes are those of `named`.
    """

    task: str | None = None
    metric: str | None = None
    undirected: bool | None = None
    split: Split | None = None
    inductive: bool | None = None

    def section(self, before: Settings | None) -> SplitSection | None:
        """Returns the section of the split: the stated one, otherwise that of an entry of datasets.yaml."""
        if self.split is not None:
            return section_of(self.split, "--split")
        known = (before or {}).get("split")
        return section_of(known, f"{FILE}: split") if isinstance(known, Mapping) else None

    def agrees(self, known: Entry) -> bool:
        """Returns whether an entry of datasets.yaml has everything that is stated."""
        pairs = [(getattr(self, key), getattr(known, key)) for key in ("task", "metric", "undirected", "inductive")]
        same_split = self.split is None or section_of(self.split, "--split") == known.split
        return same_split and all(said in (None, has) for said, has in pairs)

    def kept(self, before: Settings | None) -> Settings:
        """Returns the keys of an entry that decide how the data are read: the stated ones, and others of `before`."""
        kept = {k: v for k, v in (before or {}).items() if k in ("split", "num_splits", "seed")}
        if self.split is not None and (section := self.section(before)):
            kept["split"] = section.content()
        for key in ("undirected", "inductive"):
            value = getattr(self, key)
            if value or (value is None and (before or {}).get(key)):
                kept[key] = True
        return kept


def _check_place(name: str, text: str, before: Settings | None) -> Entry | None:
    """Returns an entry of datasets.yaml. Raises DatasetError if it is of other data than `text`."""
    if before is None:
        return None
    known: Entry = validated(Entry, before, str(FILE), f"{name}.")
    if _place(known.source) != _place(text):
        in_memory = Path(text).is_relative_to(HELD)
        raise DatasetError(
            f"{text}: its name {name!r} is taken in {FILE} by {known.source}; "
            f"{'give another name: evaluate(..., name=...)' if in_memory else 'rename the file or folder'}, or remove "
            "that entry"
        )
    return known


def _place(text: str) -> tuple[str, str]:
    """Which file and function a source means, however its path is written."""
    if text.startswith("pyg:"):
        return text, ""
    file, _, function = text.partition(":")
    return str(Path(file).resolve()), function or "load"
