"""What the experiments would cost."""

from itertools import islice

from fedbench.studies.cost import steps_of
from fedbench_papers.tables import listing
from fedbench_papers.tables.experiment import Experiment, figures, names
from fedbench_papers.tables.listing import runs_of_cells


def test_every_experiment_is_listed_with_what_it_is(monkeypatch):
    monkeypatch.setattr(listing, "hours_of", len)
    lines = list(listing.experiments_listing("full"))
    listed = [line.split()[0] for line in lines[1:-1] if not line.startswith(" ")]
    assert listed == [*names(), *figures()]
    assert sum("no runs" in line for line in lines) == 5
    assert lines[1].split()[1:6] == ["4", "32", "196", "12,354,000", "196.0"]
    assert "two classes a client" in lines[2]


def test_a_line_is_there_before_the_next_one_is_measured(monkeypatch):
    measured = []
    monkeypatch.setattr(listing, "hours_of", lambda configs: measured.append(1) or 1.0)
    assert len(list(islice(listing.experiments_listing("full"), 2))) == 2
    assert len(measured) == 1


def test_runs_are_points_on_tuning_seeds_and_finals_on_the_others():
    runs = list(runs_of_cells(Experiment.load("co-pfl/main"), "full"))
    # Four cells of eight methods: three rates each, co-pfl two rates by two shares; then three seeds.
    assert len(runs) == 4 * (7 * (3 + 3) + 4 + 3)


def test_cells_that_share_runs_count_once():
    assert len(list(runs_of_cells(Experiment.load("fedmosaic/feature-shift"), "full"))) == 2 * 13 * 3


def test_steps_are_those_of_the_protocol():
    runs = list(runs_of_cells(Experiment.load("fedcac/main-pathological"), "full"))
    made = {config.method.name: steps_of(config) for config in runs}
    assert made.pop("fedrep") == 500 * 40 * (10 + 1) * 5  # epochs of its own
    assert set(made.values()) == {500 * 40 * 25}
