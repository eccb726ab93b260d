"""Where the papers print what a BREC run measures: published/results.yaml has a dataset for every category, a run has a metric."""

# metric of a run (stages/tasks/brec.py) -> (dataset, metric) in results.yaml
PUBLISHED = {
    "basic": ("brec-basic", "pairs-distinguished"),
    "regular": ("brec-regular", "pairs-distinguished"),
    "extension": ("brec-extension", "pairs-distinguished"),
    "cfi": ("brec-cfi", "pairs-distinguished"),
    "pairs-distinguished": ("brec-total", "pairs-distinguished"),
    "accuracy": ("brec-total", "accuracy"),
}
