"""Every command in a block of README or docs/ is run here in a small project, or is listed with a reason.

The reason names the test that covers the command.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from gt_bench.cli.app import app
from gt_bench.config.grid_text import render
from gt_bench.forecasting import estimate
from gt_bench.leaderboard import remembered
from gt_bench.store.attempts import remember
from gt_bench.store.run_store import Store
from gt_bench.utils import terminal
from tests.conftest import ROOT
from tests.gt_bench.cells import make_record, make_result, write
from tests.gt_bench.table_width import fits
from tests.pages import PAGES, blocks

pytestmark = pytest.mark.slow

PROGRAMS = {"gt-bench", "python", "make", "dvc", "mlflow", "pip", "optuna-dashboard"}  # may be missing
PYTHON = {"from", "import"}  # first words of other blocks, which are programs on some systems

NOT_RUN = {
    "make reproduce": "takes minutes; .ci/end_to_end runs it in a clone, cut to seconds",
    "make reproduce SUITE=hot": "needs data of other hosts, and hours",
    "make test": "this is part of it",
    "make test-cluster": "needs Slurm, and takes minutes",
    "make test-faults": "kills every stage in turn: minutes",
    "make ui": "a server, which runs until it is stopped; tests/gt_bench/tracking/test_ui.py",
    "gt-bench try lab/my_model.py:MyModel texas --seeds 0-9 --set model.hidden=128":
        "needs data of another host; tests/gt_bench/api/test_evaluate.py",
    "gt-bench try lab/my_model.py:MyModel chains --seeds 0-2 --against gcn":
        "needs the model of that page; tests/test_notebook.py",
    "gt-bench compare tried/mine/gcn tried/mine/gin": "needs what was tried; tests/gt_bench/api/test_evaluate.py",
    "python make_my_people.py": "tests/gt_bench/api/test_edges.py follows the page",
    "python make_my_trades.py": "tests/gt_bench/api/test_edges.py follows the page",
    "gt-bench try gcn people --task link-prediction --undirected --seeds 0-1":
        "tests/gt_bench/api/test_edges.py follows the page",
    "gt-bench score tried/people/gcn --metric mrr --metric hits@10 --metric roc-auc --metric ap":
        "tests/gt_bench/api/test_edges.py follows the page",
    "gt-bench try gcn trades --seeds 0-1 --metric costs.py:cost": "tests/gt_bench/api/test_edges.py follows the page",
    "gt-bench score tried/trades/gcn --metric costs.py:cost --metric f1-binary --metric roc-auc":
        "tests/gt_bench/api/test_edges.py follows the page",
    "gt-bench describe DATA": "DATA stands for a dataset of the reader; tests/test_own_data.py",
    "gt-bench try gcn DATA": "DATA stands for a dataset of the reader; tests/test_own_data.py",
    "gt-bench try gcn papers --set batch.targets=16 --set 'batch.neighbors=[5, 5]'":
        "needs a dataset of that page; tests/gt_bench/training/test_neighbor_sampling.py",
    "python -m stages.download my-molecules":
        "needs a dataset of the reader; tests/gt_bench/pipeline/test_download.py",
    "python -m gt_bench.data.standin data/packed":
        "measures the packed data of all datasets; tests/gt_bench/data/test_standin.py",
    "python -m tools.docs.datasets data LOG":
        "needs the packed data of all datasets; tests/tools/docs/test_datasets.py",
    **dict.fromkeys(
        (
            "python make_my_data.py",
            "python my_frames.py",
            "gt-bench describe molecules --undirected",
            "gt-bench try gcn papers --split temporal --seeds 0 --set epochs=2",
            "gt-bench describe proteins --id gene --ends a,b --target expression --categories plate --undirected "
            "--write proteins/data.yaml",
            "gt-bench try gcn payments --categories zip --split temporal:time:80,100 --inductive "
            "--set features.missing=mean --seeds 0 --set epochs=2",
            "gt-bench try gcn shop --task link-prediction --undirected --seeds 0 --set epochs=2",
        ),
        "tests/test_own_data.py follows the page",
    ),
    "gt-bench try gcn dataset/ogbn_mine --undirected":
        "needs a dataset of the reader's own; tests/gt_bench/data/custom/test_folders.py",
    "gt-bench try gin data/my_TU/MUTAG --split k-fold:10":
        "needs a dataset of the reader's own; tests/gt_bench/data/custom/test_folders.py",
    "gt-bench work": "computes until all is done; tests/gt_bench/scheduling/test_local_queue.py",
    "gt-bench work --jobs 4": "computes until all is done; tests/gt_bench/scheduling/test_local_queue.py",
    "gt-bench work --hours 8 --jobs 2 polynormer hot/chains":
        "computes for hours; tests/gt_bench/scheduling/test_local_queue.py",
    "gt-bench sweep polynormer --dry-run": "forecasts a suite; tests/gt_bench/scheduling/test_slurm_sweep.py",
    "gt-bench sweep polynormer --at-most 64":
        "needs Slurm; tests/gt_bench/scheduling/test_slurm.py, with `make test-cluster`",
    "pip install -c constraints.txt -e '.[pipeline,cluster]'": "needs the network",
    "pip install tensorboard": "needs the network",
    "tensorboard --logdir tensorboard": "a server; tests/gt_bench/tracking/test_tensorboard.py reads its files",
    "dvc exp run --queue -n queued-0.1 $COPY "
    "-S suites/embedded/recipes/chains/gcn.yaml:optimizer.lr=0.1 leaderboard@embedded":
        "DVC's queue works in a copy of the project: minutes",
    "dvc exp run --run-all": "DVC's queue works in a copy of the project: minutes",
    "dvc queue status": "DVC's queue works in a copy of the project: minutes",
    "gt-bench tune hot/gps/hot-sparse-kernel":
        "needs data of another host and a database; tests/gt_bench/test_postgres.py",
    "gt-bench tune edge-transformer/cornell/gcn": "needs data of another host; tests/gt_bench/pipeline/test_tune.py",
    "gt-bench try gcn ring-molecules --search 20 --sampler gp --pruner successive_halving --search-seeds 0-1":
        "trains for minutes; tests/gt_bench/search/test_methods.py",
    "gt-bench try gin ring-molecules --search 12 --epochs 20 --objective parameters --select-within 0.1":
        "trains for minutes; tests/gt_bench/search/test_artifacts.py",
    "gt-bench tune embedded/torus-colours/gcn --warm-start defaults,neighbours":
        "trains for minutes; tests/gt_bench/search/test_warm_start.py",
    "gt-bench try gin ring-molecules --search 8 --epochs 20 --seeds 0-2 --ensemble":
        "trains for minutes; tests/gt_bench/api/test_ensemble.py",
    "gt-bench work ablation embedded/torus-colours/mlp": "trains; tests/gt_bench/scheduling/test_ablation_design.py",
    "gt-bench ablate model.dropout ablation embedded":
        "needs the cells of that design; tests/gt_bench/scheduling/test_ablation_design.py",
    "gt-bench ablate model.dropout embedded/torus-colours/mlp --design one-at-a-time --values 0.0,0.2,0.5":
        "writes recipes; tests/gt_bench/scheduling/test_ablation_design.py",
    "gt-bench ablate model.dropout embedded/torus-colours/mlp --design random --values 0.0,0.5 "
    "--over model.num_layers=2,3,4 --draws 3":
        "writes recipes; tests/gt_bench/scheduling/test_ablation_design.py",
    "optuna-dashboard studies/embedded/torus-colours/gcn/journal.log": "a server that is not among the dependencies",
    "python -m torch.utils.collect_env": "torch's own",
    "sh tools/gpu_session.sh 13 polynormer": "needs a GPU; tests/tools/test_gpu_session.py",
    "tar xzf gpu-session.tar.gz --skip-old-files": "needs a session; tests/tools/test_gpu_session.py",
    "gt-bench store import --records gpu-session/records": "needs a session; tests/tools/test_gpu_session.py",
    "make check-grid": "takes minutes; tests/gt_bench/testing/test_check_grid.py",
    'make check-grid CELLS="polynormer hot/chains/hot"': "takes minutes; tests/gt_bench/testing/test_check_grid.py",
    "python -m gt_bench.testing.check_grid CELL --update":
        "writes golden values; tests/gt_bench/testing/test_check_grid.py",
    "gt-bench score embedded/ring-molecules/gin --metric mae --metric mse --ensemble":
        "needs a trained cell; tests/gt_bench/analysis/test_score.py",
    "gt-bench score embedded/ring-molecules/gin --metric mae --by graph-size":
        "needs a trained cell; tests/gt_bench/analysis/test_score.py",
    "gt-bench score embedded/ring-molecules/gin --against embedded/ring-molecules/gcn":
        "needs trained cells; tests/gt_bench/analysis/test_paired_examples.py",
    "gt-bench train edge-transformer/texas/gcn":
        "needs data of another host; tests/gt_bench/pipeline/test_train.py",
    'gt-bench submit suites/edge-transformer/records/texas/gcn.json.gz --by "Jane Doe, Some University"':
        "writes a mark; tests/gt_bench/provenance/test_submission.py",
    "gt-bench verify-submission suites/edge-transformer/records/texas/gcn.json.gz --runs 1 --mark":
        "needs data of another host; tests/gt_bench/provenance/test_recompute.py",
    "python -m every_eval_ever validate 'data/*/*/*/*.json'":
        "a package of another project; tests/gt_bench/reports/exchange/test_every_eval_ever.py",
    "gt-bench try gcn ring-molecules --debug one-batch": "makes data; tests/gt_bench/experiment/test_debug.py",
    "gt-bench try bad.py:Bad torus-colours --debug nan":
        "needs a model of the reader; tests/gt_bench/experiment/test_debug.py",
    "gt-bench score embedded/chains/gcn": "trains first; tests/gt_bench/store/test_weights.py",
    'gt-bench suite new toy --title "A toy paper" --authors "Doe and Roe"':
        "tests/test_add_a_paper.py follows the page",
    "gt-bench suite check toy": "tests/test_add_a_paper.py follows the page",
    "gt-bench work toy --jobs 1": "tests/test_add_a_paper.py follows the page",
    "gt-bench table toy 1": "tests/test_add_a_paper.py follows the page",
    "gt-bench claims toy": "tests/test_add_a_paper.py follows the page",
}  # fmt: skip


def commands(page: Path) -> list[str]:
    """The commands in the blocks of a page, as written, without comments and redirections."""
    found = []
    for kind, block in blocks(page.read_text()):
        if kind not in ("", "console", "bash", "sh") or block.startswith(">>>"):
            continue
        lines = [line.removeprefix("$ ") for line in block.splitlines() if kind != "console" or line.startswith("$ ")]
        for part in (part for line in lines for part in re.split(r";|&&", re.split(r"\s#|\s\||\s>|\s2>", line)[0])):
            part = re.sub(r"^((?:[A-Z_]+=\S+\s+)+)", "", part.strip())
            first = part.partition(" ")[0]
            if first in PROGRAMS or (first not in PYTHON and shutil.which(first)):
                found.append(part)
    return found


ALL = {page.name: commands(page) for page in PAGES}
EVERY = sorted({command for found in ALL.values() for command in found} - NOT_RUN.keys())
OF_DVC = [command for command in ALL["dvc.md"] if command not in NOT_RUN]
OF_DVC += [
    command for name, found in ALL.items() if name != "dvc.md" for command in found if command.startswith("dvc ")
]
OF_GT_BENCH = [command for command in EVERY if command.startswith("gt-bench ")]


def test_every_command_is_run_or_has_a_reason():
    known = {*OF_DVC, *OF_GT_BENCH, "python -m stages.download --list"}
    assert set(EVERY) - known == set(), "run it here, or add the reason to NOT_RUN"
    assert NOT_RUN.keys() - {command for found in ALL.values() for command in found} == set(), (
        "no page has them any more"
    )
    for why in NOT_RUN.values():
        for path in re.findall(r"tests/[\w/]+\.py", why):
            assert (ROOT / path).exists(), path


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The repository's recipes, published numbers and records, and a store with two attempts at a cell."""
    root = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "suites", root / "suites", ignore=shutil.ignore_patterns("records"))
    for records in (ROOT / "suites").glob("*/records"):  # no command writes them, and rows of shipped files are cached
        (root / records.relative_to(ROOT)).symlink_to(records)
    for name in ("params.yaml", "grid.yaml", "dvc.yaml"):
        (root / name).symlink_to(ROOT / name)
    for cell in ("embedded/chains/gcn", "edge-transformer/cornell/gcn"):
        for test in (0.55, 0.57):
            records = [make_record(cell, seed, test=test + 0.01 * seed) for seed in range(3)]
            result = make_result(cell, records, None if cell.startswith("embedded") else "GCN")
            write(root, [result], records)
            remember(result, Store(root / "store"))
    return root


@pytest.mark.parametrize("command", OF_GT_BENCH)
def test_gt_bench(project, monkeypatch, command):
    """Steps take no time here: tests/gt_bench/forecasting/test_estimate.py tests what a forecast measures."""
    monkeypatch.setattr(estimate, "ProcessPoolExecutor", lambda *_, **__: ThreadPoolExecutor(1))
    one = estimate.Forecast("", estimate.REAL, seconds=1.5, seeds=10, memory_mib=400.0, disk={"data": 2**20})
    monkeypatch.setattr(estimate, "forecast_cell", lambda cell, *_: replace(one, cell=cell.cell))
    monkeypatch.chdir(project)
    monkeypatch.setattr(remembered, "FOLDER", project / ".golden")
    monkeypatch.setattr(terminal, "console", lambda: Console(width=80))
    words = shlex.split(command.replace("CELL", "edge-transformer/cornell/gcn"))
    done = CliRunner().invoke(app, words[1:])
    assert done.exit_code == 0, done.output
    assert done.output.strip()
    assert fits(done.output)


def test_what_can_be_downloaded():
    done = subprocess.run(
        [sys.executable, "-m", "stages.download", "--list"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "cornell" in done.stdout) == (0, True), done.stderr


STAND_IN = r"""#!/bin/sh
case "$2" in
stages.state) mkdir -p state/datasets state/encodings state/suites state/cells/embedded/chains
    for f in datasets/chains encodings/chains suites/embedded cells/embedded/chains/gcn cells/embedded/chains/mlp; do
        echo 1 > state/$f.json; done ;;
stages.download) mkdir -p data/packed/chains; echo 1 > data/packed/chains/header.json ;;
stages.encode) mkdir -p data/encodings/chains/cells
    for c in gcn mlp; do echo 1 > data/encodings/chains/cells/embedded-chains-$c.json; done ;;
stages.train) mkdir -p results/embedded/chains metrics/embedded/chains
    lr=$(sed -n 's/.*lr: \([0-9.]*\).*/\1/p' suites/embedded/recipes/${3#embedded/}.yaml)
    echo "[$lr]" > results/$3.json
    curve="[{\"epoch\": 1, \"validation\": 0.5}, {\"epoch\": 2, \"validation\": $lr}]"
    echo "{\"test\": $lr, \"status\": \"ok\", \"curve\": $curve}" > metrics/$3.json ;;
stages.leaderboard) mkdir -p reports/metrics/embedded/chains reports/published
    for k in json csv md; do cat results/embedded/*/*.json > reports/embedded.$k; done
    for c in gcn mlp; do mean=$(tr -d '[]' < results/embedded/chains/$c.json)
        echo "{\"mean\": $mean, \"verdict\": \"lower\"}" > reports/metrics/embedded/chains/$c.json; done
    printf 'cell,published,ours,verdict\nembedded/chains/gcn,50,49,lower\n' > reports/published/embedded.csv ;;
esac
"""


@pytest.fixture
def grid_of_two(tmp_path, monkeypatch):
    """A repository of two cells under DVC with trivial stages: the result of training is the learning rate."""
    pytest.importorskip("dvc")
    for name in (
        ".gitignore",
        "dvc.yaml",
        "stages/dvc.yaml",
        "suites/embedded/recipes/chains/gcn.yaml",
        "suites/embedded/recipes/chains/mlp.yaml",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    Path("grid.yaml").write_text(render(Path("suites")))
    Path("params.yaml").write_text("limits: {}\n")
    Path("bin").mkdir()
    Path("bin/python").write_text(STAND_IN)
    Path("bin/python").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "test")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "test@example.org")
    git("init", "-q")
    assert dvc("init", "-q") == dvc("config", "core.analytics", "false") == 0
    return tmp_path


def git(*words: str) -> None:
    subprocess.run(["git", *words], check=True)


def dvc(*words: str) -> int:
    from dvc.cli import main

    return main([*words])


def commit(message: str) -> None:
    dvc("repro", "-q")
    git("add", "-A")
    git("commit", "-qm", message)


def test_dvc(grid_of_two, capfd):
    """DVC commands of docs/dvc.md and other pages, first those that run stages, then a commit to compare with."""
    said, recipe, drawn = {}, Path("suites/embedded/recipes/chains/gcn.yaml"), ""
    for command in sorted(
        OF_DVC, key=lambda command: (not command.startswith("dvc repro"), command.startswith("dvc plots"))
    ):
        if command.startswith("sed "):
            commit("what was run")
            subprocess.run(command, shell=True, check=True)
            commit("another learning rate")
            recipe.write_text(recipe.read_text().replace("lr: 0.03", "lr: 0.3"))
            dvc("repro", "-q")
            continue
        capfd.readouterr()
        assert dvc(*shlex.split(command)[1:]) == 0, (command, capfd.readouterr().err)
        said[" ".join(command.split()[1:3])] = capfd.readouterr().out
        drawn = Path("dvc_plots/index.html").read_text() if command.startswith("dvc plots diff") else drawn
    assert [line.split() for line in said["metrics show"].splitlines()] == [
        ["Path", "mean", "status", "test", "verdict"],
        ["metrics/embedded/chains/gcn.json", "-", "ok", "0.3", "-"],
        ["metrics/embedded/chains/mlp.json", "-", "ok", "0.01", "-"],
        ["reports/metrics/embedded/chains/gcn.json", "0.3", "-", "-", "lower"],
        ["reports/metrics/embedded/chains/mlp.json", "0.01", "-", "-", "lower"],
    ]
    assert "metrics/embedded/chains/gcn.json          test      0.03    0.3" in said["metrics diff"]
    assert re.search(r"\| master +\| [^|]+\| 0\.03 +\|\n\| .* \w+ \[lr-0\.3\] +\| [^|]+\| 0\.3 +\|", said["exp show"])
    assert all(
        f'"text": "{name}"' in drawn for name in ("metrics/embedded/chains/gcn.json", "reports/published/embedded.csv")
    )
    assert {"0.01", "0.3", "0.5"} == set(re.findall(r'"validation": ([\d.]+)', drawn))
