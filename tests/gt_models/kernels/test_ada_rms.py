"""AdaRMSNorm: the reference equals loops, each form equals the reference, for any number of threads."""

import pytest
import torch

from gt_models.kernels import use
from gt_models.kernels.ada_rms import ada_rms
from tests.gt_models.checks import assert_threads_change_no_bit
from tests.gt_models.kernels.cases import ada_rms_case

CPU = [f.name for f in ada_rms.forms if "cpu" in f.devices]


def results(form: str, arguments: tuple) -> list[torch.Tensor]:
    with use(ada_rms=form):
        out = ada_rms(*arguments)
    return [out.detach(), *torch.autograd.grad((out * out.detach().cos()).sum(), arguments[:3])]


def test_the_reference_against_loops():
    x, alpha, beta, eps = arguments = ada_rms_case(4, 3)
    with use("reference"):
        out = ada_rms(*arguments)
    for row, found in zip(x.tolist(), out.tolist(), strict=True):
        s = (sum(v * v for v in row) / 3 + eps) ** 0.5
        t = (sum((float(a) * v + float(b)) ** 2 for a, v, b in zip(alpha, row, beta, strict=True)) / 3 + eps) ** 0.5
        assert found == pytest.approx([v / s * t for v in row], rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(7, 5), (600, 64), (2, 3, 6), (0, 4)])
@pytest.mark.parametrize("form", CPU)
def test_forms_agree_with_the_reference(form, shape):
    arguments = ada_rms_case(*shape)
    for expected, found in zip(results("reference", arguments), results(form, arguments), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("form", CPU)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_token_that_is_not_finite_spoils_itself_alone(form, bad):
    arguments = ada_rms_case(5, 6)
    arguments[0].data[2, 3] = bad
    outs = [results(name, arguments)[0] for name in ("reference", form)]
    assert torch.equal(outs[0].isnan(), outs[1].isnan())
    assert outs[1][[0, 1, 3, 4]].isfinite().all()


def test_the_zero_token_stays_finite():
    x, *rest = ada_rms_case(1, 5)
    x.data.zero_()
    for form in CPU:
        assert all(t.isfinite().all() for t in results(form, (x, *rest)))


def test_threads_do_not_change_a_bit():
    arguments = ada_rms_case(1000, 8, dtype=torch.float32)
    assert_threads_change_no_bit(lambda: results("numba", arguments))
