"""Operations of a step, the parts of an epoch, and notes on busy machines and miniatures."""

import contextlib
import json
import sys

import pytest
import torch

from benchmarks import cells, roofline
from benchmarks.counts import Counts
from gt_bench.runtime.environment import cpu_name


@pytest.mark.slow
def test_products_bytes_and_the_optimiser_are_counted():
    layer, x = torch.nn.Linear(30, 20), torch.randn(50, 30)
    optimiser = torch.optim.AdamW(layer.parameters(), fused=True)
    layer(x).sum().backward()
    optimiser.step()
    with Counts() as counts:
        layer(x).square().sum().backward()
        optimiser.step()
    assert counts.products == 2 * 2 * 50 * 30 * 20  # forward, and the gradient of the weights; x has no gradient
    assert counts.optimiser_bytes >= 7 * 4 * (30 * 20 + 20)
    assert counts.bytes > counts.product_bytes + counts.optimiser_bytes
    assert counts.floor(counts.products, 1e30) == 1.0
    assert counts.floor(1e30, counts.product_bytes + counts.optimiser_bytes) == 1.0


def test_fused_attention_has_its_two_and_five_products():
    q, k, v = (torch.randn(2, 3, 64, 16, requires_grad=True) for _ in range(3))
    with Counts() as counts:
        torch.nn.functional.scaled_dot_product_attention(q, k, v).sum().backward()
    assert counts.products == 7 * 2 * 2 * 3 * 64 * 64 * 16


FOUND = {
    "cell": "embedded/chains/gcn", "data": "a miniature: 4 graphs", "step": {"ours": 0.01, "plain": 0.03},
    "floor": 0.005, "rates": [1e11, 1e10],
    "parts": {"loading": 0.1, "forward": 0.4, "backward": 0.4, "loop": 0.1, "evaluation": 0.2}, "steps": 10,
    "whole": 20, "evaluated": 2,
    "batches": 6, "ours": {"mib": 50.0, "parameters": 4386}, "plain": {"mib": 90.0}, "other": 0.0,
}  # fmt: skip


def test_an_epoch_is_scaled_from_the_batches_that_were_timed():
    parts = cells.rows(FOUND)
    assert (parts["forward"], parts["loop"], parts["evaluation"]) == (800.0, 200.0, 600.0)


def test_a_ratio_that_lost_a_sixth_is_named_where_no_other_work_ran():
    assert cells.ratios(FOUND) == {"ms": 3.0, "mib": 1.8}
    kept = {"embedded/chains/gcn": {"ms": 3.5, "mib": 2.2}}
    (line,) = cells.lost([FOUND], kept)
    assert line == "embedded/chains/gcn: mib of the definition 2.2 times ours when it was stored, 1.8 times now"
    assert cells.lost([FOUND | {"other": 1.3}], kept) == cells.lost([FOUND], {}) == []
    alone = FOUND | {"step": {"ours": 0.01}, "plain": {"error": "no memory"}}
    assert cells.ratios(alone) == {}


@pytest.mark.parametrize("known", [False, True])
def test_ratios_are_compared_with_those_of_the_same_processor(known, monkeypatch, tmp_path, capsys):
    kept = tmp_path / "kept.json"
    kept.write_text(json.dumps({cpu_name() if known else "another": {"embedded/chains/gcn": {"ms": 9.0, "mib": 1.0}}}))
    monkeypatch.setattr(cells, "KEPT", kept)
    monkeypatch.setattr(cells, "measure", lambda *_: FOUND)
    monkeypatch.setattr(sys, "argv", ["cells.py", "embedded/chains/gcn"])
    with pytest.raises(SystemExit, match="ms of the definition 9 times ours") if known else contextlib.nullcontext():
        cells.main()
    assert ("none of this processor" in capsys.readouterr().err) != known
    written = []
    monkeypatch.setattr(cells, "write_between", lambda *text: written.append(text))
    monkeypatch.setattr(sys, "argv", ["cells.py", "embedded/chains/gcn", "--write"])
    cells.main()
    assert json.loads(kept.read_text())[cpu_name()]["embedded/chains/gcn"] == {"ms": 3.0, "mib": 1.8}
    assert len(json.loads(kept.read_text())) == 2 - known
    assert written


def test_the_roofline_names_what_bounds_a_step_and_what_to_do_first():
    counts = {"products": int(1e12), "product_bytes": int(1e8), "optimiser_bytes": 0, "bytes": int(1e9), "calls": 100}
    step = roofline.Step.of(counts)
    assert step.floor == step.products == 1e12 / roofline.TF32
    assert "bfloat16" in step.first
    small = counts | {"products": int(1e6)}
    assert "CUDA graph" in roofline.Step.of(small | {"calls": 10_000}).first
    assert "Triton" in roofline.Step.of(small | {"calls": 1, "bytes": int(1e12)}).first
    text = roofline.report([{"cell": "a/b/c", "counts": small, "operations": ["multi_linear", "packed_attention"]}])
    assert "multi_linear: summed; packed_attention: fused" in text
    assert "memory" in text
