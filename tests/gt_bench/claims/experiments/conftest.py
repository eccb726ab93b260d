"""One thread for all experiments, which compute by the equations."""

import pytest
import torch

from gt_models.kernels import use


@pytest.fixture(autouse=True)
def _one_thread():
    """Use one thread, as for stored findings.

    Two threads next to other work make small operations many times slower.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _equations():
    """No fast path: the claims are about the equations, and compiling kernels takes seconds for each width."""
    with use("reference"):
        yield
