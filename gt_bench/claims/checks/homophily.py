"""The test of claims on the homophily of datasets."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gt_bench.claims.checks.registry import Found, test
from gt_bench.config.schema import nearest
from gt_bench.data.brec_pairs import packed
from gt_bench.papers.published import PublishedError


@test
def homophily(paper: str, data: Path, printed: Mapping[str, float]) -> Found:
    """The homophily of Lim et al. (2021) of each dataset is the one printed, to its last digit (three)."""
    from gt_bench.data.registry import catalog

    said, right = [], True
    for name, value in printed.items():
        if name not in catalog():
            raise PublishedError(f"there is no dataset {name!r}{nearest(name, list(catalog()))}")
        graph = packed(data, name)
        if graph is None:
            return Found(None, f"needs {data / 'packed' / name}: `dvc repro download@{name}`")
        found = class_homophily(*(graph.array(key).numpy() for key in ("source", "target", "y")))
        right &= abs(found - value) <= 0.0005 + 1e-9
        said.append(f"{name} {found:.4f} (printed {value:.3f})")
    return Found(right, ", ".join(said), shown=True)


def class_homophily(source: np.ndarray, target: np.ndarray, labels: np.ndarray) -> float:
    """Of edges given both ways: the mean over classes of max(0, h_k - share of class k), h_k the share of class k's edge ends that lie in the class
    (summed over its nodes), times C / (C - 1) (Lim et al. 2021, Equation 1). Self-loops are left out."""
    labels = labels.reshape(-1).astype(np.int64)
    source, target = source.astype(np.int64), target.astype(np.int64)
    source, target = source[source != target], target[source != target]
    classes = int(labels.max()) + 1
    ends = np.bincount(labels[source], minlength=classes)
    same = np.bincount(labels[source][labels[source] == labels[target]], minlength=classes)
    share_of = np.bincount(labels, minlength=classes) / len(labels)
    return float(np.maximum(same / np.maximum(ends, 1) - share_of, 0).sum() / (classes - 1))
