"""The page of a data set: contact sheet and partition."""

import re

import numpy as np

from fedbench.cli.data import main
from fedbench.report.preview import CountTable, Preview, write_preview


def test_preview_is_one_page_that_needs_nothing_else(capsys, tmp_path):
    assert main(["digits", "--preview", "--out", str(tmp_path / "there")]) == 0
    page = tmp_path / "there" / "preview.html"
    assert f"page       {page}" in capsys.readouterr().out
    html = page.read_text()
    assert html.count("data:image/png;base64,") == 100
    assert not re.search(r"(src|href)=\"(?!data:)", html)
    assert "Partition" not in html
    for text in ("1,438", "359", "8 × 8", "measured on the training part"):
        assert text in html


def test_a_partition_is_drawn_on_it(capsys, tmp_path):
    argv = ["digits", "--partition", "shards", "--partition.clients", "5", "--out", str(tmp_path)]
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert "clients    5 by partition shards: " in out
    assert "partition  shards, fingerprint " in out
    html = (tmp_path / "preview.html").read_text()
    drawn = re.search(r"Training images per client and class<.*?</table>", html, re.S)[0]
    assert drawn.count("<i ") == 10, "two classes for each of five clients"
    assert re.search(r'title="client 4, \d: \d+ images"', drawn)
    assert drawn.count("--share: 1.0") >= 1, "the largest"


def test_domains_are_drawn_too(tmp_path, save_images):
    for domain in ("photo", "sketch"):
        for number, name in enumerate(("cat", "<dog>")):
            save_images(tmp_path / "set" / domain / name, [40 * number + i for i in range(5)])
    assert main([f"folder:{tmp_path / 'set'}", "--preview", "--out", str(tmp_path)]) == 0
    html = (tmp_path / "preview.html").read_text()
    drawn = re.search(r"Images per domain and class<.*?</table>", html, re.S)[0]
    assert drawn.count("<i ") == 4
    assert "sketch, cat: 5 images" in drawn
    assert "<dog>" not in html


def test_large_images_are_made_small_on_the_page(tmp_path, save_images):
    for name in ("cat", "dog"):
        save_images(tmp_path / "set" / name, list(range(5)), side=300)
    main([f"folder:{tmp_path / 'set'}", "--preview", "--out", str(tmp_path)])
    assert (tmp_path / "preview.html").stat().st_size < 100_000


def test_samples_that_are_no_images_are_not_called_so(tmp_path):
    counts = CountTable(("client 0",), ("yes", "no"), np.array([[3, 0]]))
    bars = np.array([[3, 1], [0, 0]])
    page = write_preview(
        tmp_path / "page.html", Preview("rows", "", [], [], "", ("yes", "no"), bars, None, counts, noun="samples")
    )
    html = page.read_text()
    assert 'title="client 0, yes: 3 samples"' in html
    assert 'title="yes: 3 + 1"' in html
    assert "images" not in html
