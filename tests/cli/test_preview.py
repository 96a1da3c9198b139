"""What --print-config shows is what the command runs, and what it refuses the command refuses, in the same words."""

import json
from pathlib import Path

import pytest
import yaml

from fedbench.cli import main
from fedbench.methods.base import Method

QUICK = ["--model", "mlp", "--rounds", "1", "--train.epochs", "1", "--partition.clients", "4", "--hosts", "0"]
STUDY = [*QUICK, "--seeds", "0", "1", "--trials", "1"]


class Choosy(Method):
    """Refuses what only its check can know, and remarks on what it takes."""

    def check(self):
        from fedbench.errors import ConfigError

        if self.context.train.lr > 1:
            raise ConfigError(f"train.lr = {self.context.train.lr}: too large for a choosy method")
        return ["a choosy method is not easily pleased"]


OWN = f"{__name__}:Choosy"


def shown(capsys, *words: str) -> list[str]:
    """The comments of --print-config."""
    assert main([*words, "--print-config"]) == 0
    return [line.removeprefix("# ") for line in capsys.readouterr().out.splitlines() if line.startswith("# ")]


def refusal(capsys, *words: str) -> tuple[int, str]:
    code = main(list(words))
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("fedbench: error: ")]
    return code, line


REFUSED = [
    ["run", *QUICK, "--method", OWN, "--train.lr", "2"],
    ["run", *QUICK, "--method", "fedmosaic"],
    ["run", *QUICK, "--resume"],
    ["run", *QUICK, "--participation", "9"],
    ["run", *QUICK, "--model", "nowhere:Net"],
    ["grid", *STUDY, "--method", "fedmosaic", "--baselines", "none"],
    ["grid", *STUDY, "--method", "fedper", "--trials", "0"],
    ["grid", *STUDY, "--method", "fedper", "--space", "method.tau=1,2"],
    ["compare", *STUDY, "--methods", "fedmosaic", "--tune", "0"],
    ["compare", *STUDY, "--methods", "fedper", "--tune", "0", "--method", "fedcac", "--method.tau", "0.3"],
    ["compare", *STUDY, "--methods", f"{OWN}:train.lr=2", "--tune", "0"],
    ["compare", *STUDY, "--methods", "fedper", "--tune", "0", "--over", "participation=1.0,4"],
    ["compare", *STUDY, "--methods", "fedprox,fedprox:mu=0.01", "--tune", "0"],
    ["compare", *QUICK, "--methods", "fedper", "--tune", "0", "--hosts", "4", "--cpus-per-host", "9"],
    ["reproduce", "fedcac/main-pathological", "--cells", "cifar10", "--method.tau", "0.3"],
]


@pytest.mark.parametrize("words", REFUSED, ids=lambda words: " ".join(words[:1] + words[-2:]))
def test_a_preview_refuses_what_its_command_refuses_in_the_same_words(words, capsys, tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    # Whether a trial has room is a question to this machine only while no cluster is joined.
    monkeypatch.setattr("fedbench.runtime.ray.cluster.is_joined", lambda: False)
    words = [*words[:1], *_last_of_each(words[1:])]
    before = refusal(capsys, *words, "--print-config")
    assert before == refusal(capsys, *words)
    assert before[0] == 2
    assert not list(here.iterdir())


def _last_of_each(words: list[str]) -> list[str]:
    """The words without flags that are given again later."""
    starts = [place for place, word in enumerate(words) if word.startswith("--")]
    ends = [*starts[1:], len(words)]
    given = {words[start]: words[start:end] for start, end in zip(starts, ends, strict=True)}
    return [*words[: starts[0]], *(word for own in given.values() for word in own)]


def test_a_run_says_beforehand_what_its_method_says_and_what_is_done(capsys, tmp_path):
    words = ["run", *QUICK, "--method", OWN, "--seeds", "0", "1", "--out", str(tmp_path / "out")]
    block, *others = shown(capsys, *words)
    assert block.startswith("data: digits, 1,438 train, 359 test; clients train on ")
    assert others == ["a choosy method is not easily pleased"]
    assert not (tmp_path / "out").exists()
    assert main(words) == 0
    said = capsys.readouterr()
    assert (said.out + said.err).count("a choosy method is not easily pleased") == 1
    assert shown(capsys, *words) == [f"seeds 0, 1: already finished in {tmp_path / 'out'}"]


COMPARED = [
    ["compare", *STUDY, "--methods", "fedper", "--tune", "0"],
    ["compare", *STUDY, "--methods", "fedper,fedprox:mu=0.5", "--tune", "2", "--tune-seeds", "90", "91"],
    # Neither pooled data nor what clients send beside parameters is made private: centralized is left out.
    ["compare", *STUDY, "--methods", "fedavg", "--tune", "0", "--privacy.level", "sample", "--privacy.clip", "1"],
    ["compare", *STUDY, "--methods", "fedper,fedcac", "--tune", "0", "--over", "method.tau=0.3,0.7"],
    ["grid", *STUDY, "--method", "fedper", "--space", "train.lr=0.1,0.01,-1", "--baselines", "local"],
    ["grid", *STUDY, "--method", "fedper", "--search", "random", "--samples", "2", "--baselines", "none"],
]


@pytest.mark.parametrize("words", COMPARED, ids=lambda words: " ".join(words[-2:]))
def test_methods_points_and_runs_are_those_that_are_run(words, capsys, tmp_path, caplog):
    words = [*words, "--out", str(tmp_path / "out")]
    lines = shown(capsys, *words)
    assert not (tmp_path / "out").exists()
    assert main(words) == 0
    progress = capsys.readouterr().err
    plans = [json.loads(file.read_text()) for file in (tmp_path / "out").rglob("plan.json")]
    entries = [entry for plan in plans for entry in plan["entries"]]
    points = {line.partition(": ")[0]: line for line in lines if " candidate of " in line or " candidates of " in line}
    labels = {name.rpartition(": ")[2].removesuffix(":") for name in points}
    assert {entry["label"] for entry in entries} == labels or len(plans) > 1
    for label, line in points.items():
        tried = {json.dumps(e["values"]) for e in entries if e["label"] == label and e["role"] == "candidate"}
        if len(plans) == 1:
            extra = plans[0]["beside_best"].get(label, 0)
            assert f"{label}: {max(1, len(tried) - extra)} candidate" in line
    runs = len([*(tmp_path / "out" / "run").iterdir()])
    (numbers,) = [line.partition(" runs")[0].split(" to ") for line in lines if " gradient steps" in line]
    assert int(numbers[0]) <= runs <= int(numbers[-1])
    # Runs that settings have in common are counted once, as they run.
    assert len(plans) == 1 or f"final runs over the seeds: {runs} runs" in progress
    # What is said before the first trial is what is shown.
    said = [line for line in caplog.messages if "left out" in line]
    assert said == [line for line in lines if "left out" in line]
    assert any(
        line.startswith(f"{runs} runs are left") or f"0 runs are left, {runs} done" in line
        for line in shown(capsys, *words)
    )


def test_the_method_of_a_preset_is_left_out_with_a_word_and_a_flag_is_not(capsys, tmp_path):
    own = ["--data", "digits", "--model", "mlp", "--partition.name", "dirichlet"]
    words = ["compare", "--preset", "fedcac-cifar10", *own, "--methods", "fedper", "--tune", "0", "--hosts", "0"]
    words += ["--partition.clients", "4", "--participation", "1", "--data.val", "0.1"]
    preset = yaml.safe_load((Path(__file__).parents[2] / "fedbench/studies/presets/fedcac-cifar10.yaml").read_text())
    assert preset["method"]
    lines = shown(capsys, *words)
    assert lines[0].startswith("left out, because fedcac is not compared: method = fedcac")
    assert lines[0].endswith(" of the preset")
    code, line = refusal(capsys, *words, "--method.tau", "0.3")
    assert code == 2
    assert line.startswith("fedbench: error: method.tau = 0.3: fedcac is not compared; write NAME:tau=0.3 in --methods")
    assert "fedcac" not in "".join(line for line in shown(capsys, *words, "--methods", "fedcac") if "left out" in line)


def test_an_option_is_refused_with_the_methods_that_have_it(capsys):
    words = ["compare", *STUDY, "--methods", "fedper,fedcac,fedcp", "--tune", "0", "--print-config"]
    assert refusal(capsys, *words, "--method.tau", "0.3") == (
        2,
        "fedbench: error: method.tau = 0.3: for which method? write NAME:tau=0.3 in --methods where it applies "
        "(fedcac and fedcp have it), or leave it out",
    )


def test_data_that_are_not_here_are_not_fetched_for_a_preview(capsys, tmp_path, monkeypatch):
    from fedbench.studies import cost

    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path))
    cost._dataset_of.cache_clear()
    words = ["--data", "cifar10", "--hosts", "0", "--rounds", "1"]
    absent = "data cifar10: not here yet, so what depends on them is checked when the command is run"
    assert shown(capsys, "run", *words) == [absent]
    assert shown(capsys, "compare", *words, "--methods", "fedper", "--tune", "0")[-1] == absent
    assert {path.name for path in tmp_path.iterdir()} <= {"answers"}
    cost._dataset_of.cache_clear()


def test_what_grid_prints_is_the_same_grid_and_its_run(tmp_path, capsys, caplog):
    words = [*STUDY, "--method", "fedper"]
    before = shown(capsys, "grid", *words)
    assert main(["grid", *words, "--print-config"]) == 0
    (tmp_path / "grid.yaml").write_text(capsys.readouterr().out)
    estimates = lambda lines: [line for line in lines if "gradient steps" not in line]  # noqa: E731
    assert estimates(shown(capsys, "grid", "--config", str(tmp_path / "grid.yaml"))) == estimates(before)
    run = ["run", "--config", str(tmp_path / "grid.yaml"), "--print-config"]
    assert main(run) == 0
    assert "no effect on fedbench run" not in caplog.text
