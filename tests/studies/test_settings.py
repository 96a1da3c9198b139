"""The settings of a comparison, as users give them."""

import numpy as np
import pytest
from lightning import LightningModule

from fedbench.errors import ConfigError
from fedbench.studies.settings import checked_settings


class Net(LightningModule):
    """A module of one's own."""


def half(vectors, weights, current):
    return (vectors.mean(0) + current) / 2


def test_values_of_settings_may_be_objects():
    sizes = [{"name": "mlp", "hidden": size} for size in np.array([3, 4])]
    found = checked_settings(
        {"model": ["mlp", Net, {"name": Net, "width": 3}], "data.name": ["digits", ([[1.0]], [0])]}
    )
    assert found["model"] == ["mlp", f"{__name__}:Net", {"name": f"{__name__}:Net", "width": 3}]
    assert found["data.name"][1].startswith("memory:arrays@")
    found = checked_settings({"aggregator": [{"name": half}, "mean"], "aggregator.name": [half, "mean"]})
    assert [*found.values()] == [[f"{__name__}:half", "mean"]] * 2
    found = checked_settings({"partition": ["iid", Net], "data.task": ["classification", Net]})
    assert [own[1] for own in found.values()] == [f"{__name__}:Net"] * 2
    assert checked_settings({"rounds": np.array([1, 2])}) == {"rounds": [1, 2]}
    assert type(checked_settings({"rounds": np.array([1, 2])})["rounds"][0]) is int
    (shuffled, _), widths = checked_settings({"train.shuffle": [np.True_, np.False_], "model": sizes}).values()
    assert shuffled is True
    assert [type(model["hidden"]) for model in widths] == [int, int]


@pytest.mark.parametrize("over", ["partition.alpha", ["partition.alpha"], {3: [1]}, {"rounds": 3}, {"rounds": "1,2"}])
def test_settings_are_lists_of_values_by_key(over):
    with pytest.raises(ConfigError, match=r"^over.*: a dict of lists of values is expected, for example "):
        checked_settings(over)


def test_objects_that_are_no_data_are_refused_as_a_setting():
    with pytest.raises(ConfigError, match=r"^over: data is an ndarray without targets"):
        checked_settings({"data": ["digits", np.zeros(3)]})
