"""Damaged files of results give the same numbers, or one line that names them with a remedy that works."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fedbench import cache_folder
from fedbench.data import Dataset
from fedbench.studies.run import run
from tests.end_to_end.damages import Answer, damages, interrupted, read_report, repeat, write_page
from tests.runtime.rounds import small

UNFINISHED = {"rounds": 4, "checkpoint": {"every": 1}, "participation": 0.5}
TAIL = ("flip at 75%", "flip at the end", "swapped lines")
"""Damages to the lines after the last checkpoint, which a report of an unfinished run cannot know."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, one of two seeds, which is a study, and one that was interrupted."""
    root = tmp_path_factory.mktemp("results")
    run(small("fedper", rounds=2, out=str(root / "finished")), report=False)
    run(small("fedper", rounds=2, out=str(root / "seeds"), seeds=[0, 1]), report=False)
    interrupted(small("fedper", out=str(root / "unfinished"), **UNFINISHED), 3)
    return root


def faults(
    folder: Path,
    kept: Path,
    answer: Callable[[], Answer],
    files: Sequence[str] = ("*",),
    excused: Callable[[str, str], bool] = lambda *named: False,
) -> list[str]:
    """What is wrong with the answers after each damage to each file. kept: where the whole files are."""
    shutil.copytree(kept, folder)
    right, found = answer(), []
    for file in sorted(path.relative_to(kept) for path in kept.rglob("*") if path.is_file()):
        if not any(map(file.match, files)):
            continue
        for name, damage in damages(kept / file, places=2):
            shutil.rmtree(folder)
            shutil.copytree(kept, folder)
            damage(folder / file)
            if (fault := answer().fault(right, folder / file)) and not excused(file.name, name):
                found.append(f"{file}: {name}: {fault}")
    return found


@pytest.mark.parametrize(("kind", "files"), [("finished", ["*"]), ("seeds", ["plan.json", "run/*-s0/metrics.jsonl"])])
def test_a_report_of_damaged_records_has_the_same_numbers_or_names_them(kind, files, results, tmp_path):
    folder = tmp_path / kind
    assert faults(folder, results / kind, lambda: read_report(folder), files) == []


def test_a_report_of_a_damaged_unfinished_run_has_the_same_numbers_or_names_them(results, tmp_path):
    folder = tmp_path / "unfinished"

    def in_the_tail(file: str, damage: str) -> bool:
        return file == "metrics.jsonl" and damage in TAIL

    files = ["metrics.jsonl", "config.yaml", "partition.json", "clients-*2.parquet", "traces-*3.parquet"]
    assert faults(folder, results / "unfinished", lambda: read_report(folder), files, in_the_tail) == []


@pytest.mark.parametrize("name", ["metrics.jsonl", "partition.json", "checkpoint/rows/clients-000002.parquet"])
def test_a_damaged_unfinished_run_goes_on_to_the_same_numbers_or_is_named(name, results, tmp_path):
    folder = tmp_path / "out"
    config = small("fedper", out=str(folder), **UNFINISHED)
    shutil.copytree(results / "unfinished", folder)
    right = repeat(config, folder)
    for damage_name, damage in damages(results / "unfinished" / name, places=2):
        shutil.rmtree(folder)
        shutil.copytree(results / "unfinished", folder)
        damage(folder / name)
        answer = repeat(config, folder)
        assert answer.fault(right, folder / name) is None, damage_name
    shutil.rmtree(folder)  # as the line says
    assert repeat(config, folder).numbers == right.numbers


@pytest.mark.parametrize("name", ["report.html", "timings.jsonl", "metrics.jsonl", "plan.json"])
def test_what_stands_in_the_place_of_a_file_is_named_and_moved_away(name, results, tmp_path):
    folder = tmp_path / "seeds"
    config = small("fedper", rounds=2, out=str(folder), seeds=[0, 1])
    shutil.copytree(results / "seeds", folder)
    right = read_report(folder)
    (folder / name).unlink(missing_ok=True)
    (folder / name).mkdir()
    answer = write_page(folder) if name == "report.html" else repeat(config, folder)
    assert answer.fault(right, folder / name) is None
    if name == "plan.json":
        (folder / name).rename(folder / "away")
    elif name == "report.html":
        (folder / name).rmdir()
        write_page(folder)
        assert (folder / name).is_file()
        return
    else:
        shutil.rmtree(folder)
    assert repeat(config, folder).numbers == right.numbers


def test_a_file_in_the_place_of_a_job_s_folder_is_named_and_moved_away(results, tmp_path):
    folder = tmp_path / "seeds"
    config = small("fedper", rounds=2, out=str(folder), seeds=[0, 1])
    shutil.copytree(results / "seeds", folder)
    right = read_report(folder)
    (folder / "config.yaml").unlink()  # so that the seeds are looked for
    for name in ("summary.json", "metrics.jsonl"):
        (folder / name).unlink()
    job = next((folder / "run").iterdir())
    shutil.rmtree(job)
    job.write_text("")
    answer = repeat(config, folder)
    assert f"{job}: cannot be written, because {job} is a file; move it away" in str(answer.error)
    job.unlink()
    assert repeat(config, folder).numbers == right.numbers


def test_damaged_data_of_the_cache_are_decoded_again(results, tmp_path):
    (decoded,) = (
        path
        for path in (cache_folder.root() / "decoded").iterdir()
        if path.name.startswith("digits-") and path.is_dir()
    )
    kept = tmp_path / "kept"
    shutil.copytree(decoded, kept)

    def read() -> tuple[bytes, bytes, tuple[float, ...], tuple[float, ...]]:
        dataset = Dataset.load(small().data)
        return dataset.samples.tobytes(), dataset.targets.tobytes(), dataset.mean, dataset.std

    right = read()
    for file in sorted(kept.iterdir()):
        for name, damage in damages(file):
            damage(decoded / file.name)
            assert read() == right, f"{file.name}: {name}"
            shutil.rmtree(decoded)
            shutil.copytree(kept, decoded)
