"""Places of the published numbers of BREC: results.yaml has a dataset per category, a run has a metric per category."""

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
