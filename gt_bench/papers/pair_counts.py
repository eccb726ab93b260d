"""Printed counts of pairs that a model tells apart (BREC). Each pair has a network of its own, so a run that was cut has the counts of every
category whose pairs it ran."""

from gt_bench.papers.brec import PAIRS, PUBLISHED
from gt_bench.schemas import Record

COUNT = "pairs-distinguished"


def pairs_of(dataset: str, metric: str) -> int | None:
    """Of how many pairs the printed number is a count; None where it is no count."""
    return len(PAIRS[dataset]) if metric == COUNT and dataset in PAIRS else None


def is_whole(dataset: str, record: Record) -> bool:
    """Whether the run has every pair of the printed `dataset`."""
    ran = record["deterministic"]["epochs"].get("pair")
    return dataset in PAIRS and ran is not None and set(ran) >= PAIRS[dataset]


def counted(dataset: str, metric: str, record: Record) -> float:
    """The run's count over the pairs of the printed `dataset`, or its share of them (accuracy)."""
    curves, pairs = record["deterministic"]["epochs"], PAIRS[dataset]
    found = sum(d for pair, d in zip(curves["pair"], curves["distinguished"], strict=True) if pair in pairs)
    return found / len(pairs) if metric == "accuracy" else found


def names_of(dataset: str, metric: str) -> list[str]:
    """What records call the printed number; none where it is no count."""
    return [name for name, place in PUBLISHED.items() if place == (dataset, metric)]
