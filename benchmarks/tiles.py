"""Sizes of tiles and numbers of warps of the Triton forms of attention on a GPU.

    python benchmarks/tiles.py [--forms triangular gated]

Their choice in `gt_models/kernels/*_triton.py` is from this table.

Prints: milliseconds of the forward pass, and of forward and backward, for each tile and number of warps.
Takes: a minute, most of it Triton's compiler; ends with status 1 if torch sees no GPU.
"""

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.command import parser_of

TILES, WARPS = (4, 8, 16), (1, 2, 4)
# sizes of graphs, heads, width of a head; of gated attention also the rate of dropout, and numbers per pair and head
TRIANGULAR = {"cornell": ((183,), 8, 16), "zinc": ((23,) * 32, 8, 8)}
GATED = {
    "zinc": ((37, 9, 23, 23) * 8, 8, 8, 0.2, 2),
    "pcqm4mv2": ((14,) * 256, 32, 24, 0.1, 1),
    "cornell": ((183,), 8, 16, 0.2, 2),
}
Case = tuple[str, Callable[..., Any], tuple[Any, ...], list[Any]]  # name, form, arguments, those with gradients


def triangular() -> Iterator[Case]:
    """Calls of triangular attention with dropout 0.2."""
    import torch

    from gt_models.batch import GraphBatch
    from gt_models.kernels.triangular_attention_triton import triangular_attention

    for name, (sizes, heads, width) in TRIANGULAR.items():
        ptr = torch.tensor([0, *itertools.accumulate(sizes)])
        batch = GraphBatch(torch.zeros(int(ptr[-1]), 1), torch.zeros(2, 0, dtype=torch.long), ptr).to("cuda")
        x = torch.randn(batch.num_pairs, 4, heads, width, device="cuda", requires_grad=True)
        yield name, triangular_attention, (x, batch, torch.tensor([5]), 0.2), [x]


def gated() -> Iterator[Case]:
    """Calls of gated attention."""
    import torch

    from gt_models.batch import GraphBatch
    from gt_models.kernels.gated_attention_triton import gated_attention

    for name, (sizes, heads, width, dropout, numbers) in GATED.items():
        ptr = torch.tensor([0, *itertools.accumulate(sizes)])
        batch = GraphBatch(torch.zeros(int(ptr[-1]), 1), torch.zeros(2, 0, dtype=torch.long), ptr).to("cuda")
        qkv = torch.randn(int(ptr[-1]), 3 * heads * width, device="cuda", requires_grad=True)
        pairs = torch.randn(batch.num_pairs, numbers * heads, device="cuda", requires_grad=True)
        rest = (heads, batch, 0.7, -0.3, dropout, torch.tensor([11]))
        yield name, gated_attention, (qkv, pairs, *rest), [qkv, pairs]


def main() -> int:
    """Measure and print all variants."""
    parser = parser_of(__doc__)
    kinds = {"triangular": triangular, "gated": gated}
    parser.add_argument("--forms", nargs="+", choices=kinds, default=list(kinds), help="default: both")
    forms = parser.parse_args().forms
    import torch

    if not torch.cuda.is_available():
        print("torch sees no GPU", file=sys.stderr)
        return 1
    import triton
    from triton.testing import do_bench

    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}\n")
    print("| form | case | tile | warps | forward ms | both ms |\n" + "|---" * 6 + "|")
    for kind in forms:
        for name, form, arguments, leaves in kinds[kind]():
            module = sys.modules[f"gt_models.kernels.{kind}_attention_triton"]
            chosen = module._arguments
            for tile, warps in itertools.product(TILES, WARPS):
                given = {"TILE": tile, "num_warps": warps}
                with patch.object(module, "_arguments", lambda *a, c=chosen, g=given: c(*a) | g):
                    grad = torch.randn_like(form(*arguments))
                    with torch.no_grad():
                        forward = do_bench(lambda f=form, a=arguments: f(*a), return_mode="median")
                    both = do_bench(
                        lambda f=form, a=arguments, x=leaves, g=grad: torch.autograd.grad(f(*a), x, g),
                        return_mode="median",
                    )
                print(f"| {kind} | {name} | {tile} | {warps} | {forward:.3f} | {both:.3f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
