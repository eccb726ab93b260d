"""Published counts of pairs that a model distinguishes (BREC).

Each pair is a separate training. A limited run therefore has the counts of every category whose pairs are complete.
"""

from gt_bench.papers.brec import PAIRS, PUBLISHED
from gt_bench.schemas import Record

COUNT = "pairs-distinguished"


def pairs_of(dataset: str, metric: str) -> int | None:
    """Returns the number of pairs that a published number counts, None if it is not a count."""
    return len(PAIRS[dataset]) if metric == COUNT and dataset in PAIRS else None


def is_whole(dataset: str, record: Record) -> bool:
    """Returns whether the run has every pair of the published `dataset`."""
    ran = record["deterministic"]["epochs"].get("pair")
    return dataset in PAIRS and ran is not None and set(ran) >= PAIRS[dataset]


def counted(dataset: str, metric: str, record: Record) -> float:
    """Returns the run's count over the pairs of the published `dataset`, or its share of them (accuracy)."""
    curves, pairs = record["deterministic"]["epochs"], PAIRS[dataset]
    found = sum(d for pair, d in zip(curves["pair"], curves["distinguished"], strict=True) if pair in pairs)
    return found / len(pairs) if metric == "accuracy" else found


def names_of(dataset: str, metric: str) -> list[str]:
    """Returns the names of the published number in records, none if it is not a count."""
    return [name for name, place in PUBLISHED.items() if place == (dataset, metric)]
