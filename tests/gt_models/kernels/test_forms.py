"""All fast forms for the CPU, over all calls of `cases`: each is compared with the definition of its operation."""

import math
import warnings

import pytest
import torch
from torch import Tensor

from gt_models.kernels import Form, Operation, all_operations, forms_taken, triangular_attention, use
from gt_models.kernels.once_differentiable import SecondDerivativeError
from gt_models.layers.accelerated import ATTACHED
from tests.gt_models.checks import assert_threads_change_no_bit
from tests.gt_models.kernels.cases import CASES, DOUBLE, SINGLE, batch_of, case, results

pytestmark = pytest.mark.slow  # each width is compiled
SHORT = [name for name in CASES if not name.endswith("long")]
LONG = [name for name in CASES if name.endswith("long")]
ON_CPU = [name for name in SHORT if not name.startswith("gated_norm")]  # its form is for GPUs


@pytest.fixture(autouse=True)
def _several_graphs_in_a_chunk_and_several_chunks_of_a_graph(monkeypatch):
    monkeypatch.setitem(triangular_attention._MANY_VALUES, "cpu", 20_000)


def forms_of(operation: Operation, args: tuple) -> list[Form]:
    """The forms that run a call on this machine."""
    return [form for form in operation.forms if "cpu" in form.devices and form.reason(args, {}) is None]


def outcome(operation: Operation, form: str, args: tuple) -> list[Tensor]:
    """Outputs and gradients."""
    with use(**{operation.name: form}):
        return results(operation, args)


def in_double(args: tuple) -> tuple:
    return tuple(
        t.detach().double().requires_grad_(t.requires_grad) if isinstance(t, Tensor) and t.dtype == SINGLE else t
        for t in args
    )


def dtypes_of(name: str) -> tuple[torch.dtype, ...]:
    """Both types, but of calls that only have another width the one of training: each width and type is compiled."""
    return (SINGLE,) if name.endswith(("wide", "eight heads", "one channel")) else (DOUBLE, SINGLE)


@pytest.mark.parametrize("name", ON_CPU)
def test_a_form_equals_the_definition(name):
    compared = 0
    for dtype in dtypes_of(name):
        tolerance = 1e-10 if dtype == DOUBLE else 1e-4
        operation, args = case(name, dtype)
        expected = outcome(operation, "reference", in_double(args))
        for form in forms_of(operation, args):
            for right, found in zip(expected, outcome(operation, form.name, args), strict=True):
                assert found.dtype == dtype
                scale = max(1.0, right.abs().max().item()) if right.numel() else 1.0
                torch.testing.assert_close(found.double(), right, rtol=tolerance, atol=tolerance * scale)
                compared += 1
    assert compared


def test_every_form_for_the_cpu_has_a_call():
    covered = set()
    for name in SHORT:
        for dtype in (DOUBLE, SINGLE):
            operation, args = case(name, dtype)
            covered |= {(operation.name, form.name) for form in forms_of(operation, args)}
    operations = [o for o in all_operations().values() if o not in ATTACHED.values()]
    forms = {(o.name, f.name) for o in operations for f in o.forms if "cpu" in f.devices}
    assert forms - covered <= {(name, "triton") for name, _ in forms} | {("packed_attention", "fused")}


@pytest.mark.parametrize("name", LONG)
def test_the_number_of_threads_changes_no_bit(name):
    operation, args = case(name, SINGLE)
    forms = [form for form in forms_of(operation, args) if form.name != "chunked"]  # plain torch
    assert forms
    for form in forms:
        # gradients of weights are products of MKL, which sums in another order on several threads
        end = 2 if operation.name == "gelu_mlp" else None
        assert_threads_change_no_bit(lambda form=form, end=end: outcome(operation, form.name, args)[:end])


@pytest.mark.parametrize("name", [name for name in ON_CPU if ":" not in name and name != "walk_powers"])
def test_a_second_derivative_is_refused_and_the_definition_has_it(name):
    for dtype in (DOUBLE, SINGLE):
        operation, args = case(name, dtype)
        leaves = [t for t in args if isinstance(t, Tensor) and t.requires_grad]

        def gradients(form, args=args, leaves=leaves, operation=operation):
            with use(**{operation.name: form}):
                out = operation(*args)
                out = torch.cat([o.flatten() for o in out]) if isinstance(out, tuple) else out
                return torch.autograd.grad(out.sin().sum(), leaves, create_graph=True)

        for form in forms_of(operation, args):
            if form.name == "chunked":  # plain torch
                gradients(form.name)
                continue
            with pytest.raises(SecondDerivativeError):
                gradients(form.name)
        assert any(gradient.requires_grad for gradient in gradients("reference"))


NOT_FINITE = [(name, value) for name in ON_CPU if ":" not in name for value in (math.nan, math.inf, -math.inf, 1e20)]
NOT_FINITE += [(name, math.nan) for name in ON_CPU if name.endswith(": dropout")]


@pytest.mark.parametrize(("name", "value"), NOT_FINITE)
def test_no_form_hides_what_is_not_finite(name, value):
    """NaN and infinity of outputs are where the definition has them, and NaN of gradients is nowhere missing."""
    operation, args = case(name, SINGLE)
    if operation.name == "walk_powers":
        return
    for place, tensor in enumerate(args):
        if not (isinstance(tensor, Tensor) and tensor.requires_grad):
            continue
        for spot in range(0, tensor.numel(), max(1, tensor.numel() // 3)):
            with torch.no_grad():
                kept, tensor.view(-1)[spot] = tensor.view(-1)[spot].clone(), value
            for form in forms_of(operation, args):
                found = [outcome(operation, f, args) for f in ("reference", form.name)]
                for number, (expected, other) in enumerate(zip(*found, strict=True)):
                    where = f"{form.name}, {value} at {spot} of argument {place}, result {number}"
                    assert not (expected.isnan() & other.isfinite()).any(), where
                    if number == 0:
                        assert torch.equal(expected.isfinite(), other.isfinite()) or value == 1e20, where
                        # torch's own GELU of infinity is infinity or NaN, by the length of the tensor
                        assert torch.equal(expected.isnan(), other.isnan()) or name == "gelu_mlp", where
            with torch.no_grad():
                tensor.view(-1)[spot] = kept


@pytest.mark.parametrize("name", [name for name in ON_CPU if ":" not in name])
def test_half_precision_and_autocast_are_the_definition_s(name):
    for dtype in (torch.bfloat16, torch.float16):
        operation, args = case(name, dtype)
        with forms_taken() as taken:
            operation(*args)
        assert set(taken[operation.name]) <= {"reference", "chunked"}
    if name in ("gelu_mlp", "multi_linear", "neighbour_sum", "sparse_linear"):
        operation, args = case(name, SINGLE)
        with torch.autocast("cpu", torch.bfloat16):
            assert not forms_of(operation, args)


def test_the_self_check_of_every_form_passes():
    for name in ON_CPU:
        for dtype in dtypes_of(name):
            operation, args = case(name, dtype)
            operation._failed.clear()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                for form in forms_of(operation, args):
                    with use(**{operation.name: form.name}):
                        assert operation.choose(args, {}).name == form.name


# -- what single forms promise --------------------------------------------------------------------------------------


def test_columns_of_a_wider_matrix_are_read_where_they_are():
    """As in PPGT's layers, where biases and gates are columns of one product."""
    operation, (qkv, pairs, *rest) = case("gated_attention")
    wide = torch.randn(len(pairs), 11, dtype=DOUBLE)
    wide[:, 3:9] = pairs.detach()
    outs = [operation(qkv, columns, *rest) for columns in (pairs, wide[:, 3:9])]
    assert torch.equal(*outs)


@pytest.mark.parametrize("name", ["gelu_mlp", "multi_linear: onednn"])
def test_a_product_reads_gradients_and_rows_that_lie_apart(name):
    operation, (x, *rest) = case(name, SINGLE)
    apart = torch.randn(len(x), 2 * x.size(1))[:, ::2]
    apart.copy_(x.detach())
    found = []
    for form, rows in (("reference", x.detach()), (forms_of(operation, (x, *rest))[0].name, apart)):
        rows.requires_grad_()
        with use(**{operation.name: form}):
            out = operation(rows, *rest)
        out = torch.cat(out, 1) if isinstance(out, tuple) else out
        other = torch.randn(len(x), 3, generator=torch.Generator().manual_seed(0))
        found.append(torch.autograd.grad((out.t() @ other).sin().sum() + out[:, 1:3].sum(), [rows, rest[0]]))
    for expected, other in zip(*found, strict=True):
        assert (other - expected).norm() < 1e-4 * expected.norm()


def test_gelu_and_its_slope_over_the_line_are_as_close_to_double_precision_as_torchs():
    """A network that computes GELU only: x + 0, GELU, times 1."""
    line, one, zero = torch.linspace(-12, 12, 2**18)[:, None], torch.eye(4), torch.zeros(4)
    x = line.expand(-1, 4).clone().requires_grad_()
    exact = x.detach().double().requires_grad_()
    with use(gelu_mlp="numba"):
        y = all_operations()["gelu_mlp"](x, one, zero, one, zero)
    expected = torch.nn.functional.gelu(exact)
    assert (y - expected).abs().max() < 2e-6
    assert (torch.autograd.grad(y.sum(), x)[0] - torch.autograd.grad(expected.sum(), exact)[0]).abs().max() < 1e-6


def test_edges_without_a_node_and_wide_indices_change_nothing():
    operation, (*leaves, ptr, col, ptr_t, col_t, perm_t, slope) = case("graph_attention")
    more = torch.cat([col, col.new_full((3,), 7)])  # three edges of the target N
    by_source = torch.cat([col_t, col_t.new_full((3,), 40)]), torch.cat([perm_t, perm_t.new_tensor([150, 151, 152])])
    wide = [t.long() for t in (ptr, more, ptr_t, *by_source)]
    for form in ("reference", "numba"):
        found = [outcome(operation, form, (*leaves, *e, slope)) for e in ((ptr, col, ptr_t, col_t, perm_t), wide)]
        assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


def test_an_attention_that_no_kernel_takes_is_the_definition_s():
    operation, (attentions, heads, _, projection, eps, query, key, other, *values) = case("kernel_attention")
    wide = [torch.randn(40, 2 * 600, dtype=DOUBLE) for _ in values]
    twice = [attentions[0], attentions[1]._replace(query=attentions[0].query)]
    for args in (
        (attentions, heads, 600, projection, eps, query, key, other, *wide),
        (twice, heads, 5, projection, eps, query, key, other, *values),
        (attentions, heads, 5, projection.clone().requires_grad_(), eps, query, key, other, *values),
    ):
        assert not forms_of(operation, args)
        assert operation(*args)[0].isfinite().all()


def test_gradients_that_cancel_are_as_exact_as_the_definition_s_in_single_precision():
    """In a group of one key, an output is its value: gradients of query and key are differences of equal terms."""
    errors = {"reference": 0.0, "numba": 0.0}
    for seed in range(20):
        operation, args = case("kernel_attention: one key", SINGLE, seed)
        exact = outcome(operation, "reference", in_double(args))
        for form in errors:
            both = zip(outcome(operation, form, args), exact, strict=True)
            errors[form] = max(errors[form], *((found - right).abs().max().item() for found, right in both))
    assert 0 < errors["numba"] < 8 * errors["reference"]


def test_packed_graphs_are_their_graphs_bit_for_bit():
    operation, (_, tokens, packing, *rest) = case("packed_attention: long", SINGLE)
    rest[1] = 0.0  # dropout depends on a token's place
    parts = [tokens[a:b] for a, b in zip(packing.ptr, packing.ptr[1:], strict=False)]
    alone = [operation(None, part, type(packing).of(torch.tensor([len(part)])), *rest) for part in parts]
    assert torch.equal(operation(None, tokens, packing, *rest), torch.cat(alone))


@pytest.mark.parametrize("name", ["packed_attention", "graph_attention", "triangular_attention", "gated_attention"])
def test_large_scores_stay_finite(name):
    operation, args = case(name, SINGLE)
    args = tuple(100 * t.detach() if isinstance(t, Tensor) and t.requires_grad else t for t in args)
    for form in forms_of(operation, args):
        args[name == "packed_attention"].requires_grad_()
        assert all(t.isfinite().all() for t in outcome(operation, form.name, args))


def test_large_keys_of_scaled_dot_products_stay_finite():
    operation, (qkv, *rest) = case("gated_attention: dot products", SINGLE)
    with torch.no_grad():
        qkv[:, :15] *= 1e-20
        qkv[2, 16] = 1e20  # its square is infinite
    assert all(t.isfinite().all() for t in outcome(operation, "numba", (qkv, *rest)))


def test_a_gradient_that_is_nan_reaches_every_column_of_a_sparse_linear_map():
    operation = all_operations()["sparse_linear"]
    for form in ("reference", "numba"):
        weight = torch.ones(4, 5, requires_grad=True)
        with use(form):
            out = operation(torch.ones(2), torch.tensor([0, 1, 2]), torch.tensor([0, 2]), weight, None)
        out.backward(torch.ones(2, 4).index_fill(1, torch.tensor([1]), math.nan))
        assert weight.grad.isnan().sum(1).tolist() == [0, 5, 0, 0]


def test_grit_s_root_has_no_gradient_at_zero():
    operation, args = case("grit_attention")
    q, k, _, pair, *_ = args
    with torch.no_grad():
        q[0], pair[7, 0], pair[9, 1] = -k[1], 0.0, -100.0  # q + k of a pair, Ew of another, the ReLU of a third
    expected, found = (outcome(operation, form, args) for form in ("reference", "numba"))
    for right, other in zip(expected, found, strict=True):
        torch.testing.assert_close(other, right, rtol=1e-11, atol=1e-11)


def test_powers_of_a_walk_that_are_too_small_for_the_type_are_zero_and_nothing_else_is_written():
    operation, (out, *graphs, weight, channel, steps, identity) = case("walk_powers", SINGLE)
    with use(walk_powers="numba"):
        assert operation(out, *graphs, 1e-20 * weight, channel, steps, identity) is out
    assert (out[:, 0] == -1).all()
    assert (out[:, -1] == -1).all()
    found = out[:, channel : channel + steps + 1]
    assert found[:, 1].any()
    assert not ((found != 0) & (found.abs() < torch.finfo(SINGLE).tiny)).any()


def test_no_norm_on_fused_values_in_the_kernel():
    operation, args = case("triangular_attention")
    assert "numba" not in {form.name for form in forms_of(operation, (*args, torch.nn.Identity()))}
    assert "chunked" not in {form.name for form in forms_of(operation, (args[0][:9], batch_of(3), *args[2:]))}


def test_a_backward_pass_inside_autocast_computes_as_the_forward_pass_did():
    operation, (x, *parameters) = case("multi_linear", SINGLE)
    outs = operation(x, *parameters)
    with torch.autocast("cpu", torch.bfloat16):
        (grad,) = torch.autograd.grad(sum(out.sum() for out in outs), x)
        assert operation(x, *parameters)[0].dtype == torch.bfloat16
    torch.testing.assert_close(grad, sum(w.sum(0) for w in parameters[:3]).expand(7, 5))
