"""Settings for the tests of the experiments."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Small tensors: on a busy machine, threads that wait for each other take all the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
