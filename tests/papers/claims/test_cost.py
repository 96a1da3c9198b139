"""What rows cost, before they are run."""

import pytest

from fedbench.config import Config
from fedbench.studies.cost import Cost, steps_of
from fedbench_papers.claims.cost import new_runs, runs_of_row
from fedbench_papers.claims.rows import load_rows

ROWS = load_rows()


def first(row: str) -> Config:
    arm = ROWS[row].arms[0]
    return arm.config(Config(), arm.points[0])


@pytest.mark.parametrize(
    ("row", "images", "steps"),
    [
        ("F4", 60, 50 * 20 * 3 * 2),
        ("O1", 375, 60 * 5 * 2 * 12),  # 12 batches of 32 for 375 images
        ("C4", 20, 20 * 10 * 1 * 1 * 2),  # two phases
        ("M6", 100, 60 * 15 * 2 * 2),  # a batch of public images in the same step
        ("F8", 400, 5 * 8),
    ],
)
def test_steps(row, images, steps):
    assert Cost.of(first(row)).images == images
    assert steps_of(first(row)) == steps


def test_a_tuned_row_also_runs_its_points():
    runs = list(runs_of_row(ROWS["C5"]))
    assert len(runs) == 7 * (2 + 3)
    assert {config.rounds for config, seed in runs if seed == 90} == {10}


def test_shared_runs_count_once():
    known: set = set()
    counts = [len(new_runs(ROWS[name], known)) for name in ("O1", "O2", "O1", "X2")]
    assert counts == [35, 7 + 12 * 4, 0, 0]
