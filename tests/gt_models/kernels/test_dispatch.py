"""The selection of a form, the reason against others, and that a wrong form is disabled."""

import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gt_models.kernels import Form, Operation, all_operations, dispatch, explain, forms_taken, packed_attention, use
from gt_models.kernels.dispatch import OPERATIONS
from gt_models.layers.accelerated import ATTACHED
from gt_models.layers.packing import Packing


@pytest.fixture
def double():
    """x -> 2 x, with a form for up to three numbers, one that is wrong, and one that cannot be imported."""
    before = dict(OPERATIONS)

    def missing():
        raise ModuleNotFoundError("No module named 'fastlib'", name="fastlib")

    forms = [
        Form("absent", missing),
        Form("wrong", lambda: lambda x: 3 * x),
        Form(
            "small",
            lambda: lambda x: x + x,
            lambda x: None if x.numel() <= 3 else f"takes up to 3 numbers, not {x.numel()}",
        ),
    ]
    yield Operation(
        "double", lambda x: 2 * x, forms, lambda x: ((torch.randn(2, dtype=x.dtype, requires_grad=True),), {})
    )
    OPERATIONS.clear()
    OPERATIONS.update(before)


def test_the_first_form_that_can_run_runs_and_a_wrong_one_is_put_aside_once(double):
    with (
        forms_taken() as taken,
        pytest.warns(RuntimeWarning, match="double: wrong is not used on cpu: it differs from the reference by"),
    ):
        assert torch.equal(double(torch.ones(2)), torch.full((2,), 2.0))
    assert taken == {"double": {"small": 1}}
    with forms_taken() as taken, warnings.catch_warnings():
        warnings.simplefilter("error")
        double(torch.ones(2)), double(torch.ones(4))
    assert taken == {"double": {"small": 1, "reference": 1}}


def test_a_form_that_fails_is_put_aside(double):
    def failing(x):
        raise RuntimeError("no such instruction")

    operation = Operation("double", double.reference, [Form("broken", lambda: failing)], double.example)
    with pytest.warns(RuntimeWarning, match="it fails .RuntimeError: no such instruction"):
        assert operation(torch.ones(1)).item() == 2


def test_the_check_draws_nothing_from_the_caller_s_generator(double):
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        double(torch.ones(1, dtype=torch.float64))
    assert torch.equal(torch.rand(1), expected)


def test_use_chooses_the_form(double):
    with forms_taken() as taken:
        with use("reference"):
            double(torch.ones(1))
        with use(double="small"):
            double(torch.ones(1))
        with (
            use(double="small"),
            pytest.raises(ValueError, match="double: the form 'small' cannot run here: takes up to 3 numbers, not 4"),
        ):
            double(torch.ones(4))
        with (
            use(double="fast"),
            pytest.raises(ValueError, match="double has no form 'fast'; it has: reference, absent, wrong, small"),
        ):
            double(torch.ones(1))
        with use("small"):  # of all operations that have it and can run it: no error
            double(torch.ones(4))
    assert taken == {"double": {"reference": 2, "small": 1}}


def test_calls_with_and_without_gradients_are_counted_apart(double):
    with (
        use("reference"),
        forms_taken(training=True) as training,
        forms_taken(training=False) as evaluation,
        forms_taken() as all_calls,
    ):
        double(torch.ones(1))
        with torch.no_grad():
            double(torch.ones(1)), double(torch.ones(1))
    counts = [taken["double"]["reference"] for taken in (training, evaluation, all_calls)]
    assert counts == [1, 2, 3]


def test_all_operations_but_those_that_are_made_of_others_have_an_example():
    operations = all_operations()
    assert "graph_attention" in operations
    attached = set(ATTACHED.values())
    assert operations["polynormer_local"] in attached
    assert all(o.example is not None for o in operations.values() if o.forms and o not in attached)


def test_a_form_that_raises_later_gives_way_once_it_is_clear_that_the_input_is_right(double):
    def failing(x):
        if x.numel() > 2:
            raise RuntimeError("no such instruction")
        return x + x

    operation = Operation("double", double.reference, [Form("fast", lambda: failing)], double.example)
    with forms_taken() as taken:
        with pytest.warns(RuntimeWarning, match="double: fast is not used on cpu: it fails .RuntimeError: no such"):
            assert operation(torch.ones(3)).tolist() == [2, 2, 2]
        assert operation(torch.ones(1)).tolist() == [2]
    assert taken == {"double": {"fast failed": 1, "reference": 2}}
    with use(double="fast"), pytest.raises(RuntimeError, match="no such instruction"):  # requested: no other form
        operation(torch.ones(3, dtype=torch.float64))


def test_activation_checkpointing_ends_its_second_forward_within_a_form(double):
    def fast(x):
        return (x.sin() * 0 + x) + x  # the second forward pass computes nothing after sin()

    operation = Operation("double", double.reference, [Form("fast", lambda: fast)], double.example)
    x = torch.ones(3, requires_grad=True)
    with warnings.catch_warnings(), forms_taken() as taken:
        warnings.simplefilter("error")
        checkpoint(operation, x, use_reentrant=False).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
    assert set(taken["double"]) == {"fast"}


def test_devices_and_dtypes_are_reasons(double):
    form = double.forms[-1]
    assert form.reason((torch.ones(1, device="meta"),), {}) == "runs on cpu, not on meta"
    assert (
        form.reason((torch.ones(1, dtype=torch.bfloat16),), {})
        == "takes torch.float32 and torch.float64, not torch.bfloat16"
    )
    assert "wants one dtype" in form.reason((torch.ones(1), torch.ones(1, dtype=torch.float64)), {})


def test_explain_states_which_form_and_why_no_other(double):
    class Model(nn.Module):
        def forward(self, x):
            return double(x) + double(x[:1])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shown = explain(Model(), torch.ones(5))
    assert "double: reference (1 calls), small (1 calls)" in shown
    assert "not absent: fastlib is not installed" in shown
    assert "not small: takes up to 3 numbers, not 5" in shown


def test_a_compiler_sees_the_reference(double):
    out = torch.compile(lambda x: double(x), backend="eager", fullgraph=True)(torch.ones(1))
    assert out.item() == 2


def test_the_check_runs_outside_the_caller_s_autocast(double):
    """The result is also used for later calls."""
    product = Operation(
        "product",
        lambda x: (x.double() @ x.double().t()).to(x.dtype),
        [Form("fast", lambda: lambda x: x @ x.t())],
        lambda x: ((torch.randn(3, 50, dtype=x.dtype, requires_grad=True),), {}),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torch.autocast("cpu", torch.bfloat16):
            product(torch.ones(1, 1))
    assert set(product._failed.values()) == {None}


def test_a_form_without_a_gradient_is_put_aside(double):
    operation = Operation(
        "double",
        double.reference,
        [Form("cut", lambda: lambda x: 2 * x.detach() + 0 * x.sum().detach())],
        double.example,
    )
    with pytest.warns(RuntimeWarning, match="double: cut is not used on cpu"):
        operation(torch.ones(1))


def test_fake_tensors_and_transforms_take_the_reference(double):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with forms_taken() as taken:
        with FakeTensorMode():
            double(torch.ones(2))
        assert torch.func.grad(lambda x: double(x).sum())(torch.ones(2)).tolist() == [2, 2]
    assert taken == {"double": {"reference": 2}}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_in_half_precision_rounding_passes_the_check_and_a_fault_does_not(double, dtype):
    """On an H100, the fused attention under autocast was switched off: it was compared as if it were in float32."""

    def attention(factor: float) -> Operation:
        def fused(*args: object) -> Tensor:
            return packed_attention.fused(*args) * factor

        form = Form("fused", lambda: fused, dtypes=(dtype,))
        return Operation("attention", packed_attention.reference, [form], packed_attention._example)

    args = (None, torch.zeros(4, 3 * 64, dtype=dtype), Packing.of(torch.tensor([4])), 8, 0.0, torch.zeros(1).long())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert attention(1.0).choose(args, {}).name == "fused"
    with pytest.warns(RuntimeWarning, match="it differs from the reference by"):
        assert attention(0.9).choose(args, {}) is None


def test_parameters_and_buffers_of_a_module_decide_as_tensors_do(double):
    form = double.forms[-1]
    inner = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))
    assert {id(t) for t in dispatch._tensors((inner,), {})} == {id(t) for t in (*inner.parameters(), *inner.buffers())}
    inner[1].running_mean = inner[1].running_mean.double()
    assert "wants one dtype" in form.reason((inner,), {})
    inner[1].running_mean = None
    assert len(dispatch._tensors((inner,), {})) == 6
