"""Edge Transformer, Section 5: does it learn GRANDMOTHER from MOTHER in one layer, and GREATGRANDMOTHER by composing once more, and does a transformer on nodes?

Families are random forests: each person but the oldest has a mother among the older ones, or none. Given are the pairs (person, mother), as edges with one category each way; asked is, for every
ordered pair, whether the second is the first one's mother's mother (2 steps), and so on. L layers of triangular attention reach 2^L steps, and what one layer hands on of a pair is the multiset of
(state of (i, l), state of (l, j)) over l: no more than 2 steps of MOTHER. Trained on families of TRAIN persons; the score is F1 over all pairs of families that were not seen, of as many persons and of
twice as many.
On nodes: GraphGPS (message passing and attention), whose pair (i, j) is read from the vectors of i and j. In a family that is there twice (`twins`) i and its grandmother have the same vectors as i and her
double, so it cannot answer both: there F1 is 2/3 at the very best. The Edge Transformer is asked the same.
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
    "Edge Transformer, 1 layers, 2 steps", "Edge Transformer, 1 layers, 3 steps", "Edge Transformer, 2 layers, 3 steps", "Edge Transformer, 2 layers, 4 steps",
    "on nodes, 2 steps",
]  # fmt: skip
QUICK: list[
    str
] = []  # training; tests/gt_bench/claims/experiments checks the relations, the twins and what one layer can see
TRAIN, FAMILIES, BATCH, UPDATES, RATE, DIM, HEADS = 12, 100, 16, 300, 2e-3, 32, 4
# trained in float32: other processors round otherwise, and training carries that on
TOLERANCE = 0.05


class OnNodes(nn.Module):
    """GraphGPS and a perceptron on the two vectors of a pair: [sum n_b^2, 1]."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = GPS(
            1, DIM, "node", edge_dim=[2], hidden_dim=DIM, num_layers=NODE_LAYERS, num_heads=HEADS, norm="layer"
        )
        self.head = MLP([2 * DIM, DIM, DIM, 1])

    def forward(self, batch: GraphBatch) -> Tensor:
        """Logits of the ordered pairs, row-major by family, [sum n^2, 1]."""
        z = self.nodes(batch)  # [N, d]
        first, second = batch.pair_nodes
        return self.head(torch.cat([z[first], z[second]], 1))


def compute(case: str, data: Path) -> dict[str, Any]:
    """F1 on families of TRAIN persons (`f1`), of twice as many (`larger`) and on twins (`twins`); `loss` of the last fifty updates."""
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
    asked = {
        "f1": families(FAMILIES, TRAIN, steps, seen),
        "larger": families(FAMILIES, 2 * TRAIN, steps, seen),
        "twins": families(FAMILIES, TRAIN, steps, seen, twice=True),
    }
    return {name: round(f1(model, *what), 4) for name, what in asked.items()} | {
        "loss": round(sum(losses[-50:]) / 50, 4)
    }


def network(name: str) -> nn.Module:
    """The model of a case: `Edge Transformer, L layers`, or a transformer on nodes."""
    if not name.startswith("Edge Transformer"):
        return OnNodes()
    layers = int(name.split(", ")[1].split()[0])
    return EdgeTransformer(
        1, 1, "pair", edge_dim=[2], hidden_dim=DIM, num_layers=layers, num_heads=HEADS, ffn_residual=True
    )


@torch.no_grad()
def f1(model: nn.Module, batch: GraphBatch, y: Tensor) -> float:
    """Over pairs, a positive logit being the answer yes."""
    said, true = model(batch).squeeze(1) > 0, y > 0
    right = (said & true).sum().item()
    return 2 * right / max(said.sum().item() + true.sum().item(), 1)


def families(
    count: int, people: int, steps: int, rng: torch.Generator, twice: bool = False
) -> tuple[GraphBatch, Tensor]:
    """`count` families as one batch, and for each ordered pair (row-major by family) whether the second is the mother of the mother ... of the first, `steps` times.
    `twice`: each is two families with nothing between them, the second a double of the first, `people` in all."""
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
    """Each person's mother, in an order of persons that says nothing: one of the two or three persons before it by age, so that lines are long; -1 for the oldest and one in ten."""
    age = torch.arange(people)
    back = torch.randint(1, 4, (people,), generator=rng)
    mother = torch.where((back <= age) & (torch.rand(people, generator=rng) > 0.1), age - back, -1)
    order = torch.randperm(people, generator=rng)
    return torch.where(mother[order] < 0, -1, order.argsort()[mother[order].clamp(min=0)])
