"""Threads: the recipe decides what a run computes with; cores, environment and other load change no bit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gt_bench.config.grid import load_grid
from gt_bench.config.tasks import TASKS
from gt_bench.pipeline.train import train_cell
from gt_bench.runtime.threads import DECIDING, computing_with, settle_environment
from gt_bench.store.run_store import Store
from tests.conftest import ROOT
from tests.gt_bench.conftest import pack_web

# the cheapest cell of each task on its miniature
CELLS = {
    "node-classification": "embedded/chains/mlp",
    "graph-regression": "ppgt/zinc/gps",
    "graph-classification": "edge-transformer/csl/gcn",
    "graph-multilabel": "ppgt/peptides-func/grit",
    "brec": "ppgt/brec/gin",
    "isomorphism": "edge-transformer/sr25/gin",
    "set-to-graph": "hot/delaunay-50/s2g",
    "hyperedge-prediction": "hot/gps/s2g-plus",
    "configuration-ranking": "polynormer/tpugraphs-layout-nlp-random/polynormer",
    "basis-approximation": "tokengt/ba-equivariant-basis-sparse/tokengt-attention-lap",
}
RUN = """
import json, sys, tempfile, warnings
from pathlib import Path
from gt_bench.runtime.threads import settle_environment

settle_environment()
warnings.simplefilter("ignore")
from gt_bench.testing.golden_run import short_experiment
from gt_bench.data.registry import get_spec
from gt_bench.data.standin import miniature
from gt_bench.config.grid import load_grid
from gt_bench.config.recipe import load_recipe
from gt_bench.utils.digest import digest_of

found, grid, data = {}, load_grid(), Path(sys.argv[1])
for name in sys.argv[2:]:
    cell = grid.find(name)
    if not (data / "packed" / cell.dataset).exists():
        miniature(get_spec(cell.dataset), data / "packed" / cell.dataset)
    with tempfile.TemporaryDirectory() as store:
        experiment = short_experiment(name, data, Path(store), precision=load_recipe(cell.recipe_path).precision)
        record, _ = experiment.run(experiment.recipe.seeds[0])
    found[name] = [record.run.status, digest_of(record.run.to_disk()), record.measured.threads]
print("found", json.dumps(found))
"""


def started(data: Path, cores: set[int], **environment: str) -> subprocess.Popen[str]:
    """Start a process that computes the cells on these cores."""
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(data), *CELLS.values()],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcome(process: subprocess.Popen[str]) -> dict[str, list]:
    out, error = process.communicate()
    assert process.returncode == 0, error
    return json.loads(out.rpartition("found ")[2])


@pytest.mark.slow
def test_one_cell_of_each_task_on_one_core_and_on_two_next_to_other_work(tmp_path):
    """Both processes compute at once, so that each is the other work of the other."""
    own = {"node-regression", "edge-classification", "edge-regression", "link-prediction"}  # of user-supplied data
    assert set(CELLS) == TASKS.keys() - own, "a task without a cell here"
    mine = sorted(os.sched_getaffinity(0))
    one = started(
        tmp_path / "one",
        {mine[0]},
        OMP_NUM_THREADS="7",
        OMP_THREAD_LIMIT="3",
        ATEN_CPU_CAPABILITY="default",
        MKL_CBWR="COMPATIBLE",
    )
    two = started(
        tmp_path / "two",
        set(mine[:2]),
        OMP_NUM_THREADS="2",
        OMP_WAIT_POLICY="active",
        OPENBLAS_NUM_THREADS="2",
    )
    found = outcome(one)
    assert found == outcome(two)
    assert {(status, threads) for status, _, threads in found.values()} == {("ok", 1)}


@pytest.mark.slow
def test_a_run_has_the_threads_of_its_recipe_whatever_the_process_has(project):
    pack_web(project.root / "data", nodes=30_000)
    found, before = [], torch.get_num_threads()
    for number, (process, threads) in enumerate(((1, 1), (2, 1), (1, 2), (2, 2))):
        project.recipe(seeds=[0], epochs=2, threads=threads, model={"name": "mlp", "hidden_dim": 32, "num_layers": 2})
        grid = load_grid()
        torch.set_num_threads(process)
        try:
            # `prepare_process` would set them too; this tests `Experiment.run`
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("gt_bench.experiment.train_cell.prepare_process", lambda *_: "as it is")
                result = train_cell(grid.find("small/web/mlp"), grid, store_root=Path(f"store{number}"))
            assert torch.get_num_threads() == process
        finally:
            torch.set_num_threads(before)
        (digest,) = result.runs
        record = Store(f"store{number}").get(digest)
        assert record.measured.threads == threads
        found.append(record.run)
    assert found[0] == found[1]
    assert found[2] == found[3]
    assert found[0].digests.recipe != found[2].digests.recipe


def test_the_environment_is_settled_and_threads_wait_asleep(monkeypatch):
    given = {f"{prefix}X" if prefix.endswith("_") else prefix: "9" for prefix in DECIDING}
    monkeypatch.setattr(
        os, "environ", dict(os.environ) | given | {"OMP_WAIT_POLICY": "active", "KMP_DUPLICATE_LIB_OK": "TRUE"}
    )
    settle_environment()
    assert {name: value for name, value in os.environ.items() if name.startswith(DECIDING)} == {
        "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive",
        "KMP_DUPLICATE_LIB_OK": "TRUE",
    }  # fmt: skip


@pytest.mark.slow
def test_entry_points_load_no_library_before_the_environment_is_settled():
    code = (
        "import sys, gt_bench.cli, stages.train, stages.tune, gt_bench.testing.check_grid; print({'torch', 'numpy'} & "
        "sys.modules.keys())"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    assert subprocess.check_output([sys.executable, "-c", code], env=environment, text=True) == "set()\n"


def test_blas_has_as_many_threads_and_afterwards_what_it_had():
    from threadpoolctl import threadpool_info, threadpool_limits

    with threadpool_limits(2):
        with computing_with(1):
            assert torch.get_num_threads() == 1
            assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} == {1}
        assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} == {2}
