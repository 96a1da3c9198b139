"""Published files: checked, downloaded, imported."""

import multiprocessing
import shutil
import socket
from pathlib import Path

import numpy as np
import pytest
from torchvision import datasets

from fedbench.config import Config
from fedbench.data import Dataset, importing, sources
from fedbench.data.reading import published
from fedbench.data.reading.published import Download, failure_reason, fetch, file_md5
from fedbench.data.sources import idx, published_names, published_of
from fedbench.data.split import scale_and_shift
from fedbench.errors import ConfigError
from tests.data.loading import load, refused
from tests.data.reading.serving import NOWHERE, md5


@pytest.fixture
def emnist(tmp_path, write_idx) -> Path:
    """EMNIST's archive with two splits of 62 images in each part."""
    for split in ("byclass", "letters"):
        for part in ("train", "test"):
            stem = tmp_path / "packed" / "gzip" / f"emnist-{split}-{part}"
            write_idx(stem.with_name(f"{stem.name}-images-idx3-ubyte.gz"), np.zeros((62, 28, 28), np.uint8))
            write_idx(stem.with_name(f"{stem.name}-labels-idx1-ubyte.gz"), np.arange(62, dtype=np.uint8))
    return Path(shutil.make_archive(str(tmp_path / "gzip"), "zip", tmp_path / "packed"))


def test_a_root_without_the_files(tmp_path):
    assert "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k" in refused(load, "mnist", root=tmp_path)


@pytest.mark.parametrize("name", ["cifar10", "mnist"])
def test_without_internet_one_line_says_what_to_do(name, cifar, mnist, cache_folder):
    text = refused(load, name)
    assert f"{cache_folder}/files/{name}" in text
    assert "--data.root" in text
    assert f"fedbench data {name} --from PATH" in text
    assert ("data_batch_1" if name == "cifar10" else "train-images-idx3-ubyte") in text
    assert not (cache_folder / "files" / name).exists()


def test_what_is_not_here_is_said_with_its_size(cifar, cache_folder):
    assert "data cifar10: not here (170 MB), and the download failed" in refused(load, "cifar10")
    assert "data pacs: not here (9,991 images, 0.17 GB), and it has no public address" in refused(load, "pacs")
    assert all(sources.published_of(name).size for name in sources.published_names())


def test_download(cifar, mnist, server, monkeypatch):
    monkeypatch.setattr(datasets.MNIST, "mirrors", [f"{server}idx/"])
    monkeypatch.setattr(datasets.CIFAR10, "url", f"{server}made/cifar-10-python.tar.gz")
    assert load("mnist").train_rows == load("cifar10").train_rows == 20
    shutil.rmtree(mnist)
    assert load("mnist").train_rows == 20, "the second time nothing is fetched"


def test_half_a_download_does_not_pass(mnist, server, monkeypatch, cache_folder):
    monkeypatch.setattr(datasets.MNIST, "mirrors", [f"{server}idx/"])
    file = mnist / "t10k-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:50])
    assert "the download failed" in refused(load, "mnist")
    assert not (cache_folder / "files" / "mnist").exists()


def test_what_a_killed_download_left_is_not_read(mnist, cache_folder):
    shutil.copytree(mnist, cache_folder / "files" / "mnist")
    assert "the download failed" in refused(load, "mnist")


def test_a_second_address_is_tried(mnist, server, monkeypatch):
    monkeypatch.setattr(datasets.MNIST, "mirrors", [NOWHERE, f"{server}nothing/", f"{server}idx/"])
    assert load("mnist").train_rows == 20


def test_a_download_counts_bytes(mnist, server, monkeypatch):
    monkeypatch.setattr(datasets.MNIST, "mirrors", [f"{server}idx/"])
    seen = []
    Dataset.load(Config(data="mnist").data, lambda *step: seen.append(step))
    size = (mnist / "train-images-idx3-ubyte.gz").stat().st_size
    assert ("downloading mnist", size, size) in seen


def test_an_archive_is_unpacked_and_only_what_is_needed_stays(emnist, server, monkeypatch, cache_folder):
    monkeypatch.setattr(datasets.EMNIST, "url", f"{server}gzip.zip")
    monkeypatch.setattr(datasets.EMNIST, "md5", md5(emnist))
    assert load("emnist").classes == 62
    stored = {path.name for path in (cache_folder / "files" / "emnist").iterdir()}
    assert stored == {"complete", *(f"{name}.gz" for name in idx.PUBLISHED["emnist"].names)}


def test_processes_that_ask_at_once_download_once(mnist, server, monkeypatch, tmp_path):
    monkeypatch.setattr(datasets.MNIST, "mirrors", [f"{server}idx/"])
    forks, log = multiprocessing.get_context("fork"), tmp_path / "log"
    start = forks.Barrier(3)

    def ask() -> None:
        start.wait()
        steps = []
        dataset = Dataset.load(Config(data="mnist").data, lambda *step: steps.append(step))
        with log.open("a") as file:
            file.write(f"{dataset.train_rows} {any(what.startswith('downloading') for what, *_ in steps)}\n")

    running = [forks.Process(target=ask) for _ in range(3)]
    for process in running:
        process.start()
    for process in running:
        process.join()
    assert sorted(log.read_text().splitlines()) == ["20 False", "20 False", "20 True"]


def test_every_published_set_has_constants_with_their_source():
    for constants in (published_of(name).constants for name in published_names()):
        assert constants.source
        assert (constants.mean is None) == (constants.std is None)
        for value in (*(constants.mean or ()), *(constants.std or ())):
            assert 0 < value < 1


@pytest.mark.parametrize("name", ["mnist", "fmnist"])
def test_constants_are_those_of_real_images(shared, name):
    importing.import_files(name, shared / name)
    dataset = load(name)
    train = dataset.samples[: dataset.train_rows] / 255
    assert dataset.mean == published_of(name).constants.mean
    assert [train.mean(), train.std()] == pytest.approx([dataset.mean[0], dataset.std[0]], abs=0.005)


def test_constants_of_cifar_are_those_of_real_images(shared):
    for name in ("cifar10", "cifar100"):
        dataset = load(f"parquet:{shared / name}")
        assert dataset.mean == pytest.approx(published_of(name).constants.mean, abs=0.015)
        assert dataset.std == pytest.approx(published_of(name).constants.std, abs=0.015)


def test_constants_of_the_configuration_take_their_place():
    dataset = load("digits", mean=[0.5], std=[0.25])
    assert (dataset.mean, dataset.std) == ((0.5,), (0.25,))
    scale, shift = scale_and_shift(dataset)
    np.testing.assert_allclose([float(scale), float(shift)], [4 / 255, -2])
    assert load("digits", mean=[0.5]).std == load("digits").std
    assert load("digits", mean=[0.5]).folder == load("digits").folder, "nothing is decoded again"


def test_one_value_stands_for_all_channels(shared):
    assert load(f"parquet:{shared / 'cifar100'}", std=[0.5]).std == (0.5, 0.5, 0.5)
    with pytest.raises(ConfigError, match=r"data\.mean = \[0\.5, 0\.5\]: .* has 3 channels"):
        Dataset.load(Config(data={"name": f"parquet:{shared / 'cifar100'}", "mean": [0.5, 0.5]}).data)
    with pytest.raises(ConfigError, match=r"data\.std"):
        Config(data={"std": [0.0]})


def failed(folder, address: str, known: str = "0" * 32) -> str:
    with pytest.raises((OSError, ValueError)) as caught:
        fetch(Download((f"{address}file",), known), folder)
    assert not (folder / "file").exists()
    return failure_reason(caught.value)


def test_a_file_with_the_published_sum_is_kept_as_it_was_sent(tmp_path, server):
    (tmp_path / "file").write_bytes(b"x" * 3_000_000)
    (tmp_path / "there").mkdir()
    seen: list[tuple[int, int]] = []
    wanted = Download((f"{server}file?download=1",), md5(tmp_path / "file"))
    fetch(wanted, tmp_path / "there", lambda *step: seen.append(step))
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["file"]
    assert file_md5(tmp_path / "there" / "file") == wanted.md5
    assert seen[0] == (2**20, 3_000_000)
    assert seen[-1] == (3_000_000, 3_000_000)


def test_why_a_download_failed_is_said_in_few_words(tmp_path, server, monkeypatch):
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "file").write_bytes(b"x")
    assert failed(tmp_path, NOWHERE) == "[Errno 111] Connection refused"
    assert failed(tmp_path, f"{server}nothing/").startswith("404 Client Error: File not found")
    assert "does not match the known hash" in failed(tmp_path, f"{server}served/")
    monkeypatch.setattr(published, "HTTP_TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert failed(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}/") == "no answer"
