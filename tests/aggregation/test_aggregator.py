"""Which aggregators there are, their options, and functions of the user."""

from pathlib import Path

import pytest
import torch

from fedbench.aggregation import rules
from fedbench.aggregation.aggregator import MEAN, Aggregator
from fedbench.aggregation.rules import load, make
from fedbench.config import AggregatorConfig, Config
from fedbench.errors import ConfigError
from tests.aggregation.rules.models import combine, model

HERE = "tests.aggregation.test_aggregator"


def weighted(vectors, weights, current):
    return weights @ vectors + current


def medians(vectors, weights, current):
    return vectors.median(dim=0).values


def writing(vectors, weights, current):
    return current.add_(vectors.sum(0))


def half(vectors, weights, current):
    return current[: len(current) // 2]


def number(vectors, weights, current):
    return 3.0


def broken(vectors, weights, current):
    raise IndexError("no such row")


def infinite(vectors, weights, current):
    return current / 0


def test_found_by_their_files():
    files = {path.stem.replace("_", "-") for path in Path(rules.__path__[0]).glob("*.py")} - {"--init--"}
    assert (
        set(rules.names())
        == files
        >= {
            *("mean", "median", "trimmed-mean", "krum", "fedadam", "geometric-median", "bulyan", "centred-clipping"),
            "co-pfl",
        }
    )
    assert MEAN == "mean"
    assert make(AggregatorConfig()).name == "mean"


@pytest.mark.parametrize("name", rules.names())
def test_made_by_name_with_its_options(name):
    made = make(AggregatorConfig(name=name))
    assert isinstance(made, load(name))
    assert made.name == name
    assert made.options == load(name).Options()
    assert load(name).__doc__


@pytest.mark.parametrize("name", rules.names())
def test_same_models_are_their_own_aggregate(name):
    """Whatever it does with differences, where there are none it makes the model that all have."""
    same = [model([1.5, -2.0], [0.25], [4]) for _ in range(5)]
    found = combine(make(AggregatorConfig(name=name)), same, (), same[0])
    assert (found.params.tolist(), found.buffers.tolist(), found.counters.tolist()) == ([1.5, -2.0], [0.25], [4])


@pytest.mark.parametrize("name", rules.names())
def test_nothing_shared_stays_nothing(name):
    found = combine(make(AggregatorConfig(name=name)), [model([], [], []) for _ in range(5)])
    assert [len(part) for part in vars(found).values()] == [0, 0, 0]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"name": "medain"}, "unknown aggregator 'medain': did you mean median"),
        ({"name": "fedcac"}, "fedcac is no aggregator: it makes a model for every client.*; use --method fedcac"),
        (
            {"name": "fedmosaic"},
            "fedmosaic is no aggregator: it weighs votes on public samples.*--method fedmosaic",
        ),
        ({"name": "mean", "share": 0.1}, "unknown key aggregator.share: aggregator mean takes no options"),
        ({"name": "trimmed-mean", "shar": 0.1}, "unknown key aggregator.shar: aggregator trimmed-mean takes share"),
        ({"name": "trimmed-mean", "share": 0.5}, r"aggregator.share = 0.5: must be a number in \[0, 0.5\)"),
        ({"name": "krum", "byzantine": 1.0}, "aggregator.byzantine = 1.0: must be a whole number >= 0"),
        ({"name": "fedadam", "tau": 0}, "aggregator.tau = 0: must be a number > 0"),
        ({"name": f"{HERE}:nothing"}, "has no nothing"),
        ({"name": f"{HERE}:HERE"}, r"is neither a function \(vectors, weights, current\) -> vector"),
        ({"name": f"{HERE}:weighted", "share": 1}, "unknown key aggregator.share"),
    ],
    ids=str,
)
def test_mistakes_are_told(asked, said):
    with pytest.raises(ConfigError, match=said):
        make(AggregatorConfig(**asked))


def own(name: str) -> Aggregator:
    return make(AggregatorConfig(name=f"{HERE}:{name}"))


def test_a_function_of_the_user_makes_the_parameters_and_buffers_are_averaged():
    models = [model([1.0, 2.0], [8.0], [1]), model([3.0, 6.0], [4.0], [5])]
    found = combine(own("weighted"), models, [0.75, 0.25], model([10.0, 20.0], [0.0], [0]))
    assert found.params.tolist() == [11.5, 23.0]
    assert (found.buffers.tolist(), found.counters.tolist()) == ([7.0], [5])


def test_a_function_of_one_line():
    models = [model([value]) for value in (5.0, 1.0, 100.0)]
    assert combine(own("medians"), models).params.tolist() == [5.0]


def test_what_it_is_given_is_its_own():
    """The model before has gone to clients, and the memory of an upload may be shared."""
    before, models = model([1.0]), [model([2.0]), model([3.0])]
    assert combine(own("writing"), models, (), before).params.tolist() == [6.0]
    assert before.params.tolist() == [1.0]
    assert models[0].params.tolist() == [2.0]


def test_a_function_is_tried_before_round_1():
    assert list(own("weighted").check(3, 4)) == []


def test_a_median_is_never_refused():
    """Of vectors that share their memory torch gives whatever the memory held before."""
    aggregator = make(AggregatorConfig(name=f"{HERE}:medians"))
    for _ in range(200):
        torch.full((3000,), float("nan"))
        assert list(aggregator.check(10, 700)) == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("half", r"returned a tensor \[2\]; from vectors \[3, 4\] it must make one \[4\]"),
        ("number", "returned a float"),
        ("broken", r"failed \(IndexError: no such row\)"),
        ("infinite", "returned numbers that are not finite"),
    ],
)
def test_a_function_that_does_not_work_is_refused(name, said):
    with pytest.raises(ConfigError, match=said):
        own(name).check(3, 4)
    with pytest.raises(ConfigError, match=name):
        combine(own(name), [model([1.0, 2.0])] * 3)


def test_the_configuration_names_it_like_other_sections():
    assert Config(aggregator="median").aggregator.name == "median"
    asked = Config(aggregator={"name": "krum", "byzantine": 2})
    assert asked.aggregator.options == {"byzantine": 2}
    assert asked.key() != Config().key()
    assert rules.checked_options(asked.aggregator).model_dump() == {"byzantine": 2, "select": 1}


def test_dtypes_are_kept():
    found = combine(own("weighted"), [model([1.0])] * 2)
    assert found.params.dtype == torch.float32
