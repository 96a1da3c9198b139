"""Sample-level differential privacy: epsilon against the library, traces, and what is refused by name."""

import dp_accounting as library
import pytest
from dp_accounting.pld import PLDAccountant

from fedbench.errors import ConfigError
from fedbench.jobs.resolve import check_run, resolve
from fedbench.methods import load, names
from fedbench.methods.base import Method
from fedbench.runtime.uploads.privacy import privacy_budget
from fedbench.runtime.uploads.sample_privacy import SampleBudget, epsilon_of, highest
from tests.runtime.rounds import driver, play, small

PRIVATE = {"level": "sample", "clip": 1.0, "noise": 1.0}
OTHER_LOSSES = {
    "fedala", "fedcp", "feddbe", "feddpa", "fedkd", "fedphp", "fedrod", "floco", "fml", "gpfl", "moon",
}  # fmt: skip
"""Methods with the common steps whose clients also learn otherwise."""


def exact(noise: float, rate: float, steps: int, delta: float) -> float:
    """Nearly exact, by privacy loss distributions."""
    accountant = PLDAccountant()
    event = library.PoissonSampledDpEvent(rate, library.GaussianDpEvent(noise))
    return float(accountant.compose(event, steps).get_epsilon(delta))


@pytest.mark.parametrize(("noise", "rate", "steps"), [(1.0, 0.05, 300), (4.0, 0.3, 300), (4.0, 1.0, 20)])
def test_epsilon_is_a_little_above_the_exact_one(noise, rate, steps):
    found, least = epsilon_of(noise, rate, steps, 1e-3), exact(noise, rate, steps, 1e-3)
    assert least <= found < 1.3 * least


def test_epsilon_of_a_known_training():
    """60000 images in batches of 256 for 60 epochs with noise 1.1, the example of TensorFlow Privacy, there 3.01 by an
    older conversion."""
    assert epsilon_of(1.1, 256 / 60_000, 60 * 60_000 // 256, 1e-5) == pytest.approx(2.597, abs=1e-3)


def test_only_what_nobody_dominates_is_computed():
    assert highest([(0.1, 5), (0.2, 5), (0.2, 3), (0.05, 9), (0.1, 7)]) == [(0.2, 5), (0.1, 7), (0.05, 9)]
    assert highest([]) == []


def test_epsilon_is_traced_by_client_and_survives_a_round_without_the_client(tmp_path):
    keys = {"participation": 0.5, "partition": {"name": "dirichlet", "clients": 4}}
    config = small("fedavg", privacy=PRIVATE, rounds=3, **keys)
    run = driver(resolve(config), tmp_path)
    run.begin()
    steps, last = dict.fromkeys(range(4), 0), 0.0
    for number in range(3):
        run.exchange(number)
        for client in run.calendar.participants(number + 1):
            steps[client] += -(-run.context.sizes[client] // 50)  # batches of 50 in one epoch
        traces = run.record.traces
        known = {client: value for (client, name), value in traces.items() if name == "client_epsilon"}
        assert run.record.private_steps == {client: count for client, count in steps.items() if count}
        for client, value in known.items():
            rate = min(1.0, 50 / run.context.sizes[client])
            assert value == epsilon_of(1.0, rate, steps[client], 1 / max(run.context.sizes))
        assert traces[-1, "epsilon"] == max(known.values()) >= last
        last = traces[-1, "epsilon"]
    budget = privacy_budget(run.config.privacy, run.method)
    assert isinstance(budget, SampleBudget)
    (line,) = [line for line in run.warnings if "sample-level differential privacy" in line]
    most = max(budget.epsilon(client, 3 * -(-size // 50)) for client, size in enumerate(run.context.sizes))
    assert f"after 3 rounds epsilon is {most:.3g}" in line


def test_same_bits_stopped_and_resumed(tmp_path):
    config = small("ditto", privacy=PRIVATE, rounds=3)
    whole = play(config, tmp_path / "whole")
    shorter = config.model_copy(update={"rounds": 2}, deep=True)
    shorter.checkpoint.every = config.checkpoint.every = 1
    shorter.checkpoint.keep = True
    play(shorter, tmp_path / "parts")
    assert play(config, tmp_path / "parts", resume=True) == whole


def refused(method: str) -> bool:
    kind = load(method)
    return bool(sends_openly(method) or kind.makes_steps(kind.Options()) or method in OTHER_LOSSES)


def sends_openly(method: str) -> bool:
    kind = load(method)
    return bool(kind.also_sends) or kind.trainers(kind.Options()) == "pooled"


@pytest.mark.parametrize("method", sorted(filter(refused, names())))
def test_methods_whose_steps_are_not_the_common_ones_are_refused_by_name(method):
    line = f"privacy.level = sample: ({method}|{load(method).__name__}) .*set privacy.level = client"
    if sends_openly(method):  # refused at the level of clients, too
        line = f"privacy.clip = 1: .*{method} .*; leave it out, or compare other methods"
    with pytest.raises(ConfigError, match=line) as no:
        check_run(resolve(small(method, privacy=PRIVATE)))
    assert "\n" not in str(no.value)


@pytest.mark.parametrize("method", sorted(name for name in names() if not refused(name)))
def test_every_other_method_trains(method, tmp_path):
    """Two rounds: some methods learn by a loss of their own from the second on."""
    config = small(method, rounds=2, privacy=PRIVATE, partition={"name": "dirichlet", "clients": 3})
    check_run(resolve(config))
    play(config, tmp_path)


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"privacy": {"level": "sample"}}, "privacy.level = sample: without effect without privacy.clip"),
        ({"model": {"name": "resnet8"}}, r"the model has BatchNorm layers.*resnet8.*--model.norm group"),
        ({"train__accumulate": 2}, "train.accumulate = 2: private steps are single ones"),
        ({"train__engine": "compiled"}, "train.engine = compiled: private steps"),
        ({"train__shuffle": False}, "train.shuffle = False: private steps"),
    ],
)
def test_what_would_not_be_private_is_refused(keys, line):
    with pytest.raises(ConfigError, match=line):
        check_run(resolve(small("fedavg", **{"privacy": PRIVATE, **keys})))


def test_fits_on_a_part_of_the_samples_are_refused_before_round_1():
    line = "privacy.level = sample: knn-per with method.lam = auto fits on a part of its samples"
    with pytest.raises(ConfigError, match=line) as no:
        check_run(resolve(small("knn-per", privacy=PRIVATE, method__lam="auto")))
    assert "\n" not in str(no.value)
    check_run(resolve(small("knn-per", privacy=PRIVATE, method__lam=0.5)))
    check_run(resolve(small("knn-per", privacy={"clip": 1.0}, method__lam="auto")))


class Half(Method):
    """Fits on half of a client's samples, by which each is in a batch twice as often."""

    def train(self, client, received):
        return self.upload(client, client.fit(received, client.split(0.5)[0]))


def test_fits_on_a_part_of_the_samples_are_refused_at_the_fit(tmp_path):
    with pytest.raises(ConfigError, match=r"Half fits on \d+ of a client's \d+ samples, so that") as no:
        play(small(f"{__name__}:Half", privacy=PRIVATE), tmp_path)
    assert "\n" not in str(no.value)
    play(small(f"{__name__}:Half", rounds=1), tmp_path / "public")


class TrainsFirst(Method):
    """Trains the model that it has received once more."""

    def receive(self, client):
        return client.fit(super().receive(client), client.train, "first")


class TrainsAtFirst(Method):
    """Trains a model before round 1."""

    def begin(self, client):
        client.state.params = client.fit(client.initial, client.train, "first").params


@pytest.mark.parametrize(("kind", "hook"), [(TrainsFirst, "receive"), (TrainsAtFirst, "begin")])
def test_steps_that_nobody_counts_are_refused(kind, hook, tmp_path):
    with pytest.raises(ConfigError, match=f"{kind.__name__} makes gradient steps in `{hook}`, which epsilon would"):
        play(small(f"{__name__}:{kind.__name__}", privacy=PRIVATE), tmp_path)
    play(small(f"{__name__}:{kind.__name__}", rounds=1), tmp_path / "public")


def test_fine_tuning_for_evaluation_is_not_counted_and_the_line_says_so(tmp_path):
    steps = []
    for epochs in (0, 2):
        run = driver(resolve(small("fedavg-ft", rounds=1, privacy=PRIVATE, method__ft_epochs=epochs)), tmp_path)
        run.run()
        steps.append(run.record.private_steps)
        (line,) = [line for line in run.warnings if "sample-level differential privacy" in line]
        assert "models that are fine-tuned for evaluation alone, which must not be published with it" in line
    assert steps[0] == steps[1]


def test_groupnorm_trains(tmp_path):
    train = {"steps": 1, "batch_size": 4}
    keys = {"partition": {"name": "dirichlet", "clients": 2}, "train": train, "rounds": 1}
    play(small("fedavg", model={"name": "resnet8", "norm": "group"}, privacy=PRIVATE, **keys), tmp_path)
