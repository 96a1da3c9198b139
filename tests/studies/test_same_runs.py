"""Runs with the same scores are one piece of evidence, however they were asked for."""

import numpy as np
import pytest

from fedbench.config import Config
from fedbench.config.tuning import ComparisonTuning
from fedbench.errors import ConfigError
from fedbench.studies.compare import compare, plan_comparisons
from fedbench.studies.run import run
from fedbench.studies.same_runs import run_key

SMALL = {"model": "mlp", "rounds": 2, "train": {"epochs": 1}, "partition": {"name": "iid", "clients": 3}, "seeds": [0]}
SHARDS = {"partition": {"name": "shards", "clients": 3, "classes": 4}}
ATTACKED = {"partition": {"clients": 10}, "attack": {"name": "sign-flip"}}

SAME = [
    ({}, {"participation": 3}),
    ({"participation": 0.5}, {"participation": 2}),
    ({}, {"attack": {"share": 0.4}}),
    (ATTACKED | {"attack": {"name": "sign-flip", "share": 0.2}}, {"attack": {"name": "sign-flip", "share": 0.21}}),
    (ATTACKED, {"attack": {"name": "sign-flip", "scale": 1.0}}),
    ({}, {"compression": {"bits": 8}}),
    ({"compression": "topk"}, {"compression": {"name": "topk", "bits": 8}}),
    ({}, {"stragglers": {"work": 0.25}}),
    ({}, {"stragglers": {"share": 0.5, "work": 1.0}}),
    ({}, {"stragglers": {"spread": 2.0}}),
    ({}, {"privacy": {"delta": 1e-3}}),
    ({"privacy": {"clip": 1.0, "noise": 1.0}}, {"privacy": {"clip": 1.0, "noise": 1.0, "delta": 1e-3}}),
    ({}, {"public": {"balance": "dirichlet", "alpha": 0.1, "reserve": 50}}),
    ({}, {"partition": {"alpha": 0.1}}),  # iid has none
    ({}, {"partition": {"test": "part"}}),
    ({}, {"partition": {"noise_rate": 0.4}}),
    ({}, {"partition": {"noise_clients": [1], "noise_rate": 0.0}}),
    ({}, {"data": {"crop_padding": 2}}),
    ({}, {"train": {"engine": "loop", "width": 3}}),
    ({"train": {"steps": 2}}, {"train": {"steps": 2, "epochs": 7}}),
    ({"train": {"optimizer": "adam"}}, {"train": {"optimizer": "adam", "momentum": 0.9}}),
    ({"method": "fedprox"}, {"method": {"name": "fedprox", "mu": 0.01}}),
    ({}, {"model": {"name": "mlp", "hidden": [200, 200]}}),
    ({}, {"evaluate": {"clients": 3}}),
]
OTHER = [
    ({"method": "fedavg"}, {"method": {"name": "fedprox", "mu": 0.0}}),
    ({"participation": 0.5}, {"participation": 3}),
    (SHARDS, {"partition": {"classes": 5}}),
    (ATTACKED, {"attack": {"name": "sign-flip", "share": 0.4}}),
    ({"compression": "topk"}, {"compression": {"name": "topk", "share": 0.2}}),
    ({"stragglers": {"share": 0.5}}, {"stragglers": {"share": 0.5, "work": 0.25}}),
    ({}, {"train": {"momentum": 0.9}}),
    ({}, {"model": {"name": "mlp", "hidden": 7}}),
    ({"public": {"size": 30}}, {"public": {"size": 30, "balance": "dirichlet"}}),
]


def asked(*parts: dict) -> Config:
    """The keys of all parts, later ones over earlier ones, section by section."""
    tree: dict = {}
    for part in (SMALL, *parts):
        for key, value in part.items():
            own = {"name": value} if isinstance(value, str) and key != "out" else value
            tree[key] = {**tree.get(key, {}), **own} if isinstance(own, dict) else own
    return Config(**tree)


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_has_no_effect_makes_no_other_run(one, other):
    first, second = asked(one), asked(one, other)
    assert run_key(first) == run_key(second)


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_what_has_an_effect_makes_another_run(one, other):
    assert run_key(asked(one)) != run_key(asked(one, other))


@pytest.mark.parametrize("places", [range(0, len(SAME), 2), range(1, len(SAME), 2)])
def test_runs_that_count_as_the_same_have_the_same_scores(places, tmp_path):
    for place in places:
        scores = list[np.ndarray]()
        for number, parts in enumerate((SAME[place][:1], SAME[place])):
            config = asked(*parts, {"resources": {"hosts": 0}})
            config.out = tmp_path / f"{place}-{number}"
            frame = run(config, report=False).metrics
            scores.append(frame[["test_loss", "test_accuracy"]].to_numpy())
        assert np.array_equal(*scores, equal_nan=True), SAME[place]


@pytest.mark.parametrize(
    ("over", "names"),
    [
        ({"participation": [1.0, 3]}, "participation=1 and participation=3"),
        ({"attack.share": [0.2, 0.4]}, "attack.share=0.2 and attack.share=0.4"),
        ({"partition.alpha": [0.1, 0.5]}, "alpha=0.1 and alpha=0.5"),
        ({"privacy.delta": [1e-3, 1e-4]}, "delta=0.001 and delta=0.0001"),
    ],
)
def test_settings_that_run_the_same_are_refused_with_both_names(over, names):
    with pytest.raises(ConfigError, match=f"over: {names} run the same, and would count twice; give each once"):
        plan_comparisons(asked(), ["fedper"], ComparisonTuning(tune=0), over)


def test_variants_that_run_the_same_are_refused_with_both_names(tmp_path):
    config = asked({"out": str(tmp_path / "out")})
    with pytest.raises(ConfigError, match=r"methods: fedprox and fedprox mu=0.01 run the same, and would count as two"):
        compare(config, ["fedprox", "fedprox:mu=0.01"], tune=0, trials=1)
    assert not (tmp_path / "out").exists()
    study = plan_comparisons(config, ["fedavg", "fedprox:mu=0", "fedprox:mu=0.1"], ComparisonTuning(tune=0))[0][0]
    assert len(study.compared) == 6


def test_a_variant_of_a_tuned_method_is_another_method():
    study = plan_comparisons(asked({"data": {"val": 0.2}}), ["fedprox", "fedprox:mu=0.01"], ComparisonTuning(tune=2))[
        0
    ][0]
    assert [method.label for method in study.compared[:2]] == ["fedprox", "fedprox mu=0.01"]
