"""Results under other conditions have a folder of their own."""

import pytest

from fedbench.errors import ConfigError
from fedbench_papers.claims.conditions import Conditions, scale_counts


def test_a_folder_flags_and_words_for_each():
    assert (Conditions().folder, Conditions().flags) == ("claims", "")
    other = Conditions(0.1, 5, (0, 1, 2))
    assert other.folder == "claims-scale-0.1-rounds-5-seeds-0-1-2"
    assert other.flags == " --scale 0.1 --rounds 5 --seeds 0 1 2"
    assert other.words == "scale 0.1, rounds 5, seeds 0 1 2"


def test_images_are_scaled_and_none_vanish():
    assert scale_counts([[10, 0], [3, 100]], 0.1) == [[1, 0], [1, 10]]
    found = Conditions(0.5, rounds=2).of({"partition.total": 600, "rounds": 9, "partition.alpha": 0.5})
    assert found == {"partition.total": 300, "rounds": 2, "partition.alpha": 0.5}


@pytest.mark.parametrize(
    ("given", "line"), [({"scale": 0}, "--scale 0: must be above 0"), ({"seeds": (90,)}, "--seeds 90")]
)
def test_conditions_that_are_none(given, line):
    with pytest.raises(ConfigError, match=line):
        Conditions(**given)
