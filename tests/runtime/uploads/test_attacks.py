"""What malicious clients send, against calculations by hand, and who withstands it."""

from copy import deepcopy
from statistics import NormalDist

import pytest
import torch

from fedbench.aggregation.packed import bits_to_mask
from fedbench.aggregation.rules import make
from fedbench.config import AggregatorConfig
from fedbench.config.fleet import AttackConfig
from fedbench.errors import ConfigError
from fedbench.jobs.resolve import check_run, resolve
from fedbench.methods import load, names
from fedbench.methods.messages import Message, Upload
from fedbench.module.masks import without
from fedbench.module.weights import Weights
from fedbench.results.reader import Records
from fedbench.runtime.drive import drive
from fedbench.runtime.driver import Driver
from fedbench.runtime.hosts import InProcess
from fedbench.runtime.uploads.attacks import Attack, attackers, largest_deviation, malicious_update
from fedbench.runtime.uploads.step import Delivery
from tests.runtime.rounds import driver, play, small

SEND_A_PART = {"co-pfl", "fedselect"}
"""Their uploads have 0 for entries that stay at the client."""
OWN = torch.tensor([1.0, -2.0, 2.0], dtype=torch.float64)
HONEST = [torch.tensor(v, dtype=torch.float64) for v in ([1.0, 0.0, 4.0], [3.0, 2.0, 0.0], [2.0, 4.0, 2.0])]
"""Their mean is (2, 2, 2), their standard deviation sqrt(2 / 3), sqrt(8 / 3), sqrt(8 / 3)."""


def sends(name: str, scale: float | None = None, own=OWN, honest=HONEST, participants: int = 4) -> torch.Tensor:
    stream = torch.Generator().manual_seed(0)
    return malicious_update(AttackConfig(name=name, scale=scale), own, honest, participants, stream)


def test_updates_by_hand():
    assert sends("sign-flip").tolist() == [-1, 2, -2]
    assert sends("sign-flip", 3).tolist() == [-3, 6, -6]
    assert sends("scaled").tolist() == [10, -20, 20]
    assert sends("inner-product", 0.5).tolist() == [-1, -1, -1]
    deviation = torch.tensor([2 / 3, 8 / 3, 8 / 3], dtype=torch.float64).sqrt()
    torch.testing.assert_close(sends("alie", 1.5), 2 - 1.5 * deviation, rtol=1e-12, atol=1e-12)


def test_noise_is_as_long_as_the_update_and_has_another_direction():
    found = sends("noise", 2)
    assert float(found.norm()) == pytest.approx(2 * 3)
    assert abs(float(found @ OWN) / (3 * 6)) < 0.99


@pytest.mark.parametrize(
    ("participants", "malicious", "share"),
    [(50, 24, 24 / 26), (10, 2, 4 / 8), (10, 4, 4 / 6), (11, 3, 5 / 8)],
)
def test_the_largest_deviation_of_alie(participants, malicious, share):
    """The first is the paper's example of 50 workers, 24 of them corrupt (Baruch et al., section 4)."""
    assert largest_deviation(participants, malicious) == pytest.approx(max(0.0, NormalDist().inv_cdf(share)))


def test_attackers_of_alie_that_may_not_leave_the_mean_are_said():
    weak = driver(resolve(small(partition__clients=10, attack={"name": "alie"})))
    (line,) = [line for line in weak.warnings if "alie" in line]
    assert line.startswith("attack.name = alie: with 2 of 10 clients its strength is 0")
    for attack in ({"share": 0.4}, {"scale": 1.0}):
        run = driver(resolve(small(partition__clients=10, attack={"name": "alie"} | attack)))
        assert not any("alie" in line for line in run.warnings)


def test_only_malicious_uploads_change_and_the_reference_is_what_each_received():
    sent = {client: Message(params=torch.full((3,), float(client))) for client in range(4)}
    own = {client: torch.full((3,), client + 0.5) for client in range(4)}
    uploads = [Upload(client, 1, params=own[client].clone(), mask=torch.ones(2)) for client in range(4)]
    step = Attack(AttackConfig(name="sign-flip"), 0, frozenset({2}), lambda upload, message: message.params)
    found = step.at_server(uploads, Delivery(1, sent, {}))
    assert [upload.params.tolist() for upload in found] == [[0.5] * 3, [1.5] * 3, [1.5] * 3, [3.5] * 3]
    assert all(upload.mask.tolist() == [1, 1] for upload in found)


def mean_of(name: str, malicious: int, attack: str = "scaled", scale: float = -1.0, **options) -> torch.Tensor:
    """What an aggregator makes of ten uploads near 1, some of them malicious."""
    stream = torch.Generator().manual_seed(1)
    honest = [1 + 0.1 * torch.randn(20, dtype=torch.float64, generator=stream) for _ in range(10)]
    bad = [malicious_update(AttackConfig(name=attack, scale=100), v, honest, 10, stream) for v in honest[:malicious]]
    models = [Weights(v, torch.zeros(0), torch.zeros(0, dtype=torch.int64)) for v in [*bad, *honest[malicious:]]]
    rule = make(AggregatorConfig(name=name, **options))
    return rule.combine(models, [0.1] * 10, models[-1], {}).params


@pytest.mark.parametrize("attack", ["sign-flip", "scaled", "noise", "inner-product"])
def test_two_of_ten_break_the_mean_and_not_the_median_and_six_break_that_too(attack):
    assert (mean_of("mean", 2, attack) - 1).abs().mean() > 5
    assert (mean_of("median", 2, attack) - 1).abs().max() < 0.3
    assert (mean_of("trimmed-mean", 2, attack, share=0.2) - 1).abs().max() < 0.3
    assert (mean_of("krum", 2, attack, byzantine=2) - 1).abs().max() < 0.4
    assert (mean_of("median", 6, attack) - 1).abs().mean() > 2


def test_attackers_are_drawn_once_by_the_seed():
    attack = AttackConfig(name="noise", share=0.3)
    assert len(attackers(0, 10, attack)) == 3
    assert attackers(0, 10, attack) == attackers(0, 10, attack) != attackers(1, 10, attack)
    assert not attackers(0, 10, AttackConfig(share=0.3))
    with pytest.raises(ConfigError, match="of 3 clients it makes 0 malicious"):
        attackers(0, 3, AttackConfig(name="noise", share=0.1))


def test_scores_are_those_of_honest_clients(tmp_path):
    drive(resolve(small(rounds=1, attack={"name": "scaled", "share": 0.2})), tmp_path, InProcess())
    bad = attackers(0, 10, AttackConfig(name="scaled", share=0.2))
    assert set(Records(tmp_path).clients()["client"]) == set(range(10)) - bad


def test_an_attack_hurts_the_mean_more_than_the_median(tmp_path):
    scores = {}
    for rule in ("mean", "median"):
        asked = small(rounds=4, aggregator=rule, attack={"name": "sign-flip", "scale": 10, "share": 0.2})
        play(asked, tmp_path / rule)
        found = Records(tmp_path / rule).clients().query("point == 'after_agg' and round == 4")
        scores[rule] = found["test_accuracy"].mean()
    assert scores["median"] > scores["mean"] + 0.2


def honest_round(run: Driver) -> tuple[list[Upload], Delivery]:
    """The uploads of the first round, before the server has changed any, and how they came there."""
    run.begin()
    seen, at_server = [], run.uploads.at_server
    run.uploads.at_server = lambda own, delivery: (seen.append(deepcopy((own, delivery))), at_server(own, delivery))[1]  # type: ignore[method-assign]
    run.exchange(0)
    return seen[0]


def start_of(method: str, field: str, upload: Upload, message: Message) -> torch.Tensor:
    """Where the update of a client begins, by what its method sends."""
    if method in ("feddpa", "pfedhn"):
        return torch.zeros_like(upload.params)
    if method in SEND_A_PART:
        return without(message.params, bits_to_mask(upload.mask, len(message.params)))
    if method == "ifca":
        return [message, *message.models("other")][int(upload.cluster)].params
    return message.tensors[field]


def sends_minus_its_update(method: str, run: Driver, own: list[Upload], delivery: Delivery) -> None:
    """Of two attackers with `sign-flip`, field by field."""
    step = Attack(AttackConfig(name="sign-flip"), 0, frozenset({0, 2}), run.uploads.reference_at_server)
    found = step.at_server(deepcopy(own), delivery)
    for before, after in zip(own, found, strict=True):
        for field in (name for name in before.tensors if name.rpartition(".")[2] == "params"):
            honest, sent = before.tensors[field], after.tensors[field]
            if before.client not in (0, 2):
                assert torch.equal(sent, honest)
            elif honest.numel():
                start = start_of(method, field, before, delivery.received[before.client])
                torch.testing.assert_close(sent - start, start - honest, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("method", names())
def test_what_a_method_sends_besides_is_declared_and_what_cannot_be_attacked_is_refused(method, tmp_path):
    attack = {"name": "alie", "share": 0.3}
    run = driver(resolve(small(method, rounds=1)), tmp_path)
    seen, delivery = honest_round(run)
    also = {n for n, size in seen[0].sizes.items() if size and n not in ("params", "buffers", "counters")}
    assert bool(also) == bool(load(method).also_sends)
    attacked_run = resolve(small(method, rounds=1, attack=attack))
    if also and not run.method.shared_params.size:
        with pytest.raises(ConfigError, match=f"clients of {method} send {load(method).also_sends} and no parameters"):
            check_run(attacked_run)
    else:
        check_run(attacked_run)
        drive(attacked_run, tmp_path, InProcess())
        sends_minus_its_update(method, run, seen, delivery)
