"""Properties of datasets by which results are filtered: task, number and size of graphs, homophily."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gt_bench.claims.checks.homophily import class_homophily
from gt_bench.config.option_text import OptionError
from gt_bench.config.schema import nearest
from gt_bench.config.tasks import TASKS
from gt_bench.data.packed import PackedDataset
from gt_bench.data.registry import catalog
from gt_bench.data.standin import shapes
from gt_bench.utils.errors import DatasetError

Range = tuple[float, float]


def range_in(option: str, text: str | None) -> Range | None:
    """Reads `100..5000`, `..5000` or `100..`, ends included.

    Raises:
        OptionError: the text is not a range, or its ends are exchanged.
    """
    if text is None:
        return None
    match = re.fullmatch(r"([\d.e+-]*?)\.\.([\d.e+-]*)", text)
    try:
        if match is None or not any(match.groups()):
            raise ValueError
        low, high = float(match[1] or "-inf"), float(match[2] or "inf")
    except ValueError:
        raise OptionError("expected a range such as 100..5000, ..5000 or 100..", place=option, value=text) from None
    if low > high:
        remedy = f"write {match[2]}..{match[1]}"
        raise OptionError("the lower end is above the upper end", place=option, value=text, remedy=remedy)
    return low, high


@dataclass
class Filter:
    """Which datasets count.

    Attributes:
        names: names of datasets. Empty for all.
        tasks: names of tasks, or parts of them such as `regression`. Empty for all.
        nodes: mean number of nodes per graph.
        graphs: number of graphs.
        homophily: class homophily (Lim et al. 2021) of one graph with classes, between 0 and 1.
        unknown: {dataset: why a filter could not be applied}, filled by `accepts`. These datasets are left out.
    """

    names: Sequence[str] = ()
    tasks: Sequence[str] = ()
    nodes: Range | None = None
    graphs: Range | None = None
    homophily: Range | None = None
    unknown: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for task in self.tasks:
            if not any(task in name for name in TASKS):
                problem = f"no task contains this name{nearest(task, list(TASKS))}; known: {', '.join(TASKS)}"
                raise OptionError(problem, place="--task", value=task)

    def accepts(self, dataset: str) -> bool:
        """Returns whether a dataset counts."""
        if self.names and dataset not in self.names:
            return False
        spec = catalog().get(dataset)
        task = spec.task if spec else None
        if self.tasks and not any(part in (task or "") for part in self.tasks):
            return False
        if self.nodes or self.graphs:
            shape = shapes().get(dataset)
            expected = spec.expected if spec else {}
            graphs = (shape and shape.graphs) or expected.get("graphs")
            nodes = (shape and shape.nodes) or expected.get("nodes")
            if not graphs or not nodes:
                self.unknown[dataset] = "its size is not known"
                return False
            if not _within(graphs, self.graphs) or not _within(nodes / graphs, self.nodes):
                return False
        if self.homophily:
            homophily = _homophily(dataset)
            if isinstance(homophily, str):
                self.unknown[dataset] = homophily
                return False
            return _within(homophily, self.homophily)
        return True


def _within(value: float, ends: Range | None) -> bool:
    return ends is None or ends[0] <= value <= ends[1]


def _homophily(dataset: str) -> float | str:
    """Returns the class homophily of a packed dataset, or why it has none."""
    spec = catalog().get(dataset)
    if spec and spec.task != "node-classification":
        return f"{spec.task} has no homophily"
    try:
        packed = PackedDataset.open(Path("data", "packed", dataset))
    except DatasetError:
        return "homophily needs the data (`python -m stages.download DATASET`)"
    if packed.num_graphs != 1:
        return "homophily is that of one graph"
    return class_homophily(*(packed.array(key).numpy() for key in ("source", "target", "y")))
