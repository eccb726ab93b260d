"""Powers of a random-walk matrix: the reference equals dense powers, the compiled form equals the reference."""

import pytest
import torch

from gt_models.kernels import use
from gt_models.kernels.walk_powers import walk_powers

SIZES = (5, 1, 0, 70, 16)  # more than one strip, a single node, an empty graph


def case(sizes=SIZES, dtype=torch.float64):
    """Random weights on random edges (some nodes have no edge), and the dense matrices."""
    rng = torch.Generator().manual_seed(0)
    blocks = [
        (torch.rand(n, n, generator=rng, dtype=dtype) * (torch.rand(n, n, generator=rng) < 0.2)) / 3 for n in sizes
    ]
    whole = torch.block_diag(*blocks) if blocks else torch.zeros(0, 0, dtype=dtype)
    row, col = whole.nonzero(as_tuple=True)
    row_ptr = torch.cat([torch.zeros(1, dtype=torch.long), torch.bincount(row, minlength=len(whole)).cumsum(0)])
    return (torch.tensor([0, *sizes]).cumsum(0), row_ptr, col, whole[row, col]), blocks


def powers(form, arguments, num_pairs, steps=4, identity=True):
    """The result is written into the middle of an array, whose other entries do not change."""
    out = torch.full((num_pairs, steps + 3), -1.0, dtype=arguments[-1].dtype)
    with use(walk_powers=form):
        assert walk_powers(out, *arguments, 1, steps, identity) is out
    assert (out[:, 0] == -1).all()
    assert (out[:, steps + 1 + identity :] == -1).all()
    return out[:, 1 : steps + 1 + identity]


@pytest.mark.slow
@pytest.mark.parametrize("identity", [True, False])
@pytest.mark.parametrize("form", ["reference", "numba"])
def test_equals_dense_powers(form, identity):
    arguments, blocks = case()
    expected = [
        torch.stack([torch.linalg.matrix_power(m, k) for k in range(1 - identity, 5)], -1).flatten(0, 1)
        for m in blocks
        if len(m)
    ]
    found = powers(form, arguments, sum(n * n for n in SIZES), 4, identity)
    torch.testing.assert_close(found, torch.cat(expected), rtol=1e-12, atol=1e-12)


def test_threads_and_batches_do_not_change_a_bit():
    sizes = (40, 90, 12, 70)
    arguments, _ = case(sizes, torch.float32)
    threads, found = torch.get_num_threads(), []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        found.append(powers("numba", arguments, sum(n * n for n in sizes), 9))
    torch.set_num_threads(threads)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_no_graph():
    assert powers("numba", case(())[0], 0).shape == (0, 5)


def test_what_is_too_small_for_the_type_is_zero():
    arguments, _ = case((30,), torch.float32)
    arguments[-1].mul_(1e-20)
    found = powers("numba", arguments, 900)
    assert found[:, 1].any()
    assert not ((found != 0) & (found.abs() < torch.finfo(torch.float32).tiny)).any()
