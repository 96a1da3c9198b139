"""Published files: read, checked, downloaded, imported."""

import functools
import hashlib
import http.server
import io
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
    assert dataset.images[::4, 0, 0, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert dataset.labels[3::4].tolist() == [0, 1, 2, 3, 4, 5]
    assert dataset.class_names[0] == "class0"
    assert dataset.mean == (0.4914, 0.4822, 0.4465)


def test_a_pickle_without_the_published_checksum_is_not_opened(cifar, tmp_path):
    trap = b"cos\nsystem\n(S'touch " + str(tmp_path / "opened").encode() + b"'\ntR."
    (cifar / "cifar-10-batches-py" / "data_batch_3").write_bytes(trap)
    assert "data_batch_3: not the published file (MD5 differs)" in refused(load, "cifar10", root=cifar)
    assert not (tmp_path / "opened").exists()


def test_mnist_files_with_the_published_checksums_need_no_note(mnist):
    dataset = load("mnist", root=mnist)
    assert (dataset.train_rows, dataset.test_rows, dataset.shape) == (20, 10, (1, 28, 28))
    assert dataset.labels[:10].tolist() == list(range(10))
    assert dataset.notes == ()
    assert dataset.class_names == tuple("0123456789")


def test_real_subsets_are_read_with_a_note(shared):
    dataset = load("mnist", root=shared / "mnist")
    assert (dataset.train_rows, dataset.test_rows) == (10_000, 10_000)
    assert np.bincount(dataset.labels[10_000:]).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert "MD5 differs): train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz; a subset" in dataset.notes[0]
    assert load("fmnist", root=shared / "fmnist").class_names[9] == "Ankle boot"


def test_broken_idx_files(mnist, write_idx):
    images, labels = mnist / "train-images-idx3-ubyte.gz", mnist / "train-labels-idx1-ubyte.gz"
    whole = images.read_bytes()
    images.write_bytes(whole[:100])
    assert "train-images-idx3-ubyte.gz: damaged or not whole" in refused(load, "mnist", root=mnist)
    images.write_bytes(b"")
    assert "train-images-idx3-ubyte.gz: " in refused(load, "mnist", root=mnist)
    images.write_bytes(labels.read_bytes())
    assert "not an IDX file of 3-dimensional bytes" in refused(load, "mnist", root=mnist)
    images.write_bytes(whole)
    write_idx(labels, np.arange(19, dtype=np.uint8) % 10)
    assert "19 labels, and 20 images" in refused(load, "mnist", root=mnist)
    write_idx(labels, np.full(20, 11, np.uint8))
    assert "train-labels-idx1-ubyte.gz, row 0: label 11 is outside" in refused(load, "mnist", root=mnist)
    images.unlink()
    plain = write_idx(images.with_suffix(""), np.zeros((20, 28, 28), np.uint8))
    plain.write_bytes(plain.read_bytes()[:-784])
    assert "20 rows announced, 19 are there" in refused(load, "mnist", root=mnist)


def test_a_root_without_the_files(tmp_path):
    assert "train-images-idx3-ubyte.gz" in refused(load, "mnist", root=tmp_path)


# -- download ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cifar10", "mnist"])
def test_without_internet_one_line_says_what_to_do(name, cifar, mnist, cache_folder):
    text = refused(load, name)
    assert f"{cache_folder}/files/{name}/" in text
    assert f"fedbench data {name} --from PATH" in text
    assert ("data_batch_1" if name == "cifar10" else "train-images-idx3-ubyte.gz") in text
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
    assert "--from is for cifar10, cifar100, mnist, fmnist" in refused(importing.import_files, "digits", tmp_path)
    assert "no such file or folder" in refused(importing.import_files, "mnist", tmp_path / "none")
    assert "t10k-images-idx3-ubyte.gz" in refused(importing.import_files, "mnist", tmp_path)
    (cifar / "cifar-10-batches-py" / "test_batch").write_bytes(b"other")
    assert "test_batch: not the published file" in refused(
        importing.import_files, "cifar10", cifar / "cifar-10-batches-py"
    )
