"""Published files brought from a folder or an archive."""

import shutil

import numpy as np
import pytest

from fedbench.data import importing
from tests.data.loading import load, refused


@pytest.mark.parametrize("what", ["", "cifar-10-python.tar.gz", "cifar-10-batches-py"])
def test_import_of_a_folder_or_an_archive(cifar, what):
    importing.import_files("cifar10", cifar / what)
    shutil.rmtree(cifar)
    assert load("cifar10").train_rows == 20


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
    assert load("mnist").test_rows == 10
    refused(importing.import_files, "svhn", tmp_path)
    assert sorted(path.name for path in (cache_folder / "files").iterdir()) == ["mnist", "mnist.lock", "svhn.lock"]


def test_damaged_archives(cifar):
    path = cifar / "cifar-10-python.tar.gz"
    path.write_bytes(path.read_bytes()[:-200])
    assert "archive" in refused(importing.import_files, "cifar10", path)
    path.write_bytes(b"hello")
    assert "neither a folder nor a tar or zip archive" in refused(importing.import_files, "cifar10", path)


def test_imports_that_cannot_be(tmp_path, cifar):
    assert "--from is for ag-news, camelyon17, cifar10, cifar100," in refused(
        importing.import_files, "digits", tmp_path
    )
    assert "no such file or folder" in refused(importing.import_files, "mnist", tmp_path / "none")
    assert "t10k-images-idx3-ubyte, t10k-labels" in refused(importing.import_files, "mnist", tmp_path)
    (cifar / "cifar-10-batches-py" / "test_batch").write_bytes(b"other")
    assert "test_batch: not the published file" in refused(
        importing.import_files, "cifar10", cifar / "cifar-10-batches-py"
    )
