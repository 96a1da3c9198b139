"""Two stages and the choice between them."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray import tune

from fedbench.config import Config
from fedbench.config.tuning import Tuning
from fedbench.errors import ConfigError
from fedbench.jobs import job as job_module
from fedbench.jobs.job import Job, Outcome
from fedbench.jobs.run_names import changed_keys
from fedbench.methods.centralized import Centralized
from fedbench.results.files import write_json_atomically
from fedbench.results.plan import Entry, Plan
from fedbench.studies.compared_methods import ComparedMethod
from fedbench.studies.space import Space
from fedbench.studies.tuning_study import TuningStudy
from fedbench.tasks import load
from fedbench.user_code import name_of

POINTS = ({"train.lr": 0.01}, {"train.lr": 0.1}, {"train.lr": 1.0})


def study(tmp_path, scores: dict[float, list[float | None]], seeds=(90, 91), final_val=None) -> TuningStudy:
    """A study whose points have these validation scores on the tuning seeds."""
    entries = [
        Entry("candidate", "local", {"train.lr": lr}, seed, "x", "done" if score else "failed", None, {"val": score})
        for lr, own in scores.items()
        for seed, score in zip(seeds, own, strict=True)
    ]
    plan = Plan("compare", None, {}, entries)
    asked, local = Config(seeds=[0, 1], model="mlp"), ComparedMethod("local", "local", {}, POINTS)
    made = TuningStudy(plan, asked, [local], tmp_path, tmp_path, list(seeds), final_val=final_val)
    made.metric = load("classification").primary
    return made


class OnPooledData(Centralized):
    """A method of a user that trains one model on the data of all clients."""


def test_the_plan_notes_what_pools_the_data_whatever_its_label(tmp_path):
    own = name_of(OnPooledData)
    compared = [ComparedMethod.parse(text) for text in ("centralized:ft_epochs=1", own, "fedavg-ft", "local")]
    asked = Config(seeds=[0], model="mlp")
    study = TuningStudy(Plan("compare", None, {}, []), asked, compared, tmp_path, tmp_path, [90])
    study.begin([])
    assert Plan.read(tmp_path).references == study.references == ["centralized ft_epochs=1", own]


@pytest.mark.parametrize(
    ("scores", "chosen"),
    [
        ({0.01: [0.5, 0.5], 0.1: [0.9, 0.2], 1.0: [0.6, 0.6]}, 1.0),
        ({0.01: [0.5, 0.5], 0.1: [0.5, 0.5], 1.0: [0.4, 0.4]}, 0.01),  # the first of equals
        ({0.01: [0.5, 0.5], 0.1: [0.9, None], 1.0: [0.4, 0.4]}, 0.01),  # half a score is none
    ],
)
def test_the_best_mean_over_the_tuning_seeds_is_chosen(scores, chosen, tmp_path):
    made = study(tmp_path, scores)
    made.choose()
    assert made.plan.choices == {"local": {"train.lr": chosen}}


@pytest.mark.parametrize(("metric", "goes_on"), [("accuracy", [0.1, 1.0]), ("mse", [0.01, 0.1])])
def test_the_better_points_go_on_to_the_next_tuning_seed(metric, goes_on, tmp_path):
    made = study(tmp_path, {0.01: [0.3], 0.1: [0.5], 1.0: [0.9]}, seeds=(90,))
    made.tune_seeds = (90, 91, 92)
    made.metric = load("classification" if metric == "accuracy" else "regression").primary
    found = made.better_trials(made.compared[0], 1)
    assert sorted(job.values["train.lr"] for job in found) == goes_on
    assert {(job.seed, job.role) for job in found} == {(91, "candidate")}


def halving(tmp_path, count: int = 3, **more) -> TuningStudy:
    points = tuple({"train.lr": 10.0**-n} for n in range(count))
    plan, asked = (
        Plan("compare", None, {}, [], tune_rounds="halving"),
        Config(**({"seeds": [0], "model": "mlp"} | more)),
    )
    made = TuningStudy(plan, asked, [ComparedMethod("local", "local", {}, points)], tmp_path, tmp_path, [90])
    made.metric = load("classification").primary
    return made


@pytest.mark.parametrize(
    ("asked", "pause"),
    [
        ({"rounds": 30}, 15),
        ({"rounds": 31, "evaluate": {"every": 4}}, 16),
        ({"rounds": 30, "evaluate": {"every": 29}}, None),  # after which nothing is saved
        ({"rounds": 2}, None),
        ({"rounds": 30, "checkpoint": {"every": 0}}, None),
        ({"rounds": 30, "count": 2}, None),  # both would go on
    ],
)
def test_points_pause_after_half_of_the_rounds_where_that_saves_some(asked, pause, tmp_path):
    made = halving(tmp_path, **asked)
    assert {job.pause for job in made.candidates()} == {pause}
    made.plan.tune_rounds = "full"
    assert {job.pause for job in made.candidates()} == {None}


def test_the_better_half_goes_on_when_all_have_paused_and_what_was_saved_is_noted(tmp_path, monkeypatch):
    made, scores = halving(tmp_path, 4, rounds=9), {1.0: 0.3, 0.1: 0.5, 0.01: None, 0.001: 0.4}
    reached, ended = set[float](), dict[float, str]()
    rate = lambda job: job.values["train.lr"]  # noqa: E731
    monkeypatch.setattr(
        Job, "outcome", lambda job: Outcome(ended.get(rate(job), "stopped") if rate(job) in reached else "missing")
    )
    monkeypatch.setattr(job_module, "scores_of", lambda folder, point: {})
    monkeypatch.setattr(Job, "score_at_pause", lambda job: scores[rate(job)])
    made.begin(made.candidates())
    reached.update([1.0, 0.1, 0.01])
    assert made.further_trials() == []
    reached.add(0.001)
    ended[1.0] = "failed"
    found = made.further_trials()
    assert [(rate(job), job.pause) for job in found] == [(0.1, None), (0.001, None)]
    made.begin(found)
    assert made.further_trials() == [], "once"
    assert [rate(job) for job in made.jobs] == [1.0, 0.1, 0.01, 0.001]
    ended.update({0.1: "done", 0.001: "done"})
    made.write()
    assert made.plan.rounds_saved == (3, 36), "but for 5 of 9 rounds, and the one that was trained meanwhile"
    assert Plan.read(tmp_path).rounds_saved == (3, 36)


def test_every_method_goes_on_as_soon_as_its_own_trials_have_ended(tmp_path, monkeypatch):
    """Two methods, three rates and two seeds: the better two on the second seed, then the points beside the best."""
    space = Space({"train.lr": [0.01, 0.03, 0.1, 0.3]})
    asked = Config(seeds=[0], model="mlp", rounds=4)
    compared = [
        replace(ComparedMethod(name, name).tuned_over(space, asked, 3), points=POINTS_OF_SPACE)
        for name in ("local", "fedper")
    ]
    made = TuningStudy(Plan("compare", None, {}, []), asked, compared, tmp_path, tmp_path, [90, 91])
    made.metric = load("classification").primary
    scores, ended = {0.01: 0.1, 0.03: 0.2, 0.1: 0.3, 0.3: 0.9, 0.9: 0.5}, set[str]()

    def entry(job: Job, folder: Path) -> Entry:
        if job.name not in ended:
            return Entry(job.role, job.label, job.values, job.seed, "x", "missing", None, {})
        score = {"val": scores[job.values["train.lr"]]}
        return Entry(job.role, job.label, job.values, job.seed, "x", "done", None, score)

    monkeypatch.setattr(Job, "entry", entry)

    def further() -> list[tuple[str, float, int]]:
        jobs = made.further_trials()
        made.begin(jobs)
        return [(job.label, job.values["train.lr"], job.seed) for job in jobs]

    def end(label: str) -> None:
        ended.update(job.name for job in made.jobs if job.label == label)

    made.begin(made.candidates())
    assert further() == []
    end("fedper")
    assert further() == [("fedper", 0.1, 91), ("fedper", 0.03, 91)]
    assert further() == []
    end("local")
    end("fedper")
    beside = [("fedper", 0.3, 90), ("fedper", 0.3, 91)]
    assert further() == [("local", 0.1, 91), ("local", 0.03, 91), *beside]
    end("fedper")
    assert further() == [("fedper", 0.9, 90), ("fedper", 0.9, 91)], "beside the new best"
    end("fedper")
    assert further() == []
    end("local")
    assert further() == [("local", 0.3, 90), ("local", 0.3, 91)]
    assert made.plan.choices == {}, "until all have ended"
    made.choose()
    assert made.plan.choices == {"local": {"train.lr": 0.1}, "fedper": {"train.lr": 0.3}}
    made.recall()
    assert made.plan.choices == {}
    assert (made.jobs, made.points["fedper"]) == ((), [*POINTS_OF_SPACE]), (
        "a study that begins again knows no neighbours"
    )


POINTS_OF_SPACE = ({"train.lr": 0.01}, {"train.lr": 0.03}, {"train.lr": 0.1})


def test_only_points_tried_on_all_tuning_seeds_are_chosen(tmp_path):
    made = study(tmp_path, {0.01: [0.95], 0.1: [0.5], 1.0: [0.9]}, seeds=(90,))
    more = [Entry("candidate", "local", {"train.lr": lr}, 91, "x", "done", None, {"val": 0.4}) for lr in (0.1, 1.0)]
    made.plan.entries += more
    made.choose()
    assert made.plan.choices == {"local": {"train.lr": 1.0}}


def test_where_no_point_finished_nothing_is_chosen(tmp_path):
    made = study(tmp_path, {0.01: [None, None], 0.1: [None, 0.3], 1.0: [None, None]})
    made.choose()
    assert made.plan.choices == {}


def test_where_the_metric_is_nowhere_finite_that_is_said(tmp_path):
    made = study(tmp_path, {0.01: [None, None], 0.1: [None, None]})
    made.plan.entries = [replace(entry, status="done") for entry in made.plan.entries]
    with pytest.raises(ConfigError, match="accuracy on validation has no finite mean over clients in any trial"):
        made.choose()


def test_a_choice_at_an_end_of_the_space_is_noted_however_few_points_were_tried(tmp_path):
    made = study(tmp_path, {0.1: [0.1, 0.1], 1.0: [0.4, 0.4]})
    space = Space({"train.lr": [0.01, 0.03, 0.1, 1.0]})
    made.compared = [ComparedMethod("local", "local").tuned_over(space, Config(), 2)]
    made.points = {"local": list(POINTS[1:])}
    made.choose()
    assert made.plan.ends == {"local": ["train.lr"]}


def test_a_lower_error_is_better(tmp_path):
    made = study(tmp_path, {0.01: [0.5, 0.5], 0.1: [0.1, 0.3], 1.0: [0.4, 0.4]})
    made.metric = load("regression").primary
    made.choose()
    assert made.plan.choices == {"local": {"train.lr": 0.1}}


def test_points_are_tried_under_the_keys_of_a_trial_and_final_runs_have_their_own_seeds(tmp_path):
    made = study(tmp_path, {})
    made.compared = [ComparedMethod("local", "local", {"rounds": 9}, POINTS[:2], {"rounds": 3}, (4, 5))]
    tried = made.candidates()
    assert {job.config.rounds for job in tried} == {3}
    assert tried[0].values == POINTS[0], "what is chosen is the point alone"
    made.plan.choices = {"local": POINTS[1]}
    final = made.finals()
    assert [(job.config.rounds, job.config.train.lr, job.seed) for job in final] == [(9, 0.1, 4), (9, 0.1, 5)]


def test_tuning_seeds_are_none_of_the_final_ones(tmp_path):
    with pytest.raises(ConfigError, match="tune_seeds: 1 is also a final seed"):
        study(tmp_path, {}, seeds=(90, 1))


def test_final_runs_differ_from_what_was_tried_in_what_they_hold_out_alone(tmp_path):
    choice = {"train.lr": 0.1}
    found = {}
    for share in (None, 0.0):
        made = study(tmp_path, {}, final_val=share)
        made.plan.choices["local"] = choice
        found[share] = made.finals()
    assert [job.values for job in found[0.0]] == [choice] * 2
    for same, other in zip(found[None], found[0.0], strict=True):
        assert changed_keys(same.config, other.config) == ["data.val: 0.1 -> 0.0"]


def finished(job: Job, score: float) -> None:
    """As a run leaves its folder."""
    job.folder.mkdir(parents=True)
    (job.folder / "config.yaml").write_text(job.config.to_yaml())
    last = {"after_agg": {"last": {"val_accuracy": {"mean": score}}}}
    write_json_atomically(job.folder / "summary.json", {"complete": True, "metric": "accuracy", "points": last})


RATES = tune.loguniform(1e-3, 1.0)


def proposing(folder: Path, samples: int, rates: Any = RATES, seed: int = 90) -> TuningStudy:
    """A study whose first points are random and whose further ones are proposed."""
    space = Space({"train.lr": rates})
    own = ComparedMethod("local", "local").tuned_over(space, Config(), None, Tuning(search="optuna", samples=samples))
    plan = Plan("compare", None, Config(model="mlp").model_dump(mode="json"), [], search="optuna")
    made = TuningStudy(plan, Config(seeds=[0], model="mlp"), [own], folder / "study", folder, [seed])
    made.metric = load("classification").primary
    return made


def searched(made: TuningStudy) -> list[float]:
    """The rates that are tried, where 0.1 is best and every job is done at once."""
    made.begin(made.candidates())
    while fresh := made.propose():
        made.begin(fresh)
        [finished(job, 1 - abs(math.log10(job.config.train.lr) + 1) / 3) for job in fresh if not job.folder.exists()]
    return [point["train.lr"] for point in made.points["local"]]


def test_points_are_proposed_until_there_are_enough_and_taken_up_by_the_next_command(tmp_path):
    (tmp_path / "study").mkdir()
    first = proposing(tmp_path, 4)
    few = searched(first)
    assert len(few) == len(set(few)) == 4
    assert sum(job.role == "candidate" for job in first.jobs) == 4
    more = proposing(tmp_path, 6)
    more.recall()
    assert [point["train.lr"] for point in more.points["local"]] == few
    assert searched(more)[:4] == few
    fewer = proposing(tmp_path, 2)
    fewer.recall()
    assert [point["train.lr"] for point in fewer.points["local"]] == few[:2]


def test_points_of_another_space_or_by_other_seeds_are_not_taken_up(tmp_path):
    (tmp_path / "study").mkdir()
    rates = [0.001, 0.01, 0.1]
    assert len(searched(proposing(tmp_path, 3, rates))) == 3
    for others, seed, count in ((rates, 90, 3), (rates[:2], 90, 1), (rates, 91, 1)):
        again = proposing(tmp_path, 3, others, seed)
        assert again.points["local"] == [{"train.lr": 0.01}], "or nothing would be taken up anyway"
        again.recall()
        assert len(again.points["local"]) == count


def test_the_files_of_a_job_that_is_done_are_read_once(tmp_path, monkeypatch):
    (tmp_path / "study").mkdir()
    made = proposing(tmp_path, 2)
    made.begin(made.candidates())
    finished(made.jobs[0], 0.5)
    made.write()
    reads, entry = [], Job.entry
    monkeypatch.setattr(Job, "entry", lambda job, folder: reads.append(job) or entry(job, folder))
    made.begin(made.propose())
    made.write()
    assert reads == [made.jobs[1]] * 2
    assert [entry.status for entry in made.plan.entries] == ["done", "missing"]
    assert made.plan.entries[0].scores["val"] == 0.5


def test_what_is_stopped_is_never_chosen(tmp_path):
    made = study(tmp_path, {0.01: [0.3, 0.3], 0.1: [None, None], 1.0: [0.4, 0.4]})
    made.plan.entries[2] = replace(made.plan.entries[2], status="stopped", scores={})
    made.choose()
    assert made.plan.choices == {"local": {"train.lr": 1.0}}


def scored(made: TuningStudy, scores: dict[float, float], label: str = "local") -> None:
    """Gives the points of a study these validation scores by learning rate, and chooses."""
    made.plan.entries = [
        Entry("candidate", label, point, seed, "x", "done", None, {"val": scores[point["train.lr"]]})
        for point in made.points[label]
        for seed in made.tune_seeds
    ]
    made.choose()


def searched_rates(tmp_path, kind: str = "compare", subject: str | None = None) -> TuningStudy:
    """A study with two points of a space of four rates."""
    plan, asked = Plan(kind, subject, {}, []), Config(seeds=[0, 1], model="mlp")
    space = Space({"train.lr": [0.01, 0.03, 0.1, 0.3], "train.momentum": [0.0, 0.9]})
    local = replace(ComparedMethod("local", "local").tuned_over(space, asked, 2), points=NEAR)
    made = TuningStudy(plan, asked, [local], tmp_path, tmp_path, [90])
    made.metric = load("classification").primary
    return made


def neighbours(made: TuningStudy) -> list[Job]:
    return made.neighbour_trials(made.compared[0])


NEAR = tuple({"train.lr": lr, "train.momentum": momentum} for lr, momentum in ((0.03, 0.9), (0.1, 0.0), (0.3, 0.9)))


def test_both_neighbours_of_the_best_rate_are_tried_with_the_other_values_of_the_point(tmp_path):
    made = searched_rates(tmp_path)
    scored(made, {0.03: 0.5, 0.1: 0.8, 0.3: 0.6})
    assert (made.plan.ends, made.plan.untried) == ({"local": []}, {"local": ["train.lr"]})
    jobs = neighbours(made)
    assert [job.values for job in jobs] == [{"train.lr": lr, "train.momentum": 0.0} for lr in (0.03, 0.3)]
    assert made.plan.beside_best == {"local": 2}
    scored(made, {0.03: 0.5, 0.1: 0.8, 0.3: 0.6})
    assert not made.plan.open_keys("local")
    assert not neighbours(made)
    assert (len(made.plan.points("local")), made.plan.budget("local")) == (5, 3)


def test_a_rate_past_an_end_is_tried_and_open_while_it_is_the_best(tmp_path):
    made = searched_rates(tmp_path)
    scores = {0.03: 0.5, 0.1: 0.6, 0.3: 0.8, 0.9: 0.9, 2.7: 0.1, 0.01: 0.1}
    scored(made, scores)
    assert made.plan.ends == {"local": ["train.lr"]}
    assert [job.values["train.lr"] for job in neighbours(made)] == [0.1, 0.9]
    scored(made, scores)
    assert made.plan.choices["local"]["train.lr"] == 0.9
    assert made.plan.ends == {"local": ["train.lr"]}
    assert [job.values["train.lr"] for job in neighbours(made)] == [2.7]
    scored(made, scores)
    assert not made.plan.open_keys("local")


def test_a_grid_tries_no_values_of_its_subject_past_the_listed_ones(tmp_path):
    made = searched_rates(tmp_path, "grid", "local")
    scored(made, {0.03: 0.5, 0.1: 0.6, 0.3: 0.8})
    assert [job.values["train.lr"] for job in neighbours(made)] == [0.1]
    assert made.plan.open_keys("local") == ["train.lr"]
    made = searched_rates(tmp_path, "grid", "fedper")
    made.plan.choices["fedper"] = {}
    scored(made, {0.03: 0.5, 0.1: 0.6, 0.3: 0.8})
    assert [job.values["train.lr"] for job in neighbours(made)] == [0.1, 0.9]


def test_a_value_that_the_constraint_refuses_is_the_limit(tmp_path):
    made = searched_rates(tmp_path)
    (local,) = made.compared
    made.compared = [replace(local, space=replace(local.space, constraint=lambda cell: cell["train.lr"] < 0.5))]
    scored(made, {0.03: 0.5, 0.1: 0.6, 0.3: 0.8})
    assert [job.values["train.lr"] for job in neighbours(made)] == [0.1]
