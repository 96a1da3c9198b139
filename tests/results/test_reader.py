"""What is written comes back, and what was half-written never counts as whole."""

from pathlib import Path

import pytest

from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.results import files
from fedbench.results.reader import Records
from fedbench.results.schema import CLIENTS_SCHEMA, TRACES_SCHEMA
from tests.results.lines import KEYS, clients, line


def test_a_half_written_last_line_is_ignored(folder: Path) -> None:
    (folder / "metrics.jsonl").write_text(line(0, 1, "after_agg", 0.5) + "\n" + line(0, 2, "after_agg", 0.6)[:-9])
    run = Records(folder)
    assert run.metrics()["round"].tolist() == [1]
    assert run.problems == []


def test_a_damaged_line_inside_is_named(folder: Path) -> None:
    (folder / "metrics.jsonl").write_text("nonsense\n" + line(0, 2, "after_agg", 0.6) + "\n")
    run = Records(folder)
    assert run.metrics()["round"].tolist() == [2]
    assert run.problems == ["metrics.jsonl: line 1 cannot be read and is left out"]


def test_of_doubled_rows_the_last_counts(folder: Path) -> None:
    files.append_lines(folder / "metrics.jsonl", [line(0, 1, "after_agg", v) for v in (0.5, 0.7)])
    assert Records(folder).metrics()["test_accuracy"].tolist() == [0.7]


def test_rows_come_in_the_order_seed_round_point(folder: Path) -> None:
    asked = [(1, 1, "after_agg"), (0, 1, "global"), (0, 1, "after_agg"), (0, 1, "after_fit")]
    files.append_lines(folder / "metrics.jsonl", [line(*key, 0.5) for key in asked])
    found = Records(folder).metrics()[["seed", "round", "point"]].itertuples(index=False, name=None)
    assert list(found) == asked[::-1]


def test_parquet_comes_back_without_doubled_rows(folder: Path) -> None:
    rows = [(0, 1, c, "after_agg", "test", "accuracy", v, 10, True) for c, v in ((1, 0.2), (0, 0.4), (0, 0.5))]
    files.write_parquet_atomically(folder / "clients.parquet", clients(rows), CLIENTS_SCHEMA)
    frame = Records(folder).clients()
    assert frame[["client", "test_accuracy"]].to_numpy().tolist() == [[0, 0.5], [1, 0.2]]
    assert frame["val_accuracy"].isna().all()


def test_how_many_samples_a_score_is_a_mean_over(folder: Path) -> None:
    rows = [(0, 1, c, "after_agg", s, m, 0.5, n, True) for c, s, m, n in READ]
    files.write_parquet_atomically(folder / "clients.parquet", clients(rows), CLIENTS_SCHEMA)
    assert Records(folder).clients()["test_n"].tolist() == [10, 7]
    (folder / "config.yaml").write_text(Config(evaluate={"accuracy": "batches", "batch_size": 3}).to_yaml())
    assert Records(folder).clients()["test_n"].isna().all()
    assert Records(folder).estimator() == "batches of 3"


READ = [(0, "val", "accuracy", 2), (0, "test", "accuracy", 10), (0, "test", "loss", 10), (1, "test", "accuracy", 7)]


def test_classes_and_domains_are_apart_from_the_whole(folder: Path) -> None:
    names = ["accuracy", "loss", "accuracy/class=3", "accuracy/domain=a=b/c\nd"]
    rows = [(0, 1, 0, "after_agg", "test", name, 0.5, n, True) for n, name in enumerate(names)]
    files.write_parquet_atomically(folder / "clients.parquet", clients(rows), CLIENTS_SCHEMA)
    assert Records(folder).groups().empty
    (folder / "config.yaml").write_text(Config(evaluate={"by": ["class", "domain"]}).to_yaml())
    found = Records(folder).groups()
    assert list(found) == ["seed", "round", "client", "point", "by", "group", "value", "n"]
    assert found[["by", "group", "n"]].to_numpy().tolist() == [["class", "3", 2], ["domain", "a=b/c\nd", 3]]
    assert len(Records(folder).clients()) == 1


def test_missing_files_give_empty_frames_with_their_columns(folder: Path) -> None:
    run = Records(folder)
    assert list(run.clients()) == ["seed", "round", "client", "point", "participated", *KEYS[3:7], "test_n"]
    assert list(run.traces()) == TRACES_SCHEMA.names
    assert set(run.metrics()) == set(KEYS)
    assert run.timings().empty
    assert run.summary() == run.partition() == run.environment() == {}


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no run here"):
        Records(tmp_path)


def test_the_records_of_several_seeds_are_one(tmp_path: Path) -> None:
    for seed in (3, 1):
        own = tmp_path / str(seed)
        own.mkdir()
        (own / "config.yaml").write_text(Config(rounds=1, seeds=[seed]).to_yaml())
        files.append_lines(own / "metrics.jsonl", [line(seed, 1, "after_agg", seed / 10)])
        files.write_json_atomically(own / "summary.json", {"warnings": ["both", f"seed {seed}"]})
        files.write_json_atomically(own / "partition.json", {str(seed): {"clients": []}})
    run = Records(tmp_path / "3", tmp_path / "1")
    assert run.metrics()["seed"].tolist() == [1, 3]
    assert run.config()["seeds"] == [3, 1]
    assert run.warnings() == ["both", "seed 3", "seed 1"]
    assert set(run.partition()) == {"1", "3"}
    assert run.complete()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "metrics.jsonl",
            '{"seed": 0, "round": "x", "point": "after_agg"}\n',
            "the line of seed 0, round x is damaged",
        ),
        ("metrics.jsonl", '{"seed": 0, "round": 1, "point": "after_agg", "failed": [1]}\n', "is damaged"),
        ("metrics.jsonl", f'{{"seed": 0, "round": {10**30}, "point": "after_agg"}}\n', "is damaged (round)"),
        ("config.yaml", "seeds: 5\n", "config.yaml cannot be read"),
        ("partition.json", '{"0": {"clients": [], "class_counts": 5}}', "the partition of seed 0 is damaged"),
    ],
)
def test_values_of_another_kind_are_named_and_left_out(folder: Path, name: str, content: str, said: str) -> None:
    (folder / name).write_text(content)
    run = Records(folder)
    assert (len(run.metrics()), run.partition()) == (0, {})
    run.config()
    assert any(said in problem for problem in run.problems)


@pytest.mark.parametrize("odd", [5, ["first", 2], ["first", {"a": 1}]])
def test_warnings_that_are_no_text_are_left_out(folder: Path, odd: object) -> None:
    files.write_json_atomically(folder / "summary.json", {"warnings": odd})
    run = Records(folder)
    assert run.warnings() == (["first"] if isinstance(odd, list) else [])
    assert run.problems == ["summary.json: warnings that are no text are left out"]


@pytest.mark.parametrize(
    ("key", "odd"),
    [("decisions", 5), ("decisions", [1]), ("models", [1]), ("models", {"mlp": 5}), ("models", {"mlp": {"shared": 1}})],
)
def test_odd_parts_of_the_environment_are_left_out(folder: Path, key: str, odd: object) -> None:
    files.write_json_atomically(folder / "environment.json", {"task": "classification", key: odd})
    run = Records(folder)
    assert run.environment() == {"task": "classification"}
    assert run.problems == [f"environment.json: {key} is damaged and is left out"]
