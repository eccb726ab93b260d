"""Promises of docs/security.md that code can check."""

import ast
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from gt_bench.config.grid import load_grid
from gt_bench.config.grid_text import render
from gt_bench.config.schema import RecipeError, parse_yaml
from gt_bench.tracking import ui
from gt_bench.utils.errors import UserError
from tests.conftest import ROOT
from tests.one_process import in_one_process

SOURCES = [
    path
    for folder in ("stages", "gt_bench", "gt_models", "tools", "benchmarks", "docs")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
# called name -> files that may call it, and why
ALLOWED = {
    ("pickle.load", "gt_bench/runtime/fresh_process.py"): "of a pipe between two processes of ours",
    ("pickle.loads", "gt_bench/runtime/worker_pool.py"): "of a pickle that the same line made",
    ("yaml.load", "gt_bench/config/schema.py"): "with a safe loader (tested below)",
    ("yaml.load", "gt_bench/papers/results_file.py"): "with a safe loader",
}
NEVER = {
    "eval", "exec", "__import__", "os.system", "os.popen", "pickle.load", "pickle.loads", "marshal.loads",
    "shelve.open", "yaml.load", "yaml.full_load",
    "yaml.unsafe_load", "tempfile.mktemp", "commands.getoutput", "subprocess.getoutput",
    "ssl._create_unverified_context", "joblib.load", "dill.loads",
}  # fmt: skip


def called(node: ast.Call) -> str:
    return ast.unparse(node.func)


def calls(path: Path) -> list[ast.Call]:
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_source_runs_text_reads_foreign_pickles_or_asks_a_shell(path):
    where = str(path.relative_to(ROOT))
    for call in calls(path):
        name, given = called(call), {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        assert name not in NEVER or (name, where) in ALLOWED, f"{where}:{call.lineno}: {name}"
        assert given.get("shell", "False") == "False", f"{where}:{call.lineno}: a shell reads this command"
        assert given.get("verify", "True") != "False", f"{where}:{call.lineno}: a certificate that nobody checks"
        assert given.get("allow_pickle", "False") == "False", f"{where}:{call.lineno}: numpy reads pickles here"
        if name == "torch.load":
            assert given.get("weights_only") == "True", f"{where}:{call.lineno}: torch.load without weights_only=True"
        if name.startswith("subprocess.") and call.args:
            assert not isinstance(call.args[0], ast.JoinedStr), (
                f"{where}:{call.lineno}: a command made of text; give a list"
            )


@pytest.mark.slow
def test_the_allowed_calls_are_still_there():
    found = {(called(call), str(path.relative_to(ROOT))) for path in SOURCES for call in calls(path)}
    assert set(ALLOWED) <= found


@pytest.mark.parametrize("text", ["!!python/object/apply:os.system ['true']", "a: !!python/name:os.system"])
def test_yaml_makes_no_objects(text):
    with pytest.raises(RecipeError, match="could not determine a constructor for the tag"):
        parse_yaml(text)


@pytest.mark.parametrize("name", ["a b", "a;touch x", "$(touch x)", "`x`", "-rf", ".hidden", "..evil"])
def test_a_name_that_could_leave_its_folder_or_be_read_by_a_shell_is_no_cell(name, tmp_path):
    """Names of suites, datasets and rows come from paths and are used in commands of dvc.yaml."""
    path = tmp_path / "suites" / "suite" / "recipes" / "dataset" / f"{name}.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("model: {name: gcn}\n")
    with pytest.raises(UserError, match="recipe"):
        render(tmp_path / "suites")


def test_commands_of_the_pipeline_hold_nothing_but_names_of_the_grid():
    grid = load_grid()
    names = [cell.cell for cell in grid.cells.values()]
    assert names
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9.-]*(/[a-z0-9][a-z0-9.-]*){2}", name) for name in names)
    for file in ("dvc.yaml", "stages/dvc.yaml"):
        for command in re.findall(r"^ +cmd: (.*)$", (ROOT / file).read_text(), re.M):
            assert re.fullmatch(r"python -m stages\.\w+( \$\{item(\.cell)?\})?", command), f"{file}: {command}"


def test_the_tracking_server_is_of_this_machine_alone(monkeypatch, tmp_path):
    (tmp_path / "mlflow.db").touch()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setattr(sys, "argv", ["ui"])
    monkeypatch.setattr(ui, "addresses", lambda uri, root: [])
    started = []
    monkeypatch.setattr(os, "execv", lambda program, command: started.extend(command))
    ui.main()
    assert started[started.index("--host") + 1] == "127.0.0.1"
    assert "--host" not in (ROOT / "Makefile").read_text()


@pytest.mark.slow
def test_nothing_of_the_environment_reaches_what_is_written(tmp_path):
    """A run with secrets in its environment, its tracking URI and its mirror: no written file contains one."""
    secret = "hunter2hunter2"
    recipe = Path("suites/embedded/recipes/chains/mlp.yaml")
    (tmp_path / recipe).parent.mkdir(parents=True)
    shutil.copy(ROOT / recipe, tmp_path / recipe)
    (tmp_path / "params.yaml").write_text("limits: {embedded: {seeds: 1, epochs: 1}}\n")
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "AWS_SECRET_ACCESS_KEY": secret,
        "MLFLOW_TRACKING_PASSWORD": secret,
        "GT_DATA_MIRROR": f"https://user:{secret}@127.0.0.1:9/files?token={secret}",
        "HOME": str(tmp_path / f"home-{secret}"),
        "USER": secret,
        "HOSTNAME": secret,
    }
    commands = (
        "gt_bench.pipeline.grid", "stages.download chains", "stages.encode chains",
        "gt_bench.cli train embedded/chains/mlp", "stages.leaderboard embedded", "stages.download texas",
    )  # fmt: skip
    status, *said = in_one_process(commands, environment, tmp_path)
    assert status == 0, said
    assert "texas" in "".join(said)
    written = [
        path
        for path in tmp_path.rglob("*")
        if path.is_file() and not path.is_symlink() and f"home-{secret}" not in path.parts
    ]
    assert {"store", "results", "reports", "mlruns"} <= {part for path in written for part in path.parts}
    holding = [str(path.relative_to(tmp_path)) for path in written if secret.encode() in path.read_bytes()]
    assert not holding
    assert secret not in "".join(said)
