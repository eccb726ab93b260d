"""Compare our training of Polynormer with the authors' main.py: same first weights, data, split and dropout masks.

    git clone https://github.com/cornell-zhang/Polynormer authors
    python -m tools.witness.polynormer authors minesweeper polynormer-r --mirror MIRROR --local 4 --global 6 --head 4

The authors' files are not changed, except that `polynormer` removes the ReLUs of their model, which is Polynormer-r.
Both sides compute in float64 on a CPU, ours in plain torch. MIRROR is a folder of raw data with heterophilous/ and
amazon_coauthor/. suites/polynormer/differences.md shows results. Exit status: 0 if both have the same features, edges,
splits and curves, 1 if not, 2 for wrong arguments.
"""

import argparse
import contextlib
import re
import runpy
import shutil
import sys
import tempfile
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from gt_bench.config.params import RunSettings
from gt_bench.config.recipe import load_recipe
from gt_bench.data.prepare import prepare
from gt_bench.experiment.run import Experiment
from gt_bench.runtime.environment import Clock
from gt_bench.store.run_store import Store
from gt_bench.training.checkpoint import Checkpoint
from gt_bench.training.trainer import Run
from gt_bench.utils.paths import INSTALLED, SUITES
from gt_models.layers import accelerated
from gt_models.layers.dropout import Dropout
from gt_models.polynormer.neighbours import edges_with_self_loops

# dataset -> (name in the authors' run.sh, file of the mirror, where torch_geometric reads it)
DATASETS = {
    "minesweeper": ("minesweeper", "heterophilous/minesweeper.npz", "minesweeper/raw/minesweeper.npz"),
    "tolokers": ("tolokers", "heterophilous/tolokers.npz", "tolokers/raw/tolokers.npz"),
    "photo": (
        "amazon-photo",
        "amazon_coauthor/amazon_photo_plain.npz",
        "Amazon/Photo/raw/amazon_electronics_photo.npz",
    ),
}
NAMES = (  # the authors' names of parameters -> ours
    (r"^global_attn\.h_lins\.(\d+)", r"global_layers.\1.gate"),
    (r"^global_attn\.k_lins\.(\d+)", r"global_layers.\1.attention.key"),
    (r"^global_attn\.v_lins\.(\d+)", r"global_layers.\1.attention.value"),
    (r"^global_attn\.lns\.(\d+)", r"global_layers.\1.norm"),
    (r"^global_attn\.lin_out", "global_output"),
    (r"^h_lins\.(\d+)", r"local_layers.\1.gate"),
    (r"^lins\.(\d+)", r"local_layers.\1.skip"),
    (r"^lns\.(\d+)", r"local_layers.\1.norm"),
    (r"^local_convs\.(\d+)\.lin(_src)?\b", r"local_layers.\1.local.linear"),
    (r"^local_convs\.(\d+)\.att_src", r"local_layers.\1.local.att_source"),
    (r"^local_convs\.(\d+)\.att_dst", r"local_layers.\1.local.att_target"),
    (r"^lin_in", "input.linear"),
    (r"^ln\.", "between_norm."),
    (r"^pred_local", "local_head"),
    (r"^pred_global", "head"),
)
LARGEST = 1e-5  # difference of validation losses: Adam enlarges rounding errors from step to step


class Masks:
    """Dropout with masks that depend on the number of the call alone."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
        """Drops entries of x with probability p."""
        if not training or not p:
            return x
        self.calls += 1
        draws = torch.rand(x.shape, generator=torch.Generator().manual_seed(self.calls), dtype=torch.float64)
        return (x.to_dense() if x.layout == torch.sparse_csr else x) * (draws >= p) / (1 - p)


def renamed(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns the authors' parameters under our names."""
    found: dict[str, Tensor] = {}
    for key, value in weights.items():
        if key.endswith("betas"):
            layers = "local_layers" if key == "betas" else "global_layers"
            found |= {f"{layers}.{i}.beta.weight": row for i, row in enumerate(value)}
            continue
        pattern, ours = next((pattern, ours) for pattern, ours in NAMES if re.match(pattern, key))
        found[re.sub(pattern, ours, key)] = value.squeeze(0) if "att_" in key else value
    return found


def command_of(authors: Path, dataset: str, local: int, global_: int, head: int, data: Path) -> list[str]:
    """Returns the authors' arguments of main.py for a dataset, with another schedule and width."""
    lines = (authors / "run.sh").read_text(encoding="utf-8").splitlines()
    (line,) = (line for line in lines if f"--dataset {DATASETS[dataset][0]} " in line)
    words = line.replace("$GPU", "0").split()[1:]
    for option, value in (("--local_epochs", local), ("--global_epochs", global_), ("--hidden_channels", head)):
        words[words.index(option) + 1] = str(value)
    return [*words, "--cpu", "--data_dir", f"{data}/"]


def train_theirs(authors: Path, words: list[str], relu: bool) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Runs main.py. Returns its variables and the first weights."""
    absent = {name: types.ModuleType(name) for name in ("gdown", "ogb", "ogb.nodeproppred")}
    vars(absent["ogb.nodeproppred"])["NodePropPredDataset"] = None
    first: dict[str, Tensor] = {}
    sys.modules.update(absent)  # downloads, of which these datasets need none
    with patch.object(sys, "path", [str(authors), *sys.path]):
        import dataset as datasets
        import model as models

        functions = types.SimpleNamespace(**{name: getattr(F, name) for name in dir(F) if not name.startswith("__")})
        functions.dropout = Masks()
        if not relu:
            functions.relu = lambda x: x
        load, reset = datasets.load_dataset, models.Polynormer.reset_parameters

        def in_float64(*arguments: str) -> Any:
            read = load(*arguments)
            read.graph["node_feat"] = read.graph["node_feat"].double()
            return read

        def reset_and_save(self: torch.nn.Module) -> None:
            reset(self)
            first.update({name: value.clone() for name, value in self.state_dict().items()})

        models.F, datasets.load_dataset, models.Polynormer.reset_parameters = functions, in_float64, reset_and_save
        torch.set_default_dtype(torch.float64)
        try:
            with patch.object(sys, "argv", words):
                return runpy.run_path(str(authors / "main.py")), first
        finally:
            torch.set_default_dtype(torch.float32)


def same_data(experiment: Experiment, theirs: dict[str, Any]) -> bool:
    """Whether features, edges with self-loops and the first split are equal."""
    graph, nodes, loader = theirs["dataset"].graph, theirs["n"], experiment.loader(0)
    batch, _ = next(iter(loader.evaluation("val")))
    x = batch.x.to_dense() if batch.x.layout == torch.sparse_csr else batch.x
    source, target = edges_with_self_loops(batch)
    ours = (source * nodes + target)[target < nodes].sort().values
    equal = torch.equal(x.double(), graph["node_feat"])
    equal &= torch.equal(ours, (graph["edge_index"][0] * nodes + graph["edge_index"][1]).sort().values)
    parts = (("train", loader.training(0)), ("valid", loader.evaluation("val")), ("test", loader.evaluation("test")))
    for name, batches in parts:
        rows = cast(Tensor, next(iter(batches))[1])
        equal &= torch.equal(rows.sort().values, theirs["split_idx_lst"][0][name].sort().values)
    return equal


def train_ours(experiment: Experiment, weights: dict[str, Tensor]) -> tuple[Run, list[float]]:
    """Returns the finished run, and its metric on test after each epoch."""
    masks, tests = Masks(), []

    def build() -> torch.nn.Module:
        model = experiment.build().double()
        model.load_state_dict(weights)
        return model

    def masked(self: Dropout, x: Tensor) -> Tensor:
        return masks(x, self.rate, self.training)

    plain = patch.object(accelerated, "_implementation", lambda cls, method: None)
    with plain, patch.object(Dropout, "forward", masked):
        run = Run(
            experiment.recipe,
            experiment.task,
            experiment.loader(0),
            build,
            seed=0,
            meter=Clock(),
            checkpoint=Checkpoint(None),
            on_epoch=lambda *_: tests.append(run._evaluate("test")[experiment.task.metric]),
        )
        run.train()
    return run, tests


def compare(options: argparse.Namespace, folder: Path) -> bool:
    """Trains both and prints the comparison. Returns whether they are equal."""
    _, file, place = DATASETS[options.dataset]
    (folder / place).parent.mkdir(parents=True)
    shutil.copyfile(options.mirror / file, folder / place)
    for split in (options.authors / "data").glob("*_split.npz"):
        shutil.copy(split, folder)
    words = command_of(options.authors, options.dataset, options.local, options.global_, options.head, folder)
    theirs, first = train_theirs(options.authors, words, relu=options.row == "polynormer-r")
    log = np.array(theirs["logger"].results[0])  # [epochs, (train, validation, test, validation loss)]

    prepare(options.dataset, folder / "ours", [str(options.mirror)])
    path = INSTALLED / SUITES / "polynormer" / "recipes" / options.dataset / f"{options.row}.yaml"
    phases = [
        {"name": "local", "epochs": options.local},
        {"name": "global", "epochs": options.global_, "reload_best": True},
    ]
    width = options.head * int(words[words.index("--num_heads") + 1])
    recipe = load_recipe(path).with_values({"precision": "float64", "phases": phases, "model.hidden_dim": width})
    settings, store = RunSettings(device="cpu"), Store(folder / "store")
    experiment = Experiment(recipe, str(path), options.dataset, settings, store, folder / "ours")
    data = same_data(experiment, theirs)
    run, tests = train_ours(experiment, renamed(first))

    curves, outcome, best = run.outcome.curves, run.outcome, int(log[:, 1].argmax())
    gap = float(np.abs(np.array(curves["val_loss"]) - log[:, 3]).max())
    metric = max(np.abs(np.array(curves["val"]) - log[:, 1]).max(), np.abs(np.array(tests) - log[:, 2]).max())
    print(f"features, edges and splits are {'equal' if data else 'NOT equal'}")
    print(f"authors: epoch {best + 1}, validation {log[best, 1]:.6f}, test {log[best, 2]:.6f}")
    print(f"ours:    epoch {outcome.best_epoch}, validation {outcome.val:.6f}, test {outcome.test:.6f}")
    print(f"largest difference: validation loss {gap:.0e}, {experiment.task.metric} {metric:.0e}")
    return bool(data and gap < LARGEST and outcome.best_epoch == best + 1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.witness.polynormer", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("authors", type=Path, help="checkout of cornell-zhang/Polynormer")
    parser.add_argument("dataset", choices=sorted(DATASETS))
    parser.add_argument("row", choices=["polynormer", "polynormer-r"])
    parser.add_argument("--mirror", type=Path, required=True, help="folder of raw data")
    parser.add_argument("--local", type=int, default=4, help="epochs of the local phase")
    parser.add_argument("--global", type=int, default=6, dest="global_", help="epochs of the global phase")
    parser.add_argument("--head", type=int, default=4, help="width of a head")
    options = parser.parse_args(arguments)
    options.authors, options.mirror = options.authors.resolve(), options.mirror.resolve()
    for path in (
        options.authors / "main.py",
        options.authors / "run.sh",
        options.mirror / DATASETS[options.dataset][1],
    ):
        if not path.is_file():
            parser.error(f"{path} does not exist; give a checkout of the authors' code and a folder of raw data")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        return 0 if compare(options, Path(folder)) else 1


if __name__ == "__main__":
    raise SystemExit(main())
