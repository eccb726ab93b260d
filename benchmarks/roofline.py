"""Estimated time of a training step of each architecture on a GPU that is not available.

    python benchmarks/roofline.py [CELL ...]

Operations and bytes are counted on the definitions in plain torch as the cell trains, by the counts that the floor of
the CPU uses (benchmarks/counts.py). Rates are those of NVIDIA's data sheet; nothing here is measured on a GPU.

The floor is the time of matrix products in TF32, or that of the memory traffic of products and optimizer, whichever is
longer; unfused, it is that of all traffic, products or launches. docs/gpu.md compares floors with measurements.

Prints: for each cell its operations and bytes, the floor, the time unfused, what bounds it, and what to do first.
Takes: seconds for a small cell, minutes for the largest; no GPU.
"""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.cells import ask, number, prepare
from benchmarks.command import parser_of

CELLS = (
    "ppgt/zinc/ppgt", "tokengt/pcqm4mv2/tokengt-lap", "edge-transformer/zinc/edge-transformer",
    "hot/chains/hot-sparse-kernel", "polynormer/photo/polynormer", "edge-transformer/zinc/grit",
    "edge-transformer/zinc/gps", "tokengt/pcqm4mv2/graphormer",
)  # fmt: skip
# H100 SXM, NVIDIA H100 Tensor Core GPU data sheet: dense rates (the sheet states twice these for tensor cores, with
# sparsity)
FLOAT32, TF32, BFLOAT16, BANDWIDTH = 67e12, 494.5e12, 989.5e12, 3.35e12
# seconds to launch a kernel from Python without CUDA graphs; an assumption, not from the data sheet
LAUNCH = 5e-6


@dataclass(frozen=True)
class Step:
    """Estimated seconds of each part of a step alone, on an H100 with float32 storage and TF32 products."""

    products: float
    traffic: float
    launches: float
    floor: float

    @classmethod
    def of(cls, counts: dict[str, int]) -> "Step":
        moved = counts["product_bytes"] + counts["optimiser_bytes"]
        return cls(
            counts["products"] / TF32,
            counts["bytes"] / BANDWIDTH,
            counts["calls"] * LAUNCH,
            max(counts["products"] / TF32, moved / BANDWIDTH),
        )

    @property
    def unfused(self) -> float:
        """Seconds if each operation of the definitions is a kernel that reads and writes memory."""
        return max(self.traffic, self.products, self.launches)

    @property
    def first(self) -> str:
        """The first optimization, which concerns the longest part."""
        longest = max(
            ("launches", self.launches),
            ("traffic", self.traffic),
            ("products", self.products),
            key=lambda part: part[1],
        )[0]
        return {
            "launches": "capture the step in a CUDA graph (torch.compile, mode reduce-overhead), or train several "
            "seeds side by side",
            "traffic": "fuse the operations between the products: torch.compile, then a Triton kernel for the "
            "attention",
            "products": "use bfloat16 products, which have twice the rate",
        }[longest]


def forms_on_gpu(operations: Sequence[str]) -> str:
    """The forms that run on CUDA, of the operations of a step. The other operations run in plain torch."""
    from gt_models.kernels import all_operations

    found = all_operations()
    fast = {name: [form.name for form in found[name].forms if "cuda" in form.devices] for name in operations}
    named = [f"{name}: {forms[0]}" for name, forms in fast.items() if forms]
    plain = [name for name, forms in fast.items() if not forms]
    return "; ".join(named + ([f"plain torch: {', '.join(plain)}"] if plain else [])) or "plain torch"


def report(found: Sequence[dict[str, Any]]) -> str:
    columns = (
        "cell", "GFLOP of products", "MB of products and optimizer", "MB unfused", "kernels", "FLOP per byte",
        "floor us", "bound by", "unfused us",
        "floor rate unused",
    )  # fmt: skip
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for one in found:
        counts, step = one["counts"], Step.of(one["counts"])
        moved = counts["product_bytes"] + counts["optimiser_bytes"]
        bound = "products" if counts["products"] / TF32 >= moved / BANDWIDTH else "memory"
        lines.append(
            f"| {one['cell']} | {number(counts['products'] / 1e9)} | {number(moved / 1e6)} | "
            f"{number(counts['bytes'] / 1e6)} | {counts['calls']:,} | {number(counts['products'] / moved)} | "
            f"{number(1e6 * step.floor)} | {bound} | {number(1e6 * step.unfused)} | "
            f"{100 * (1 - step.floor / step.unfused):.0f} % |"
        )
    lines += ["", "| cell | forms with a CUDA implementation | what to do first |", "|---|---|---|"]
    lines += [
        f"| {one['cell']} | {forms_on_gpu(one['operations'])} | {Step.of(one['counts']).first} |" for one in found
    ]
    return "\n".join(lines)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("cells", nargs="*", metavar="CELL")
    parser.add_argument("--data", type=Path, default=Path("data"))
    given = parser.parse_args()
    found = []
    for cell in given.cells or CELLS:
        with tempfile.TemporaryDirectory(prefix="gt-roofline-") as temporary:
            folder, what = prepare(cell, given.data.resolve(), Path(temporary))
            found.append(ask(cell, "counts", folder) | {"cell": cell})
        print(f"{cell}: {what}", flush=True)
    print(report(found))


if __name__ == "__main__":
    from gt_bench.runtime.threads import settle_environment

    settle_environment()
    main()
