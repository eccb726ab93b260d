"""One thread for all experiments."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread():
    """Use one thread, as for stored findings.

    Two threads next to other work make small operations many times slower.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
