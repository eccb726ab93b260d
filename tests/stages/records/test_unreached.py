"""Records carried over without computing: what changed belongs to forms of operations that their runs did not take."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stages import cli
from stages.fingerprint import ROOT, closure, code_digest, run_modules
from stages.params import load_grid
from stages.records.attest import attest
from stages.records.carried import content_digest, text_of, with_checksum
from stages.records.shipped import Shipped, problems_of, read, write
from stages.records.staleness import standing
from stages.records.transfer import export_cell, import_records
from stages.records.unreached import Reached, _on_a_gpu, asked_with, form_of, unreached
from stages.store import Store, sealed
from tests.stages.records.shipping import CELL

COMMIT, TASK, KERNEL = "5" * 40, "node-classification", "gt_models/kernels/sparse_linear_numba.py"


@pytest.fixture
def older(tmp_path) -> Path:
    """A checkout in which a kernel for CPUs is another one."""
    folder = tmp_path / "older"
    for package in ("gt_models", "stages"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    edit(folder, KERNEL)
    return folder


def edit(folder: Path, name: str) -> None:
    (folder / name).write_text((folder / name).read_text() + "\nANOTHER = 1\n")


@pytest.fixture
def shipped(trained, older) -> Shipped:
    """The cell as the older code shipped it, by runs that took the definition alone."""
    return of_older(read(export_cell(load_grid().find(CELL))), older, {"training": {"sparse_linear": ["reference"]}, "evaluation": {}})


def of_older(shipped: Shipped, older: Path, forms: object, device: str = "NVIDIA H100") -> Shipped:
    code = code_digest(run_modules("mlp", TASK), older)
    records = []
    for record in shipped.records:
        asked = asked_with(record, code)
        ran = {**record["deterministic"], "digests": asked["digests"]}
        measured = {**record["measured"], "device": device, "forms": forms}
        records.append(sealed({**record, "digest": asked["digest"], "deterministic": ran, "measured": measured}))
    changed = Shipped(shipped.path, {**shipped.result, "runs": [r["digest"] for r in records]}, records, shipped.origins)
    write(changed)
    return changed


def test_the_kernel_is_of_the_code_that_decides(shipped):
    assert "gt_models.kernels.sparse_linear_numba" in closure(run_modules("mlp", TASK))
    assert standing(shipped, load_grid()).stale == ["code"]


def test_what_took_nothing_that_changed_is_carried_over_without_computing(shipped, older, monkeypatch):
    monkeypatch.setattr("stages.records.attest._Present", None)
    new = attest(shipped, load_grid(), COMMIT, older=older)
    assert new.carried["unreached"] == ["gt_models.kernels.sparse_linear_numba"]
    assert new.carried["recomputed"] == []
    assert standing(new, load_grid()).text == "as the present tree computes it"
    assert problems_of(new) == []
    assert text_of(new.now().records) == "carried over (what changed took no part)"
    write(new)
    # the mark is in the store after an import, and in the file again after an export
    shutil.rmtree("store")
    import_records([new])
    stored = Store().get(new.now().records[0]["digest"])
    assert stored["carried_over"]["unreached"] == new.carried["unreached"]
    content = shipped.path.read_bytes()
    shipped.path.unlink()
    assert export_cell(load_grid().find(CELL)).read_bytes() == content


def test_runs_that_were_recomputed_for_an_older_mark_stay_named(shipped, older):
    third = older.parent / "third"
    shutil.copytree(older, third)
    edit(third, KERNEL)
    first, code = shipped.records[0], code_digest(run_modules("mlp", TASK), third)
    recomputed = [{"seed": first["deterministic"]["seed"], "sha256": content_digest(first)}]
    section = {"commit": COMMIT, "recomputed": recomputed, "runs": {r["digest"]: asked_with(r, code) for r in shipped.records}}
    before = Shipped(shipped.path, shipped.result, shipped.records, shipped.origins, carried=with_checksum(section))
    new = attest(before, load_grid(), COMMIT, older=third)
    assert (new.carried["recomputed"], new.carried["unreached"]) == (recomputed, ["gt_models.kernels.sparse_linear_numba"])
    assert standing(new, load_grid()).text == "as the present tree computes it"
    assert text_of(new.now().records) == "carried over (1 of 2 recomputed)"


def test_the_command_says_what_was_carried_over_and_what_is_computed_after_all(shipped, older):
    shown = CliRunner().invoke(cli.app, ["store", "attest", "--older", str(older)])
    assert shown.exit_code == 0, shown.output
    assert f"{CELL}: carried over (what changed took no part) by commit 0123456789ab" in shown.output
    assert (
        "only gt_models.kernels.sparse_linear_numba changed, and no run took that"
        in CliRunner().invoke(cli.app, ["store", "verify"]).output
    )
    edit(older, "stages/engine/loop.py")
    of_older(shipped, older, {"training": {}, "evaluation": {}})
    shown = CliRunner().invoke(cli.app, ["store", "attest", "--older", str(older)])
    assert "changed, which every run takes" in shown.output  # and then computes, which another device forbids here
    assert "it was computed on NVIDIA H100, and here is cpu" in shown.output
    assert shown.exit_code == 1


@pytest.mark.parametrize(
    ("forms", "says"),
    [
        ({"training": {"sparse_linear": ["numba", "reference"]}, "evaluation": {}}, "sparse_linear_numba changed, and seed 0 took numba"),
        ({"training": {}, "evaluation": {"linears": ["numba"]}}, "sparse_linear_numba changed, and seed 0 took numba"),
        (None, "do not say which forms"),
    ],
)
def test_what_took_a_form_that_changed_is_not(shipped, older, forms, says):
    with pytest.raises(Reached, match=says):
        unreached(of_older(shipped.now(), older, forms), TASK, older)


def test_code_that_every_run_takes_is_named(trained, older):
    edit(older, "stages/engine/loop.py")
    forms = {"training": {}, "evaluation": {}}
    shipped = of_older(read(export_cell(load_grid().find(CELL))), older, forms)
    with pytest.raises(Reached, match="stages.engine.loop changed, which every run takes"):
        unreached(shipped, TASK, older)


OPERATION = """
from torch import Tensor
from gt_models.batch import GraphBatch
from gt_models.kernels.dispatch import Form, Operation

def reference(x: Tensor) -> Tensor:
    return 2 * x

def _example(x):
    return (GraphBatch(x),), {}

def _numba():
    from gt_models.kernels.double_numba import double
    return double

def _triton():
    from gt_models.kernels.double_triton import double
    return double

double = Operation("double", reference, FORMS)
"""
NUMBA, TRITON = 'Form("numba", _numba)', 'Form("triton", _triton, _why_not, ("cuda",))'


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        (f"[{NUMBA}], _example", "", True),
        (f"[{NUMBA}, {TRITON}], _example", f"[{TRITON}], _example", True),
        (f"[{TRITON}], _example", f'[Form("other", _numba), {TRITON}], _example', True),
        (f"[{TRITON}], _example", f'[Form("numba", _numba, dtypes=(float,)), {TRITON}], _example', True),
        (f"[{NUMBA}, {TRITON}], _example", f"[{NUMBA}], _example", False),
        (f"[{NUMBA}], _example", f'[{NUMBA}, Form("numba", _numba, devices=("cpu", "cuda"))], _example', False),
    ],
)
def test_on_a_gpu_forms_for_cpus_alone_decide_nothing(before, after, same):
    without = OPERATION.replace(", FORMS", "") if not after else OPERATION.replace("FORMS", after)
    if not after:  # with the forms go what only they needed
        begin, end = without.index("def _example"), without.index("double = ")
        without = (without[:begin] + without[end:]).replace("Form, ", "").replace("from gt_models.batch import GraphBatch\n", "")
    assert (_on_a_gpu(OPERATION.replace("FORMS", before)) == _on_a_gpu(without)) == same
    assert _on_a_gpu(without) != _on_a_gpu(without.replace("2 * x", "3 * x"))
    assert _on_a_gpu(without) != _on_a_gpu(without.replace("from torch import Tensor", "from elsewhere import Tensor"))


def test_on_a_gpu_names_of_what_is_private_decide_nothing():
    source = OPERATION.replace("FORMS", f"[{TRITON}], _example")
    listed = source.replace("double = ", f"LISTED = [{TRITON}]\ndouble = ").replace(f"reference, [{TRITON}]", "reference, LISTED")
    renamed = source.replace("def _triton(", "def _load(").replace('"triton", _triton', '"triton", _load')
    assert _on_a_gpu(source) == _on_a_gpu(listed) == _on_a_gpu(renamed)
    assert _on_a_gpu(source) != _on_a_gpu(renamed.replace("double_triton", "other_triton"))


@pytest.mark.parametrize(("device", "carried"), [("NVIDIA H100", True), ("cpu", False)])
def test_an_operation_without_its_form_for_cpus_is_another_one_there_alone(trained, older, device, carried):
    name = "gt_models/kernels/sparse_linear.py"
    text = (older / name).read_text()
    assert text.count('Form("numba"') == 1
    (older / name).write_text(text.replace('[Form("numba"', '[Form("older", _numba), Form("numba"'))
    shipped = of_older(read(export_cell(load_grid().find(CELL))), older, {"training": {}, "evaluation": {}}, device)
    if carried:
        assert unreached(shipped, TASK, older) == ["gt_models.kernels.sparse_linear", "gt_models.kernels.sparse_linear_numba"]
    else:
        with pytest.raises(Reached, match="kernels.sparse_linear changed, which every run takes"):
            unreached(shipped, TASK, older)


def test_a_folder_that_is_no_checkout_or_another_one_is_said(shipped, tmp_path):
    with pytest.raises(Reached, match="is no checkout of this project"):
        unreached(shipped, TASK, tmp_path)
    with pytest.raises(Reached, match="has not the code that its records are of"):
        unreached(shipped, TASK, ROOT)


@pytest.mark.parametrize("names", ["linears", [1]])
def test_an_edited_attestation_is_refused(shipped, older, names):
    new = attest(shipped, load_grid(), COMMIT, older=older)
    write(Shipped(new.path, new.result, new.records, new.origins, carried=with_checksum({**new.carried, "unreached": names})))
    (line,) = problems_of(read(new.path))
    assert "its attestation was edited or damaged: the modules that it says changed have no names" in line


def test_a_model_that_the_library_lacks_is_said(shipped, older):
    for record in shipped.records:
        record["deterministic"]["recipe"] = {**record["deterministic"]["recipe"], "model": {"name": "of_mine"}}
    with pytest.raises(Reached, match="the library has no such model"):
        unreached(shipped, TASK, older)


def test_forms_are_known_by_the_names_of_their_files():
    named = {"compiled": "numba", "row_linear_numba": "numba", "dropout_triton": "triton", "linears": None, "dispatch": None}
    assert {name: form_of(f"gt_models.kernels.{name}") for name in named} == named
    assert form_of("stages.engine.loop") is None
    assert form_of("gt_models.tokengt") is None
