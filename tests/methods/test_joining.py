"""A newcomer trains as a client does in its first round, but for as many epochs as it is given."""

import pytest

from fedbench.errors import ConfigError
from fedbench.jobs.resolve import check_run, resolve
from fedbench.methods.client import Predictor
from tests.methods.simulator import Mlp, Product, Quadratic, Simulation, blobs, close, equal, targets
from tests.runtime.rounds import small

FULL = {"batch_size": "full", "shuffle": False, "lr": 0.1, "momentum": 0.5, "weight_decay": 0.1}
"""So that no random stream matters, by which two clients differ."""
EPOCHS = {"fedpac": "body_epochs"}
"""Methods that do not take `train.epochs`, and their option."""
LIKE_OTHERS = [
    *("fedavg", "fedprox", "fedbn", "fedper", "lg-fedavg", "local", "scaffold", "feddyn", "moon", "fedala", "fedas"),
    *("apfl", "pfedme", "fedphp", "fedselect", "flute", "floco", "feddpa", "fedobp", "fedrod", "fedcp", "gpfl"),
    *("feddbe", "fedproto", "pfedfda", "co-pfl", "knn-per", "fedfomo", "fedcac", "fedpac", "fml", "fedkd"),
]
OPTIONS = {"floco": {"tau": None, "alpha_sampling": "center"}, "fedfomo": {"val_fraction": 0}}
STEP = {"lr": 0.1, "momentum": 0, "weight_decay": 0, "batch_size": 1}


@pytest.mark.parametrize("method", LIKE_OTHERS)
def test_before_round_1_a_newcomer_becomes_what_a_client_with_its_data_becomes(method):
    def simulation(epochs: int) -> Simulation:
        own = {EPOCHS[method]: epochs} if method in EPOCHS else {}
        train = FULL | ({} if method in EPOCHS else {"epochs": epochs})
        return Simulation(method, data, train=train, **OPTIONS.get(method, {}), **own)

    data = blobs([9, 17])
    run, joined = simulation(3).run(1, evaluate=False), simulation(1).joined(data[0], 3)
    known = run.log[0].after_fit[0]
    if isinstance(known, Predictor):
        assert isinstance(joined, Predictor)
        assert close(joined.scores(run.data[0]), known.scores(run.data[0]).flatten().tolist(), digits=4)
    else:
        assert close(joined.params, known.params.tolist(), digits=5)
        assert not equal(simulation(1).joined(data[0], 1), joined)


def test_its_epochs_stand_in_for_steps_and_other_data_make_another_model():
    plain = Simulation("fedavg", targets(1.0), module=Product(), train=STEP)
    assert close(plain.joined(targets(1.0)[0], 2).params, [1.1869, 1.1869])
    steps = Simulation("fedavg", targets(1.0), module=Product(), train=STEP | {"steps": 7})
    assert equal(steps.joined(targets(1.0)[0], 2), plain.joined(targets(1.0)[0], 2))
    line = Simulation("fedavg", targets(1.0), module=Quadratic(), train=STEP)
    assert close(line.joined(targets(3.0)[0], 2).params, [0.57])  # 0, 0.3, 0.57


def test_nothing_of_the_run_moves_when_a_newcomer_joins():
    run, other = (Simulation("ditto", blobs([9, 17]), module=Mlp(norm=True)).run(1) for _ in range(2))
    assert not equal(run.joined(blobs([5])[0], 2), run.joined(blobs([5])[0], 1))
    assert equal(run.run(1).log[1].after_fit[0], other.run(1).log[1].after_fit[0])


@pytest.mark.parametrize(
    ("method", "options", "why"),
    [
        ("lg-fedavg", {"method__pretrain_rounds": 1}, "with method.pretrain_rounds the server forgets"),
        (
            "pfedgate",
            {"method__sparsity": [0.5] * 8, "method__blocks_per_tensor": 2},
            "method.sparsity lists one share",
        ),
    ],
)
def test_rules_that_depend_on_options_are_refused_with_these_only(method, options, why):
    check_run(resolve(small(method, partition__new_clients=2)))
    with pytest.raises(ConfigError, match=rf"^partition.new_clients: {method} has no rule .* join later: {why}"):
        check_run(resolve(small(method, partition__new_clients=2, **options)))
