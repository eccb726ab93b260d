"""Edge Transformer, Section 5: does it learn GRANDMOTHER from MOTHER in one layer, and longer relations in two?

Families are random forests: each person except the oldest has a mother among the older persons, or none. The pairs
(person, mother) are given as edges, with one category per direction. The model predicts for every ordered pair whether
the second person is the mother of the mother of the first one (2 steps), and so on. L layers of triangular attention
reach 2^L steps: a layer passes on the multiset of (state of (i, l), state of (l, j)) over l, which is no more than 2
steps of MOTHER. Models are trained on families of TRAIN persons. The score is F1 over all pairs of new families, of the
same size and of twice the size.

The model on nodes is GraphGPS (message passing and attention), which reads the pair (i, j) from the vectors of i and j.
In a family that contains every person twice (`twins`), i and its grandmother have the same vectors as i and the
grandmother's double. It therefore cannot answer both pairs correctly: F1 is at most 2/3. The Edge Transformer is
evaluated on the same pairs.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gt_models.baselines.gps import GPS
from gt_models.batch import GraphBatch
from gt_models.edge_transformer import EdgeTransformer
from gt_models.layers.mlp import MLP

NODE_LAYERS = 4
CASES = [
    "Edge Transformer, 1 layers, 2 steps", "Edge Transformer, 1 layers, 3 steps", "Edge Transformer, 2 layers, 3 steps",
    "Edge Transformer, 2 layers, 4 steps",
    "on nodes, 2 steps",
]  # fmt: skip
# every case trains; tests/gt_bench/claims/experiments checks the relations, the twins and the reach of one layer
QUICK: list[str] = []
TRAIN, FAMILIES, BATCH, UPDATES, RATE, DIM, HEADS = 12, 100, 16, 300, 2e-3, 32, 4
# trained in float32: processors round differently, and training amplifies the differences
TOLERANCE = 0.05


class OnNodes(nn.Module):
    """GraphGPS, and a perceptron on the two vectors of a pair."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = GPS(
            1, DIM, "node", edge_dim=[2], hidden_dim=DIM, num_layers=NODE_LAYERS, num_heads=HEADS, norm="layer"
        )
        self.head = MLP([2 * DIM, DIM, DIM, 1])

    def forward(self, batch: GraphBatch) -> Tensor:
        """Returns the logits of the ordered pairs, row-major by family, [sum n^2, 1]."""
        z = self.nodes(batch)  # [N, d]
        first, second = batch.pair_nodes
        return self.head(torch.cat([z[first], z[second]], 1))


def compute(case: str, data: Path) -> dict[str, Any]:
    """Trains the model of a case and evaluates it.

    Returns:
        F1 on families of TRAIN persons (`f1`), of twice as many (`larger`) and on twins (`twins`), and the mean `loss`
            of the last fifty updates.
    """
    model_name, steps = case.rpartition(", ")[0], int(case.rpartition(", ")[2].split()[0])
    torch.manual_seed(0)
    model = network(model_name)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, UPDATES)
    rng, losses = torch.Generator().manual_seed(1), []
    for _ in range(UPDATES):
        batch, y = families(BATCH, TRAIN, steps, rng)
        loss = nn.functional.binary_cross_entropy_with_logits(model(batch).squeeze(1), y, pos_weight=torch.tensor(5.0))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    model.eval()
    seen = torch.Generator().manual_seed(2)
    evaluated = {
        "f1": families(FAMILIES, TRAIN, steps, seen),
        "larger": families(FAMILIES, 2 * TRAIN, steps, seen),
        "twins": families(FAMILIES, TRAIN, steps, seen, twice=True),
    }
    return {name: round(f1(model, *what), 4) for name, what in evaluated.items()} | {
        "loss": round(sum(losses[-50:]) / 50, 4)
    }


def network(name: str) -> nn.Module:
    """Returns the model of a case: `Edge Transformer, L layers`, or a transformer on nodes."""
    if not name.startswith("Edge Transformer"):
        return OnNodes()
    layers = int(name.split(", ")[1].split()[0])
    return EdgeTransformer(
        1, 1, "pair", edge_dim=[2], hidden_dim=DIM, num_layers=layers, num_heads=HEADS, ffn_residual=True
    )


@torch.no_grad()
def f1(model: nn.Module, batch: GraphBatch, y: Tensor) -> float:
    """Returns F1 over pairs. A positive logit means yes."""
    predicted, true = model(batch).squeeze(1) > 0, y > 0
    right = (predicted & true).sum().item()
    return 2 * right / max(predicted.sum().item() + true.sum().item(), 1)


def families(
    count: int, people: int, steps: int, rng: torch.Generator, twice: bool = False
) -> tuple[GraphBatch, Tensor]:
    """Draws families and their relation.

    Args:
        count: number of families.
        people: number of persons in a family.
        steps: number of steps of MOTHER.
        rng: random generator.
        twice: whether each family consists of two equal halves without an edge between them.

    Returns:
        The batch, and for each ordered pair (row-major by family) whether the second person is `steps` steps of MOTHER
            from the first one, [count * people^2].
    """
    size = people // 2 if twice else people
    mothers = torch.stack([_mothers(size, rng) for _ in range(count)])  # [count, size], -1 where none
    if twice:
        mothers = torch.cat([mothers, torch.where(mothers < 0, mothers, mothers + size)], 1)
    step = (
        nn.functional.one_hot(mothers.clamp(min=0), people).double() * (mothers >= 0)[..., None]
    )  # [count, people, people]
    graph, child = (mothers >= 0).nonzero().T
    edges = torch.stack([graph * people + child, graph * people + mothers[graph, child]])
    kind = torch.tensor([0, 1]).repeat_interleave(edges.size(1))[:, None]
    x = torch.ones(count * people, 1)
    batch = GraphBatch(x, torch.cat([edges, edges.flip(0)], 1), torch.arange(count + 1) * people, kind)
    return batch, torch.linalg.matrix_power(step, steps).flatten().float()


def _mothers(people: int, rng: torch.Generator) -> Tensor:
    """Returns the mother of each person, -1 for none, [people].

    The mother is one of the three next older persons, so that lines are long. The oldest person and one person in ten
    have none. Persons are in random order.
    """
    age = torch.arange(people)
    back = torch.randint(1, 4, (people,), generator=rng)
    mother = torch.where((back <= age) & (torch.rand(people, generator=rng) > 0.1), age - back, -1)
    order = torch.randperm(people, generator=rng)
    return torch.where(mother[order] < 0, -1, order.argsort()[mother[order].clamp(min=0)])
