"""Published files: checked, downloaded, imported."""

import functools
import hashlib
import http.server
import io
import multiprocessing
import pickle
import shutil
import tarfile
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
from torchvision import datasets

from fedbench.config import Config
from fedbench.data import Dataset, importing
from fedbench.data.sources import idx
from fedbench.errors import ConfigError

NOWHERE = "http://127.0.0.1:9/"
"""Nothing listens there: a machine without internet."""


def load(name: str, **options) -> Dataset:
    return Dataset.load(Config(data={"name": name, **options}).data)


def refused(call, *arguments, **options) -> str:
    with pytest.raises(ConfigError) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


@pytest.fixture
def cifar(tmp_path, monkeypatch) -> Path:
    """CIFAR-10's archive and files with 4 images each, whose checksums stand in for the published ones."""
    folder = tmp_path / "made" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for number, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        data = np.full((4, 3072), number, np.uint8)
        (folder / name).write_bytes(pickle.dumps({"data": data, "labels": [0, 1, 2, number]}))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"class{i}" for i in range(10)]}))
    with tarfile.open(tmp_path / "made" / "cifar-10-python.tar.gz", "w:gz") as tar:
        tar.add(folder, folder.name)
    kind = datasets.CIFAR10
    monkeypatch.setattr(kind, "train_list", [(name, md5(folder / name)) for name, _ in kind.train_list])
    monkeypatch.setattr(kind, "test_list", [(name, md5(folder / name)) for name, _ in kind.test_list])
    monkeypatch.setattr(kind, "meta", kind.meta | {"md5": md5(folder / "batches.meta")})
    monkeypatch.setattr(kind, "tgz_md5", md5(tmp_path / "made" / "cifar-10-python.tar.gz"))
    monkeypatch.setattr(kind, "url", f"{NOWHERE}cifar-10-python.tar.gz")
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "made"


@pytest.fixture
def mnist(mnist_folder, monkeypatch) -> Path:
    """MNIST's files, whose checksums stand in for the published ones."""
    sums = [(name, md5(mnist_folder / name)) for name, _ in datasets.MNIST.resources]
    monkeypatch.setattr(datasets.MNIST, "resources", sums)
    monkeypatch.setattr(datasets.MNIST, "mirrors", [NOWHERE])
    monkeypatch.setenv("no_proxy", "*")
    return mnist_folder


@pytest.fixture
def emnist(tmp_path, write_idx) -> Path:
    """EMNIST's archive with two splits of 62 images in each part."""
    for split in ("byclass", "letters"):
        for part in ("train", "test"):
            stem = tmp_path / "packed" / "gzip" / f"emnist-{split}-{part}"
            write_idx(stem.with_name(f"{stem.name}-images-idx3-ubyte.gz"), np.zeros((62, 28, 28), np.uint8))
            write_idx(stem.with_name(f"{stem.name}-labels-idx1-ubyte.gz"), np.arange(62, dtype=np.uint8))
    return Path(shutil.make_archive(str(tmp_path / "gzip"), "zip", tmp_path / "packed"))


@pytest.fixture
def server(tmp_path):
    """The address of a web server for the files in tmp_path."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}/"
        running.shutdown()


# -- reading -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("below", ["", "cifar-10-batches-py"])
def test_cifar_from_a_root(cifar, below):
    dataset = load("cifar10", root=cifar / below)
    assert (dataset.train_rows, dataset.test_rows, dataset.shape) == (20, 4, (3, 32, 32))
    assert dataset.samples[::4, 0, 0, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert dataset.labels[3::4].tolist() == [0, 1, 2, 3, 4, 5]
    assert dataset.class_names[0] == "class0"
    assert dataset.mean == (0.4914, 0.4822, 0.4465)


def test_a_pickle_without_the_published_checksum_is_not_opened(cifar, tmp_path):
    trap = b"cos\nsystem\n(S'touch " + str(tmp_path / "opened").encode() + b"'\ntR."
    (cifar / "cifar-10-batches-py" / "data_batch_3").write_bytes(trap)
    assert "data_batch_3: not the published file (MD5 differs)" in refused(load, "cifar10", root=cifar)
    assert not (tmp_path / "opened").exists()


def test_a_root_without_the_files(tmp_path):
    assert "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k" in refused(load, "mnist", root=tmp_path)


# -- download ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cifar10", "mnist"])
def test_without_internet_one_line_says_what_to_do(name, cifar, mnist, cache_folder):
    text = refused(load, name)
    assert f"{cache_folder}/files/{name}" in text
    assert "--data.root" in text
    assert f"fedbench data {name} --from PATH" in text
    assert ("data_batch_1" if name == "cifar10" else "train-images-idx3-ubyte") in text
    assert not (cache_folder / "files" / name).exists()


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


# -- import ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["", "cifar-10-python.tar.gz", "cifar-10-batches-py"])
def test_import_of_a_folder_or_an_archive(cifar, what):
    importing.import_files("cifar10", cifar / what)
    shutil.rmtree(cifar)
    assert load("cifar10").train_rows == 20


def test_import_of_a_zip(mnist, tmp_path):
    shutil.make_archive(str(tmp_path / "packed"), "zip", mnist.parent, mnist.name)
    importing.import_files("mnist", tmp_path / "packed.zip")
    assert load("mnist").test_rows == 10


def test_import_of_a_folder_of_archives(tmp_path, save_images):
    names = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
    (tmp_path / "zips").mkdir()
    for domain in ("art_painting", "cartoon", "photo", "sketch"):
        for name in names:
            save_images(tmp_path / "raw" / domain / domain / name, list(range(5)))
        save_images(tmp_path / "raw" / domain / domain / "unicorn", [1])
        shutil.make_archive(str(tmp_path / "zips" / domain), "zip", tmp_path / "raw" / domain)
    folder = importing.import_files("pacs", tmp_path / "zips")
    assert not list(folder.rglob("unicorn")), "classes that the set does not have are left out"
    assert load("pacs").domain_names == ("art_painting", "cartoon", "photo", "sketch")
    (tmp_path / "zips" / "photo.zip").unlink()
    assert "photo missing in" in refused(importing.import_files, "pacs", tmp_path / "zips")
    assert load("pacs").train_rows == 4 * 7 * 4, "what was there before stays"


def test_sets_with_files_of_the_same_names_are_told_apart_by_their_folders(mnist, tmp_path, write_idx):
    shutil.copytree(mnist, tmp_path / "data" / "MNIST" / "raw")
    fashion = shutil.copytree(mnist, tmp_path / "data" / "FashionMNIST" / "raw")
    write_idx(fashion / "t10k-labels-idx1-ubyte.gz", np.full(10, 7, np.uint8))
    for name, last in (("mnist", list(range(10))), ("fmnist", [7] * 10)):
        importing.import_files(name, tmp_path / "data")
        assert load(name).labels[20:].tolist() == last
    for folder in ("FashionMNIST", "MNIST"):
        (tmp_path / "data" / folder).rename(tmp_path / "data" / folder[:2])
    text = refused(importing.import_files, "mnist", tmp_path / "data")
    assert "Fa/raw and" in text
    assert "hold such files; name one of them" in text


def test_an_import_leaves_no_litter(mnist, tmp_path, cache_folder):
    shutil.make_archive(str(tmp_path / "packed"), "zip", mnist)
    importing.import_files("mnist", tmp_path / "packed.zip")
    refused(importing.import_files, "svhn", tmp_path)
    assert sorted(path.name for path in (cache_folder / "files").iterdir()) == ["mnist", "mnist.lock", "svhn.lock"]


@pytest.mark.parametrize("member", ["../evil", "/tmp/evil", "a/../../evil"])
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_archives_that_point_outside_are_refused(tmp_path, kind, member, cache_folder):
    path = tmp_path / f"a.{kind}"
    if kind == "tar":
        with tarfile.open(path, "w") as tar:
            tar.addfile(tarfile.TarInfo(member), io.BytesIO())
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(member, "x")
    assert f"refused, its member '{member}' points outside" in refused(importing.import_files, "mnist", path)
    assert not list(cache_folder.rglob("evil"))


def test_an_archive_with_a_link_outside_is_refused(tmp_path):
    link = tarfile.TarInfo("inside")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc"
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.addfile(link)
    assert "refused" in refused(importing.import_files, "mnist", tmp_path / "a.tar")


def test_damaged_archives(cifar):
    path = cifar / "cifar-10-python.tar.gz"
    path.write_bytes(path.read_bytes()[:-200])
    assert "archive" in refused(importing.import_files, "cifar10", path)
    path.write_bytes(b"hello")
    assert "neither a folder nor a tar or zip archive" in refused(importing.import_files, "cifar10", path)


def test_imports_that_cannot_be(tmp_path, cifar):
    assert "--from is for cifar10, cifar100, cifar10c" in refused(importing.import_files, "digits", tmp_path)
    assert "no such file or folder" in refused(importing.import_files, "mnist", tmp_path / "none")
    assert "t10k-images-idx3-ubyte, t10k-labels" in refused(importing.import_files, "mnist", tmp_path)
    (cifar / "cifar-10-batches-py" / "test_batch").write_bytes(b"other")
    assert "test_batch: not the published file" in refused(
        importing.import_files, "cifar10", cifar / "cifar-10-batches-py"
    )
