"""Votes and ties."""

import torch

from fedbench.aggregation.votes import plurality, vote


def test_votes_and_ties():
    ballots = [torch.tensor([[1, 0, 0], [0, 0, 1]]), torch.tensor([[0, 1, 0], [0, 1, 0]])]
    scores = vote(ballots, [torch.tensor([0.5, 0.25]), torch.tensor([0.5, 0.5])])
    assert scores.tolist() == [[0.5, 0.5, 0], [0, 0.5, 0.25]]
    assert plurality(scores).tolist() == [0, 1]
    assert plurality(torch.tensor([[0.3, 0.1 + 0.2 + 1e-10, 0.1]])).tolist() == [0]
    assert plurality(torch.tensor([[0.3, 0.3 + 1e-8, 0.1]], dtype=torch.float64)).tolist() == [1]
