"""Prepares and iterates 100,000 molecule-like graphs: packed storage against InMemoryDataset and DataLoader of PyG.

    python benchmarks/datasets.py [number of graphs]

Both sides get the same arrays (drawn block by block from a seed) in a process of their own with two threads; memory is
the process' peak (VmHWM) above what its imports took. The epoch is shuffled, 128 graphs a batch, every tensor of a
batch made.

Prints: a table of preparation, epoch, memory and disk of both, and their ratio.
Takes: half a minute (33 s measured on two cores, one of them busy).
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
import torch

from benchmarks.command import parser_of
from benchmarks.measured_process import NUM_THREADS, ROOT, print_table

BLOCK, BATCH = 5000, 128


def blocks(count: int) -> Iterator[dict[str, np.ndarray]]:
    """Molecule-like graphs: 15 to 30 nodes, a random tree and one to four rings, bonds in both directions."""
    rng = np.random.default_rng(0)
    for start in range(0, count, BLOCK):
        sizes = rng.integers(15, 31, min(BLOCK, count - start))
        extra = rng.integers(1, 5, len(sizes))
        first = sizes.cumsum() - sizes
        local = np.arange(sizes.sum()) - np.repeat(first, sizes)
        child = local[local > 0]
        parent = (rng.random(len(child)) * child).astype(np.int64)  # a uniform earlier node
        ends = (rng.random((2, extra.sum())) * np.repeat(sizes, extra)).astype(np.int64)
        source, target = np.concatenate([child, ends[0]]), np.concatenate([parent, ends[1]])
        graph = np.concatenate([np.repeat(np.arange(len(sizes)), sizes - 1), np.repeat(np.arange(len(sizes)), extra)])
        order = graph.argsort(kind="stable")
        yield {
            "num_nodes": sizes,
            "num_edges": 2 * (sizes - 1 + extra),
            "x": rng.integers(0, 21, (sizes.sum(), 1)).astype(np.uint8),
            "edge_index": np.stack(
                [np.stack([source, target], 1)[order].ravel(), np.stack([target, source], 1)[order].ravel()],
            ).astype(np.int16),
            "edge_attr": np.repeat(rng.integers(1, 4, (len(order), 1)), 2, axis=0).astype(np.uint8),
            "y": rng.standard_normal(len(sizes)).astype(np.float32),
        }


def packed(count: int, folder: Path) -> tuple[float, float, int]:
    """(seconds to prepare, seconds of an epoch, bytes on disk) of this project's storage."""
    from gt_bench.data.packed import PackedDataset, PackedHeader
    from gt_bench.data.packed_writer import PackedWriter
    from gt_bench.training.loader import plan_batches

    facts = {
        "name": "molecules",
        "task": "graph-regression",
        "metric": "mae",
        "level": "graph",
        "split_kind": "graph",
        "num_splits": 0,
    }
    header = PackedHeader(**facts, in_dim=[21], edge_dim=[4], out_dim=1)
    drawing, start = 0.0, time.perf_counter()
    with PackedWriter(folder / "packed") as writer:
        source = blocks(count)
        while True:
            began = time.perf_counter()
            block = next(source, None)
            drawing += time.perf_counter() - began
            if block is None:
                break
            writer.graphs(**block)
        writer.finish(header)
    prepared = time.perf_counter() - start - drawing
    start = time.perf_counter()
    dataset = PackedDataset.open(folder / "packed")
    for graphs in plan_batches(dataset.sizes, batch_size=BATCH, generator=torch.Generator().manual_seed(0)):
        dataset.batch(graphs)
    return prepared, time.perf_counter() - start, sum(f.stat().st_size for f in (folder / "packed").iterdir())


def geometric(count: int, folder: Path) -> tuple[float, float, int]:
    """The same with torch_geometric: a list of Data, collated and saved; then its DataLoader without workers."""
    from torch_geometric.data import Data, InMemoryDataset
    from torch_geometric.loader import DataLoader

    drawing = 0.0

    class Molecules(InMemoryDataset):
        def __init__(self, root: str):
            super().__init__(root)
            self.load(self.processed_paths[0])

        processed_file_names = "data.pt"

        def process(self):
            nonlocal drawing
            graphs, source = [], blocks(count)
            while True:
                began = time.perf_counter()
                block = next(source, None)
                drawing += time.perf_counter() - began
                if block is None:
                    break
                x, y = torch.from_numpy(block["x"]).long(), torch.from_numpy(block["y"])
                edge_index, edge_attr = (
                    torch.from_numpy(block["edge_index"]).long(),
                    torch.from_numpy(block["edge_attr"]).long(),
                )
                parts = zip(
                    x.split(block["num_nodes"].tolist()),
                    edge_index.split(block["num_edges"].tolist(), dim=1),
                    edge_attr.split(block["num_edges"].tolist()),
                    y.split(1),
                )
                graphs += [Data(x=a, edge_index=b, edge_attr=c, y=d) for a, b, c, d in parts]
            self.save(graphs, self.processed_paths[0])

    start = time.perf_counter()
    Molecules(str(folder / "pyg"))
    prepared = time.perf_counter() - start - drawing
    start = time.perf_counter()
    for _ in DataLoader(Molecules(str(folder / "pyg")), batch_size=BATCH, shuffle=True):
        pass
    return (
        prepared,
        time.perf_counter() - start,
        sum(f.stat().st_size for f in (folder / "pyg/processed").glob("data.pt")),
    )


def _peak_mib() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no VmHWM")


def _child(side: str, count: int) -> None:
    torch.set_num_threads(NUM_THREADS)
    if side == "packed":
        import gt_bench.data.packed  # noqa: F401 (imports are not counted)
    else:
        import torch_geometric.loader  # noqa: F401
    before = _peak_mib()
    with tempfile.TemporaryDirectory() as folder:
        prepare, epoch, size = {"packed": packed, "geometric": geometric}[side](count, Path(folder))
    print(json.dumps({"prepare": prepare, "epoch": epoch, "mib": _peak_mib() - before, "size": size / 2**20}))


def _run(side: str, count: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", side, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(f"{side} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("graphs", type=int, nargs="?", default=100_000, help="how many")
    count = parser.parse_args().graphs
    small = _run("packed", count // 10)
    ours, theirs = _run("packed", count), _run("geometric", count)
    rows = [
        [name, f"{r['prepare']:.2f}", f"{r['epoch']:.2f}", f"{r['mib']:.0f}", f"{r['size']:.0f}"]
        for name, r in (
            (f"packed, {count // 10:,} graphs", small),
            (f"packed, {count:,}", ours),
            (f"torch_geometric, {count:,}", theirs),
        )
    ]
    rows.append(["ratio", *(f"{theirs[k] / ours[k]:.1f}x" for k in ("prepare", "epoch", "mib", "size"))])
    print_table("Molecule-like graphs", ["storage", "prepare s", "epoch s", "peak MiB", "disk MiB"], rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _child(sys.argv[2], int(sys.argv[3]))
    else:
        main()
