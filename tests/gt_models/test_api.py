"""The public library: listings, encodings of user-supplied graphs, and the examples of docs/library.md."""

import pydoc
import re
import subprocess
import sys

import pytest
import torch
from torch_geometric.data import Batch

import gt_models
from gt_models.encodings import compute
from tests.conftest import ROOT
from tests.gt_models.rings import ring

BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs/library.md").read_text(), re.S)
EXAMPLES = [block for block in BLOCKS if "create_model" in block]


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: re.search(r'create_model\(\s*"([\w-]+)"', text)[1])
def test_each_example_trains(example):
    assert len([line for line in example.splitlines() if line.strip()]) <= 13
    before, scope = example.partition("for batch in"), {}
    exec(before[0], scope)
    start = {name: value.clone() for name, value in scope["model"].named_parameters()}
    exec(before[1] + before[2], scope)
    assert scope["loss"].isfinite()
    assert any(not torch.equal(value, start[name]) for name, value in scope["model"].named_parameters())


@pytest.mark.slow
def test_the_example_of_forms_prints_them(capsys):
    (forms,) = [block for block in BLOCKS if "explain" in block]
    exec(EXAMPLES[-1] + forms, {})
    assert "polynormer_local: one product" in capsys.readouterr().out


@pytest.mark.slow
def test_the_example_of_an_export_runs():
    (export,) = [block for block in BLOCKS if "export" in block]
    exec(EXAMPLES[-1] + export, {})


def test_there_are_the_five_architectures():
    assert {re.search(r'create_model\(\s*"([\w-]+)"', text)[1] for text in EXAMPLES} == {
        "tokengt", "hot", "ppgt", "edge-transformer", "polynormer",
    }  # fmt: skip


def test_dir_and_help_show_what_there_is():
    assert set(gt_models.__all__) <= set(dir(gt_models))
    shown = pydoc.render_doc(gt_models, renderer=pydoc.plaintext)
    for name in ("create_model", "list_models", "model_info", "class GraphBatch", "AddEncodings"):
        assert name in shown
    with pytest.raises(AttributeError, match="it has: GraphBatch"):
        _ = gt_models.create_modle


@pytest.mark.slow
def test_the_list_of_models_costs_no_torch():
    code = "import sys, gt_models; gt_models.list_models(); dir(gt_models); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_encodings_of_ones_own_graph():
    data = ring(5)
    assert compute("rrwp", data, steps=3)["rrwp"].shape == (25, 4)
    assert compute("laplacian", Batch.from_data_list([data, ring(4)]), k=2)["laplacian_eigenvectors"].shape == (9, 2)
