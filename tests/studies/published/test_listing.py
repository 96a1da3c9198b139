"""What the experiments would cost."""

from fedbench.studies.cost import steps_of
from fedbench.studies.published.experiment import Experiment
from fedbench.studies.published.listing import runs_of


def test_runs_are_points_on_tuning_seeds_and_finals_on_the_others():
    runs = list(runs_of(Experiment.load("co-pfl/main"), "full"))
    # Four cells of eight methods: three rates each, co-pfl two rates by two shares; then three seeds.
    assert len(runs) == 4 * (7 * (3 + 3) + 4 + 3)


def test_cells_that_share_runs_count_once():
    assert len(list(runs_of(Experiment.load("fedmosaic/feature-shift"), "full"))) == 2 * 13 * 3


def test_steps_are_those_of_the_protocol():
    runs = list(runs_of(Experiment.load("fedcac/main-pathological"), "full"))
    assert {steps_of(config) for config in runs} == {500 * 40 * 25}
