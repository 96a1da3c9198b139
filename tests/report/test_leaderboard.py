"""The order of a comparison's methods, and the verdicts on each."""

from pathlib import Path

import pytest

from fedbench.report.leaderboard import first_reaching, leaderboard, run_cost, sequential_order
from fedbench.report.study import Study
from fedbench.results.logged import CumulativeCosts, rows_by_round
from fedbench.studies.run import run
from tests.runtime.rounds import small

LEVELS = {"local": 0.7, "fedper": 0.8, "fedcac": 0.85, "centralized": 0.95}


@pytest.fixture
def study(make_comparison) -> Study:
    return Study.load(make_comparison(LEVELS, spread=0.0))


def test_the_best_comes_first_and_what_pools_the_data_last(study):
    rows = leaderboard(study)
    assert [row.label for row in rows] == ["fedcac", "fedper", "local", "centralized"]
    assert rows[0].behind is None
    assert rows[2].over_local is None
    assert rows[3].behind is None
    assert rows[1].over_local.interval.mean == pytest.approx(0.1, abs=0.02)
    assert rows[0].chosen == "lr=0.01"
    assert [row.rank for row in rows] == [1, 2, 3, None], "references do not compete"


def test_when_the_level_of_local_is_reached(study):
    number, sent = first_reaching(study, "fedcac", study.final_score("local"))
    assert 1 <= number < 6
    assert sent == pytest.approx(number * sent / number)
    assert first_reaching(study, "local", 0.99) is None
    rows = {row.label: row for row in leaderboard(study)}
    assert rows["fedcac"].reached[0] == number


@pytest.mark.parametrize("alone", [0.6, 0.9])
def test_a_pair_has_one_p_wherever_it_is_shown(make_comparison, alone):
    """The best and local are in both families; whether local is the best or another one."""
    levels = {"local": alone, "fedper": 0.8, "fedcac": 0.79, "ditto": 0.78, "centralized": 0.95}
    rows = {row.label: row for row in leaderboard(Study.load(make_comparison(levels)))}
    best, *others = [label for label in rows if label != "centralized"]
    assert (best == "local") == (alone == 0.9)
    pairs = [(rows[label].over_local, rows[label].behind) for label in others] if best == "local" else []
    pairs += [] if best == "local" else [(rows[best].over_local, rows["local"].behind)]
    assert pairs
    for over, behind in pairs:
        assert over.p == pytest.approx(behind.p)
        assert over.p_adjusted == behind.p_adjusted >= over.p
        assert over.sign == -behind.sign or best != "local"


def test_methods_are_ordered_by_their_paired_difference(sequential):
    study = sequential()
    assert sequential_order(study, study.sequential_test) == ["fedcac", "fedper", "local", "centralized"]


def costs_of(folder: Path, label: str) -> list[float]:
    """Bytes and steps of a client in a whole run, as each place that shows them does."""
    study, spent = Study.load(folder), CumulativeCosts()
    for number, lines in rows_by_round(study.runs[label].metrics().to_dict("records")).items():
        spent.note(number, lines)
    *_, so_far = study.costs[label][["sent", "steps"]].to_numpy().tolist()
    return [
        *(run_cost(study, label, "bytes_up", "bytes_down"), run_cost(study, label, "steps")),
        *so_far,
        *(total / 5 for total in spent.until(10).values()),
    ]


SOME_ROUNDS_COST_MORE = {
    "lg-fedavg": {"method__pretrain_rounds": 4},
    "fedct": {"method__communication_period": 5, "method__first_vote": 5},
    "fedavg": {"participation": 0.4, "dropout": 0.3, "stragglers": {"share": 0.5}},
}


@pytest.mark.parametrize("method", SOME_ROUNDS_COST_MORE)
def test_what_a_run_costs_does_not_depend_on_the_rounds_that_are_evaluated(method, tmp_path):
    found = []
    for every in (1, 3, 5):
        more = {"evaluate__every": every, "out": tmp_path / str(every), **SOME_ROUNDS_COST_MORE[method]}
        asked = small(method, rounds=10, partition__clients=5, **more)
        found.append(costs_of(run(asked, report=False).folder, method))
    lines = Study.load(tmp_path / "1").runs[method].metrics().query("point == 'after_fit'")
    true = [lines[["bytes_up", "bytes_down"]].sum().sum() / 5, lines["steps"].sum() / 5]
    assert found == [pytest.approx(3 * true, rel=1e-12)] * 3
    assert lines["bytes_up"].nunique() > 1, "not all rounds cost the same"
