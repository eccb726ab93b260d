"""Which code decides a case of a finding: its module with all that it imports, less what only other cases need.

It stands here and not in the finding's module, whose own text counts.
"""

from pathlib import Path

from stages.fingerprint import ROOT, code_digest, run_modules

# a network of `separation` or `identifiers`, by the beginning of its cases, and the module that only these cases need
NETWORKS = {
    "separation": {
        "GIN": "gt_models.baselines.gin",
        "Graphormer": "gt_models.baselines.graphormer",
        "GRIT": "gt_models.baselines.grit",
        "PPGT": "gt_models.ppgt",
        "HOT": "gt_models.hot",
        "Edge Transformer": "gt_models.edge_transformer",
    },
    "identifiers": {"1-WL": "gt_models.baselines.gin", "ORF": "gt_models.tokengt", "Lap": "gt_models.tokengt"},
}
# cases that look into runs, by their beginning: the model and the task that the runs are of
RUNS = {
    "stress_test": {"": ("ppgt-released", "graph-regression")},
    "same_label": {"attention": ("polynormer-released", "node-classification")},
    "attention_maps": {"": ("tokengt-attention", "basis-approximation")},
    "attention_distance": {"PCQM4Mv2": ("tokengt-released", "graph-regression"), "stand-in": ("tokengt", "node-classification")},
}
# Imports that decide no value of a finding. `stress_test` and `kept`: they start and store runs, whose own code digest counts besides. `identifiers`
# calls two functions of a task's module, which imports the training loop for other functions.
UNUSED = {
    "same_label": {"stages.findings.kept"},
    "attention_maps": {"stages.findings.kept"},
    "attention_distance": {"stages.findings.kept"},
    "identifiers": {"stages.engine.batching", "stages.engine.faces", "stages.engine.failures", "stages.engine.loop", "stages.tasks.task"},
    "stress_test": {"stages.runs", "stages.store", "stages.params", "stages.recipe"},
}


def code_of(name: str, case: str, root: Path = ROOT) -> str:
    """sha256 of the code, in the tree `root`, that decides the case's value."""
    networks = NETWORKS.get(name, {})
    others = set(networks.values()) - {of for start, of in networks.items() if case.startswith(start)}
    starts = [f"stages.findings.{name}"]
    for start, run in RUNS.get(name, {}).items():
        starts += run_modules(*run) if case.startswith(start) else []
    if name == "identifiers":
        starts.append("stages.tasks.isomorphism")
    return code_digest(starts, root, others | UNUSED.get(name, set()))
