"""User-supplied datasets: those in datasets.yaml of the current folder, and entry points of installed packages.

    my-molecules: {source: path/to/folder, task: graph-regression, metric: mae}

A source is a folder of CSV files, an npz file, `file.py:load` or `pyg:Planetoid/Cora`. The group of entry points is
`gt_bench.datasets`.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Discriminator, Field, Tag

from gt_bench.config.schema import Strict, nearest, read_yaml, tag_of, validated
from gt_bench.data.custom.csv import read_table
from gt_bench.data.custom.dataset import METRICS, SHARES, custom_dataset
from gt_bench.data.custom.folders import form_of, level_of_folder
from gt_bench.data.custom.frames import tables_of
from gt_bench.data.custom.pyg import BY_EDGES, EXPECTED, Graphs, check_single, graphs_of, nodes_of
from gt_bench.data.custom.readers import Given, Reader
from gt_bench.data.custom.splits import SplitSection
from gt_bench.data.custom.table import Table, is_target
from gt_bench.data.readers import read_npz
from gt_bench.data.spec import DatasetSpec
from gt_bench.runtime.module_loader import function_of, imported, line_in
from gt_bench.runtime.signals import Stopped
from gt_bench.schemas import Settings
from gt_bench.utils.entry_points import described, loaded, package_of
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.io import is_plain_name
from gt_bench.utils.user_code import source_digest

if TYPE_CHECKING:
    from torch_geometric.data.data import BaseData

GROUP = "gt_bench.datasets"
FILE = Path("datasets.yaml")
SPLITS = 10  # number of splits that are drawn
SAMPLED_GRAPHS = 100  # inspected to decide whether targets are per node


class Entry(Strict):
    """A dataset of datasets.yaml.

    Attributes:
        source: as in `gt-bench try`.
        task: its task.
        metric: its metric.
        split: shares of train, val and test, if the data have no split; or a section that describes the split
            (`gt_bench.data.custom.splits.SplitSection`).
        num_splits: number of splits to draw.
        seed: seed of the first one.
        undirected: whether the reverse of each edge is added where it is missing.
        inductive: whether training sees neither validation nor test nodes.
        negatives: for link prediction: negatives per edge on validation and test.
    """

    source: str
    task: str
    metric: str
    split: (
        Annotated[
            Annotated[tuple[float, float, float], Tag("<shares>")] | Annotated[SplitSection, Tag(tag_of(SplitSection))],
            Discriminator(lambda split: "<shares>" if isinstance(split, list | tuple) else tag_of(SplitSection)),
        ]
        | None
    ) = None
    num_splits: int = Field(SPLITS, ge=1)
    seed: int = 0
    undirected: bool = False
    inductive: bool = False
    negatives: int | None = Field(None, ge=1)


def entries() -> Settings:
    """Read datasets.yaml.

    Returns:
        Its entries; empty if there is no such file or it is empty.

    Raises:
        RecipeError: the file is not valid YAML.
    """
    return read_yaml(FILE) if FILE.exists() and FILE.read_bytes().strip() else {}


def declared(name: str) -> DatasetSpec | None:
    """Look up a user-supplied dataset.

    Args:
        name: its name.

    Returns:
        Its spec; None if neither datasets.yaml nor an entry point has this name.

    Raises:
        RecipeError: its entry in datasets.yaml is invalid.
        DatasetError: its source, task or metric is invalid.
    """
    content = entries()
    if name in content:
        entry = validated(Entry, content[name], str(FILE), f"{name}.")
        return spec_of(name, entry)
    found = list(entry_points(group=GROUP, name=name))
    if len({entry.value for entry in found}) > 1:
        sources = " and ".join(f"{entry.value} of {package_of(entry)}" for entry in found)
        raise DatasetError(f"duplicate dataset {name!r}: {sources} (entry points of group {GROUP}); rename one")
    return _from_entry_point(found[0]) if found else None


def spec_of(name: str, entry: Entry) -> DatasetSpec:
    """Make the spec of an entry of datasets.yaml.

    Args:
        name: name of the dataset.
        entry: the entry.

    Returns:
        The spec.

    Raises:
        DatasetError: its source, task or metric is invalid.
    """
    return custom_dataset(name, **{**dict(entry), "source": source_of(entry.source)})


def source_of(text: str) -> Path | Given:
    """Parse a source.

    Args:
        text: a path, `file.py:function` or `pyg:Class/Name`.

    Returns:
        A path, or a function that loads the data.

    Raises:
        DatasetError: there is no such file, function or class.
    """
    if text.startswith("pyg:"):
        return _pyg_source(text)
    file, _, function = text.partition(":")
    return _python_source(Path(file), function or "load") if file.endswith(".py") else Path(text)


_PYG_FORM = "write pyg:Class/Name, for example pyg:Planetoid/Cora"


def _pyg_source(text: str) -> Given:
    import torch_geometric
    from torch_geometric import datasets

    kind, _, rest = text.removeprefix("pyg:").partition("/")
    cls = getattr(datasets, kind, None)
    if not inspect.isclass(cls):
        known = [name for name in dir(datasets) if inspect.isclass(getattr(datasets, name))]
        raise DatasetError(f"{text}: torch_geometric.datasets has no {kind!r}{nearest(kind, known)}; {_PYG_FORM}")
    if rest and not all(is_plain_name(part) for part in rest.split("/")):  # becomes a folder below data/pyg
        raise DatasetError(f"{text}: {rest!r} is not a name of a dataset; {_PYG_FORM}")

    def load() -> Graphs:
        root = str(Path("data/pyg", kind, rest))
        arguments = {"name": rest} if rest else {}
        if "root" in inspect.signature(cls).parameters:
            arguments["root"] = root
        try:
            return cls(**arguments)
        except Exception as error:  # its host may be down, or it needs other arguments
            call = f"{kind}({', '.join(f'{k}={v!r}' for k, v in arguments.items())})"
            raise DatasetError(
                f"{text}: torch_geometric.datasets.{call} raises {type(error).__name__}: {error}; expected a dataset "
                "that needs only a name; for other arguments, or if its host is down, write a function load() in a "
                "file and use file.py:load"
            ) from error

    return Given(load, f"{text} torch_geometric {torch_geometric.__version__}", text, fixed=True)


def _python_source(path: Path, function: str) -> Given:
    if not path.is_file():
        raise DatasetError(f"{path}: no such file")
    found, known = function_of(imported(path.resolve(), str(path)), function)
    if found is None:
        raise DatasetError(
            f"{path}: has no function {function!r}{nearest(function, known)}; it has: {', '.join(known) or 'none'}; "
            f"write def load(): return Data(...), or use another function: {path}:{(known or ['my_load'])[0]}"
        )
    return Given(_with_user_errors(found, path), _text_of(path, function), f"{path}:{function}")


def _text_of(path: Path, function: str) -> str:
    """Return the text that decides the data of a function of a file."""
    digest = source_digest(path)
    return digest if function == "load" else f"{function} {digest}"


def _with_user_errors(function: Callable[[], Graphs], path: Path) -> Callable[[], Graphs]:
    """Wrap a user's function so that its exceptions name file and line."""

    def load() -> Graphs:
        try:
            return function()
        except (DatasetError, Stopped):
            raise
        except (Exception, SystemExit) as error:  # a user's function may raise anything
            raise DatasetError(
                f"{path}, line {line_in(path.resolve(), error)}: {function.__name__}() raises {type(error).__name__}: "
                f"{error}; it must return a Data, a list of Data or a torch_geometric dataset, without arguments"
            ) from error

    return load


def _from_entry_point(entry: EntryPoint) -> DatasetSpec:
    expected = "the result of custom_dataset(...), or a function that returns Data"
    found = loaded(entry, DatasetError, expected)
    if isinstance(found, DatasetSpec):
        if found.name != entry.name:
            raise DatasetError(f"{described(entry)} is a dataset named {found.name!r}; both names must be equal")
        return found
    if not inspect.isfunction(found):
        raise DatasetError(f"{described(entry)} is a {type(found).__name__}; expected {expected}")
    path = Path(inspect.getfile(found)).resolve()
    source = Given(_with_user_errors(found, path), _text_of(path, found.__qualname__), entry.value)
    level = level_in(source)
    task = task_in(source, level, entry.value)
    return custom_dataset(
        entry.name, source, task=task, metric=METRICS[task][0], split=SHARES[level], num_splits=SPLITS
    )


def level_of(graphs: "Iterable[BaseData]", where: str) -> str:
    """Decide whether targets are per node or per graph.

    Args:
        graphs: Data objects, of which the first ones are inspected.
        where: name of the data for error messages.

    Returns:
        "node" if all graphs have a target per node, "edge" if they have `edge_label` or a target per edge, else
        "graph". Several graphs are inspected, since one graph may have as many targets as nodes by chance.

    Raises:
        DatasetError: there are no graphs, or the number of targets fits neither.
    """
    sample = list(islice(graphs, SAMPLED_GRAPHS))
    if not sample:
        raise DatasetError(f"{where}: found no graphs; expected {EXPECTED}")
    for number, data in enumerate(sample):
        check_single(data, f"{where}: graph {number}")
    counted = [nodes_of(data) for data in sample]
    nodes = [count or 0 for count, _ in counted]
    rows = [_rows(getattr(data, "y", None)) for data in sample]
    per_node = rows == nodes
    if all(getattr(data, "edge_label", None) is not None for data in sample):
        return "edge"
    if not per_node and max(rows) > 1 and rows == [_columns(getattr(data, "edge_index", None)) for data in sample]:
        return "edge"
    if not per_node and (len(sample) == 1 or len(set(rows)) > 1):  # the number of targets is not the same everywhere
        for number, (count, by_edges) in enumerate(counted):
            if rows[number] > 1 and rows[number] != count and (by_edges or len(sample) == 1):
                hint = "; give a target for each node (-1: no class, nan: no number), or several graphs"
                hint = BY_EDGES if by_edges else hint
                raise DatasetError(f"{where}: graph {number} has {count} nodes and {rows[number]} targets{hint}")
    return "node" if per_node and max(nodes) > 1 else "graph"


def _rows(y: Any) -> int:
    """Return the number of rows of targets; 0 for a scalar and for anything that is not an array."""
    try:
        return next(iter(np.shape(y)), 0)
    except ValueError:  # rows of several lengths
        return 0


def _columns(edge_index: Any) -> int:
    """Return the number of columns of edges; -1 for anything that is not [2, E]."""
    shape = tuple(getattr(edge_index, "shape", ()))
    return int(shape[1]) if len(shape) == 2 and shape[0] == 2 else -1


def level_in(source: Path | Given) -> str:
    """Decide whether targets are per node, per edge or per graph.

    Args:
        source: as from `source_of`.

    Returns:
        "node", "edge" or "graph".
    """
    if isinstance(source, Given):
        data = source.load()
        if (tables := tables_of(data, source.where)) is not None:
            return _level_of_tables(tables)
        return level_of(graphs_of(data, source.where), source.where)
    if source.is_dir() and form_of(source):
        return level_of_folder(source)
    if source.is_dir():
        names = ("nodes", "edges", "graphs")
        found = [name for name in names if any((source / f"{name}.{kind}").exists() for kind in ("csv", "parquet"))]
        if "graphs" in found:
            return "graph"
        return _level_of_tables({name: read_table(source, name, []) for name in found})
    arrays = read_npz(source)
    rows = {key: len(arrays[key]) for key in ("x", "y", "num_nodes") if key in arrays and arrays[key].ndim}
    if rows.get("num_nodes", 1) > 1 and rows["num_nodes"] == rows.get("y"):  # also graphs of one node each
        return "graph"
    if rows.get("x") == rows.get("y") and rows.get("x", 0) > 1:
        return "node"
    return "edge" if _columns(arrays.get("edge_index")) == rows.get("y", 0) > 1 else "graph"


def _level_of_tables(tables: Mapping[str, Table]) -> str:
    """Return "graph" if there is a table of graphs, "edge" if only the table of edges has targets, else "node"."""
    with_targets = {name for name, table in tables.items() if any(map(is_target, table.columns))}
    return "graph" if "graphs" in tables else "edge" if with_targets == {"edges"} else "node"


def task_in(source: Path | Given, level: str, text: str, section: SplitSection | None = None) -> str:
    """Decide the task by the targets.

    Whole numbers are classes, other numbers are regression targets. Several columns of 0 and 1 are labels of a graph.

    Args:
        source: as from `source_of`.
        level: "node", "edge" or "graph".
        text: name of the data for error messages.
        section: how the data are split, as its column is not a feature.

    Returns:
        The task.

    Raises:
        DatasetError: nodes or edges have several labels of 0 and 1.
    """
    y = next(iter(Reader(source, level, SHARES[level], 1, 0, section=section).blocks()))["y"]
    several = y.ndim > 1 and y.shape[1] > 1
    if several and np.isin(y[~np.isnan(y.astype(float))], (0, 1)).all():
        if level != "graph":
            raise DatasetError(
                f"{text}: {'an' if level == 'edge' else 'a'} {level} has {y.shape[1]} labels of 0 and 1; user-supplied "
                f"data need one class per {level} (0, 1, ...; -1 for none; for one-hot rows y.argmax(1)), or numbers "
                f"(--task {level}-regression)"
            )
        return "graph-multilabel"
    return f"{level}-classification" if y.dtype.kind in "iu" and not several else f"{level}-regression"
