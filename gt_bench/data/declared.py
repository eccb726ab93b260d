"""What datasets.yaml of the current folder and the entry points `gt_bench.datasets` of installed packages declare, as specs.

    my-molecules: {source: path/to/folder, task: graph-regression, metric: mae}

A source is a folder of CSV, an npz file, `file.py:load` or `pyg:Planetoid/Cora`.
"""

import inspect
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from gt_bench.config.schema import Strict, nearest, read_yaml, validated
from gt_bench.data.custom.dataset import custom_dataset
from gt_bench.data.custom.pyg import BY_EDGES, Graphs, graphs_of, nodes_of
from gt_bench.data.custom.readers import Given, Reader
from gt_bench.data.spec import DatasetSpec
from gt_bench.runtime.module_loader import imported, line_in
from gt_bench.runtime.signals import Stopped
from gt_bench.schemas import Settings
from gt_bench.utils.code_digest import text_digest
from gt_bench.utils.entry_points import described, loaded, package_of
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.io import is_plain_name

if TYPE_CHECKING:
    from torch_geometric.data.data import BaseData

GROUP = "gt_bench.datasets"
FILE = Path("datasets.yaml")
USUAL_METRIC = {
    "node-classification": "accuracy", "node-regression": "mae", "graph-classification": "accuracy", "graph-regression": "mae",
    "graph-multilabel": "ap",
}  # fmt: skip
# where the data name no split of their own: shares by level, and as many splits as papers have seeds
SHARES = {"node": (0.6, 0.2, 0.2), "graph": (0.8, 0.1, 0.1)}
SPLITS = 10
LOOKED_AT = 100  # graphs that tell whether targets are per node


class Entry(Strict):
    """A dataset of datasets.yaml: `source` as `gt-bench try` takes it, `split`: the shares of train, val and test."""

    source: str
    task: str
    metric: str
    split: tuple[float, float, float] | None = None
    num_splits: int = Field(SPLITS, ge=1)
    seed: int = 0


def entries() -> Settings:
    """What datasets.yaml has; nothing where it is not there, or its last entry was taken out. Raises RecipeError."""
    return read_yaml(FILE) if FILE.exists() and FILE.read_bytes().strip() else {}


def declared(name: str) -> DatasetSpec | None:
    """The dataset `name` of datasets.yaml or of an entry point, or None. Raises RecipeError and DatasetError for one that cannot be used."""
    content = entries()
    if name in content:
        entry = validated(Entry, content[name], str(FILE), f"{name}.")
        return spec_of(name, entry)
    found = list(entry_points(group=GROUP, name=name))
    if len({one.value for one in found}) > 1:
        raise DatasetError(
            f"the name {name!r} is given by {' and '.join(f'{one.value} of {package_of(one)}' for one in found)} (group {GROUP}); rename one"
        )
    return _from_entry_point(found[0]) if found else None


def spec_of(name: str, entry: Entry) -> DatasetSpec:
    """The dataset that an entry of datasets.yaml describes. Raises DatasetError for a task, metric or source that cannot be."""
    level = "node" if entry.task.startswith("node-") else "graph"
    return custom_dataset(
        name, source_of(entry.source), task=entry.task, metric=entry.metric, split=entry.split or SHARES[level], num_splits=entry.num_splits, seed=entry.seed
    )  # fmt: skip


def source_of(text: str) -> Path | Given:
    """Where data lie by `text`: a path, or a function that makes them. Raises DatasetError."""
    if text.startswith("pyg:"):
        return _of_pyg(text)
    file, _, function = text.partition(":")
    return _of_file(Path(file), function or "load") if file.endswith(".py") else Path(text)


def _of_pyg(text: str) -> Given:
    import torch_geometric
    from torch_geometric import datasets

    kind, _, rest = text.removeprefix("pyg:").partition("/")
    cls = getattr(datasets, kind, None)
    if not inspect.isclass(cls):
        known = [name for name in dir(datasets) if inspect.isclass(getattr(datasets, name))]
        raise DatasetError(
            f"{text}: torch_geometric.datasets has no {kind!r}{nearest(kind, known)}; write pyg:Class/Name, for example pyg:Planetoid/Cora"
        )
    if rest and not all(is_plain_name(part) for part in rest.split("/")):  # it becomes a folder below data/pyg
        raise DatasetError(
            f"{text}: {rest!r} is no name of a dataset; write pyg:Class/Name, for example pyg:Planetoid/Cora"
        )

    def load() -> Graphs:
        root = str(Path("data/pyg", kind, rest))
        arguments = {"name": rest} if rest else {}
        if "root" in inspect.signature(cls).parameters:
            arguments["root"] = root
        try:
            return cls(**arguments)
        except Exception as error:  # its host may be down, its arguments others
            raise DatasetError(
                f"{text}: torch_geometric.datasets.{kind}({', '.join(f'{k}={v!r}' for k, v in arguments.items())}) raises {type(error).__name__}: {error}; "
                f"expected a dataset made by a name; for one with other arguments, or without its host, write a file with def load(): and name it file.py:load"
            ) from error

    return Given(load, f"{text} torch_geometric {torch_geometric.__version__}", text)


def _of_file(path: Path, function: str) -> Given:
    if not path.is_file():
        raise DatasetError(f"{path}: there is no such file")
    module = imported(path.resolve(), str(path))
    found = getattr(module, function, None)
    if not inspect.isfunction(found):
        known = [
            name
            for name, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__
        ]
        raise DatasetError(
            f"{path}: has no function {function!r}{nearest(function, known)}; it has: {', '.join(known) or 'none'}; write def load(): return Data(...), or name "
            f"another: {path}:{(known or ['my_load'])[0]}"
        )
    return Given(_named_errors(found, path), text_digest(path.resolve(), path.resolve().parent), f"{path}:{function}")


def _named_errors(function: Callable[[], Graphs], path: Path) -> Callable[[], Graphs]:
    def load() -> Graphs:
        try:
            return function()
        except (DatasetError, Stopped):
            raise
        except (Exception, SystemExit) as error:  # whatever a user's function may raise
            raise DatasetError(
                f"{path}, line {line_in(path.resolve(), error)}: {function.__name__}() raises {type(error).__name__}: {error}; it must return a Data, a list of "
                "Data or a torch_geometric dataset, and take no argument"
            ) from error

    return load


def _from_entry_point(entry: EntryPoint) -> DatasetSpec:
    found = loaded(entry, DatasetError, "what custom_dataset(...) returns, or a function that returns Data")
    if isinstance(found, DatasetSpec):
        if found.name != entry.name:
            raise DatasetError(f"{described(entry)} is a dataset named {found.name!r}; the two names must agree")
        return found
    if not inspect.isfunction(found):
        raise DatasetError(
            f"{described(entry)} is a {type(found).__name__}; expected what custom_dataset(...) returns, or a function that returns Data"
        )
    path = Path(inspect.getfile(found)).resolve()
    source = Given(_named_errors(found, path), text_digest(path, path.parent), entry.value)
    level = level_in(source)
    task = task_in(source, level, entry.value)
    return custom_dataset(
        entry.name, source, task=task, metric=USUAL_METRIC[task], split=SHARES[level], num_splits=SPLITS
    )


def level_of(graphs: "Iterable[BaseData]", where: str) -> str:
    """ "node" where the targets of the first graphs are one per node, else "graph": a single graph may have as many nodes as targets by chance, or one node.
    Raises DatasetError, which names `where`, for no graph."""
    shown = list(islice(graphs, LOOKED_AT))
    if not shown:
        raise DatasetError(f"{where}: returned no graphs; return a Data, a list of Data or a torch_geometric dataset")
    counted = [nodes_of(data) for data in shown]
    nodes = [count or 0 for count, _ in counted]
    rows = [_rows(getattr(data, "y", None)) for data in shown]
    per_node = rows == nodes
    if not per_node and (len(shown) == 1 or len(set(rows)) > 1):  # not as many targets of each graph
        for number, (count, by_edges) in enumerate(counted):
            if rows[number] > 1 and rows[number] != count and (by_edges or len(shown) == 1):
                raise DatasetError(
                    f"{where}: graph {number} has {count} nodes and {rows[number]} targets"
                    + (
                        BY_EDGES
                        if by_edges
                        else "; give a target for each node (-1 for no class, nan for no number), or several graphs"
                    )
                )
    return "node" if per_node and max(nodes) > 1 else "graph"


def _rows(y: Any) -> int:
    """Rows of targets; 0 for one number or word, and for what is no array."""
    try:
        return next(iter(np.shape(y)), 0)
    except ValueError:  # rows of several lengths
        return 0


def level_in(source: Path | Given) -> str:
    """ "node" where the data have a target per node, else "graph"."""
    if isinstance(source, Given):
        return level_of(graphs_of(source.load(), source.where), source.where)
    if source.is_dir():
        return "graph" if (source / "graphs.csv").exists() else "node"
    from gt_bench.data.readers import read_npz

    arrays = read_npz(source)
    rows = {key: len(arrays[key]) for key in ("x", "y", "num_nodes") if key in arrays and arrays[key].ndim}
    if rows.get("num_nodes", 1) > 1 and rows["num_nodes"] == rows.get("y"):  # graphs of one node each
        return "graph"
    return "node" if rows.get("x") == rows.get("y") and rows.get("x", 0) > 1 else "graph"


def task_in(source: Path | Given, level: str, text: str) -> str:
    """The task by the targets: whole numbers are classes, others a regression, several columns of 0 and 1 labels of a graph. Raises DatasetError
    for such labels of nodes; `text`: what the message calls the data."""
    y = next(iter(Reader(source, level, SHARES[level], 1, 0).blocks()))["y"]
    several = y.ndim > 1 and y.shape[1] > 1
    if several and np.isin(y[~np.isnan(y.astype(float))], (0, 1)).all():
        if level == "node":
            raise DatasetError(
                f"{text}: a node has {y.shape[1]} labels of 0 and 1; of one's own data the benchmark knows one class per node (0, 1, ...; -1 for none; of one-hot rows y.argmax(1)), or "
                "numbers (--task node-regression)"
            )
        return "graph-multilabel"
    return f"{level}-classification" if y.dtype.kind in "iu" and not several else f"{level}-regression"
