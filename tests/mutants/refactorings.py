"""Changes of code that alter no number. Golden values must not change, so no version has to be raised.

`cells` are cells, or datasets of tests/gt_bench/data/raw_files.py, but not both in one refactoring.
"""

from dataclasses import dataclass

from tests.mutants.runner import Edit

LAPLACIAN = "gt_models/encodings/laplacian.py"
POLYNORMER = "gt_models/polynormer/__init__.py"
LOOP, EVALUATION = "gt_bench/training/trainer.py", "gt_bench/training/evaluation.py"
LOADER = "gt_bench/training/loader.py"
READERS = "gt_bench/data/readers.py"
OPTIMISATION = "gt_bench/training/optim.py"
LARGEST = """def _first_largest(magnitudes: Tensor, dim: int) -> Tensor:
    largest = magnitudes.amax(dim, keepdim=True)
    return (magnitudes >= largest * (1 - _SAME_MAGNITUDE)).to(torch.uint8).argmax(dim)
"""
RESET = """    def reset_parameters(self) -> None:
        nn.init.zeros_(self.alpha)
        nn.init.ones_(self.beta)

"""
SHOWN = """    def extra_repr(self) -> str:
        return f"{self.alpha.numel()}, eps={self.eps}"
"""


@dataclass(frozen=True)
class Refactoring:
    """`edits` that must not change the golden values of `cells`."""

    name: str
    edits: tuple[Edit, ...]
    cells: tuple[str, ...]


REFACTORINGS = [
    Refactoring(
        "a private function renamed",
        (Edit(LAPLACIAN, "_first_largest(", "_place_of_largest(", count=3),),
        ("edge-transformer/cornell/gcn",),
    ),
    Refactoring(
        "a function moved to another module",
        (
            Edit(LAPLACIAN, LARGEST, ""),
            Edit(LAPLACIAN, "import Block, blocks", "import Block, _first_largest, blocks"),
            Edit("gt_models/encodings/blocks.py", "", "\n\n" + LARGEST.replace("_SAME_MAGNITUDE", "1e-6")),
        ),
        ("edge-transformer/cornell/gcn",),
    ),
    Refactoring(
        "local variables renamed",
        (
            Edit(LOADER, "is_train", "trained", count=3),
            Edit(LOOP, "rows_seen", "counts", count=3),
        ),
        ("polynormer/pokec/nodeformer",),
    ),
    Refactoring(
        "annotations of types",
        (
            Edit("gt_models/layers/pooling.py", "how: str) -> Tensor:", 'how: "str | None") -> "Tensor":'),
            Edit(OPTIMISATION, ") -> float:", ') -> "float":'),
            Edit("gt_bench/tasks/metrics.py", "    values = []\n", "    values: list[float] = []\n"),
        ),
        ("embedded/ring-molecules/gin",),
    ),
    Refactoring(
        "messages to people",
        (
            Edit(LOOP, "the training split is empty", "there is nothing to train on"),
            Edit(LOOP, "the training loss is {mean}", "mean loss {mean}"),
            Edit("gt_models/layers/gnn.py", "needs at least one layer, not", "has no layer:"),
        ),
        ("embedded/chains/mlp",),
    ),
    Refactoring(
        "functions that nothing calls",
        (
            Edit("gt_bench/tasks/metrics.py", "", "\n\ndef error_rate(output, target):\n    return output != target\n"),
            Edit(POLYNORMER, "", "\n\ndef mean_of_nodes(x: Tensor) -> Tensor:\n    return x.mean(0)\n"),
        ),
        ("embedded/torus-colours/polynormer",),
    ),
    Refactoring(
        "methods in another order",
        (
            Edit("gt_models/ppgt/norms.py", RESET, ""),
            Edit("gt_models/ppgt/norms.py", SHOWN, SHOWN + "\n" + RESET.rstrip("\n") + "\n"),
        ),
        ("embedded/ring-molecules/ppgt",),
    ),
    Refactoring(
        "comments and docstrings",
        (
            Edit(POLYNORMER, "in linear time.\n", "at linear cost.\n"),
            Edit(LOOP, '"""Initialises the model and its optimiser."""', "# the model and its optimiser"),
            Edit(LOADER, "Returns the subgraph of a batch that is induced by", "Induced subgraph of"),
        ),
        ("embedded/torus-colours/polynormer",),
    ),
    Refactoring(
        "format in place of an f-string",
        (
            Edit(
                EVALUATION,
                'f"outputs on {part} are not finite in epoch {epoch}"',
                '"outputs on {} are not finite in epoch {}".format(part, epoch)',
            ),
            Edit(
                "gt_models/layers/dropout.py",
                'f"dropout {rate} is outside [0, 1)"',
                '"dropout {} is outside [0, 1)".format(rate)',
            ),
        ),
        ("embedded/torus-colours/polynormer",),
    ),
    Refactoring(
        "an expression named by a variable",
        (
            Edit(
                "gt_models/baselines/difformer.py",
                "x = self.dropout(norm(self.alpha * update + (1 - self.alpha) * x))",
                "mixed = self.alpha * update + (1 - self.alpha) * x\n            x = self.dropout(norm(mixed))",
            ),
            Edit(
                OPTIMISATION,
                "    return section.final_factor + (1 - section.final_factor) * shape",
                "    above = 1 - section.final_factor\n    return section.final_factor + above * shape",
            ),
        ),
        ("polynormer/computer/difformer", "embedded/ring-molecules/gin"),
    ),
    Refactoring(
        "another style of import",
        (
            Edit(
                "gt_models/kernels/gated_norm.py",
                "from torch.nn import functional as F",
                "import torch.nn.functional as F",
            ),
            Edit(OPTIMISATION, "import math\n", "from math import cos, pi\n"),
            Edit(OPTIMISATION, "math.cos(math.pi * progress)", "cos(pi * progress)"),
        ),
        ("embedded/torus-colours/polynormer", "embedded/ring-molecules/gin"),
    ),
    Refactoring(
        "another expression of the same numbers",
        (
            Edit(READERS, "np.stack([keys // nodes, keys % nodes])", "np.stack(np.divmod(keys, nodes))"),
            Edit(READERS, "chosen = rng.permutation(members)[: val + test]", "chosen = rng.permutation(members)"),
            Edit(READERS, "chosen[val:]] = 2, 3", "chosen[val : val + test]] = 2, 3"),
        ),
        ("chameleon", "wikics"),
    ),
    Refactoring(
        "names in dataset families",
        (
            Edit("gt_bench/data/families/hyperedges.py", "held_out", "validates", count=2),
            Edit("gt_bench/data/families/pyg_hosted.py", "_moments(", "_mean_and_deviation(", count=2),
        ),
        ("gps", "pascalvoc-sp"),
    ),
]
