import torch

from fedbench.checks.messages import least_bits, low_rank_share


def test_bits_are_those_of_the_different_numbers_that_are_not_0():
    assert least_bits(torch.zeros(100)) == 0
    assert least_bits(torch.tensor([1.0, 2.0] * 50)) == 100
    assert least_bits(torch.cat([torch.zeros(1000), torch.arange(1, 17.0)])) == 16 * 4
    assert least_bits(torch.arange(1, 5.0)) == 0


def test_a_product_of_two_vectors_has_the_numbers_of_both():
    matrix = torch.outer(torch.arange(1, 9.0), torch.arange(1, 5.0)).flatten()
    assert low_rank_share(matrix, [(8, 4)]) == (8 + 4) / 32
    full = torch.rand(32, generator=torch.Generator().manual_seed(0))
    assert low_rank_share(full, [(8, 4)]) == 1
    assert low_rank_share(full, [(4, 4)]) == 1
