"""The command that fetches, checks and describes a data set."""

import pytest

from fedbench.cli.data import ProgressLine, main
from fedbench.config import Config
from fedbench.config.files import load_yaml
from fedbench.data import Dataset


def test_it_says_what_the_set_holds(capsys, cache_folder):
    assert main(["digits", "--check"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["data", "digits"]
    assert "parts      1,438 train, 359 test" in lines
    assert "samples    grey images, 8 high and 8 wide, uint8; divided by 255, then standardised" in "\n".join(lines)
    assert "check      decoded images: intact" in lines
    place = next(line for line in lines if line.startswith("cache"))
    assert str(cache_folder) in place
    assert place.endswith("MB)")


def test_import_then_options(capsys, mnist_folder):
    assert main(["mnist", "--from", str(mnist_folder)]) == 0
    assert "20 train, 10 test" in capsys.readouterr().out


def test_a_validation_part_is_counted_by_itself(capsys, tmp_path, save_images):
    for part, count in {"train": 6, "val": 2, "test": 2}.items():
        for name in ("cat", "dog"):
            save_images(tmp_path / "set" / part / name, [10 * n for n in range(count)])
    assert main([f"folder:{tmp_path / 'set'}"]) == 0
    assert "parts      12 train, 4 validation, 4 test" in capsys.readouterr().out.splitlines()


ROWS = "".join(f"{'0012' if n % 2 else '12'},{n},{n % 5},{'yes' if n % 3 else 'no'}\n" for n in range(30))


def test_what_is_written_reads_the_same(capsys, tmp_path):
    """With what was certain as given."""
    (tmp_path / "a.csv").write_text(f"1e3,age,ward,on\n{ROWS}")
    name, file = f"csv:{tmp_path / 'a.csv'}", tmp_path / "data.yaml"
    asked = ["--data.label", "on", "--data.user", "'1e3'", "--write", str(file)]
    assert main([name, *asked]) == 0
    first = capsys.readouterr().out.splitlines()
    assert f"written    {file}: --config {file} reads the same" in first
    assert load_yaml(file)["data"] == {"name": name, "label": "on", "user": "1e3", "task": "classification"}
    assert main([name, "--config", str(file)]) == 0
    again, skipped = capsys.readouterr().out.splitlines(), ("written", "cache")
    given = [line.replace("certain ", "given   ") if "(data." in line else line for line in first]
    expected = [line for line in given if not line.startswith(skipped)]
    assert sorted(expected) == sorted(line for line in again if not line.startswith(skipped))
    assert any(line.startswith("certain") for line in first)
    assert any(line.startswith("note       column age counts the rows") for line in first)
    assert not any(line.startswith("warning") for line in first)
    known = [Config(data={"name": name, "label": "on", "user": "1e3"}), Config(data=load_yaml(file)["data"])]
    assert len({Dataset.load(config.data).content for config in known}) == 1


def test_a_file_that_cannot_be_written_is_one_line(capsys):
    assert main(["digits", "--write", "/dev/null/x"]) == 2
    assert "/dev/null/x: cannot be written" in capsys.readouterr().err


def test_a_damaged_cache_is_said_and_decoded_again(capsys, cache_folder):
    main(["digits"])
    file = next((cache_folder / "decoded").glob("digits-*/samples.npy"))
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + b"\x07")
    assert main(["digits", "--check"]) == 0
    said = capsys.readouterr()
    assert f"{file.parent}: damaged, decoding it again" in said.err
    assert "decoded images: intact" in said.out
    assert file.read_bytes() == whole


def test_check_reads_data_that_nothing_seems_to_have_touched(capsys, cache_folder, monkeypatch):
    main(["digits"])
    file = next((cache_folder / "decoded").glob("digits-*/samples.npy"))
    monkeypatch.setattr("fedbench.data.cache.times", lambda folder, names: {})
    main(["digits"])
    file.write_bytes(file.read_bytes()[:-1] + b"\x07")
    assert main(["digits", "--check"]) == 1
    assert "damaged: delete the folder" in capsys.readouterr().out


def test_check_names_files_that_are_not_the_published_ones(capsys, mnist_folder):
    assert main(["mnist", "--from", str(mnist_folder), "--check"]) == 1
    out = capsys.readouterr().out
    assert "decoded images: intact" in out
    assert "files: MD5 is not the published one: train-images-idx3-ubyte.gz" in out


def test_progress_away_from_a_terminal_is_a_line_now_and_then(capsys, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("fedbench.cli.data.time.monotonic", lambda: now[0])
    progress = ProgressLine()
    for done in range(1, 31):
        progress("downloading x", done * 10**6, 30 * 10**6)
        now[0] += 1.0
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["downloading x: 11.0 MB of 30.0 MB", "downloading x: 21.0 MB of 30.0 MB"]


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["cifr10"], "unknown data set 'cifr10': did you mean cifar10"),
        (["digits", "--chek"], "unknown flag --chek: did you mean --check"),
        (["--check"], "give the name of the data set first"),
        (["digits", "--data.size", "3"], "unknown key data.size"),
        (["digits", "--data.root", "/tmp"], "digits come with scikit-learn"),
        (["digits", "--from", "/tmp"], "--from is for ag-news, camelyon17, cifar10"),
        (["digits", "--preview", "--out", "/dev/null/x"], "--out /dev/null/x: cannot be written"),
    ],
)
def test_mistakes_are_one_line(capsys, argv, text):
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert text in error
    assert error.count("\n") == 1
