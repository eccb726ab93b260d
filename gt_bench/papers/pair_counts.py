"""Published numbers of pairs that a model distinguishes (BREC).

results.yaml has a dataset per category of pairs; a run has a metric per category. Each pair is a separate training,
so a limited run has the results of every category whose pairs are complete.
"""

from gt_bench.records.run import RunRecord

COUNT = "pairs-distinguished"

# metric of a run (gt_bench/tasks/brec.py) -> (dataset, metric) in results.yaml
PUBLISHED = {
    "basic": ("brec-basic", "pairs-distinguished"),
    "regular": ("brec-regular", "pairs-distinguished"),
    "extension": ("brec-extension", "pairs-distinguished"),
    "cfi": ("brec-cfi", "pairs-distinguished"),
    "pairs-distinguished": ("brec-total", "pairs-distinguished"),
    "accuracy": ("brec-total", "accuracy"),
}

# dataset in results.yaml -> its pairs, as in PPGT's Table 1 (four families are regular)
PAIRS = {
    "brec-basic": frozenset(range(60)),
    "brec-regular": frozenset([*range(60, 160), *range(360, 400)]),
    "brec-extension": frozenset(range(160, 260)),
    "brec-cfi": frozenset(range(260, 360)),
    "brec-total": frozenset(range(400)),
}


def pairs_of(dataset: str, metric: str) -> int | None:
    """Returns the number of pairs that a published number counts, None if it is not a count."""
    return len(PAIRS[dataset]) if metric == COUNT and dataset in PAIRS else None


def is_whole(dataset: str, record: RunRecord) -> bool:
    """Returns whether the run has every pair of the published `dataset`."""
    ran = record.run.epochs.get("pair")
    return dataset in PAIRS and ran is not None and set(ran) >= PAIRS[dataset]


def counted(dataset: str, metric: str, record: RunRecord) -> float:
    """Returns the run's count over the pairs of the published `dataset`, or its share of them (accuracy)."""
    curves, pairs = record.run.epochs, PAIRS[dataset]
    found = sum(d or 0 for pair, d in zip(curves["pair"], curves["distinguished"], strict=True) if pair in pairs)
    return found / len(pairs) if metric == "accuracy" else found


def names_of(dataset: str, metric: str) -> list[str]:
    """Returns the names of the published number in records, none if it is not a count."""
    return [name for name, place in PUBLISHED.items() if place == (dataset, metric)]
