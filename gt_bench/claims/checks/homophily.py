"""Check of the homophily of datasets."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gt_bench.claims.checks.registry import CheckResult, register_check
from gt_bench.config.schema import nearest
from gt_bench.data.brec_pairs import packed
from gt_bench.data.registry import catalog
from gt_bench.papers.results_file import PublishedError


@register_check
def homophily(paper: str, data: Path, printed: Mapping[str, float]) -> CheckResult:
    """Checks that the homophily of each dataset (Lim et al. 2021) equals the published value, rounded to three digits.

    Args:
        paper: the paper of the claim.
        data: folder that contains packed/.
        printed: published value of each dataset.
    """
    said, right = [], True
    if unknown := [name for name in printed if name not in catalog()]:
        problem = f"no dataset {unknown[0]!r}{nearest(unknown[0], list(catalog()))}"
        raise PublishedError(problem, place="printed", value=unknown[0])
    for name, value in printed.items():
        graph = packed(data, name)
        if graph is None:
            return CheckResult(None, f"needs {data / 'packed' / name}: `dvc repro download@{name}`")
        measured = class_homophily(*(graph.array(key).numpy() for key in ("source", "target", "y")))
        right &= abs(measured - value) <= 0.0005 + 1e-9
        said.append(f"{name} {measured:.4f} (published {value:.3f})")
    return CheckResult(right, ", ".join(said), confirmed=True)


def class_homophily(source: np.ndarray, target: np.ndarray, labels: np.ndarray) -> float:
    """Returns the homophily of a graph by Lim et al. 2021, Equation 1.

    The measure is the mean over classes of max(0, h_k - share of class k), times C / (C - 1). h_k is the share of class
    k's edge ends whose other end is in class k.

    Args:
        source: nodes at which edges begin, [E]. Every edge is given in both directions. Self-loops are ignored.
        target: nodes at which they end, [E].
        labels: class of each node, [N].
    """
    labels = labels.reshape(-1).astype(np.int64)
    source, target = source.astype(np.int64), target.astype(np.int64)
    source, target = source[source != target], target[source != target]
    classes = int(labels.max()) + 1
    ends = np.bincount(labels[source], minlength=classes)
    same = np.bincount(labels[source][labels[source] == labels[target]], minlength=classes)
    share_of = np.bincount(labels, minlength=classes) / len(labels)
    return float(np.maximum(same / np.maximum(ends, 1) - share_of, 0).sum() / (classes - 1))
