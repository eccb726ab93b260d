"""User-supplied datasets.

A dataset is a folder of CSV, an npz file, `file.py:load`, `pyg:Planetoid/Cora`, a Data object, or one of an installed
package (entry points `gt_bench.datasets`). A dataset that has been used once is listed in datasets.yaml of the current
folder (gt_bench/data/declared.py). Every command then knows it by its name. What datasets.yaml says of it is valid for
the content for which it was declared.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import unicodedata
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from gt_bench.config.schema import validated
from gt_bench.data.custom.dataset import check, check_content
from gt_bench.data.custom.description import Description
from gt_bench.data.custom.pyg import graphs_of
from gt_bench.data.custom.source import BY, STORED, Given, Reader, content_of
from gt_bench.data.custom.tables import Table, tables_of
from gt_bench.data.declared import FILE, GROUP, Declaration, entries, source_of, spec_from
from gt_bench.data.readers import located
from gt_bench.data.registry import catalog, get_spec
from gt_bench.data.spec import DatasetSpec
from gt_bench.utils.entry_points import described
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.io import held, is_plain_name, make_folder, write_bytes

NOTHING = Description()
FORMS = "a dataset is a name, a folder of CSV, an npz file, file.py:load or pyg:Class/Name (docs/own_data.md)"


def dataset_name(text: str, options: Description = NOTHING) -> str:
    """Returns the name of the dataset of `text`. A file, folder or `pyg:` name is added to datasets.yaml.

    Args:
        text: a name, or where the data are.
        options: what the user declares about them.

    Raises:
        DatasetError: the name is taken, the task cannot be determined from the data, or options were declared for other
            content.
    """
    if not is_place(text):
        _check_free(text)
        spec = get_spec(text)
        if text in entries() and options.stated():  # as if the data were named by path
            source = validated(Declaration, entries()[text], FILE, text).source
            return _declare(text, source, source_of(source), options)
        check_options(spec, options)
        return text
    return _declare(_name_of(text), text, source_of(text), options)


def undeclared(text: str, options: Description = NOTHING) -> DatasetSpec:
    """Returns the spec of data as `dataset_name` would declare them, without writing datasets.yaml."""
    if not is_place(text):
        check_options(spec := get_spec(text), options)
        return spec
    name, source = _name_of(text), source_of(text)
    return spec_from(name, source, _options(name, text, source, options)[0])


def check_options(spec: DatasetSpec, options: Description) -> None:
    """Checks that a dataset that is used by its name has what is declared.

    Raises:
        DatasetError: it has another task or direction, or is split in another way.
    """
    reader = spec.arguments.get("reader")
    has = (reader.description.stated() if reader else {}) | {"task": spec.task, "metric": spec.metric}
    for key, value in options.stated().items():
        if has.get(key) != value:
            text = f"is used as it is stored: {key} is {has[key]}" if key in has else f"has no {key} that can be chosen"
            remedy = "only user-supplied data, named by path, can be read in another way"
            raise DatasetError(text, file=f"dataset {spec.name!r}", place=key, value=value, remedy=remedy)


def store_data(data: Any, name: str = "own-data", options: Description = NOTHING) -> str:
    """Stores data of a program, and adds them to datasets.yaml.

    Args:
        data: a Data object, a list of them, DataFrames, a networkx graph, or a list of them. Graphs become
            data/own/NAME.npz, tables a folder data/own/NAME of Parquet files.
        name: name of the dataset.
        options: as for `dataset_name`.

    Returns:
        The name.

    Raises:
        DatasetError: the data are invalid, the name is taken, or options were declared for other content.
    """
    if not is_plain_name(name):
        remedy = "use letters, digits, '.', '_' and '-', beginning with a letter or digit"
        raise DatasetError(f"a dataset cannot be named {name!r}", value=name, remedy=remedy)
    tables = tables_of(data, name, options)
    path = STORED / (name if tables is not None else f"{name}.npz")
    known = _known(name, str(path))
    reading = options if options.stated() or known is None else Description(**known.stated())
    make_folder(STORED)
    with tempfile.TemporaryDirectory(dir=STORED, prefix=f".{name}.") as folder:
        new = Path(folder, path.name)
        if tables is not None:
            _write_tables(tables, make_folder(new))
        else:
            _write_arrays(data, name, new, reading)
        _options(name, str(path), new, options)  # before earlier data are replaced
        if path.is_dir():
            shutil.rmtree(path)
        new.replace(path)
    return _declare(name, str(path), path, options)


def _known(name: str, text: str) -> Declaration | None:
    """Returns the entry of datasets.yaml. Raises DatasetError if the name is that of other data than `text`."""
    if name in catalog():
        problem = f"its name {name!r} is taken by a dataset of the benchmark"
        raise DatasetError(problem, file=text, value=name, remedy=_other_name(text))
    if (stored := entries().get(name)) is None:
        return None
    known: Declaration = validated(Declaration, stored, FILE, name)
    if _place(known.source) != _place(text):
        problem = f"its name {name!r} is taken in {FILE} by {known.source}"
        raise DatasetError(problem, file=text, value=name, remedy=f"{_other_name(text)}, or remove that entry")
    return known


def _write_tables(tables: Mapping[str, Table], folder: Path) -> None:
    """Writes tables as Parquet files, with their types."""
    import pandas as pd

    for name, table in tables.items():
        kinds = {column: table.typed(column)[0] for column in table.columns}
        columns = {c: table.frame[c] if kind == "category" else table.typed(c)[1] for c, kind in kinds.items()}
        pd.DataFrame(columns, columns=table.columns).to_parquet(folder / f"{name}.parquet", index=False)


def _write_arrays(data: Any, name: str, path: Path, options: Description) -> None:
    """Writes graphs as an npz file."""
    with located(name):
        graphs = graphs_of(data)
    graphs = list(graphs) if isinstance(graphs, Iterator) else graphs  # it is read more than once
    # the direction of edges is decided when the file is read
    as_given = options.model_copy(update={"undirected": None})
    reader = Reader(Given(lambda: graphs, "", name), as_given, options.task)
    if reader.task is None:
        reader.task = f"{reader.level}-"
    blocks = list(reader.blocks())
    axes = {"edge_index": -1, "split": -1}
    arrays: dict[str, Any] = {
        key: np.concatenate([block[key] for block in blocks], axis=axes.get(key, 0))
        for key in blocks[0]
        if key != "target"
    }
    arrays["edge_index"] = arrays["edge_index"] + (options.first_id or 0)
    if "by" in arrays:
        arrays[f"{BY}{reader.by}"] = arrays.pop("by")
    np.savez(path, **arrays)


def is_place(text: str) -> bool:
    """Returns whether a text says where data are, and is no name."""
    file = Path(text.partition(":")[0])
    return text.startswith("pyg:") or file.suffix in (".npz", ".py") or "/" in text or (text != "" and file.is_dir())


def _name_of(text: str) -> str:
    """Returns the name of data at a place."""
    file, function = Path(text.partition(":")[0]), text.partition(":")[2] or "load"
    if text.startswith("pyg:"):
        stem = text.replace(":", "-", 1)
    elif not file.exists():
        raise DatasetError("there is no such file or folder", file=file, remedy=FORMS)
    elif file.is_file() and file.suffix not in (".npz", ".py"):
        folder = f": to read its folder, write {file.parent}/" if file.suffix in (".csv", ".parquet") else ""
        raise DatasetError(f"a file of this kind is no dataset{folder}", file=file, remedy=FORMS)
    else:
        stem = file.stem if file.suffix else file.resolve().name
        stem += f"-{function}" if file.suffix == ".py" and function != "load" else ""
    ascii_only = unicodedata.normalize("NFKD", stem).encode("ascii", "ignore").decode()
    name = re.sub(r"[^a-z0-9.]+", "-", ascii_only.lower()).strip("-.")
    if not name:
        problem = "a dataset is called by its file or folder, in letters from a to z and digits"
        raise DatasetError(problem, file=text, remedy="rename that")
    return name


def _check_free(name: str) -> None:
    """Raises DatasetError where an installed package names a dataset as the benchmark does."""
    for entry in entry_points(group=GROUP, name=name) if name in catalog() else ():
        problem = "the name is taken by a dataset of the benchmark"
        remedy = "rename it in that package's pyproject.toml"
        raise DatasetError(problem, file=described(entry), value=name, remedy=remedy)


def _options(name: str, text: str, source: Path | Given, options: Description) -> tuple[Description, bool]:
    """Returns what is declared about data: by `options`, and for the same content by datasets.yaml.

    Returns:
        The options, and whether datasets.yaml has them already.

    Raises:
        DatasetError: the name is taken, or datasets.yaml declares something about other content and `options` nothing.
    """
    if (known := _known(name, text)) is None:
        return options, False
    given, before = options.stated(), Description(**known.stated())
    if known.made_from not in (None, content_of(source)):
        if not given:
            check_content(name, before, source)
        return options, False
    if all(getattr(before, key) == value for key, value in given.items()):
        return before, True
    if {"target", "task"} & set(given):  # what belongs to the earlier task
        of_task = ("metric", "negatives", "bipartite", *(["task"] if "target" in given else []))
        before = before.model_copy(update=dict.fromkeys(of_task))
    return options.over(before), False


def _declare(name: str, text: str, source: Path | Given, options: Description) -> str:
    chosen, is_known = _options(name, text, source, options)
    if is_known:
        return name
    spec = spec_from(name, source, chosen)
    check(spec)  # what the data do not fit is not written
    about = {"task": spec.task, "metric": spec.metric} | chosen.content()
    with held(make_folder(Path("data/.locks")) / f"{FILE}.lock"):  # another process may have added one meanwhile
        entry, before = {"source": text, "made_from": spec.arguments["content"], **about}, entries()
        write_bytes(FILE, yaml.safe_dump(before | {name: entry}, sort_keys=False, width=140).encode())
    other = name in before and before[name].get("made_from") != entry["made_from"]
    place = ", in place of other data" if other else ""
    said = ", ".join(str(value) if key in ("task", "metric") else f"{key}: {value}" for key, value in about.items())
    print(f"{text} is now the dataset {name!r}{place}: {said} ({FILE})", flush=True)
    return name


def _other_name(text: str) -> str:
    in_memory = Path(text).is_relative_to(STORED)
    return "give another name: evaluate(..., name=...)" if in_memory else "rename the file or folder"


def _place(text: str) -> tuple[str, str]:
    """Returns file and function of a source, independent of how its path is written."""
    if text.startswith("pyg:"):
        return text, ""
    file, _, function = text.partition(":")
    return str(Path(file).resolve()), function or "load"
