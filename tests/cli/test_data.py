"""The command that fetches, checks and describes a data set."""

import pytest

from fedbench.cli.data import ProgressLine, main


def test_it_says_what_the_set_holds(capsys, cache_folder):
    assert main(["digits", "--check"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["data", "digits"]
    assert "images     1438 train, 359 test" in lines
    assert "check      decoded images: intact" in lines
    place = next(line for line in lines if line.startswith("cache"))
    assert str(cache_folder) in place
    assert place.endswith("MB)")


def test_import_then_options(capsys, mnist_folder):
    assert main(["mnist", "--from", str(mnist_folder)]) == 0
    assert "20 train, 10 test" in capsys.readouterr().out


def test_a_damaged_cache_is_made_again(capsys, cache_folder):
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
