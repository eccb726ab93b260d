"""User-supplied datasets.

A dataset is a folder of CSV, an npz file, `file.py:load`, `pyg:Planetoid/Cora`, a Data object, or one of an installed
package (entry points `gt_bench.datasets`). A dataset that has been used once is listed in datasets.yaml of the current
folder (gt_bench/data/declared.py). Every command then knows it by its name.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
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
from gt_bench.data.custom.table import Table
from gt_bench.data.declared import FILE, GROUP, Entry, entries, level_in, level_of, source_of, spec_of, task_in
from gt_bench.data.registry import catalog
from gt_bench.plugins.data_options import DataOptions
from gt_bench.schemas import Settings
from gt_bench.utils.entry_points import described
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.io import held, is_plain_name, make_folder, write_bytes

STORED = Path("data/own")  # where data of a program are stored
NOTHING = DataOptions()
FORMS = "a dataset is a name, a folder of CSV, an npz file, file.py:load or pyg:Class/Name (docs/add_a_dataset.md)"


def dataset_name(text: str, options: DataOptions = NOTHING) -> str:
    """Returns the name of the dataset of `text`. A file, folder or `pyg:` name is added to datasets.yaml.

    Args:
        text: a name, or where the data are.
        options: what the user states about them.

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
        folder = f": to read its folder, write {file.parent}/" if file.suffix in (".csv", ".parquet") else ""
        raise DatasetError(f"{file}: a file of this kind is no dataset{folder}; {FORMS}")
    else:
        stem = file.stem if file.suffix else file.resolve().name
        stem += f"-{function}" if file.suffix == ".py" and function != "load" else ""
    ascii_only = unicodedata.normalize("NFKD", stem).encode("ascii", "ignore").decode()
    name = re.sub(r"[^a-z0-9.]+", "-", ascii_only.lower()).strip("-.")
    if not name:
        raise DatasetError(
            f"{text}: a dataset is called by its file or folder, in letters from a to z and digits; rename that"
        )
    return _declare(name, text, source_of(text), options)


def store_data(data: Any, name: str = "own-data", options: DataOptions = NOTHING) -> str:
    """Stores data of a program, and adds them to datasets.yaml.

    Args:
        data: a Data object, a list of them, DataFrames, a networkx graph, or a list of them. Graphs become
            data/own/NAME.npz, tables a folder data/own/NAME of CSV files.
        name: name of the dataset.
        options: as for `dataset_name`.

    Returns:
        The name.

    Raises:
        DatasetError: the data are invalid, or the name is taken.
    """
    if not is_plain_name(name):
        raise DatasetError(
            f"a dataset cannot be named {name!r}: letters, digits, '.', '_' and '-', beginning with a letter or digit"
        )
    if (tables := tables_of(data, name)) is not None:
        return _store_tables(tables, name, options)
    path = STORED / f"{name}.npz"
    _check_place(name, str(path), entries().get(name))
    graphs = graphs_of(data, name)
    if isinstance(graphs, Iterator):  # it can be read once, and is read twice below
        graphs = list(graphs)
    task = options.task_of(entries().get(name))
    of_edges = task in METRICS and level_of_task(task) == "edge"
    level = "edge" if of_edges else level_of(graphs, name)
    read = "link" if task == LINK else level
    section = options.section(entries().get(name))
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
    return _declare(name, str(path), path, options, level)


def _store_tables(tables: Mapping[str, Table], name: str, options: DataOptions) -> str:
    """Writes tables as a folder of CSV files, and adds it to datasets.yaml."""
    _check_place(name, str(STORED / name), entries().get(name))
    folder = make_folder(STORED / name)
    for path in folder.iterdir():
        if path.stem not in tables:
            path.unlink()
    for table, content in tables.items():
        write_bytes(folder / f"{table}.csv", to_csv(content).encode())
    return _declare(name, str(folder), folder, options)


def _check_free(name: str) -> None:
    """Raises DatasetError where an installed package names a dataset as the benchmark does."""
    for entry in entry_points(group=GROUP, name=name) if name in catalog() else ():
        raise DatasetError(
            f"{described(entry)}: the name is taken by a dataset of the benchmark; rename it in that package's "
            "pyproject.toml"
        )


def _declare(name: str, text: str, source: Path | Given, options: DataOptions, level: str | None = None) -> str:
    if name in catalog():
        raise DatasetError(f"{text}: its name {name!r} is taken by a dataset of the benchmark; {_other_name(text)}")
    content = entries()
    before = content.get(name)
    if (known := _check_place(name, text, before)) and options.agree(known):
        return name
    section, stored = options.section(before), before or {}
    chosen = options.task_of(before) or task_in(source, level or level_in(source), text, section)
    same = stored if stored.get("task") == chosen else {}
    entry: Settings = {
        "source": text,
        "task": chosen,
        "metric": options.metric or same.get("metric") or METRICS.get(chosen, ("accuracy",))[0],
    }
    entry |= options.kept(before) | ({"negatives": same["negatives"]} if "negatives" in same else {})
    spec = spec_of(name, validated(Entry, entry, text))
    check(spec)  # what the data do not fit is not written
    with held(make_folder(Path("data/.locks")) / f"{FILE}.lock"):  # another process may have added one meanwhile
        content = entries()
        write_bytes(FILE, yaml.safe_dump(content | {name: entry}, sort_keys=False, width=140).encode())
    print(
        f"{text} is now the dataset {name!r}: {entry['task']}, "
        f"{entry['metric']}{''.join(f', {key}' for key in ('undirected', 'inductive') if key in entry)} ({FILE})",
        flush=True,
    )
    return name


def _check_place(name: str, text: str, before: Settings | None) -> Entry | None:
    """Returns an entry of datasets.yaml. Raises DatasetError if it is of other data than `text`."""
    if before is None:
        return None
    known: Entry = validated(Entry, before, str(FILE), f"{name}.")
    if _place(known.source) != _place(text):
        raise DatasetError(
            f"{text}: its name {name!r} is taken in {FILE} by {known.source}; {_other_name(text)}, or remove that entry"
        )
    return known


def _other_name(text: str) -> str:
    in_memory = Path(text).is_relative_to(STORED)
    return "give another name: evaluate(..., name=...)" if in_memory else "rename the file or folder"


def _place(text: str) -> tuple[str, str]:
    """Returns file and function of a source, independent of how its path is written."""
    if text.startswith("pyg:"):
        return text, ""
    file, _, function = text.partition(":")
    return str(Path(file).resolve()), function or "load"
