"""The released form of TokenGT equals stored outputs and counts of the authors' code.

tests/gt_models/test_tokengt.py tests the parts that it has in common with the paper's form.
"""

import torch
from torch import Tensor

from gt_models import GraphBatch, create_model
from gt_models.released.tokengt import TokenGTReleased
from tests.gt_models import checks
from tests.gt_models.tokengt_cases import build, graphs, orthonormal


def parity_model(case: dict[str, Tensor]) -> TokenGTReleased:
    w = {k.removeprefix("w.encoder."): v for k, v in case.items() if k.startswith("w.")}
    model = TokenGTReleased(
        [20, 20], 1, edge_dim=[20, 20], hidden_dim=8, num_heads=2, num_layers=2, node_id_dim=4
    ).double()
    state = dict(model.state_dict())
    old = "graph_encoder.graph_feature."
    # the stored columns already have offsets into one table
    state["node_encoder.embedding.weight"] = w[old + "atom_encoder.weight"]
    state["edge_encoder.embedding.weight"] = w[old + "edge_encoder.weight"]
    state["graph_token"], state["null_token"] = w[old + "graph_token.weight"], w[old + "null_token.weight"]
    state["identifier_encoder.weight"] = w[old + "lap_encoder.weight"]
    state["type_encoder.weight"] = w[old + "order_encoder.weight"]
    for end in ("weight", "bias"):
        state[f"embedding_norm.{end}"] = w[f"graph_encoder.emb_layer_norm.{end}"]
        state[f"head.transform.{end}"] = w[f"lm_head_transform_weight.{end}"]
        state[f"head.norm.{end}"] = w[f"layer_norm.{end}"]
        for i in range(2):
            theirs, ours = f"graph_encoder.layers.{i}.", f"layers.{i}."
            state[f"{ours}attn.qkv.{end}"] = torch.cat([w[f"{theirs}self_attn.{p}_proj.{end}"] for p in "qkv"])
            state[f"{ours}attn.out.{end}"] = w[f"{theirs}self_attn.out_proj.{end}"]
            state[f"{ours}attn_norm.{end}"] = w[f"{theirs}self_attn_layer_norm.{end}"]
            state[f"{ours}ffn_norm.{end}"] = w[f"{theirs}final_layer_norm.{end}"]
            state[f"{ours}ffn_in.{end}"] = w[f"{theirs}feedforward.fc1.{end}"]
            state[f"{ours}ffn_out.{end}"] = w[f"{theirs}feedforward.fc2.{end}"]
    state["head.out.weight"], state["head.bias"] = w["embed_out.weight"], w["lm_output_learned_bias"]
    model.node_encoder, model.edge_encoder = TableEncoder(20, 8), TableEncoder(20, 8)
    model.double().load_state_dict(state)
    return model


class TableEncoder(torch.nn.Module):
    """Sum of rows of one table at ids with offsets."""

    def __init__(self, rows: int, width: int):
        super().__init__()
        self.embedding = torch.nn.Embedding(rows, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.embedding(x).sum(1)


def test_parity(parity):
    case = parity("tokengt_lap_prenorm")
    model = parity_model(case).eval()
    sizes = case["in.node_num"]
    ptr = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    # the stored edges number the nodes of each graph from 0
    index = case["in.edge_index"] + ptr[torch.repeat_interleave(torch.arange(2), case["in.edge_num"])]
    batch = GraphBatch(
        case["in.node_data"],
        index,
        ptr,
        case["in.edge_data"],
        encodings={"laplacian_eigenvectors": case["in.lap_eigvec"][:, :4]},
    )
    out = model(batch)
    torch.testing.assert_close(out, case["out.y"], rtol=1e-10, atol=1e-10)
    loss = 1.3 * out[0, 0] - 0.7 * out[1, 0]
    torch.testing.assert_close(loss, case["out.loss"], rtol=1e-10, atol=1e-10)
    loss.backward()
    graph = "g.encoder.graph_encoder."
    for ours, theirs in {
        model.node_encoder.embedding.weight: graph + "graph_feature.atom_encoder.weight",
        model.identifier_encoder.weight: graph + "graph_feature.lap_encoder.weight",
        model.type_encoder.weight: graph + "graph_feature.order_encoder.weight",
        model.null_token: graph + "graph_feature.null_token.weight",
        model.layers[0].ffn_in.weight: graph + "layers.0.feedforward.fc1.weight",
        model.layers[1].attn.out.bias: graph + "layers.1.self_attn.out_proj.bias",
        model.embedding_norm.weight: graph + "emb_layer_norm.weight",
        model.head.bias: "g.encoder.lm_output_learned_bias",
    }.items():
        torch.testing.assert_close(ours.grad, case[theirs], rtol=1e-10, atol=1e-10)


def test_parameter_counts():
    pcqm = {"in_dim": [512] * 9, "edge_dim": [512] * 3, "out_dim": 1}
    with torch.device("meta"):
        large = create_model("tokengt-released", hidden_dim=768, num_heads=32, num_layers=12, **pcqm)
        large.build_unused()
    assert sum(p.numel() for p in large.parameters()) == 48_492_289
    small = create_model("tokengt-released", hidden_dim=128, num_heads=8, num_layers=4, **pcqm)
    small.build_unused()
    assert sum(p.numel() for p in small.parameters()) == 1_223_297


def test_orf_of_the_largest_graph_has_unit_rows():
    model, batch = build(node_identifiers="orf", node_id_dim=4, cls=TokenGTReleased), checks.collate(graphs((9, 3)))
    p = model.draw_identifiers(batch)
    torch.testing.assert_close(p.norm(dim=1), torch.ones(12, dtype=p.dtype))
    wide = build(node_identifiers="orf", node_id_dim=16, cls=TokenGTReleased).draw_identifiers(batch)
    assert orthonormal(wide[:9])
    assert (wide[:, 9:] == 0).all()


def test_single_entries_of_eigenvectors_are_dropped():
    batch = checks.collate(graphs((30, 30)))
    model = build(cls=TokenGTReleased, sign_flip=False, eigenvector_dropout=0.5)
    stored = batch.encodings["laplacian_eigenvectors"]
    kept = model.train().draw_identifiers(batch) / stored
    assert set(kept.unique().round().tolist()) == {0.0, 2.0}
    assert len(set(kept[:30, 0].round().tolist())) == 2
    assert torch.equal(model.eval().draw_identifiers(batch), stored)
