"""The stage `encode`: the encodings that recipes request, what they no longer request, and bad requests."""

import json
import os
import re
import time
from pathlib import Path

import pytest
from filelock import FileLock

from gt_bench.config.grid import load_grid
from gt_bench.pipeline import encode as stage
from tests.gt_bench.cells import write_grid
from tests.gt_bench.encodings.cases import folder_of, make_packed


@pytest.fixture
def packed(tmp_path):
    return make_packed(tmp_path / "data/packed/tiny")


def test_files_of_killed_writers_are_swept(packed, tmp_path):
    make_grid(tmp_path, {"a": "{rwse: {steps: 2}}"})
    folder, old = folder_of(packed), time.time() - 7200
    names = (".rwse-steps=2.safetensors.abcd_123", ".rwse-steps=9.json.abcd1234", "cells/.s-tiny-a.json.abcd1234")
    left = [folder / name for name in names]
    names = (".order.safetensors.abcd1234", "cells/.s-tiny-b.json.abcd1234", ".notes")
    busy, new, foreign = (folder / name for name in names)
    (folder / "cells").mkdir(parents=True)
    for path in (*left, busy, new, foreign):
        path.touch()
    os.utime(left[2], (old, old))
    (folder.parent / ".locks").mkdir()
    with FileLock(folder.parent / ".locks/tiny-order.lock"):  # its writer is running
        assert run(tmp_path) == 0
        assert [path.exists() for path in (*left, busy, new, foreign)] == [False] * 3 + [True] * 3
    assert run(tmp_path) == 0
    assert not busy.exists()


@pytest.mark.parametrize("jobs", ["0", "-1", "two", "1.5"])
def test_a_number_of_processes_that_is_none_is_refused(packed, tmp_path, capsys, jobs):
    make_grid(tmp_path, {"a": "{}"})
    with pytest.raises(SystemExit):
        run(tmp_path, "--jobs", jobs)
    assert f"'{jobs}' is not a number of processes: use 1 or more" in capsys.readouterr().err


RECIPE = """
model: {{name: mlp}}
encodings: {encodings}
optimizer: {{lr: 0.1}}
epochs: 1
seeds: [0]
"""


def make_grid(root, recipes):
    write_grid(root, [f"s/tiny/{model}" for model in recipes])
    for model, encodings in recipes.items():
        path = root / f"suites/s/recipes/tiny/{model}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(RECIPE.format(encodings=encodings))


def run(root, *more):
    return stage.main(["tiny", "--data-root", str(root / "data"), "--params", str(root / "params.yaml"), *more])


def files(packed) -> dict[str, tuple[bytes, int]]:
    """Content and time of each file of encodings."""
    return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder_of(packed).rglob("*") if p.is_file()}


def test_adding_an_encoding_touches_no_other_cell(packed, tmp_path):
    make_grid(tmp_path, {"a": "{rrwp: {steps: 3}}", "b": "{rrwp: {steps: 3}, laplacian: {k: 2}}", "c": "{}"})
    assert run(tmp_path) == 0
    cells = folder_of(packed) / "cells"
    before = files(packed)
    rrwp = "rrwp-dual=false-edges=all-identity=true-normalization=rw-squaring=false-steps=3"
    assert list(json.loads((cells / "s-tiny-a.json").read_text())) == [rrwp]
    laplacian = "laplacian-k=2-normalization=sym-which=lowest"
    assert list(json.loads((cells / "s-tiny-b.json").read_text())) == [laplacian, rrwp]
    assert json.loads((cells / "s-tiny-c.json").read_text()) == {}
    make_grid(
        tmp_path, {"a": "{rrwp: {steps: 3}, rwse: {steps: 2}}", "b": "{rrwp: {steps: 3}, laplacian: {k: 2}}", "c": "{}"}
    )
    assert run(tmp_path) == 0
    after = files(packed)
    assert {n for n in after if before.get(n) != after[n]} == {"s-tiny-a.json", "rwse-steps=2.safetensors"}


def test_unused_encodings_are_listed_and_pruned_on_request(packed, tmp_path, capsys):
    make_grid(tmp_path, {"a": "{rwse: {steps: 2}}", "b": "{}"})
    run(tmp_path)
    make_grid(tmp_path, {"a": "{}"})
    assert run(tmp_path) == 0
    assert "rwse-steps=2.safetensors: no recipe requests it; --prune deletes it" in capsys.readouterr().out
    assert (folder_of(packed) / "rwse-steps=2.safetensors").exists()
    assert not (folder_of(packed) / "cells/s-tiny-b.json").exists()
    assert run(tmp_path, "--prune") == 0
    assert not (folder_of(packed) / "rwse-steps=2.safetensors").exists()


def test_unavailable_dataset_becomes_a_reason_per_cell(tmp_path, capsys):
    folder = tmp_path / "data/packed/tiny"
    folder.mkdir(parents=True)
    note = {"dataset": "tiny", "reason": "no source", "tried": [], "remedy": "place it by hand"}
    (folder / "unavailable.json").write_text(json.dumps(note))
    make_grid(tmp_path, {"a": "{rwse: {steps: 2}}"})
    assert run(tmp_path) == 0
    content = json.loads((tmp_path / "data/encodings/tiny/cells/s-tiny-a.json").read_text())
    assert list(content) == ["unavailable"]
    assert "no source" in content["unavailable"]
    assert "place it by hand" in capsys.readouterr().out


def test_search_over_an_encodings_arguments_computes_all_of_them(packed, tmp_path):
    search = "search: {trials: 2, space: {encodings.rwse.steps: {choices: [2, 3]}}}"
    make_grid(tmp_path, {"a": f"{{rwse: {{steps: 2}}}}\n{search}"})
    assert run(tmp_path) == 0
    assert {name for name in files(packed) if name.endswith("s")} == {f"rwse-steps={n}.safetensors" for n in (2, 3)}


@pytest.mark.parametrize(
    ("encodings", "message"),
    [
        ("{rrpw: {steps: 2}}", r"recipes/tiny/a.yaml: encodings: no encoding named 'rrpw' \(did you mean 'rrwp'\?\)"),
        ("{rrwp: {step: 2}}", r"encoding 'rrwp' has no argument 'step' \(did you mean 'steps'\?\)"),
        ("{rrwp: {}}", "encoding 'rrwp' needs the argument 'steps'"),
        ("{rrwp: {steps: two}}", "encoding 'rrwp': steps must be int, not 'two'"),
        ("{rrwp: {steps: true}}", "encoding 'rrwp': steps must be int, not True"),
        ("{rrwp: {steps: 0}}", "encoding 'rrwp': steps must be at least 1, not 0"),
        ("{laplacian: {k: 2, which: middle}}", "which must be one of 'lowest', 'highest', 'both', not 'middle'"),
    ],
)
def test_wrong_request_names_file_key_and_nearest(packed, tmp_path, capsys, encodings, message):
    make_grid(tmp_path, {"a": encodings})
    assert run(tmp_path) == 1
    assert re.search(message, capsys.readouterr().err)
    assert not folder_of(packed).exists()


def test_unknown_dataset_names_the_nearest(packed, tmp_path, capsys):
    make_grid(tmp_path, {"a": "{}"})
    assert stage.main(["tyni", "--params", str(tmp_path / "params.yaml")]) == 1
    assert "no dataset 'tyni' in grid.yaml (did you mean 'tiny'?)" in capsys.readouterr().err


def test_a_recipe_that_cannot_be_read_is_named_and_keeps_no_other_cell_from_its_encodings(project, capsys):
    model = {"name": "tokengt", "hidden_dim": 8, "num_layers": 1, "num_heads": 2}
    asks = {"encodings": {"laplacian": {"k": 2}}, "model": model}
    for row in ("mlp", "other"):
        project.recipe(row=row, **asks)
    grid, cells = load_grid(), Path("data/encodings/web/cells")
    stage.encode_dataset("web", grid)
    before = (cells / "small-web-mlp.json").read_bytes()
    assert (cells / "small-web-other.json").read_bytes() == before
    Path("suites/small/recipes/web/other.yaml").write_text("model: [")
    capsys.readouterr()
    stage.encode_dataset("web", grid)
    said = capsys.readouterr()
    assert (cells / "small-web-mlp.json").read_bytes() == before
    problem = json.loads((cells / "small-web-other.json").read_text())["unreadable"]
    assert "suites/small/recipes/web/other.yaml: line 2, column 1: invalid YAML" in problem
    assert "small/web/other is not encoded" in said.err
    # the requests of the invalid recipe are unknown
    Path("suites/small/recipes/web/mlp.yaml").write_text("model: [")
    stage.encode_dataset("web", grid)
    assert "no recipe requests it" not in capsys.readouterr().out
