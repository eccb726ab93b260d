"""tests/stages mirrors stages/: each module has a test file in the same place, or one that says which modules it tests, and names something of each."""

import ast
import re
from pathlib import Path

import pytest

from tests.conftest import ROOT

# several modules, one test file
TESTED_IN = {
    "attempts.py": "mlflow/test_tracking.py",
    "cells.py": "test_command.py",
    "components.py": "test_versions.py",
    "contents.py": "report/test_rows.py",
    "doctor.py": "cli/test_check.py",
    "errors.py": "test_command.py",
    "grid_text.py": "test_grid.py",
    "limits.py": "test_memory_limits.py",
    "home.py": "records/test_elsewhere.py",
    "processes.py": "side_by_side/test_ranks.py",
    "runs.py": "test_train.py",
    "search.py": "test_tune.py",
    "search_section.py": "test_study.py",
    "space.py": "test_study.py",
    "tuned.py": "test_tune.py",
    "cli/__init__.py": "cli/test_help.py",
    "cli/judge.py": "report/test_claims.py",
    "cli/run.py": "test_train.py",
    "datasets/alchemy.py": "datasets/test_graph_formats.py",
    "datasets/custom_csv.py": "datasets/test_custom.py",
    "datasets/custom_files.py": "datasets/test_custom.py",
    "datasets/custom_graphs.py": "datasets/test_custom.py",
    "datasets/encoded.py": "test_encode.py",
    "datasets/encoding.py": "test_encode.py",
    "datasets/jets.py": "datasets/test_graph_formats.py",
    "datasets/ogb_nodes.py": "datasets/test_node_formats.py",
    "datasets/pickles.py": "datasets/test_pyg_hosted.py",
    "datasets/pokec.py": "datasets/test_node_formats.py",
    "datasets/prepare.py": "test_download.py",
    "datasets/smiles.py": "datasets/test_graph_formats.py",
    "datasets/spec.py": "datasets/test_sources.py",
    "datasets/tpugraphs.py": "datasets/test_graph_formats.py",
    "datasets/wikics.py": "datasets/test_node_formats.py",
    "engine/failures.py": "test_memory_limits.py",
    "findings/attention_distance.py": "findings/test_trained_models.py",
    "findings/attention_maps.py": "findings/test_trained_models.py",
    "findings/auto_encoders.py": "findings/test_findings.py",
    "findings/equivariant_layers.py": "findings/test_theorems.py",
    "findings/graphs.py": "findings/test_theorems.py",
    "findings/growth.py": "findings/test_findings.py",
    "findings/growth_of_order_3.py": "findings/test_findings.py",
    "findings/identifiers.py": "findings/test_theorems.py",
    "findings/kept.py": "findings/test_trained_models.py",
    "findings/message_passing.py": "findings/test_theorems.py",
    "findings/nearest_key.py": "findings/test_findings.py",
    "findings/one_wl.py": "findings/test_findings.py",
    "findings/polynomials.py": "findings/test_findings.py",
    "findings/relations.py": "findings/test_theorems.py",
    "findings/relu_kernel.py": "findings/test_findings.py",
    "findings/same_label.py": "findings/test_trained_models.py",
    "findings/second_eigenvector.py": "findings/test_controls.py",
    "findings/separation.py": "findings/test_controls.py",
    "golden_run.py": "test_check_grid.py",
    "mlflow/address.py": "test_addresses.py",
    "mlflow/experiment.py": "mlflow/test_tracking.py",
    "mlflow/views.py": "mlflow/test_ui.py",
    "own/declared.py": "own/test_datasets.py",
    "own/entry_points.py": "own/test_models.py",
    "own/plain.py": "own/test_models.py",
    "own/table.py": "own/test_tried.py",
    "protocols/brec.py": "protocols/test_protocols.py",
    "protocols/protocol.py": "protocols/test_protocols.py",
    "records/claims.py": "report/test_claims.py",
    "records/listing.py": "records/test_kept.py",
    "report/brec_claims.py": "report/test_refinement.py",
    "report/claims_table.py": "report/test_claims.py",
    "report/fitting.py": "report/test_terminal.py",
    "report/found.py": "report/test_printed_claims.py",
    "report/in_short.py": "report/test_coverage.py",
    "report/layout.py": "report/test_paper_table.py",
    "report/page/tables.py": "report/test_paper_table.py",
    "report/page/__init__.py": "report/test_page.py",
    "report/show_table.py": "cli/test_look.py",
    "report/theorem_claims.py": "findings/test_controls.py",
    "report/trained_claims.py": "findings/test_trained_models.py",
    "side_by_side/cells.py": "test_train.py",
    "sweep/claim.py": "sweep/test_work.py",
    "sweep/costs.py": "sweep/test_planner.py",
    "sweep/dry_run.py": "sweep/test_sweep.py",
    "sweep/job.py": "sweep/test_work.py",
    "sweep/process.py": "sweep/test_work.py",
    "tasks/__init__.py": "tasks/test_task.py",
    "tasks/graph_classification.py": "tasks/test_task.py",
    "tasks/graph_multilabel.py": "tasks/test_task.py",
    "tasks/graph_regression.py": "tasks/test_task.py",
    "tasks/node_classification.py": "tasks/test_task.py",
    "tasks/node_regression.py": "tasks/test_task.py",
}


def modules() -> list[str]:
    """Those that define something: a docstring, a list of names or of options alone has nothing to test."""
    root = ROOT / "stages"
    return sorted(str(path.relative_to(root)) for path in root.rglob("*.py") if re.search(r"^ *(def|class) ", path.read_text(), re.M))


def file_of(module: str) -> Path:
    path = Path(module)
    name = path.parent.name if path.name == "__init__.py" else path.stem
    return ROOT / "tests/stages" / TESTED_IN.get(module, path.parent / f"test_{name}.py")


def names_of(module: str) -> set[str]:
    """By what a test may speak of the module: itself, its public names, and the datasets or the task that are found by its name."""
    text = (ROOT / "stages" / module).read_text()
    public = {
        node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
    }
    registered = {name for name in re.findall(r'"([a-z][a-z0-9-]+)"', text) if module.startswith("datasets/")}
    path = Path(module)
    name = path.parent.name if path.name == "__init__.py" else path.stem
    return public | registered | {name, name.replace("_", "-")}


@pytest.mark.parametrize("module", modules())
def test_every_module_has_a_test_file_that_speaks_of_it(module):
    file = file_of(module)
    assert file.is_file(), f"stages/{module} has no {file.relative_to(ROOT)}"
    assert names_of(module) & set(re.findall(r"[\w-]+", file.read_text())), f"{file.relative_to(ROOT)} names nothing of stages/{module}"


def test_the_list_of_exceptions_holds_modules_that_are_there_and_have_no_file_of_their_own():
    assert set(TESTED_IN) <= set(modules())
    for module, file in TESTED_IN.items():
        path = Path(module)
        own = ROOT / "tests/stages" / path.parent / f"test_{path.parent.name if path.name == '__init__.py' else path.stem}.py"
        assert (ROOT / "tests/stages" / file).resolve() == own.resolve() or not own.exists(), (
            f"{own.relative_to(ROOT)} is there: take {module} off the list"
        )
