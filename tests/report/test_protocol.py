"""The protocol in words is that of the study's configuration."""

from dataclasses import replace

from fedbench.report.protocol import in_lines, protocol
from fedbench.results.plan import Plan
from tests.report.conftest import write_comparison, write_grid, write_run
from tests.report.test_settings_tables import LEVELS, write_matrix


def test_a_run_says_data_clients_training_seeds_and_intervals(tmp_path):
    keys = {"alpha": 0.1}
    train = {"optimizer": "sgd", "lr": 0.05, "momentum": 0.5, "steps": 7, "batch_size": 20, "clip_norm": 2.0}
    model = {"name": "mlp", "hidden": [64, 32]}
    write_run(tmp_path, seeds=(0, 1), partition_keys=keys, train=train, model=model, participation=0.5)
    said = protocol(tmp_path, {"fedcac": "FedCAC"})
    for words in (
        "We run FedCAC on digits.",
        "divided among 10 clients by the scheme dirichlet (alpha 0.1)",
        "in every round 50 % of them take part, drawn at random",
        "A run has 6 rounds, in each of which a participant trains the model mlp with hidden layers of 64 and 32 units",
        "for 7 steps in batches of 20 by SGD (learning rate 0.05, momentum 0.5,",
        "gradients clipped at norm 2)",
        "accuracy in % of the personal models after aggregation, after the last round, as mean over clients and 2 ",
        "Intervals are 95 % Student t intervals over seeds.",
    ):
        assert words in said
    assert "paired t tests" not in said
    assert "tuning" not in said


def test_a_comparison_says_how_methods_are_tuned_and_tested(tmp_path):
    folder = write_comparison(tmp_path, {"local": 0.7, "fedper": 0.8})
    said = protocol(folder, {})
    assert "We compare fedper and local on digits." in said
    assert "learning rate tuned, " in said
    assert "chosen among 3 candidates of its space by the mean validation accuracy after aggregation" in said
    assert "paired t tests over seeds" in said
    plan = Plan.read(folder)
    some = {**plan.spaces["local"], "train.epochs": [1, 5]}
    replace(plan, spaces={**plan.spaces, "local": some}, search="random").write(folder)
    said = protocol(folder, {})
    assert "3 candidates drawn at random" in said
    assert "for 5 local epochs unless tuned in batches" in said


def test_what_is_said_of_the_seeds_of_tuning_is_not_said_of_the_candidates_that_stay(tmp_path):
    folder = write_comparison(tmp_path, {"local": 0.7, "fedper": 0.8})
    plan = Plan.read(folder)
    first = next(entry for entry in plan.entries if (entry.role, entry.label) == ("candidate", "fedper"))
    replace(plan, entries=[*plan.entries, replace(first, seed=91)]).write(folder)
    assert "final runs; after each of them the better half of the candidates stays." in protocol(folder, {})


def test_a_grid_and_settings_are_said(tmp_path):
    said = protocol(write_grid(tmp_path / "grid"), {})
    assert "chosen among 24 candidates" in said
    said = protocol(write_matrix(tmp_path / "over", LEVELS, LEVELS), {})
    assert "We repeat this for every value of alpha (0.1, 0.5)." in said


def test_a_race_says_what_holds_together(tmp_path):
    folder = write_comparison(tmp_path, LEVELS, seeds=range(5), stopping_rule={"margin": 1.0, "most": 40})
    said = protocol(folder, {})
    assert "seeds are added until the comparison is decided" in said
    assert "hold together with 95 %" in said
    assert "Student t" not in said


def test_lines_are_short_and_latex_is_escaped():
    text = in_lines("95 % of a_b " * 20, "latex")
    assert r"95 \% of a\_b" in text
    assert max(map(len, text.splitlines())) <= 100
    assert "step-down\n" in in_lines("word " * 18 + "step-down words", "latex")
    assert "%" in in_lines("95 %", "markdown")
