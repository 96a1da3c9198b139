"""The answer in one sentence, in the words that the numbers allow."""

import json
import re
from dataclasses import replace

import pytest

from fedbench.report.answer import compared_answer, subtitle
from fedbench.report.study import Study
from fedbench.report.theme import LIGHT
from fedbench.results.plan import Plan
from tests.report.reading import Make, page_of


def test_a_gain_whose_interval_excludes_zero_paid(make_grid: Make) -> None:
    answer = page_of(make_grid(gain=0.1, seeds=(0, 1, 2, 3, 4))).answer
    assert answer.startswith("fedcac with tau = 0.3, beta = 10 and train.lr = 0.01 won the grid with ")
    assert re.search(r"\d\.\d points above local training \(95 % interval \+\d+\.\d to \+\d+\.\d\)", answer)
    assert answer.endswith("collaboration helped.")


def test_a_search_is_no_grid(make_grid: Make) -> None:
    folder = make_grid(gain=0.1)
    replace(Plan.read(folder), search="random").write(folder)
    assert " won the search with " in page_of(folder).answer


def test_local_training_is_not_compared_with_itself(make_grid: Make) -> None:
    folder = make_grid(gain=0.1)
    study = Study.load(folder)
    study.plan.subject = "local"
    assert "local training" not in compared_answer(study).partition(" reached ")[2]
    assert compared_answer(study).endswith("after aggregation.")


def test_a_loss_did_not_pay(make_grid: Make) -> None:
    answer = page_of(make_grid(gain=-0.12, seeds=(0, 1, 2, 3, 4))).answer
    assert re.search(r"points below local training \(95 % interval −\d+\.\d to −\d+\.\d\)", answer)
    assert answer.endswith("collaboration did not help.")


def test_an_interval_that_includes_zero_is_undecided(make_grid: Make) -> None:
    answer = page_of(make_grid(gain=0.02, skew=0.05)).answer
    assert re.search(r"\(95 % interval −\d+\.\d to \+\d+\.\d\)", answer)
    assert "the interval includes 0, so with 3 seeds it is undecided whether collaboration helped." in answer


def test_one_seed_decides_nothing(make_grid: Make) -> None:
    assert "(one seed, so no interval): it is undecided" in page_of(make_grid(seeds=(0,))).answer


def test_two_seeds_decide_nothing(make_grid: Make) -> None:
    answer = page_of(make_grid(gain=0.1, seeds=(0, 1))).answer
    assert answer.endswith("): two seeds cannot decide whether collaboration helped.")


def test_a_grid_whose_cells_all_failed_says_so(make_grid: Make) -> None:
    page = page_of(make_grid(space={"method.tau": [0.1, 0.3], "method.beta": [5]}, fail=(0, 1)))
    assert page.answer == "No candidate finished: 2 of 2 failed, so there is no answer."
    assert "table" not in page.sections
    assert "RuntimeError: client 3: loss is nan" in page.text


def test_points_that_tie_on_validation_are_said(make_grid: Make) -> None:
    folder = make_grid(space={"method.tau": [0.1, 0.3]})
    plan = Plan.read(folder)
    tied = lambda e: e.role == "candidate" and e.label == "fedcac"  # noqa: E731
    plan.entries = [replace(e, scores={"val": 0.8}) if tied(e) else e for e in plan.entries]
    plan.choices["fedcac"] = {"method.tau": 0.1}
    plan.write(folder)
    line = "Chosen as the first of candidates with equal validation scores: fedcac (tau=0.1; also tau=0.3), "
    page = page_of(folder)
    assert line in page.text
    assert page.answer.startswith("fedcac with tau = 0.1 is the first of 2 candidates with the same validation ")
    assert "won the grid" not in page.text
    assert page.charts["grid-0"]["data"][0]["marker"]["color"] == [LIGHT["c1"]] * 2


def test_a_grid_without_final_runs_names_its_winner(make_grid: Make) -> None:
    page = page_of(make_grid(final=False))
    assert page.answer.endswith("won on validation (83.7 %); its final runs are not finished yet.")
    assert "grid" in page.sections


def test_a_grid_whose_final_runs_failed_says_so(make_grid: Make) -> None:
    folder = make_grid(final=False, space={"method.tau": [0.1, 0.3]})
    plan = Plan.read(folder)
    plan.entries = [replace(e, status="failed", error="boom") if e.role == "final" else e for e in plan.entries]
    plan.write(folder)
    assert page_of(folder).answer.endswith("; its final runs failed.")


def test_a_run_tells_both_points_with_intervals(make_run: Make) -> None:
    answer = page_of(make_run(level=0.84, fit_level=0.7)).answer
    number = r"\d\d\.\d % {} \(95 % interval \d\d\.\d % to \d\d\.\d %\)"
    pattern = f"fedcac reached {number.format('after aggregation')} and {number.format('after local training')}."
    assert re.fullmatch(pattern, answer)


def test_no_interval_promises_more_than_everything(make_run: Make) -> None:
    page = page_of(make_run(level=0.995, seeds=(0, 1)))
    low, high = map(
        float, re.findall(r"after aggregation \(95 % interval (\d+\.\d) % to (\d+\.\d) %\)", page.answer)[0]
    )
    assert 0 <= low < 98.1 < high <= 100
    assert not re.search(r"1\d\d\.[1-9]", page.answer)


def test_a_run_that_is_not_over_says_how_far_it_is(make_run: Make) -> None:
    page = page_of(make_run(done=4))
    assert page.answer.startswith("So far, after round 4 of 6, fedcac reached ")
    assert "this run is not complete" in page.text


@pytest.mark.parametrize("reuse", [False, True])
def test_clients_that_share_images_are_said_under_the_title(make_run: Make, reuse: bool) -> None:
    folder = make_run(seeds=(0,), partition_keys={"name": "shards", "images": 50, "reuse": reuse})
    said = "images 50, clients may share samples)" if reuse else "images 50)"
    assert said in subtitle(Study.load(folder))


def test_records_of_older_versions_name_their_partition_without_its_keys(make_run: Make) -> None:
    folder = make_run(seeds=(0,), partition_keys={"name": "shards", "clients": 12})
    assert "12 clients, shards (classes 2);" in subtitle(Study.load(folder))
    path = folder / "environment.json"
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "partition_headline"}))
    assert "12 clients, shards;" in subtitle(Study.load(folder))
