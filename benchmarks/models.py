"""Every model at one size, and the growth of some: a training step on random graphs, built as `gt-bench try` does.

    python benchmarks/models.py                            # a table
    python benchmarks/models.py --write docs/models.json   # also the growth: what docs/models.md is made of; minutes
    python benchmarks/models.py --write docs/models.json ppgn difformer    # these alone are measured and join the
    others, on the same kind of processor

Processor time of one thread, which other work on the machine lengthens little; memory above what imports took.

Prints: a table with a row for each model: parameters, milliseconds and MiB of a step.
Takes: some minutes; several times that with the growth, which --write measures (not timed as a whole).
"""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.command import parser_of
from benchmarks.measured_process import measure, print_table
from gt_bench.data.packed import PackedHeader
from gt_bench.plugins.default_recipes import recipe_of
from gt_models import create_model, list_models, model_info
from gt_models.batch import GraphBatch
from gt_models.encodings import compute
from gt_models.transforms import needs

NODES, GRAPHS, DEGREE, FEATURES, OUTPUTS = 64, 4, 4, 16, 8
GROWTH = ("tokengt", "hot", "ppgt", "edge-transformer", "polynormer", "gcn", "gps", "grit")
SIZES = (32, 64, 128, 256, 512, 1024, 2048)
LONGEST = 3000.0  # ms; the next size is left out
# read what no random graph has
LEFT_OUT = {
    "tokengt-attention": "one attention head, no model of graphs",
    "ppgt-node2subgraph-released": "reads marks of subgraphs",
    "hyper-sagnn": "reads hyperedges",
}


def graphs(count: int, nodes: int) -> GraphBatch:
    """`count` random graphs of `nodes` nodes and `DEGREE * nodes` directed edges, features N(0, 1)."""
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, nodes, (count, 2, DEGREE * nodes // 2)) + nodes * np.arange(count)[:, None, None]
    edges = torch.from_numpy(np.concatenate([pairs, pairs[:, ::-1]], 2)).transpose(0, 1).reshape(2, -1)
    x = torch.from_numpy(rng.standard_normal((count * nodes, FEATURES), dtype=np.float32))
    return GraphBatch(x, edges, nodes * torch.arange(count + 1))


def step(model: str, count: int = GRAPHS, nodes: int = NODES) -> tuple[nn.Module, Callable[[], Tensor]]:
    info, batch = model_info(model), graphs(count, nodes)
    level = "graph" if "graph" in info.levels else info.levels[0]
    header = PackedHeader(
        name="random", task="graph-regression", metric="mae", level=level, in_dim=FEATURES, out_dim=OUTPUTS,
        split_kind="graph", num_splits=1
    )  # fmt: skip
    arguments = recipe_of(info, header, {}, None, None).model.arguments
    net = create_model(model, in_dim=FEATURES, out_dim=OUTPUTS, level=level, **arguments)
    for name, request in needs(net, batch).items():
        batch.encodings |= compute(name, batch, **request)

    def loss() -> Tensor:  # a fresh view of the batch: what a batch caches is part of a step
        return net(GraphBatch(batch.x, batch.edge_index, batch.ptr, encodings=batch.encodings)).square().mean()

    return net, loss


def table(names: list[str]) -> dict[str, dict]:
    found = {}
    for model in names:
        if model not in LEFT_OUT:
            found[model] = asdict(measure("benchmarks.models:step", threads=1, seconds=10.0, model=model))
            print(
                f"{model}: {found[model]['cpu_ms']:.3g} ms, {found[model]['peak_mib']:.0f} MiB",
                file=sys.stderr,
                flush=True,
            )
    return found


def growth() -> dict[str, list[tuple[int, float, float]]]:
    found: dict[str, list[tuple[int, float, float]]] = {}
    for model in GROWTH:
        for nodes in SIZES:
            one = measure(
                "benchmarks.models:step", threads=1, repeats=3, seconds=10.0, model=model, count=1, nodes=nodes
            )
            found.setdefault(model, []).append((nodes, round(one.cpu_ms, 3), round(one.peak_mib, 1)))
            print(f"{model}, {nodes} nodes: {one.cpu_ms:.3g} ms", file=sys.stderr, flush=True)
            if one.cpu_ms > LONGEST:
                break
    return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--write", type=Path, metavar="FILE", help="the growth too, into this file")
    parser.add_argument("names", nargs="*", metavar="MODEL", help="all where none is named")
    given = parser.parse_args()
    names = given.names
    models = table(names or list_models())
    rows = [[name, one["parameters"], one["cpu_ms"], one["peak_mib"]] for name, one in models.items()]
    print_table(f"a training step on {GRAPHS} graphs of {NODES} nodes", ["model", "parameters", "ms", "MiB"], rows)
    if given.write:
        from gt_bench.runtime.environment import cpu_name

        kept = {
            name: {"ms": round(one["cpu_ms"], 3), "mib": round(one["peak_mib"], 1), "parameters": one["parameters"]}
            for name, one in models.items()
        }
        setting = {
            "graphs": GRAPHS,
            "nodes": NODES,
            "degree": DEGREE,
            "processor": cpu_name(),
            "torch": torch.__version__,
            "left_out": LEFT_OUT,
        }
        path = given.write
        before = json.loads(path.read_text()) if names else {}
        if names and {**before["setting"], "left_out": LEFT_OUT} != setting:
            sys.exit(f"{path} was measured otherwise ({before['setting']}): measure all models again, without names")
        content = {
            "setting": setting,
            "models": dict(sorted((before.get("models", {}) | kept).items())),
            "growth": before["growth"] if names else growth(),
        }
        path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
