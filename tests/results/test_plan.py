"""plan.json: written, read back, and asked."""

import json
from dataclasses import replace

import pytest

from fedbench.errors import ConfigError
from fedbench.results.plan import Entry, Plan, is_study, key_name, point_name, studies_in, study_name


def plan() -> Plan:
    return Plan(
        "grid",
        "fedcac",
        {"method": {"name": "fedcac"}},
        [
            Entry("candidate", "fedcac", {"method.tau": 0.3, "train.lr": 0.1}, 0, "a", "done", None, {"val": 0.5}),
            Entry("candidate", "local", {"train.lr": 0.1}, 0, "b", "failed", "the loss became nan"),
            Entry("final", "local", {}, 0, "c", "done"),
            Entry("final", "fedcac", {}, 0, "d"),
            Entry("final", "fedcac", {}, 1, "e"),
        ],
        {"fedcac": {"method.tau": [0.3]}},
        {"fedcac": {"method.tau": 0.3}},
    )


def test_it_is_read_back_as_it_was_written(tmp_path):
    assert not is_study(tmp_path)
    plan().write(tmp_path)
    assert is_study(tmp_path)
    assert Plan.read(tmp_path) == plan()


@pytest.mark.parametrize("noted", [[], ["b"]])
def test_what_pools_the_data_is_noted_or_said_by_its_run(tmp_path, noted):
    for name, pooled in (("a", True), ("b", False)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.jsonl").touch()
        (tmp_path / name / "config.yaml").write_text("rounds: 1\n")
        (tmp_path / name / "environment.json").write_text(json.dumps({"pooled": pooled}))
    entries = [Entry("final", name, {}, 0, name, "done") for name in ("a", "b")]
    Plan("compare", None, {}, entries, references=noted).write(tmp_path)
    assert Plan.read(tmp_path).references == (noted or ["a"])
    assert [Plan.read(tmp_path / name).references for name in ("a", "b")] == [["a"], []]


def test_points_that_were_as_good_as_the_chosen_one():
    tried = {0.1: 0.5, 0.3: 0.75, 0.5: 0.75, 0.7: None}
    entries = [
        Entry("candidate", "fedcac", {"method.tau": tau}, seed, "a", "done", None, {"val": score})
        for tau, score in tried.items()
        for seed in (90, 91)
    ]
    found = Plan("grid", "fedcac", {}, entries, choices={"fedcac": {"method.tau": 0.3}})
    assert found.as_good("fedcac") == ["tau=0.5"]
    found.choices["fedcac"] = {"method.tau": 0.1}
    assert found.as_good("fedcac") == found.as_good("local") == []


def test_points_that_were_left_behind_are_no_finalists():
    entries = [
        Entry("candidate", "local", {"train.lr": lr}, seed, "a", "done", None, {"val": 0.5})
        for lr, seed in ((0.1, 90), (0.2, 90), (0.2, 91))
    ]
    found = Plan("compare", None, {}, entries, spaces={"local": {"train.lr": [0.1, 0.2]}})
    assert [entry.values["train.lr"] for entry in found.points("local")] == [0.1, 0.2]
    assert [entry.values["train.lr"] for entry in found.finalists("local")] == [0.2]
    assert found.drops_points_early
    found.entries = entries[:2]
    assert not found.drops_points_early
    assert len(found.finalists("local")) == 2


def test_what_it_does_not_know_it_leaves_aside(tmp_path):
    plan().write(tmp_path)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"split": "val", "crc32": {}}))  # as in plans of before
    assert Plan.read(tmp_path) == plan()


def test_what_it_answers():
    asked = plan()
    assert asked.labels() == ["fedcac", "local"]
    assert [entry.path for entry in asked.final("fedcac")] == ["d", "e"]
    assert [entry.name for entry in asked.points()] == ["tau=0.3,lr=0.1"]
    assert [entry.path for entry in asked.failed()] == ["b"]


def test_a_single_runs_folder_is_a_study_of_one(folder):
    found = Plan.read(folder)
    assert (found.kind, found.labels(), [entry.seed for entry in found.entries]) == ("run", ["fedcac"], [0])


def test_a_folder_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match="no such folder"):
        Plan.read(tmp_path / "nowhere")


def test_jobs_that_never_began_leave_no_records(tmp_path):
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "metrics.jsonl").write_text(json.dumps({"seed": 0}) + "\n")
    assert list(plan().records(tmp_path)) == ["local"]


def test_what_failed_midway_leaves_no_records(tmp_path):
    for name in "de":
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.jsonl").write_text(json.dumps({"seed": 0}) + "\n")
    asked = plan()
    asked.entries[-1] = replace(asked.entries[-1], status="failed", error="boom")
    assert [path.name for path in asked.records(tmp_path)["fedcac"].folders] == ["d"]


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({}, "default"),
        ({"train.lr": 1e-3, "a.b": None, "c": "x"}, "lr=0.001,b=none,c=x"),
        ({"model": {"name": "mlp", "hidden": 5}, "data": {"name": "digits"}}, "model=(name=mlp,hidden=5),data=digits"),
    ],
)
def test_names_of_points(values, name):
    assert point_name(values) == name


def test_a_point_is_the_mean_over_its_tuning_seeds():
    tried = [
        Entry("candidate", "local", {"train.lr": lr}, seed, "x", "done", None, {"val": score, "test": None})
        for lr, seed, score in ((0.1, 90, 0.25), (0.1, 91, 0.75), (0.3, 90, 0.5))
    ]
    tried.append(Entry("candidate", "local", {"train.lr": 0.3}, 91, "y", "failed", "the loss became nan"))
    found = Plan("compare", None, {}, tried).points("local")
    assert [(entry.name, entry.scores) for entry in found] == [("lr=0.1", {"val": 0.5, "test": None}), ("lr=0.3", {})]
    assert (found[1].status, found[1].error) == ("failed", "the loss became nan")


def test_budgets_are_numbers_of_points():
    tried = [Entry("candidate", label, {"x": i}, 0, "x") for label, n in (("a", 2), ("b", 3)) for i in range(n)]
    asked = Plan("compare", None, {}, tried)
    assert [asked.budget(label) for label in "abc"] == [2, 3, 1]
    assert not asked.even("a", "b")
    assert asked.even("a")


def test_a_part_of_a_study_is_called_after_it(tmp_path):
    assert study_name(tmp_path / "grid" / "mine") == "mine"
    assert study_name(tmp_path / "mine" / "settings" / "alpha=0.1") == "mine/alpha=0.1"


def test_a_folder_above_studies_holds_them_all(tmp_path):
    for name in ("a", "b/settings/x"):
        (tmp_path / name).mkdir(parents=True)
        Plan("compare", None, {}, []).write(tmp_path / name)
    assert studies_in(tmp_path) == [tmp_path / "a", tmp_path / "b/settings/x"]
    assert studies_in(tmp_path / "a") == [tmp_path / "a"]
    with pytest.raises(ConfigError, match="no study or run here"):
        studies_in(tmp_path / "nothing")


def test_invalid_points_are_named_a_few_of_each_method():
    points = [["fedcac", f"tau={number}", "too large"] for number in range(2, 9)]
    made = Plan("compare", None, {}, [], refused=[*points, ["local", "lr=-1", "must be > 0"]])
    assert made.left_out() == [
        *(f"fedcac tau={number}: too large" for number in range(2, 7)),
        "fedcac: 2 more invalid candidates",
        "local lr=-1: must be > 0",
    ]
    assert Plan("compare", None, {}, []).left_out() == []


def test_trials_that_needed_more_of_a_gpu_are_told_in_a_sentence(tmp_path):
    made = plan()
    assert made.gpu_notes() == []
    made.gpus, made.gpu_full = "4 trials share a GPU", {"fedper lr=0.1 seed 90": [0.25, 0.5, 1.0]}
    made.write(tmp_path)
    kept = Plan.read(tmp_path)
    assert kept.gpus == made.gpus
    assert kept.gpu_notes() == [
        "1 trial ran out of GPU memory and went on with a larger share of a GPU: fedper lr=0.1 seed 90 (0.25, then "
        "0.5, then 1)."
    ]
    kept.gpu_full = {f"trial {number}": [1 / 3, 2 / 3] for number in range(7)}
    (line,) = kept.gpu_notes()
    assert line.startswith("7 trials ran out of GPU memory")
    assert line.endswith("trial 4 (0.333, then 0.667) and 2 more.")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"entries": 5}, "entries: "),
        ({"entries": [{"role": "final"}]}, "entries.0.label: "),
        ({"spaces": {"a": 3}}, "spaces.a: "),
        ({"choices": []}, "choices: "),
        ({"crc32": {}, "ends": {"fedcac": ["train.lr"]}}, "choices: that of fedcac lacks train.lr"),
        ({"crc32": {}, "config": {"seeds": 3}}, "config.seeds: "),
        ({"crc32": {}, "point": "nowhere"}, "point: nowhere; one of after_fit, after_agg, global is legal"),
        ({"crc32": {}, "subject": "nobody"}, "subject: no entry has the label nobody"),
        ({"crc32": {}, "refused": [["fedcac"]]}, "refused: a label, a point and a reason are expected"),
        ({"crc32": {}, "stopping_rule": {"margin": 1}}, "stopping_rule: margin and most are expected"),
        ({"point": "after_fit"}, "changed since it was written"),
    ],
)
def test_a_plan_of_another_shape_is_one_line(tmp_path, damage, said):
    plan().write(tmp_path)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | damage))
    with pytest.raises(ConfigError) as error:
        Plan.read(tmp_path)
    assert str(error.value).startswith(f"{path}: damaged ({said}")
    assert "\n" not in str(error.value)


def test_a_plan_that_is_nested_deep_is_one_line(tmp_path):
    plan().write(tmp_path)
    path, deep = tmp_path / "plan.json", '{"a": ' * 3000 + "1" + "}" * 3000
    path.write_text(path.read_text().replace('"config": {', f'"config": {{"deep": {deep}, ', 1))
    with pytest.raises(ConfigError, match=f"{path}: damaged .*bring the file back, or move it away and repeat"):
        Plan.read(tmp_path)


def test_a_section_s_name_stands_for_the_section():
    assert point_name({"aggregator.name": "median", "attack.share": 0.1}) == "aggregator=median,attack.share=0.1"
    assert (key_name("partition.alpha"), key_name("data.name"), key_name("data")) == ("alpha", "data", "data")
    assert (key_name("attack.share"), key_name("method.share")) == ("attack.share", "share")
