"""fedbench data."""

import re

import pytest

from fedbench.cli.data import Shown, main


def test_it_says_what_the_set_holds(capsys, cache_folder):
    assert main(["digits", "--check"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["data", "digits"]
    assert "images     1438 train, 359 test" in lines
    assert "check      decoded images: as decoded" in lines
    place = next(line for line in lines if line.startswith("cache"))
    assert str(cache_folder) in place
    assert place.endswith("MB)")


def test_import_then_options(capsys, mnist_folder):
    assert main(["mnist", "--from", str(mnist_folder)]) == 0
    assert "20 train, 10 test" in capsys.readouterr().out


def test_check_fails_for_a_damaged_cache(capsys, cache_folder):
    main(["digits"])
    file = next((cache_folder / "decoded").glob("digits-*/samples.npy"))
    file.write_bytes(file.read_bytes()[:-1] + b"\x07")
    assert main(["digits", "--check"]) == 1
    assert "damaged" in capsys.readouterr().out


def test_check_names_files_that_are_not_the_published_ones(capsys, mnist_folder):
    assert main(["mnist", "--from", str(mnist_folder), "--check"]) == 1
    out = capsys.readouterr().out
    assert "decoded images: as decoded" in out
    assert "files: MD5 is not the published one: train-images-idx3-ubyte.gz" in out


def test_preview_is_one_page_that_needs_nothing_else(capsys, tmp_path):
    assert main(["digits", "--preview", "--out", str(tmp_path / "there")]) == 0
    page = tmp_path / "there" / "preview.html"
    assert f"page       {page}" in capsys.readouterr().out
    html = page.read_text()
    assert html.count("data:image/png;base64,") == 100
    assert not re.search(r"(src|href)=\"(?!data:)", html)
    assert "Who holds what" not in html
    for text in ("1,438", "359", "8 × 8", "measured on the training part"):
        assert text in html


def test_a_partition_is_drawn_on_it(capsys, tmp_path):
    argv = ["digits", "--partition", "shards", "--partition.clients", "5", "--out", str(tmp_path)]
    assert main(argv) == 0
    assert "partition  shards, 5 clients, " in capsys.readouterr().out
    html = (tmp_path / "preview.html").read_text()
    drawn = re.search(r'aria-label="Training images per client and class".*?</svg>', html, re.S)[0]
    assert drawn.count("<circle") == 10, "two classes for each of five clients"
    assert re.search(r"<title>client 4, \d: \d+ images</title>", drawn)


def test_domains_are_drawn_too(tmp_path, save_images):
    for domain in ("photo", "sketch"):
        for number, name in enumerate(("cat", "<dog>")):
            save_images(tmp_path / "set" / domain / name, [40 * number + i for i in range(5)])
    assert main([f"folder:{tmp_path / 'set'}", "--preview", "--out", str(tmp_path)]) == 0
    html = (tmp_path / "preview.html").read_text()
    drawn = re.search(r'aria-label="Images per domain and class".*?</svg>', html, re.S)[0]
    assert drawn.count("<circle") == 4
    assert "sketch, cat: 5 images" in drawn
    assert "<dog>" not in html


def test_large_images_are_made_small_on_the_page(tmp_path, save_images):
    for name in ("cat", "dog"):
        save_images(tmp_path / "set" / name, list(range(5)), side=300)
    main([f"folder:{tmp_path / 'set'}", "--preview", "--out", str(tmp_path)])
    assert (tmp_path / "preview.html").stat().st_size < 100_000


def test_progress_away_from_a_terminal_is_a_line_now_and_then(capsys, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("fedbench.cli.data.time.monotonic", lambda: now[0])
    shown = Shown()
    for done in range(1, 31):
        shown("downloading x", done * 10**6, 30 * 10**6)
        now[0] += 1.0
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["downloading x: 11.0 MB of 30.0 MB", "downloading x: 21.0 MB of 30.0 MB"]


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["cifr10"], "unknown data set 'cifr10': did you mean cifar10"),
        (["digits", "--chek"], "unknown flag --chek: did you mean --check"),
        (["--check"], "the name of the data set comes first"),
        (["digits", "--data.size", "3"], "unknown key data.size"),
        (["digits", "--data.root", "/tmp"], "digits come with scikit-learn"),
        (["digits", "--from", "/tmp"], "--from is for cifar10"),
        (["digits", "--preview", "--out", "/dev/null/x"], "--out /dev/null/x: cannot be written"),
    ],
)
def test_mistakes_are_one_line(capsys, argv, text):
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert text in error
    assert error.count("\n") == 1
