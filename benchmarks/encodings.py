"""Encodings of molecule-like graphs in batches, against transforms one graph at a time, on the same threads.

    python benchmarks/encodings.py [--graphs 1000] [--rounds 5] [--busy]

On a busy machine threads that wait for each other distort everything: --busy takes processor time on one thread.

Each case is repeated in turn with its counterpart; the fastest round of each counts. Ours starts from a GraphBatch, the
transforms from Data objects. RRWP's counterparts: GRIT's transform as it would be written on torch_geometric (all
powers, their diagonal, and the list of pairs with a non-zero entry), the same without that list, and AddRandomWalkPE,
which keeps the diagonal only.

Prints: a table of microseconds a graph, ours and theirs.
Takes: some minutes.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
from torch import Tensor

from benchmarks.command import parser_of
from benchmarks.measured_process import NUM_THREADS, molecules, print_table
from gt_models import GraphBatch
from gt_models.encodings import compute

STEPS = 20  # and the identity: K = 21 in GRIT's count
EIGENVECTORS = 8


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--graphs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--busy", action="store_true", help="processor time on one thread")
    arguments = parser.parse_args()
    from threadpoolctl import threadpool_limits
    from torch_geometric.transforms import AddLaplacianEigenvectorPE, AddRandomWalkPE

    threads, clock = (1, time.process_time) if arguments.busy else (NUM_THREADS, time.perf_counter)
    torch.set_num_threads(threads)
    threadpool_limits(threads)  # scipy's BLAS too

    def seconds(work) -> float:
        start = clock()
        work()
        return clock() - start

    batch = molecules(arguments.graphs)
    graphs = separate(batch)
    walk_pe = AddRandomWalkPE(STEPS)
    laplacian_pe = AddLaplacianEigenvectorPE(EIGENVECTORS, is_undirected=True)
    cases = [
        (f"RRWP, identity + {STEPS} powers", "rrwp", {"steps": STEPS}, "GRIT's transform", rrwp_with_pairs),
        (f"RRWP, identity + {STEPS} powers", "rrwp", {"steps": STEPS}, "its dense loop alone", rrwp_of_one),
        (
            f"RRWP, identity + {STEPS} powers",
            "rrwp",
            {"steps": STEPS},
            "AddRandomWalkPE (diagonal only)",
            lambda g: walk_pe(g.clone()),
        ),
        (f"RWSE, {STEPS} steps", "rwse", {"steps": STEPS}, "AddRandomWalkPE", lambda g: walk_pe(g.clone())),
        (
            f"Laplacian, {EIGENVECTORS}",
            "laplacian",
            {"k": EIGENVECTORS},
            "AddLaplacianEigenvectorPE",
            lambda g: laplacian_pe(g.clone()),
        ),
    ]
    rows = []
    for title, name, options, other, one in cases:
        ours, theirs = [], []
        for _ in range(arguments.rounds):
            ours.append(seconds(lambda name=name, options=options: compute(name, batch, **options)))
            theirs.append(seconds(lambda one=one: [one(g) for g in graphs]))
        each = 1e6 / arguments.graphs
        rows.append(
            [title, other, f"{min(ours) * each:.1f}", f"{min(theirs) * each:.1f}", f"{min(theirs) / min(ours):.1f}x"]
        )
    for name, options in (("shortest-path", {}), ("orthogonal", {"k": 64})):
        took = min(
            seconds(lambda name=name, options=options: compute(name, batch, **options)) for _ in range(arguments.rounds)
        )
        rows.append([name, "", f"{took * 1e6 / arguments.graphs:.1f}", "", ""])
    nodes = batch.num_nodes / batch.num_graphs
    title = (
        f"{batch.num_graphs:,} graphs, {nodes:.1f} nodes on average, {threads} thread{'s' * (threads > 1)}, "
        "microseconds a graph"
    )
    print_table(title, ["encoding", "one graph at a time", "ours", "theirs", "ratio"], rows)


def rrwp_of_one(data) -> Tensor:
    from torch_geometric.utils import degree, to_dense_adj

    adjacency = to_dense_adj(data.edge_index, max_num_nodes=data.num_nodes)[0]  # (n, n)
    inverse = 1 / degree(data.edge_index[0], data.num_nodes).clamp(min=1)
    transition = inverse[:, None] * adjacency
    powers = [torch.eye(data.num_nodes), transition]
    for _ in range(STEPS - 1):
        powers.append(powers[-1] @ transition)
    return torch.stack(powers, -1).flatten(0, 1)  # (n^2, K)


def rrwp_with_pairs(data):
    data = data.clone()
    n = data.num_nodes
    values = rrwp_of_one(data)
    data.rrwp = values.view(n, n, -1).diagonal().T  # (n, K)
    pairs = values.any(1).nonzero().squeeze(1)
    data.rrwp_index, data.rrwp_val = torch.stack([pairs // n, pairs % n]), values[pairs]
    return data


def separate(batch: GraphBatch) -> list:
    from torch_geometric.data import Data

    edges = batch.edge_index.split(
        torch.bincount(batch.batch[batch.edge_index[0]], minlength=batch.num_graphs).tolist(), 1
    )
    return [
        Data(x=x, edge_index=e - start)
        for x, e, start in zip(batch.x.split(batch.sizes.tolist()), edges, batch.ptr, strict=False)
    ]


if __name__ == "__main__":
    main()
