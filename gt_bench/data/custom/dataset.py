"""User-supplied datasets: a folder of CSV files, an npz file, or a torch_geometric dataset (docs/own_data.md).

DATASETS = [custom_dataset("mine", "path/to/folder", task="graph-regression", metric="mae")]
"""

import dataclasses
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gt_bench.config.schema import nearest
from gt_bench.config.tasks import LINK, METRICS
from gt_bench.data.custom.description import Description
from gt_bench.data.custom.edges import NEGATIVES, EdgeSummary
from gt_bench.data.custom.metric import is_custom, load_metric
from gt_bench.data.custom.source import Reader, Source, content_of, description_of, level_of_task, no_task
from gt_bench.data.custom.splits import PARTS
from gt_bench.data.custom.summary import DataSummary
from gt_bench.data.packed import SEEN
from gt_bench.data.packed_writer import PackedWriter
from gt_bench.data.readers import located
from gt_bench.data.spec import DatasetSpec
from gt_bench.utils.errors import DatasetError

# defaults for data without a split: shares of train, val and test
SHARES = {"node": (0.6, 0.2, 0.2), "edge": (0.6, 0.2, 0.2), "link": (0.8, 0.1, 0.1), "graph": (0.8, 0.1, 0.1)}
SPLITS = 10  # number of random or grouped splits
VERSION = 4


def custom_dataset(
    name: str,
    source: Source,
    *,
    citation: str = "your own",
    licence: str = "your own",
    notes: tuple[str, ...] = (),
    **declared: Any,
) -> DatasetSpec:
    """Make the spec of a user-supplied dataset, for example for `DATASETS` of a family module.

    Args:
        name: unique name.
        source: a folder with nodes.csv, edges.csv and, at graph level, graphs.csv; an npz file with the arrays of
            `pack`; or a function without arguments that returns a Data, a list of Data or a torch_geometric dataset.
            The function is called when the dataset is prepared.
        citation: the paper.
        licence: licence of the data.
        notes: flaws and choices that a user must know.
        declared: what is declared about the data, as `gt_bench.data.custom.description.Description`: task, metric,
            split, undirected, ...; in addition to the description beside the data. `task` is required.

    Returns:
        The spec.

    Raises:
        DatasetError, RecipeError: an argument is invalid.
    """
    described = Description.parsed(declared, f"dataset {name!r}").over(description_of(source))
    with located(f"dataset {name!r}"):
        task = described.task
        if task not in METRICS:
            raise no_task(task)
        metric = described.metric or METRICS[task][0]
        if metric not in METRICS[task] and not is_custom(metric):
            known = METRICS[task]
            problem = f"{task} has no metric {metric!r}{nearest(metric, known)}"
            remedy = f"expected one of {', '.join(known)}, or path/to/file.py:function"
            raise DatasetError(problem, value=metric, remedy=remedy)
        negatives = _checked_negatives(task, metric, described.negatives)
        level, section = level_of_task(task), described.split
        if described.inductive and level != "node":
            splits = "edges, and training sees all nodes" if level == "edge" else "whole graphs"
            problem = f"is for targets of nodes; {task} splits {splits}"
            raise DatasetError(problem, place="inductive", remedy="remove it")
        if described.bipartite is not None and task != LINK:
            raise DatasetError(f"is for {LINK}, not for {task}", place="bipartite", remedy="remove it")
        if callable(source) and not inspect.isfunction(source):
            remedy = "expected a function written with def, whose source code can be read: write def load(): return ..."
            raise DatasetError(f"is a {type(source).__name__}", place="source", remedy=f"{remedy} and pass load")
        if level == "edge" and section and section.kind not in ("random", "given"):
            remedy = "give the column split of edges.csv (or masks), or use random"
            problem = f"is {section.kind}; targets of edges have random splits or those of the data"
            raise DatasetError(problem, place="split", value=section.kind, remedy=remedy)
        arguments = {"reader": Reader(source, described, task), "content": content_of(source)}
        return DatasetSpec(
            name=name,
            task=task,
            metric=metric,
            level=level,
            split_kind=level,
            prepare=prepare,
            arguments=arguments | ({"negatives": negatives} if negatives else {}),
            citation=citation,
            licence=licence,
            notes=notes,
        )


def _checked_negatives(task: str, metric: str, negatives: int | None) -> int | None:
    """Return the number of negatives of link prediction, None for other tasks."""
    if task != LINK:
        if negatives is not None:
            raise DatasetError(f"is for {LINK}, not for {task}", place="negatives", remedy="remove it")
        return None
    negatives = negatives or NEGATIVES
    if metric.startswith("hits@") and int(metric.removeprefix("hits@")) > negatives:
        problem = f"{metric} is always 1 with {negatives} negatives per edge"
        raise DatasetError(problem, value=metric, remedy="use a smaller k or more negatives")
    return negatives


def prepare(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Pack the blocks of `spec.arguments["reader"]`, with the split of the data or drawn ones.

    Args:
        spec: a spec from `custom_dataset`.
        paths: no files.
        folder: folder of the packed dataset.

    Raises:
        DatasetError: the data do not match the task, or a part of a split is empty.
    """
    reader: Reader = dataclasses.replace(spec.arguments["reader"])  # reads the data again, if they were read before
    if reader.made_from not in (None, spec.arguments["content"]):
        check_content(spec.name, reader.inherited, reader.source)
    with PackedWriter(folder) as writer:
        summary = _summary(spec, reader)
        for block in reader.blocks():
            writer.graphs(**{key: value for key, value in summary.add(block).items() if key not in ("split", "by")})
        summary.check()
        split = _checked_split(summary)
        writer.append("split", split.astype(np.uint8))
        tables = summary.tables() if isinstance(summary, EdgeSummary) else {}
        tables |= {SEEN: summary.drawn.seen} if summary.inductive else {}
        for name, table in tables.items():
            writer.append(name, table)
        header = spec.header(
            in_dim=summary.dim("x"),
            edge_dim=summary.dim("edge_attr"),
            out_dim=summary.out_dim,
            num_splits=len(split),
            extras={name: "edge" if name == "link" else "table" for name in tables},
            notes=tuple(summary.notes(split)),
        )
        arguments = {"content": spec.arguments["content"]} | ({"labels": reader.labels} if reader.labels else {})
        if "negatives" in spec.arguments:
            arguments |= {"negatives": spec.arguments["negatives"]}
        if reader.section or summary.inductive:
            arguments |= {"split_made": summary.drawn.stated}
        columns = [dataclasses.asdict(column) for column in reader.columns]
        provenance = header.provenance | {"arguments": arguments, "columns": columns}
        writer.finish(header.model_copy(update={"provenance": provenance}))


def check_content(name: str, declared: Description, source: Source) -> None:
    """Check that data may be read by what was declared for other content of the same name.

    Args:
        name: name of the dataset.
        declared: what datasets.yaml declares.
        source: the data.

    Raises:
        DatasetError: something is declared that these data would inherit: anything but the task and metric that follow
            from them.
    """
    described = description_of(source)
    if not set(declared.stated()) - {"task", "metric"}:
        task = described.task or Reader(source, described).infer_task()
        if (declared.task, declared.metric) == (task, described.metric or METRICS[task][0]):
            return
    listed = ", ".join(f"{key}: {value}" for key, value in declared.content().items())
    raise DatasetError(
        f"the data are not those for which datasets.yaml says {listed}",
        file=f"dataset {name!r}",
        remedy="declare the options again, as they should be for these data (gt-bench try or evaluate with at least "
        "one of them), or use another name, or remove the entry",
    )


def _summary(spec: DatasetSpec, reader: Reader) -> DataSummary:
    described = reader.description
    usual = SHARES["link" if spec.task == LINK else spec.level]
    shares = (described.split.shares if described.split else None) or usual
    kind = EdgeSummary if spec.level == "edge" else DataSummary
    return kind(spec, reader, shares, described.num_splits or SPLITS)


def _checked_split(summary: DataSummary) -> np.ndarray:
    """Makes the splits, and raises DatasetError if a part is empty."""
    split = summary.split()
    for number, row in enumerate(split):
        for code, part in enumerate(PARTS, 1):
            if not (row == code).any():
                remedy = f"add {summary.spec.level}s to it, or draw splits: --split random"
                raise DatasetError(f"the {part} part is empty", place=f"split {number}", remedy=remedy)
    return split


def check(spec: DatasetSpec) -> None:
    """Check the data of a user-supplied dataset without packing them.

    Args:
        spec: a spec from `custom_dataset`.

    Raises:
        DatasetError: the data do not match the task or metric, or a part of a split is empty.
        MetricError: a user-supplied metric cannot be used.
    """
    if is_custom(spec.metric):
        load_metric(spec.metric)
    reader: Reader = spec.arguments["reader"]
    summary = _summary(spec, reader)
    with located(f"dataset {spec.name!r}"):
        for block in reader.blocks():
            summary.add(block)
        summary.check()
        _checked_split(summary)
