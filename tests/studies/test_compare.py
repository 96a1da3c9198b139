"""Many methods under one protocol: what is made once is taken, and everybody has the same chance."""

from pathlib import Path

import numpy as np
import pytest
from ray import tune

from fedbench.config import Config
from fedbench.config.tuning import ComparisonTuning
from fedbench.errors import ConfigError
from fedbench.results.plan import Plan
from fedbench.results.reader import Records
from fedbench.studies.compare import ComparisonSpec, compare, plan_comparisons
from fedbench.studies.compared_methods import BASELINES, ComparedMethod
from fedbench.studies.outlook import cost, outlook
from fedbench.studies.run import run
from fedbench.studies.run_studies import run_studies
from fedbench.studies.space import Space
from fedbench.studies.tuning_study import TuningStudy
from tests.runtime.rounds import small

pytestmark = pytest.mark.xdist_group("compare")


METHODS = ["fedprox:mu=0.5"]
LABELS = ["fedprox mu=0.5", *BASELINES]
OVER = {"participation": [0.5, 1]}
SETTINGS = ["participation=0.5", "participation=1"]


def asked(folder: Path, **more) -> Config:
    return small("fedavg", train={"epochs": 1}, rounds=2, out=str(folder), **{"seeds": [3], **more})


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A finished comparison in two settings."""
    out = tmp_path_factory.mktemp("compare") / "out"
    compare(asked(out), METHODS, over=OVER, tune=2, tune_seeds=[90], trials=1)
    return out


def plan(folder: Path, setting: str) -> Plan:
    return Plan.read(folder / "settings" / setting)


@pytest.mark.parametrize("setting", SETTINGS)
def test_everybody_has_as_many_points_and_the_same_seeds(folder, setting):
    found = plan(folder, setting)
    assert found.labels() == LABELS
    assert [found.budget(label) for label in LABELS] == [2] * 4
    assert {entry.seed for entry in found.entries if entry.role == "candidate"} == {90}
    assert [[entry.seed for entry in found.final(label)] for label in LABELS] == [[3]] * 4
    assert {entry.status for entry in found.entries} == {"done"}


def test_a_setting_is_asked_of_everybody_and_the_variant_is_what_was_asked(folder):
    for setting, share in zip(SETTINGS, OVER["participation"], strict=True):
        records = plan(folder, setting).records(folder / "settings" / setting)
        prints = [[Records(f).environment()["partition_fingerprint"] for f in run.folders] for run in records.values()]
        assert all(found == prints[0] for found in prints)
        assert {run.config()["participation"] for run in records.values()} == {share}
        assert records["fedprox mu=0.5"].config()["method"]["mu"] == 0.5


def test_its_files_are_there(folder):
    for place in (folder, *(folder / "settings" / setting for setting in SETTINGS)):
        assert (place / "report.html").stat().st_size > 10_000
        assert "\\bottomrule" in (place / "table.tex").read_text()
        assert (place / "table.md").read_text().startswith("| method |")
    assert len(compare(asked(folder), METHODS, over=OVER, tune=2, tune_seeds=[90], trials=1).table) == 2 * len(LABELS)


def test_another_seed_and_another_method_in_one_setting_add_only_what_is_missing(folder):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("summary.json")}
    found = ComparisonSpec(
        [*map(ComparedMethod.parse, METHODS), ComparedMethod.parse("ditto")],
        ComparisonTuning(tune=2, tune_seeds=[90]),
        folder.absolute(),
    )
    study = found.study(asked(folder, seeds=[3, 4], participation=1), folder / "more")
    run_studies([study], trials=1)
    after = {path: path.stat().st_mtime_ns for path in folder.rglob("summary.json")}
    assert before.items() <= after.items()
    neighbours = study.plan.beside_best["ditto"]
    assert neighbours in (1, 2, 3, 4)  # both sides of the best rate, twice at most
    # A seed of each, and the new one's two points and two seeds.
    assert len(after) - len(before) == 4 + 2 + 2 + neighbours


MADE = list[int]()


def counted() -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """Data of a user that take long to make."""
    MADE.append(1)
    labels = np.arange(300) % 3
    samples = np.random.default_rng(0).normal(size=(300, 4)).astype("float32") + labels[:, None]
    return (samples[:240], labels[:240]), (samples[240:], labels[240:])


def test_data_of_a_factory_are_made_once_for_estimates_and_once_for_all_runs(tmp_path):
    MADE.clear()
    config = small(data=f"{__name__}:counted", seeds=[0, 1], rounds=1, out=tmp_path / "out")
    compare(config, ["fedper"], tune=2, tune_seeds=[90, 91], trials=1)
    assert len(Plan.read(tmp_path / "out").entries) >= 20
    assert len(MADE) == 2


def test_without_tuning_everybody_has_one_point_and_needs_no_validation(tmp_path):
    study = ComparisonSpec([ComparedMethod.parse("fedper")], ComparisonTuning(tune=0), tmp_path).study(
        asked(tmp_path, data={"name": "digits", "val": 0}), tmp_path
    )
    assert [method.points for method in study.compared] == [({},)] * 4
    assert study.candidates() == []


@pytest.mark.parametrize(
    ("over", "line"),
    [
        ({"method": ["ditto", "fedper"]}, "over: method: settings are"),
        ({"method.mu": [1, 2]}, "over: method.mu: exactly one .* must have this option, or all .*; here none has it"),
        ({"seeds": [1, 2]}, "over: seeds: settings are"),
        ({"lr": [1, 2]}, "over: lr: names no section; write train.lr"),
        ({"alpha": [1, 2]}, "over: alpha: names no section; write partition.alpha or public.alpha"),
        ({"train.lr": tune.uniform(0.1, 0.2)}, r"over: train.lr = Uniform\(0.1, 0.2\): settings are listed, not drawn"),
        ({"rounds": [3]}, "over: rounds = .3.: must be two or more different values"),
        ({"rounds": [3, 3]}, "over: rounds = .3, 3.: must be two or more different values"),
        ({"train": [{"lr": 0.1}, {"lr": 0.1, "shuffle": True}]}, "over: .* and .* run the same, and would count twice"),
        ({"train.shuffle": [True, 1]}, "over: shuffle=True and shuffle=1 run the same, and would count twice"),
        ({"partition.alpha": [0.1, -1]}, "over: partition.alpha = -1"),
        ({"data": ["digits", "parquet:/nowhere"]}, "/nowhere"),
    ],
)
def test_what_makes_no_settings_is_refused_before_anything_runs(tmp_path, over, line):
    with pytest.raises(ConfigError, match=line):
        compare(asked(tmp_path / "out"), ["fedper"], over=over, tune=2, trials=1)
    assert not (tmp_path / "out").exists()


def test_an_option_varies_at_the_one_method_that_has_it_or_at_all():
    def fixed(names, over):
        studies, _, _ = plan_comparisons(Config(seeds=[0]), names, ComparisonTuning(tune=0), over)
        return [{c.label: c.fixed for c in study.compared if c.label not in BASELINES and c.fixed} for study in studies]

    assert fixed(["fedcac", "fedper"], {"method.tau": [0.1, 0.5]}) == [
        {"fedcac": {"method.tau": 0.1}},
        {"fedcac": {"method.tau": 0.5}},
    ]
    both = ["fedcac", "ditto:lam=0.1"]
    assert fixed(both, {"method.weighting": ["samples", "uniform"]})[1] == {
        "fedcac": {"method.weighting": "uniform"},
        "ditto lam=0.1": {"method.lam": 0.1, "method.weighting": "uniform"},
    }
    for names, line in (
        (["ditto", "fedcp", "fedper"], "over: method.lam: exactly one .* here ditto, fedcp have it"),
        (both, "over: method.lam: ditto lam=0.1 sets method.lam too"),
    ):
        with pytest.raises(ConfigError, match=line):
            fixed(names, {"method.lam": [1, 2]})


@pytest.mark.parametrize(
    ("names", "over", "line"),
    [
        (["fedper:train.lr=0.1"], {"train.lr": [0.1, 0.2]}, "over: train.lr: fedper lr=0.1 sets train.lr too"),
        (
            ["fedper:train.lr=0.1"],
            {"train": [{"lr": 0.1}, {"lr": 0.2}]},
            "over: train: fedper lr=0.1 sets train.lr too",
        ),
        (
            ["fedavg:aggregator.name=median"],
            {"aggregator": ["mean", "krum"]},
            "over: aggregator: fedavg aggregator=median sets aggregator.name too",
        ),
        (
            ["fedper"],
            {"model": ["mlp", "resnet8"], "model.name": ["avgcnn", "mlp"]},
            "over: model and model.name: both set model.name",
        ),
        (
            ["co-pfl"],
            {"method.p": [0.1, 0.2], "method.personalization_rate": [0.1, 0.3]},
            "over: method.p and method.personalization_rate: both set method.personalization_rate",
        ),
    ],
)
def test_a_key_is_set_once(names, over, line):
    with pytest.raises(ConfigError, match=line):
        plan_comparisons(Config(seeds=[0]), names, ComparisonTuning(tune=0), over)


def test_the_keys_of_a_dict_are_set_and_others_stay():
    config = Config(seeds=[0], data={"name": "digits", "val": 0.3}, aggregator={"name": "trimmed-mean", "share": 0.2})
    over = {"data": [{"name": "digits", "mean": [0.5]}, "digits"], "aggregator": ["trimmed-mean", {"name": "krum"}]}
    studies, _, _ = plan_comparisons(config, ["fedavg"], ComparisonTuning(tune=0), over)
    assert {study.config.data.val for study in studies} == {0.3}
    assert [study.config.data.mean for study in studies] == [[0.5], [0.5], [], []]
    found = [study.config.aggregator for study in studies[:2]]
    assert [(one.name, one.options) for one in found] == [("trimmed-mean", {"share": 0.2}), ("krum", {})]


def test_sections_vary_by_name():
    studies, _, _ = plan_comparisons(
        Config(seeds=[0]), ["fedper"], ComparisonTuning(tune=0), {"compression": ["none", "topk"]}
    )
    assert [study.config.compression.name for study in studies] == ["none", "topk"]


def test_a_folder_with_other_results_is_not_taken(tmp_path):
    one = small("fedper", rounds=1, out=str(tmp_path / "out"))
    run(one)
    for over, command in ((None, "compare"), (OVER, "compare --over")):
        with pytest.raises(ConfigError, match=f"out = .*out: holds results of fedbench run, not of {command}; give an"):
            compare(one, ["fedper"], over=over, tune=0, trials=1)
    assert not (tmp_path / "out" / "plan.json").exists()


def test_a_run_does_not_go_into_the_folder_of_a_comparison(folder):
    for place, command in ((folder, "compare --over"), (folder / "settings" / SETTINGS[0], "compare")):
        with pytest.raises(ConfigError, match=f"holds results of fedbench {command}, not of run; give another --out"):
            run(asked(place))
        assert not (place / "config.yaml").exists()


def test_what_was_set_after_construction_is_compared():
    config = Config(seeds=[0])
    config.train.lr = 0.3
    for over in (None, OVER):
        studies, _, _ = plan_comparisons(config, ["fedper"], ComparisonTuning(tune=0), over)
        assert {c.config(study.config).train.lr for study in studies for c in study.compared} == {0.3}


def test_without_tuning_a_space_is_refused():
    with pytest.raises(ConfigError, match="space = paper: without effect with tune = 0"):
        plan_comparisons(Config(), ["fedper"], ComparisonTuning(tune=0), space="paper")


def planned(names: list[str], space: str | None = None, **more) -> TuningStudy:
    """The study of a comparison that is not run."""
    (study,), _, _ = plan_comparisons(Config(), names, ComparisonTuning(**more), space=space)
    return study


def test_budgets_in_steps_give_fewer_points_to_longer_runs():
    study = planned(["ditto", "fedavg"], tune=6, budget_steps=True)
    assert {label: len(points) for label, points in study.points.items()} == {
        **dict.fromkeys(["fedavg", *BASELINES], 6),
        "ditto": 3,
    }
    assert study.plan.budgets["ditto"] == 3
    assert planned(["pfedme", "fedrep"], tune=10, budget_steps=True).plan.budgets == {
        **dict.fromkeys(BASELINES, 10),
        "pfedme": 2,  # five steps for one
        "fedrep": 5,  # 11 epochs for five
    }
    assert len(planned(["ditto"], tune=1, budget_steps=True).points["ditto"]) == 1
    assert not planned(["co-pfl"], tune=6).plan.budgets


def test_options_hold_for_the_method_that_is_named_with_them():
    for options in ({"weighting": "uniform"}, {"buffers": "private"}):
        with pytest.raises(ConfigError, match=r"for which method\? write NAME:(weighting=uniform|buffers=private) in "):
            plan_comparisons(Config(method=options), ["fedper", "fedavg"], ComparisonTuning())
    asked = Config(method={"name": "fedprox", "mu": 0.5})
    (study,), _, _ = plan_comparisons(asked, ["fedprox", "fedper", "fedprox:mu=0.7"], ComparisonTuning(tune=2))
    given = [method.config(study.config).method.options for method in study.compared[:3]]
    assert given == [{"mu": 0.5}, {}, {"mu": 0.7}]
    assert "method.mu" not in study.points["fedprox"][0]


def test_an_option_that_is_set_is_not_tuned_even_at_its_default():
    (study,), _, _ = plan_comparisons(
        Config(method={"name": "fedprox", "mu": 0.01}), ["fedprox"], ComparisonTuning(tune=2)
    )
    assert set(study.points["fedprox"][0]) == set(Space.of("fedprox").axes) - {"method.mu"}


OWN, DERIVED = "tests.studies.test_cost:Twice", "tests.runtime.accidents:Clumsy"


def test_a_class_of_ones_own_is_tuned_over_the_space_of_what_it_derives_from():
    study = planned([OWN, DERIVED, "fedper"])
    for label, lender in ((OWN, "fedavg"), (DERIVED, "fedper")):
        assert set(study.points[label][0]) == set(Space.of(lender).axes)
    assert len({len(points) for points in study.points.values()}) == 1
    said = [line for line in outlook([study]) if line.endswith("the space of its base method fedper")]
    assert [line.partition(": ")[0] for line in said] == [DERIVED]


@pytest.mark.parametrize(("final", "free"), [([90], "91 92 93"), ([89, 90, 91, 92], "93 94 95")])
def test_other_tuning_seeds_are_named_where_a_default_one_is_a_final_one(final, free):
    with pytest.raises(ConfigError, match=f"for example --tune-seeds {free}$"):
        plan_comparisons(Config(seeds=final), ["fedper"], ComparisonTuning(tune=2))


def test_validation_is_needed_unless_nothing_is_tuned():
    with pytest.raises(ConfigError, match=r"a comparison chooses .* or try no candidates with --tune 0$"):
        plan_comparisons(Config(data={"val": 0}), ["fedper"], ComparisonTuning(tune=2))


def test_the_papers_grid_is_taken_where_there_is_one():
    study = planned(["perfed-ckt", "co-pfl"], space="paper", tune=40)
    assert len(study.points["co-pfl"]) == 36
    assert study.points["perfed-ckt"] == planned(["perfed-ckt"], tune=40).points["perfed-ckt"]
    with pytest.raises(ConfigError, match="space = mine: must be paper"):
        planned(["co-pfl"], space="mine")


def test_every_method_is_searched_alike():
    study = planned(["fedper"], search="random", samples=5)
    assert {len(points) for points in study.points.values()} == {5}
    assert study.plan.search == "random"


def test_what_will_be_run_is_known_before():
    study = planned(["fedper"], search="random", samples=5, tune_seeds=[90, 91])
    (line,) = cost([study], trials=1)
    assert line.startswith(f"{4 * (5 + 3 + 10)} runs, ")


def test_too_few_seeds_are_said_before_anything_is_tried(caplog):
    with pytest.raises(ConfigError, match="module nowhere cannot be imported"):
        compare(Config(model="nowhere:Net", seeds=[0, 1, 2]), ["fedper"], tune=0)
    (line,) = caplog.messages
    assert line.startswith(
        "note: 3 seeds can tell two methods apart only if they differ by 2.5 times the standard deviation"
    )
    caplog.clear()
    with pytest.raises(ConfigError):
        compare(Config(model="nowhere:Net", seeds=list(range(10))), ["fedper"], tune=0)
    assert not caplog.messages


def test_seeds_are_added_until_it_is_decided_and_the_same_command_goes_on(tmp_path):
    given = dict(tune=0, until_decided=True, trials=1)
    config = {**asked(tmp_path).model_dump(exclude_unset=True)}
    config.pop("seeds")
    compare(config, METHODS, **given, margin=10_000, max_seeds=8)
    first = Plan.read(tmp_path)
    assert {label: len(first.final(label)) for label in LABELS} == dict.fromkeys(LABELS, 5)
    compare(config, METHODS, **given, margin=0, max_seeds=8)
    then = Plan.read(tmp_path)
    assert then.stopping_rule == {"margin": 0.0, "most": 8}
    counts = {label: len(then.final(label)) for label in LABELS}
    assert set(counts.values()) == {5, 8}
    assert counts["centralized"] == 5
    assert {entry.status for entry in then.entries} == {"done"}


def test_arguments_in_the_wrong_order_are_said():
    for first in ("fedper", ["fedper"]):
        with pytest.raises(ConfigError, match=r"the configuration comes first, then the methods: compare\(config, "):
            compare(first, Config())
