"""A run's name says what was asked, and identifies what decides its numbers."""

from fedbench.jobs.resolve import resolve
from fedbench.jobs.run_names import default_name
from tests.runtime.rounds import small


def name(**more) -> str:
    return default_name(resolve(small(**more)).config)


def test_a_name_says_what_was_asked():
    assert name(method="fedper").startswith("fedper-digits-dirichlet-")
    assert name(seeds=[0, 7]).endswith("-s0_7")
    assert name(aggregator="median").startswith("fedavg-digits-dirichlet-median-")
    assert name(data={"name": "tests.runtime.rounds:odd_images"}, partition="iid").startswith(
        "fedavg-tests.runtime.rounds-odd_images-iid-"
    )


def test_many_seeds_have_a_name_of_their_own_that_is_no_longer():
    names = [name(seeds=list(range(count))) for count in range(15, 30)]
    assert len(set(names)) == len(names)
    assert {len(long) for long in names[7:]} == {len(names[-1])}
    assert names[0].endswith("-s0_1_2_3_4_5_6_7_8_9_10_11_12_13_14")


def test_what_decides_the_numbers_decides_the_name_and_nothing_else():
    assert name() == name(resources={"hosts": 2}) == name(checkpoint={"every": 7}) == name(loggers=["csv"])
    changed = [name(train__lr=0.2), name(seeds=[1]), name(rounds=5), name(model={"name": "mlp", "hidden": 17})]
    assert len({name(), *changed}) == 5


def test_a_value_that_is_a_default_has_no_say():
    assert name() == name(train__shuffle=True)
