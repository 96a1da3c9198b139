import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny tensors gain nothing from more, and results must not depend on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
