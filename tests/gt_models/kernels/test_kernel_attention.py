"""Kernel attention within groups: the reference equals loops, each form equals the reference."""

import pytest
import torch

from gt_models.hot import attention
from gt_models.kernels import use
from gt_models.kernels.grouped import Columns, Grouped, Groups
from gt_models.kernels.kernel_attention import kernel_attention, kernel_attentions
from tests.gt_models.checks import assert_threads_change_no_bit


def case(
    entries: int,
    queries: int,
    groups: int,
    heads: int,
    width: int,
    channels: int,
    shared: bool,
    dtype: torch.dtype = torch.float64,
):
    """Two attentions with concatenated outputs, in random groups.

    The last group has no entry, the one before it no query. Queries of both attentions are columns of one matrix. With
    `shared`, entries of the first attention share three keys.
    """
    torch.manual_seed(0)
    of_entry, of_query = torch.randint(0, max(1, groups - 1), (entries,)), torch.randint(0, max(1, groups), (queries,))
    of_query[of_query == groups - 2] = groups - 1
    size, keys = heads * width, torch.randint(0, 3, (entries,))
    query = torch.randn(queries, 2 * size + 3, dtype=dtype, requires_grad=True)
    key = torch.randn(3 if shared else entries, size, dtype=dtype, requires_grad=True)
    other_key = torch.randn(entries, size + 1, dtype=dtype, requires_grad=True)
    values = [torch.randn(entries, heads * channels, dtype=dtype, requires_grad=True) for _ in range(2)]
    projection, inputs = torch.randn(2 * width + 1, width, dtype=dtype), (query, key, other_key, *values)
    of_entries, of_queries = Grouped(of_entry, groups), Grouped(of_query, groups)
    return (
        [Columns(query, first, heads, width) for first in (0, size + 2)],
        [Columns(key, 0, heads, width), Columns(other_key, 1, heads, width)],
        [Columns(v, 0, heads, channels) for v in values],
        [Groups(of_entries, of_queries, Grouped(keys, 3) if shared else None), Groups(of_entries, of_queries)],
        [0, 0],
        projection,
        1e-3,
    ), inputs


def outcome(arguments, inputs) -> list[torch.Tensor]:
    (out,) = kernel_attentions(*arguments)
    return [out, *torch.autograd.grad((out * out.detach().cos()).sum(), inputs, retain_graph=True)]


def test_the_reference_against_loops():
    arguments, _ = case(9, 6, 4, 2, 3, 2, shared=True)
    queries, keys, values, all_groups, _, projection, eps = arguments
    expected = torch.zeros(6, 2, 2, 2, dtype=torch.float64)  # [R, attentions, H, C]
    for a, (query, key, value) in enumerate(
        zip(*([c.unflatten() for c in columns] for columns in (queries, keys, values)), strict=True)
    ):
        of_entry, of_query = all_groups[a].entries.of, all_groups[a].queries.of
        key_of = all_groups[a].key.of if all_groups[a].key else range(9)
        for j in range(6):
            for h in range(2):
                weights = []
                for e in range(9):
                    phi_q, phi_k = ((projection @ u).clamp(min=0) + eps for u in (query[j, h], key[key_of[e], h]))
                    weights.append(float(phi_q @ phi_k) if of_entry[e] == of_query[j] else 0.0)
                for e in range(9):
                    expected[j, a, h] += weights[e] / (sum(weights) or 1.0) * value[e, h]
    with use("reference"):
        torch.testing.assert_close(kernel_attentions(*arguments)[0], expected.flatten(1), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_outputs_of_attentions_that_share_rows():
    """Rows may be used as queries, keys and values at once; unused columns have no gradient."""
    torch.manual_seed(0)
    rows, entries = torch.randn(7, 35, dtype=torch.float64, requires_grad=True), torch.tensor([0, 1, 0, 1, 1, 0, 2])
    groups = Groups(Grouped(entries, 3), Grouped(entries, 3))
    at = [Columns(rows, first, 2, 3) for first in (0, 6, 12, 18)]
    values, projection, results = Columns(rows, 24, 2, 5), torch.randn(7, 3).double(), []
    for form in ("reference", "numba"):
        with use(kernel_attention=form):
            both = kernel_attentions(
                [at[0], at[2]],
                [at[1], at[3]],
                [values, Columns(2 * rows, 0, 2, 5)],
                [groups, groups],
                [0, 1],
                projection,
                0.5,
            )
        assert [out.shape for out in both] == [(7, 10), (7, 10)]
        results.append([*both, *torch.autograd.grad(sum((out * out.cos()).sum() for out in both), rows)])
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    assert (results[1][2][:, 34] == 0).all()


def test_the_reference_is_the_same_where_it_computes_twice(monkeypatch):
    arguments, inputs = case(40, 30, 7, 2, 3, 5, shared=False)
    with use("reference"):
        expected = outcome(arguments, inputs)
        monkeypatch.setattr(attention, "LARGE", 0)
        torch.testing.assert_close(outcome(arguments, inputs), expected, rtol=1e-12, atol=1e-12)


# heads narrower and wider than a vector, no rows, one group in several pieces
@pytest.mark.slow
@pytest.mark.parametrize(
    "sizes",
    [
        (40, 30, 7, 2, 3, 5),
        (60, 50, 9, 1, 8, 17),
        (0, 4, 3, 2, 3, 5),
        (5, 0, 2, 2, 3, 5),
        (0, 0, 0, 2, 3, 5),
        (1300, 1200, 3, 2, 3, 5),
    ],
)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("form", [f.name for f in kernel_attention.forms if "cpu" in f.devices])
def test_forms_agree_with_the_reference(form, shared, sizes):
    arguments, inputs = case(*sizes, shared=shared)
    results = []
    for name in ("reference", form):
        with use(kernel_attention=name):
            results.append(outcome(arguments, inputs))
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("which", [0, 1, 3])
def test_what_is_not_finite_comes_out_where_the_reference_lets_it_out(which, bad):
    arguments, inputs = case(40, 30, 7, 2, 3, 5, shared=False)
    inputs[which].data.view(-1)[4] = bad
    outs = []
    for form in ("reference", "numba"):
        with use(kernel_attention=form):
            outs.append(kernel_attentions(*arguments)[0].detach())
    assert not outs[0].isfinite().all()
    assert torch.equal(outs[0].isnan(), outs[1].isnan())
    assert torch.equal(outs[0].isinf(), outs[1].isinf())


@pytest.mark.slow
@pytest.mark.parametrize("groups", [900, 3])
def test_threads_do_not_change_a_bit(groups):
    arguments, inputs = case(4000, 3000, groups, 2, 3, 5, shared=True)
    assert_threads_change_no_bit(lambda: outcome(arguments, inputs))


def test_heads_too_wide_for_a_stack_take_the_reference():
    arguments, _ = case(4, 4, 2, 1, 3, 600, shared=False)
    with pytest.raises(ValueError, match="600 channels are too many"), use(kernel_attention="numba"):
        kernel_attentions(*arguments)
    assert kernel_attentions(*arguments)[0].isfinite().all()


def test_columns_of_two_attentions_take_the_reference():
    arguments, _ = case(4, 4, 2, 1, 3, 2, shared=False)
    arguments[0][1] = arguments[0][0]
    with pytest.raises(ValueError, match="attentions share columns"), use(kernel_attention="numba"):
        kernel_attentions(*arguments)
    assert kernel_attentions(*arguments)[0].isfinite().all()
