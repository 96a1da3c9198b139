"""The folder of several seeds is what one run of all of them would leave."""

from pathlib import Path

import pytest

from fedbench.errors import ConfigError
from fedbench.jobs.merge_seeds import gather
from fedbench.results.reader import Records
from fedbench.studies.run import run
from tests.runtime.rounds import read, small

SEEDS = [0, 3, 1]


def test_a_seed_that_was_damaged_meanwhile_is_not_merged(tmp_path):
    asked = small("fedper", rounds=1, seeds=[0, 1], out=str(tmp_path))
    run(asked, report=False)
    kept = seeds_below(tmp_path)["s0"]
    table = kept / "clients.parquet"
    table.write_bytes(table.read_bytes()[:500])
    with pytest.raises(
        ConfigError, match=r"s0/clients.parquet: cut from \d+ to 500 bytes; bring the file back, or delete"
    ):
        gather(tmp_path, asked, [kept, seeds_below(tmp_path)["s1"]])


def seeds_below(folder: Path) -> dict[str, Path]:
    return {path.name.rpartition("-")[2]: path for path in (folder / "run").iterdir()}


def test_the_folder_holds_what_its_seeds_left_one_after_the_other(tmp_path):
    asked = dict(rounds=2, partition__new_clients=2, evaluate__new_clients_epochs=[1], evaluate__new_clients_samples=[])
    result = run(small("fedper", **asked, seeds=SEEDS, out=str(tmp_path / "all")), report=False)
    alone = [tmp_path / str(seed) for seed in SEEDS]
    for seed, folder in zip(SEEDS, alone, strict=True):
        run(small("fedper", **asked, seeds=[seed], out=str(folder)), report=False)
    whole = Records(tmp_path / "all")
    assert read(tmp_path / "all")["metrics.jsonl"] == b"".join(read(folder)["metrics.jsonl"] for folder in alone)
    for table in (Records.metrics, Records.clients, Records.traces, Records.newcomers):
        assert table(whole).equals(table(Records(*alone)))
    assert result.summary["seeds"] == SEEDS
    assert result.summary["complete"]
    assert set(result.newcomers["seed"]) == set(SEEDS)
    assert len(result.summary["new_clients"]["epochs"]["1"]["values"]) == 3
    assert len(result.summary["points"]["after_agg"]["last"]["test_accuracy"]["values"]) == 3
    assert {name: read(path) for name, path in seeds_below(tmp_path / "all").items()} == {
        f"s{seed}": read(folder) for seed, folder in zip(SEEDS, alone, strict=True)
    }
