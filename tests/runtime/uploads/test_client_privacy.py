"""Client-level differential privacy: what is sent by hand, and epsilon against known values."""

import sys
from math import exp, sqrt
from statistics import NormalDist

import pytest
import torch

from fedbench.config.fleet import PrivacyConfig
from fedbench.errors import ConfigError
from fedbench.jobs.resolve import check_run, resolve
from fedbench.methods import load, names
from fedbench.methods.base import Method
from fedbench.results.reader import Records
from fedbench.runtime.uploads.client_privacy import ClientBudget
from fedbench.runtime.uploads.privacy import privacy_budget
from tests.runtime.rounds import driver, play, small

CLIPPED = {"clip": 0.1}
NOISY = {"clip": 0.1, "noise": 2.0}


def uploads_of(tmp_path, method: str = "fedavg", **keys) -> tuple[torch.Tensor, list]:
    """The model that was sent in round 1, and the uploads of ten clients."""
    run = driver(resolve(small(method, rounds=1, **keys)), tmp_path)
    run.begin()
    seen, aggregate = [], run.method.aggregate
    run.method.aggregate = lambda server, own: (seen.extend(own), aggregate(server, own))[1]  # type: ignore[method-assign]
    before = run.server.params.clone()
    run.exchange(0)
    return before, seen


def test_an_update_is_shortened_and_keeps_its_direction(tmp_path):
    before, plain = uploads_of(tmp_path)
    _, clipped = uploads_of(tmp_path, privacy=CLIPPED)
    for one, other in zip(plain, clipped, strict=True):
        whole, short = one.params - before, other.params - before
        length = float(whole.norm())
        assert length > 0.1
        torch.testing.assert_close(short, whole * (0.1 / length), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", ["feddpa", "pfedhn"])
def test_a_difference_that_is_sent_is_the_update(method, tmp_path):
    """No part of the received model is in what clipping takes away."""
    _, plain = uploads_of(tmp_path, method)
    _, clipped = uploads_of(tmp_path, method, privacy=CLIPPED)
    for one, other in zip(plain, clipped, strict=True):
        length = float(one.params.norm())
        assert length > 0.1
        torch.testing.assert_close(other.params, one.params * (0.1 / length), rtol=1e-4, atol=1e-6)


def test_a_clip_that_no_difference_reaches_changes_no_score(tmp_path):
    scores = []
    for name, keys in (("plain", {}), ("clipped", {"privacy": {"clip": 2.0}})):
        play(small("feddpa", **keys), tmp_path / name)
        scores.append(Records(tmp_path / name).clients()["test_loss"].to_numpy())
    assert scores[0] == pytest.approx(scores[1], rel=1e-3)


def test_a_short_update_stays(tmp_path):
    before, plain = uploads_of(tmp_path)
    _, clipped = uploads_of(tmp_path, privacy={"clip": 1000.0})
    assert all(torch.allclose(a.params, b.params, atol=1e-7) for a, b in zip(plain, clipped, strict=True))
    assert before is not None


def test_the_noise_of_all_clients_adds_up_to_the_asked_one(tmp_path):
    _, clipped = uploads_of(tmp_path, privacy=CLIPPED)
    _, noisy = uploads_of(tmp_path, privacy=NOISY)
    noise = torch.stack([a.params - b.params for a, b in zip(noisy, clipped, strict=True)])
    size = noise.shape[1]
    assert float(noise.std()) == pytest.approx(2.0 * 0.1 / sqrt(10), rel=0.03)
    assert float(noise.sum(0).std()) == pytest.approx(2.0 * 0.1, rel=4 / sqrt(size))
    correlation = torch.corrcoef(noise)
    assert (correlation - torch.eye(10)).abs().max() < 6 / sqrt(size)


def gaussian_delta(noise: float, epsilon: float) -> float:
    """The exact delta of one Gaussian mechanism of sensitivity 1 (Balle and Wang, ICML 2018, theorem 8)."""
    cdf = NormalDist().cdf
    return cdf(1 / (2 * noise) - epsilon * noise) - exp(epsilon) * cdf(-1 / (2 * noise) - epsilon * noise)


@pytest.mark.parametrize(("noise", "rounds"), [(8.0, 1), (8.0, 16), (20.0, 60)])
def test_epsilon_of_full_participation_is_a_little_above_the_exact_one(noise, rounds):
    asked = PrivacyConfig(clip=1.0, noise=noise, delta=1e-5)
    found = ClientBudget(asked, 100, 100, mean_only=True).epsilon(rounds)
    whole = noise / 2 / sqrt(rounds)  # rounds of equal noise are one with less; a neighbour moves the sum by 2 clip
    assert gaussian_delta(whole, found) <= 1e-5 < gaussian_delta(whole, 0.85 * found)


def test_sampling_counts_only_where_nobody_sees_who_took_part():
    asked = PrivacyConfig(clip=1.0, noise=2.0, delta=1e-5)
    sampled, full = (ClientBudget(asked, 1000, drawn, mean_only=True).epsilon(100) for drawn in (50, 1000))
    assert sampled == pytest.approx(6.4666, abs=1e-3)  # by the library, noise 1.0 relative to the sensitivity
    assert full > 10 * sampled
    each = ClientBudget(asked, 1000, 50, mean_only=False).epsilon(1)
    assert each == pytest.approx(
        ClientBudget(PrivacyConfig(clip=1, noise=2 / sqrt(50), delta=1e-5), 9, 9, True).epsilon(1)
    )


class Everyone(Method):
    """All clients train and upload in every round."""

    @classmethod
    def trainers(cls, options):
        return "all"


def test_sampling_does_not_count_where_all_upload_in_every_round(tmp_path):
    keys = {"participation": 0.2, "method__weighting": "uniform", "privacy": NOISY}
    own, usual = (
        privacy_budget(run.config.privacy, run.method)
        for run in (driver(resolve(small(name, **keys)), tmp_path) for name in (f"{__name__}:Everyone", "fedavg"))
    )
    assert isinstance(own, ClientBudget)
    assert isinstance(usual, ClientBudget)
    assert own.mean_only
    assert usual.mean_only
    full = ClientBudget(PrivacyConfig(**NOISY), 10, 10, mean_only=True)
    assert own.epsilon(10) == full.epsilon(10) > 1.5 * usual.epsilon(10)


@pytest.mark.parametrize("name", ["mask", "topk", "quantised"])
def test_with_compression_the_server_sees_every_upload_with_its_own_noise_alone(name, tmp_path):
    keys = {"method__weighting": "uniform", "privacy": NOISY, "compression": {"name": name}}
    run = driver(resolve(small(**keys)), tmp_path)
    budget = privacy_budget(run.config.privacy, run.method)
    assert isinstance(budget, ClientBudget)
    each = ClientBudget(PrivacyConfig(**{**NOISY, "noise": NOISY["noise"] / sqrt(10)}), 10, 10, mean_only=True)
    assert budget.epsilon(4) == pytest.approx(each.epsilon(4))
    (line,) = [line for line in run.warnings if "differential privacy" in line]
    assert f"after 4 rounds epsilon is {budget.epsilon(4):.3g}" in line
    assert "(the server sees every upload, because each is compressed after its noise; only the mean would be" in line


@pytest.mark.parametrize(
    ("method", "keys", "mean_only"),
    [
        ("fedavg", {"method__weighting": "uniform"}, True),
        ("fedavg", {}, False),  # weights by samples: one client may weigh more
        ("fedavg", {"method__weighting": "uniform", "aggregator": "median"}, False),
        ("fedamp", {}, False),
    ],
)
def test_what_the_server_sees_decides_the_budget(method, keys, mean_only, tmp_path):
    run = driver(resolve(small(method, privacy=NOISY, **keys)), tmp_path)
    budget = privacy_budget(run.config.privacy, run.method)
    assert isinstance(budget, ClientBudget)
    assert budget.mean_only == mean_only
    assert budget.delta == 0.1
    (line,) = [line for line in run.warnings if "differential privacy" in line]
    assert f"after 4 rounds epsilon is {budget.epsilon(4):.3g}" in line


def test_epsilon_is_traced_and_grows(tmp_path):
    run = driver(resolve(small("fedavg", privacy=NOISY, rounds=3, evaluate={"every": 2})), tmp_path)
    run.begin()
    found = []
    for number in range(3):
        run.exchange(number)
        found.append(run.record.traces.get((-1, "epsilon")))
    budget = privacy_budget(run.config.privacy, run.method)
    assert isinstance(budget, ClientBudget)
    assert found[0] is None
    assert found[1] == budget.epsilon(2) < found[2] == budget.epsilon(3)


def test_without_noise_there_is_no_budget_and_local_training_needs_none(tmp_path):
    for method, asked in (("fedavg", CLIPPED), ("local", NOISY)):
        run = driver(resolve(small(method, privacy=asked)), tmp_path)
        assert privacy_budget(run.config.privacy, run.method) is None
        assert not any("differential privacy" in line for line in run.warnings)
    assert privacy_budget(PrivacyConfig(), driver(resolve(small()), tmp_path).method) is None


@pytest.mark.parametrize(
    ("method", "keys", "line"),
    [
        ("fedavg", {"privacy": {"noise": 1.0}}, "privacy.noise = 1.0: without effect without privacy.clip; set it"),
        (
            "scaffold",
            {"privacy": CLIPPED},
            "clients of scaffold also send the change of their control variate",
        ),
        ("fedkd", {"privacy": CLIPPED}, "privacy.clip = 0.1: fedkd encodes its parameters itself"),
        ("fedavg", {"privacy": NOISY, "dropout": 0.1}, "dropout = 0.1: the noise of clients that fail or cheat"),
        ("fedavg", {"privacy": NOISY, "attack": {"name": "noise"}}, "attack.name = noise: the noise of clients"),
    ],
)
def test_what_would_not_be_private_is_refused(method, keys, line):
    with pytest.raises(ConfigError, match=line):
        check_run(resolve(small(method, **keys)))


OTHERS = sorted(name for name in names() if not load(name).also_sends and name not in ("centralized", "fedkd"))


@pytest.mark.parametrize("method", OTHERS)
def test_every_other_method_runs_or_asks_a_question(method, tmp_path):
    if method == "feddbe":
        with pytest.raises(ConfigError, match=r"privacy.clip: feddbe asks all clients a question"):
            play(small(method, rounds=1, privacy=NOISY), tmp_path)
        return
    play(small(method, rounds=1, privacy={"clip": 1.0, "noise": 0.01}), tmp_path)


def test_without_the_accountant_the_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ConfigError, match=r"dp-accounting is not installed: pip install 'fedbench-pfl\[privacy\]'"):
        ClientBudget(PrivacyConfig(clip=1.0, noise=1.0), 10, 10, mean_only=True).epsilon(1)
