import pytest
import torch

from fedbench.aggregation.low_rank import low_rank


def with_values(*values: float, rows: int = 6, columns: int = 8) -> torch.Tensor:
    """A matrix with these singular values, on other than the natural axes."""
    stream = torch.Generator().manual_seed(0)
    left = torch.linalg.qr(torch.randn(rows, rows, generator=stream, dtype=torch.float64)).Q
    right = torch.linalg.qr(torch.randn(columns, columns, generator=stream, dtype=torch.float64)).Q
    return left[:, : len(values)] * torch.tensor(values, dtype=torch.float64) @ right[:, : len(values)].T


@pytest.mark.parametrize(("energy", "rank"), [(0.0, 1), (0.63, 1), (0.65, 2), (0.99, 2)])
def test_the_lowest_rank_that_keeps_the_energy(energy, rank):
    """Squares 64, 36 and 0: the first has 64 % of the energy."""
    found, numbers = low_rank(with_values(8.0, 6.0), energy)
    assert numbers == rank * (6 + 8 + 1)
    torch.testing.assert_close(found, with_values(*(8.0, 6.0)[:rank]))


def test_a_matrix_that_factors_do_not_shorten_stays_as_it_is():
    matrix = with_values(3.0, 3.0, 3.0, 3.0)  # rank 4 would take 60 numbers, more than 48
    found, numbers = low_rank(matrix, 1.0)
    assert found is matrix
    assert numbers == 48


def test_zeros_take_nothing():
    found, numbers = low_rank(torch.zeros(4, 5), 0.9)
    assert numbers == 0
    assert not found.any()


def test_the_type_of_the_matrix_stays():
    assert low_rank(with_values(8.0, 6.0).float(), 0.5)[0].dtype == torch.float32
