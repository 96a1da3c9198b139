"""Folders of image files."""

import os
import shutil
from functools import partial
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pytest
from PIL import Image

from fedbench.config import Config
from fedbench.data import Dataset
from fedbench.data import partition as make_partition
from tests.data import loading


def load(path: Path, **options) -> Dataset:
    return loading.load(f"folder:{path}", **options)


refused = partial(loading.refused, load)


def save(folder: Path, count: int, side: int = 5, value: int = 0) -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        Image.fromarray(np.full((side, side, 3), value + number, np.uint8)).save(folder / f"{number:02d}.png")


@pytest.fixture
def classes(tmp_path) -> Path:
    """Two class folders with ten and five images; the pixels say which image it is."""
    save(tmp_path / "set" / "cat", 10)
    save(tmp_path / "set" / "dog", 5, value=100)
    return tmp_path / "set"


@pytest.fixture
def parts(tmp_path) -> Path:
    for part, count in (("train", 3), ("test", 2)):
        save(tmp_path / "set" / part / "cat", count)
        save(tmp_path / "set" / part / "dog", count, value=100)
    return tmp_path / "set"


def test_class_folders_alone_are_one_part_in_the_order_of_their_names(classes):
    dataset = load(classes)
    assert (dataset.class_names, dataset.one_part) == (("cat", "dog"), True)
    assert dataset.samples[:, 0, 0, 0].tolist() == [*range(10), *range(100, 105)]
    assert dataset.labels.tolist() == [0] * 10 + [1] * 5


def test_train_and_test_folders(parts):
    dataset = load(parts)
    assert (dataset.train_rows, dataset.test_rows) == (6, 4)
    assert dataset.labels.tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 1, 1]


def test_a_class_may_be_called_train(classes):
    save(classes / "train", 5)
    assert load(classes).class_names == ("cat", "dog", "train")


def test_pipes_and_links_to_nothing_are_named(classes):
    (classes / "cat" / "x.png").symlink_to(classes / "gone.png")
    assert "cat/x.png: a link to a file that is missing; remove it" in refused(classes)
    (classes / "cat" / "x.png").unlink()
    os.mkfifo(classes / "cat" / "x.png")
    assert refused(classes).endswith("cat/x.png: neither a file nor a folder")


def test_other_and_hidden_files_are_left_out(classes):
    (classes / "cat" / "Thumbs.db").write_text("hello")
    (classes / "cat" / ".hidden.png").write_text("hello")
    save(classes / "cat" / ".ipynb_checkpoints", 2)
    assert not any("other types" in line for line in load(classes).warnings)
    (classes / "cat" / "photo.heic").write_text("hello")
    found = load(classes, size=5)
    assert len(found.labels) == 15
    assert "files of other types are ignored (1), for example cat/photo.heic" in found.warnings


def test_an_added_image_is_noticed(classes):
    assert len(load(classes).labels) == 15
    Image.fromarray(np.zeros((5, 5, 3), np.uint8)).save(classes / "dog" / "99.png")
    assert len(load(classes).labels) == 16


def test_mixed_sizes_need_the_option(classes):
    save(classes / "owl", 5, side=6)
    assert "owl/00.png: the image is 6x6 of 3 channels" in refused(classes)
    assert load(classes, size=4).shape == (3, 4, 4)


def test_folders_without_images(tmp_path, classes):
    assert "no such folder" in refused(tmp_path / "none")
    (classes / "owl").mkdir()
    assert "owl: no images in it" in refused(classes)
    (tmp_path / "empty").mkdir()
    assert "empty: no class folders in it" in refused(tmp_path / "empty")


def test_a_class_that_the_training_part_lacks(parts):
    save(parts / "test" / "owl", 1)
    assert "test/owl: no folder of this class in the training part" in refused(parts)


@pytest.fixture
def domains(tmp_path) -> Path:
    """Two domains of two classes with five images each; the pixels say which image it is."""
    for d, domain in enumerate(("photo", "sketch")):
        for c, name in enumerate(("cat", "dog")):
            save(tmp_path / "set" / domain / name, 5, value=100 * d + 50 * c)
    return tmp_path / "set"


def test_folders_of_the_same_classes_are_domains(domains):
    dataset = load(domains)
    assert (dataset.domain_names, dataset.class_names) == (("photo", "sketch"), ("cat", "dog"))
    assert (dataset.train_rows, dataset.one_part) == (20, True)
    value = dataset.samples[:, 0, 0, 0].astype(int)
    assert (value // 100 == dataset.domains).all()
    assert (value % 100 // 50 == dataset.labels).all()
    assert value.tolist() == [100 * d + 50 * c + image for d in (0, 1) for c in (0, 1) for image in range(5)]
    assert "photo, sketch are domains" in dataset.warnings[0]


def test_or_classes_where_the_option_says_so(domains):
    dataset = load(domains, domains=False)
    assert (dataset.domain_names, dataset.class_names, dataset.domains) == ((), ("photo", "sketch"), None)
    assert load(domains, domains=True).warnings == ()


def test_domains_below_train_and_test(domains, tmp_path):
    shutil.copytree(domains, tmp_path / "both" / "train")
    shutil.copytree(domains, tmp_path / "both" / "test")
    assert load(tmp_path / "both").domain_names == ("photo", "sketch")
    shutil.rmtree(tmp_path / "both" / "test" / "sketch")
    assert "test/sketch: no folder of this domain" in refused(tmp_path / "both")


def test_a_domain_that_lacks_a_class_is_asked_about(domains):
    save(domains / "photo" / "owl", 5)
    assert "sketch: no folder owl, which photo has; set data.domains true" in refused(domains)
    assert load(domains, domains=True).class_names == ("cat", "dog", "owl")


def test_a_domain_of_one_class_is_asked_about(domains):
    shutil.rmtree(domains / "sketch" / "dog")
    assert "sketch: no folder dog, which photo has; set data.domains true" in refused(domains)
    dataset = load(domains, domains=True)
    assert (dataset.class_names, dataset.domain_names) == (("cat", "dog"), ("photo", "sketch"))
    assert load(domains, domains=False).class_names == ("photo", "sketch")


def test_domains_that_share_some_classes_are_asked_about(tmp_path):
    for place in ("d1/a", "d1/b", "d2/b", "d2/c", "d3/a", "d3/c"):
        save(tmp_path / "set" / place, 2)
    assert "d1: no folder c, which d2 has; set data.domains true" in refused(tmp_path / "set")


@pytest.mark.parametrize("below", [("one", "one"), ("one", "two")])
def test_classes_deeper_than_domains_are_refused(tmp_path, below):
    for domain, folder in zip(("photo", "sketch"), below, strict=True):
        save(tmp_path / "set" / domain / folder / "cat", 2)
        save(tmp_path / "set" / domain / folder / "dog", 2)
    line = refused(tmp_path / "set")
    assert f"pictures lie in photo/one/cat and sketch/{below[1]}/cat, deeper than DOMAIN/CLASS: set data" in line
    assert line.endswith("or move cat up if that is one")
    assert load(tmp_path / "set", domains=False).class_names == ("photo", "sketch")
    save(tmp_path / "set" / "flat", 2)
    assert line in refused(tmp_path / "set")


def test_folders_of_a_class_alone_are_read_and_that_is_said(tmp_path):
    for place in ("normal/p1", "normal/p2", "sick/p3", "sick/p4/right"):
        save(tmp_path / "set" / place, 2)
    dataset = load(tmp_path / "set")
    assert (dataset.class_names, dataset.domain_names, dataset.train_rows) == (("normal", "sick"), (), 8)
    assert dataset.warnings == ("pictures lie in folders of the classes (4), for example normal/p1",)
    assert load(tmp_path / "set", domains=False).warnings == ()


def test_pictures_below_the_classes_of_domains_are_read_and_that_is_said(domains):
    save(domains / "photo" / "cat" / "more", 2)
    dataset = load(domains)
    assert (dataset.class_names, dataset.train_rows) == (("cat", "dog"), 22)
    assert "pictures lie in folders of the classes (1), for example photo/cat/more" in dataset.warnings


@pytest.mark.parametrize(
    ("train", "test", "below", "remedy"),
    [
        ("training_set", "test_set", "", "train and test"),
        ("images_train", "images_val", "", "train and val"),
        ("seg_train", "seg_test", "seg", "train and test"),
        ("train", "my testing", "", "train and test"),
    ],
)
def test_folders_with_a_part_in_their_names_are_asked_about(tmp_path, train, test, below, remedy):
    for folder in (train, test):
        for name in ("cat", "dog"):
            save(tmp_path / "set" / folder / below / name, 2)
    assert refused(tmp_path / "set").endswith(
        f"the folders {', '.join(sorted((train, test)))} are named like parts: parts of the data set (rename them "
        f"to {remedy}) or domains (--data.domains true) or classes (--data.domains false)?"
    )
    assert load(tmp_path / "set", domains=True).domain_names == tuple(sorted((train, test)))
    assert load(tmp_path / "set", domains=False).class_names == tuple(sorted((train, test)))


def test_folders_of_one_part_by_their_names_are_domains(tmp_path):
    for place in ("test_a/cat", "test_a/dog", "test_b/cat", "test_b/dog"):
        save(tmp_path / "set" / place, 2)
    assert load(tmp_path / "set").domain_names == ("test_a", "test_b")


def test_a_picture_beside_the_classes_of_a_domain_is_asked_about(domains):
    shutil.copy(domains / "photo" / "cat" / "00.png", domains / "photo" / "stray.png")
    line = refused(domains)
    assert "photo/stray.png: lies beside the folders cat, dog, which all folders of" in line
    assert "data.domains false" in line
    assert load(domains, domains=False).class_names == ("photo", "sketch")
    dataset = load(domains, domains=True)
    assert (dataset.train_rows, dataset.domain_names) == (20, ("photo", "sketch"))
    assert dataset.warnings == ("pictures in no class folder are ignored (1), for example photo/stray.png",)


def test_pictures_beside_class_folders_are_counted(classes):
    shutil.copy(classes / "cat" / "00.png", classes / "lost.png")
    assert "pictures in no class folder are ignored (1), for example lost.png" in load(classes).warnings


def test_pictures_beside_class_folders_of_a_part_are_counted(parts):
    shutil.copy(parts / "train" / "cat" / "00.png", parts / "test" / "lost.png")
    assert "pictures in no class folder are ignored (1), for example test/lost.png" in load(parts).warnings


@pytest.mark.parametrize("name", ["Cat", "c at"])
def test_class_folders_of_two_spellings_are_refused(classes, name):
    save(classes / name, 2)
    assert f"the folders {min(name, 'cat')!r} and {max(name, 'cat')!r} differ in case or blanks alone" in refused(
        classes
    )


def test_domains_of_two_spellings_are_refused(domains):
    shutil.copytree(domains / "photo", domains / "Photo")
    assert "rename one if they are two domains" in refused(domains)


@pytest.mark.parametrize("below", ["images", "images/small"])
def test_class_folders_with_one_folder_in_each_are_classes(tmp_path, below):
    for name in ("cat", "dog"):
        save(tmp_path / "set" / name / below, 5)
    assert load(tmp_path / "set").class_names == ("cat", "dog")


def test_a_domain_without_classes(domains):
    (domains / "empty").mkdir()
    assert "empty: no class folders in it" in refused(domains, domains=True)


def dealt(path: Path, **partition) -> list[tuple[int, int, int]]:
    """Training, validation and test images of the clients."""
    config = Config(data=f"folder:{path}", partition=partition)
    found = make_partition(Dataset.load(config.data), config, 0)
    return [(len(own.train), len(own.val), len(own.test)) for own in found.clients]


def test_clients_may_have_parts_of_their_own(tmp_path):
    for client, count in (("ann", 6), ("bob", 4)):
        for part, size in (("train", count), ("val", 2), ("test", 3)):
            save(tmp_path / "set" / client / part / "cat", size)
            save(tmp_path / "set" / client / part / "dog", size, value=100)
    dataset = load(tmp_path / "set")
    assert (dataset.class_names, dataset.domain_names) == (("cat", "dog"), ("ann", "bob"))
    assert dataset.warnings[0].startswith("read as CLIENT/PART/CLASS: ann, bob are clients")
    assert dealt(tmp_path / "set", name="natural") == [(12, 4, 6), (8, 4, 6)]
    (tmp_path / "set" / "cem" / "cat").mkdir(parents=True)
    assert "cem: no train and test folder, which " in refused(tmp_path / "set")


def test_clients_may_have_a_training_part_alone(tmp_path):
    for client in ("ann", "bob"):
        save(tmp_path / "set" / client / "train" / "cat", 5)
        save(tmp_path / "set" / client / "train" / "dog", 5, value=100)
    dataset = load(tmp_path / "set")
    assert (dataset.class_names, dataset.domain_names) == (("cat", "dog"), ("ann", "bob"))
    assert (dataset.train_rows, dataset.one_part) == (20, True)
    assert [sum(own) for own in dealt(tmp_path / "set", name="natural")] == [10, 10]


def test_folders_train_without_class_folders_are_folders_of_classes(tmp_path):
    for name in ("cat", "dog"):
        save(tmp_path / "set" / name / "train", 5)
    assert load(tmp_path / "set").class_names == ("cat", "dog")


def test_a_validation_folder_is_a_validation_part(parts):
    save(parts / "val" / "cat", 4)
    save(parts / "extra", 2)
    dataset = load(parts)
    assert (dataset.train_rows, dataset.val_rows, dataset.test_rows) == (10, 4, 4)
    assert f"folders of {parts} that are not part of the data set and are ignored: extra" in dataset.warnings
    clients = dealt(parts, name="iid", clients=2)
    assert (sum(own[0] for own in clients), sum(own[1] for own in clients)) == (6, 4)
    assert load(parts, test_part="val").test_rows == 4
    shutil.rmtree(parts / "test")
    assert load(parts).test_rows == 4
    assert "the validation part holds the test samples" in load(parts).warnings
    assert "data.test_part = test" in refused(parts, test_part="test")


def test_transparent_pixels_are_read_on_white_and_that_is_said(classes):
    Image.new("RGBA", (5, 5), (10, 20, 30, 0)).save(classes / "cat" / "00.png")
    dataset = load(classes)
    assert dataset.samples[0].tolist() == np.full((3, 5, 5), 255).tolist()
    assert any("1 images have transparent pixels, read on white" in line for line in dataset.warnings)


def test_links_to_folders_are_followed_once(classes, tmp_path):
    save(tmp_path / "store", 20, value=50)
    for link, target in (("linked", tmp_path / "store"), ("again", tmp_path / "store"), ("loop", classes / "cat")):
        (classes / "cat" / link).symlink_to(target)
    (classes / "dog" / "deep").mkdir()
    (classes / "dog" / "deep" / "linked").symlink_to(tmp_path / "store")
    (tmp_path / "store" / "loop").symlink_to(classes / "dog")
    dataset = load(classes)
    assert np.bincount(dataset.labels).tolist() == [10 + 20 + 5, 5 + 20]
    assert len(np.unique(np.asarray(dataset.samples[:30, 0, 0, 0]))) == 30


def test_what_macos_adds_to_archives_is_left_out_and_that_is_said(classes):
    (classes / "__MACOSX" / "cat").mkdir(parents=True)
    (classes / "__MACOSX" / "cat" / "._00.png").write_bytes(b"\0\5\26\7")
    dataset = load(classes)
    assert dataset.class_names == ("cat", "dog")
    assert "folders __MACOSX, which macOS adds to archives, are left out" in dataset.remarks


def test_names_are_compared_in_one_form_of_unicode(tmp_path):
    for part, form in (("train", "NFC"), ("test", "NFD")):
        save(tmp_path / part / normalize(form, "caf\u00e9"), 3)
        save(tmp_path / part / "bar", 2)
    dataset = load(tmp_path)
    assert dataset.class_names == ("bar", "caf\u00e9")
    assert (dataset.train_rows, dataset.test_rows) == (5, 5)
    save(tmp_path / "test" / "caf\u00e9", 1)
    assert "two folders are called caf\u00e9, in two forms of Unicode; join them" in refused(tmp_path)


def test_folders_train_of_classes_and_names_of_classes_are_no_parts(tmp_path):
    """Patients below CLASS/train share no name, and pictures directly in folders are of classes."""
    for place in ("cat/train/p1", "cat/train/p2", "dog/train/p3", "dog/train/p4"):
        save(tmp_path / "patients" / place, 2)
    assert load(tmp_path / "patients").class_names == ("cat", "dog")
    for place in ("bullet_train", "test_tube"):
        save(tmp_path / "things" / place, 2)
    assert load(tmp_path / "things").class_names == ("bullet_train", "test_tube")
