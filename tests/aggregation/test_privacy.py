"""Noise on what clients upload, and the account of what it spends."""

from math import exp, log, sqrt

import dp_accounting as dp
import numpy as np
import pytest
import torch
from dp_accounting.rdp import RdpAccountant
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from fedbench.aggregation.privacy import (
    ORDERS,
    epsilon_at,
    flip_bits,
    flip_probability,
    gaussian_divergence,
    gaussian_epsilon,
    keep_probability,
    randomised_response,
    response_divergence,
)
from tests.methods.simulator import close


def test_probabilities():
    for (epsilon, classes), keep in {(1, 3): 0.576117, (2, 10): 0.450853, (0, 4): 0.25}.items():
        assert close(keep_probability(epsilon, classes), [keep])
    others = [(1 - keep_probability(epsilon, c)) / (c - 1) for epsilon, c in ((1, 3), (2, 10), (0, 4))]
    assert close(others, [0.211942, 0.061016, 0.25])
    assert close([flip_probability(x) for x in (1, 8 / 4, 10 / 20)], [0.268941, 0.119203, 0.377541])
    assert keep_probability(1e9, 10) == 1
    assert flip_probability(1e9) == 0


def test_budget_of_gaussian_noise():
    assert close(gaussian_epsilon(1, 100, 50, 1e-5), [0.968961])
    assert close(gaussian_epsilon(log(10), 3000, 500, 1e-5), [1.222032])
    assert close(gaussian_epsilon(1, 100, 96.896105, 1e-5), [0.5])


def test_randomised_response_keeps_and_exchanges_as_often_as_it_should():
    labels = torch.full((200_000,), 1)
    shares = randomised_response(labels, 3, 1.0, torch.Generator().manual_seed(1)).bincount(minlength=3) / 200_000
    assert torch.allclose(shares, torch.tensor([0.211942, 0.576117, 0.211942]), atol=0.004)


def test_bits_are_flipped_independently():
    bits = torch.zeros(50_000, 3, dtype=torch.bool)
    bits[:, 0] = True
    noisy = flip_bits(bits, 0.25, torch.Generator().manual_seed(1)).double()
    assert torch.allclose(noisy.mean(0), torch.tensor([0.75, 0.25, 0.25]).double(), atol=0.008)
    assert noisy.sum(1).min() == 0
    assert noisy.T.corrcoef().triu(1).abs().max() < 0.02


def by_dp_accounting(labels, expertise, uploads, delta) -> float:
    """Epsilon of so many uploads. labels: (epsilon of one, classes, how many change); expertise: (most that one number
    changes, images, sigma)."""
    each = []
    if labels:
        epsilon, classes, changed = labels
        # There a label is drawn anew from all classes with some probability, here it is exchanged for another one.
        anew = (1 - keep_probability(epsilon, classes)) * classes / (classes - 1)
        each.append(dp.SelfComposedDpEvent(dp.RandomizedResponseDpEvent(anew, classes), changed))
    if expertise:
        sensitivity, images, sigma = expertise
        each.append(dp.GaussianDpEvent(sigma / (sensitivity * sqrt(images))))
    accountant = RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    accountant.compose(dp.SelfComposedDpEvent(dp.ComposedDpEvent(each), uploads))
    return accountant.get_epsilon(delta)


def ours(labels, expertise, uploads, delta) -> float:
    one = 0 * ORDERS
    if labels:
        one = one + labels[2] * response_divergence(*labels[:2])
    if expertise:
        one = one + gaussian_divergence(*expertise)
    return epsilon_at(uploads * one, delta)


ACCOUNTED = [
    (None, (1, 100, 50), 1, 1e-5, 0.794522033),
    (None, (1, 100, 50), 20, 1e-5, 4.161624306),
    (None, (log(10), 3000, 500), 10, 1e-5, 3.653617685),
    (None, (1, 100, 500), 100, 1e-6, 0.899938504),
    ((2.0, 10, 3), None, 10, 1e-5, 50.370279104),
    ((0.05, 4, 1), None, 200, 1e-5, 2.169915442),
    ((0.5, 2, 20), None, 3, 1e-5, 22.666971159),
    ((0.1, 10, 2), (1, 100, 50), 1, 1e-5, 0.842272829),
    ((0.1, 10, 2), (1, 100, 50), 20, 1e-5, 4.405586829),
    ((0.02, 2, 200), (log(10), 80, 300), 50, 1e-3, 8.732778622),
]


@pytest.mark.parametrize(("labels", "expertise", "uploads", "delta", "expected"), ACCOUNTED)
def test_the_accountant_agrees_with_dp_accounting(labels, expertise, uploads, delta, expected):
    assert ours(labels, expertise, uploads, delta) == pytest.approx(expected, rel=0, abs=1e-9)
    assert by_dp_accounting(labels, expertise, uploads, delta) == pytest.approx(expected, rel=0, abs=1e-9)


@given(
    st.none() | st.tuples(st.floats(0.01, 5), st.integers(2, 100), st.integers(1, 50)),
    st.tuples(st.floats(0.1, 10), st.integers(1, 5000), st.floats(1, 1000)),
    st.integers(1, 200),
    st.sampled_from([1e-7, 1e-5, 1e-3]),
)
def test_the_accountant_agrees_with_dp_accounting_on_any_noise(labels, expertise, uploads, delta):
    found = ours(labels, expertise, uploads, delta)
    assert found == pytest.approx(by_dp_accounting(labels, expertise, uploads, delta), rel=1e-9, abs=1e-9)


def delta_of_normal(epsilon: float, mu: float) -> float:
    """Least delta of N(0, 1) against N(mu, 1): theorem 8 of Balle and Wang (ICML 2018)."""
    return norm.cdf(mu / 2 - epsilon / mu) - exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize(("sigma", "uploads"), [(50, 1), (50, 20), (5, 1), (500, 100), (20, 7)])
def test_the_account_of_gaussian_noise_is_safe_and_tight(sigma, uploads):
    found = epsilon_at(uploads * gaussian_divergence(1, 100, sigma), 1e-5)
    mu = sqrt(100 * uploads) / sigma
    assert delta_of_normal(found, mu) <= 1e-5
    assert delta_of_normal(0.9 * found, mu) > 1e-5


def delta_of_responses(epsilon: float, each: float, classes: int, count: int) -> float:
    """Least delta of so many randomised responses, over the exact law of how many more speak for than against."""
    keep = keep_probability(each, classes)
    other = (1 - keep) / (classes - 1)
    law = np.ones(1)
    for _ in range(count):
        law = np.convolve(law, [other, 1 - keep - other, keep])
    losses = each * np.arange(-count, count + 1)
    return float((law * np.maximum(0, 1 - np.exp(epsilon - losses))).sum())


@pytest.mark.parametrize(("each", "classes", "count"), [(0.1, 10, 50), (0.05, 4, 200), (0.5, 2, 40), (1.0, 3, 12)])
def test_the_account_of_noisy_labels_is_safe_and_tight(each, classes, count):
    found = epsilon_at(count * response_divergence(each, classes), 1e-5)
    assert delta_of_responses(found, each, classes, count) <= 1e-5
    assert delta_of_responses(0.8 * found, each, classes, count) > 1e-5


def test_the_divergence_of_one_label_is_that_of_its_probabilities():
    keep, other = keep_probability(0.7, 5), (1 - keep_probability(0.7, 5)) / 4
    small = ORDERS[ORDERS < 100]
    sums = keep**small * other ** (1 - small) + other**small * keep ** (1 - small) + 3 * other
    assert response_divergence(0.7, 5)[: len(small)] == pytest.approx(np.log(sums) / (small - 1), rel=1e-9)
    assert response_divergence(3.0, 10)[-1] == pytest.approx(3, abs=0.01)
    assert epsilon_at(0 * ORDERS, 1e-5) == 0
    assert epsilon_at(0 * ORDERS + 1e-12, 1e-5) == 0
