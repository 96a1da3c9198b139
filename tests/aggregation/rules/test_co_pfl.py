"""Contribution weights of CO-PFL for other methods."""

import pytest
import torch

from fedbench.aggregation.leave_one_out import contribution_weights, deviation
from fedbench.aggregation.rules.co_pfl import CoPFLMean
from fedbench.methods.co_pfl import CoPFL as Method
from tests.aggregation.rules.models import combine, model

START = model([1.0, 1, 1, 1], [0.0])
UPDATES = [[1.0, 2, 0, -1], [1 / 3, 2 / 3, -1, 1], [1 / 3, 2 / 3, -1 / 3, -1 / 3]]
"""Of the first, the example of the method's specification; the others' mean is (1/3, 2/3, -2/3, 1/3)."""


def sent(updates):
    """Models after these updates from the common start, minus as in the paper; the buffer is the client's place."""
    return [model([1 - u for u in update], [float(place)]) for place, update in enumerate(updates)]


def test_a_client_counts_by_how_far_its_update_deviates_from_the_others():
    rows = torch.tensor(UPDATES, dtype=torch.float64)
    scores = [deviation([(row, (rows.sum(0) - row) / 2)]) for row in rows]
    assert scores[0] == pytest.approx(0.483602, abs=1e-6)
    alphas = torch.tensor(scores) / sum(scores)
    found = combine(CoPFLMean(), sent(UPDATES), [0.7, 0.2, 0.1], START)
    assert found.params.tolist() == pytest.approx((1 - (alphas[:, None] * rows).sum(0)).tolist(), abs=1e-6)
    assert found.buffers.tolist() == pytest.approx([float(alphas[1] + 2 * alphas[2])])
    assert max(alphas) - min(alphas) > 0.1, "a plain mean would pass"


def test_the_weights_are_those_of_the_method():
    assert contribution_weights([1.2, 0.8, 2.0]) == pytest.approx([0.3, 0.2, 0.5])
    uploads = [type("Upload", (), {"score": torch.tensor(score)}) for score in (1.2, 0.8, 2.0)]
    assert Method.weights(None, uploads) == pytest.approx([0.3, 0.2, 0.5])
    assert contribution_weights([0.0, 0.0]) == [0.5, 0.5]


def test_the_mean_where_all_clients_move_in_one_direction():
    """Rounding leaves deviations of about 1e-16, which must not become weights."""
    found = combine(CoPFLMean(), sent([[0.1, 0.2, 0.3, 0.7], [0.2, 0.4, 0.6, 1.4], [0.3, 0.6, 0.9, 2.1]]), (), START)
    assert found.params.tolist() == pytest.approx([0.8, 0.6, 0.4, -0.4], abs=1e-6)
