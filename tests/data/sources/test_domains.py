"""Sets of domains: Office-Caltech10, DomainNet's ten classes, PACS."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from fedbench.data import importing
from fedbench.data.sources.domains import LAYOUTS
from tests.data.loading import with_any_damage

PACS = LAYOUTS["pacs"]


@pytest.fixture
def make(tmp_path, save_images):
    """A set with `count` images in each domain and class; a pixel tells domain (tens of 40) and class (tens of 4)."""

    def made(name: str, count: int = 1, side: int = 8) -> Path:
        layout = LAYOUTS[name]
        for d, domain in enumerate(layout.domains):
            for c, label in enumerate(layout.classes):
                values = [40 * d + 4 * c + i for i in range(count)]
                save_images(tmp_path / name / domain / label, values, side, "pic_{:03d}.png")
        return tmp_path / name

    return made


@pytest.fixture
def pacs(make) -> Path:
    """PACS with its lists: the first of two images of each class is a training image."""
    root = make("pacs", 2)
    for d, domain in enumerate(PACS.domains):
        for i, part in enumerate(("train", "crossval")):
            lines = [f"{domain}/{n}/pic_{40 * d + 4 * c + i:03d}.png {c + 1}" for c, n in enumerate(PACS.classes)]
            (root / f"{domain}_{part}_kfold.txt").write_text("\n".join(lines) + "\n")
    return root


def truth(dataset) -> tuple[list[int], list[int]]:
    """Domains and labels as the pixels tell them."""
    value = dataset.samples[:, 0, 0, 0].astype(int)
    return (value // 40).tolist(), (value % 40 // 4).tolist()


@pytest.mark.parametrize(("name", "domains"), [("office-caltech10", 4), ("domainnet10", 6)])
def test_without_lists_every_fifth_image_is_a_test_image(make, load, name, domains):
    (dataset := load(name, root=make(name, 5), size=8))
    assert (dataset.train_rows, dataset.test_rows) == (domains * 10 * 4, domains * 10)
    assert dataset.classes == 10


def test_domains_classes_and_sizes(make, load):
    dataset = load("office-caltech10", root=make("office-caltech10", 5))
    assert dataset.shape == (3, 256, 256)
    assert dataset.domain_names == ("amazon", "caltech", "dslr", "webcam")
    assert dataset.class_names[5] == "laptop_computer"
    assert LAYOUTS["domainnet10"].classes[3] == "ice_cream"
    assert LAYOUTS["domainnet10"].domains == ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")


def test_the_published_lists_decide(pacs, load):
    dataset = load("pacs", root=pacs)
    assert (dataset.train_rows, dataset.test_rows, dataset.shape) == (28, 28, (3, 8, 8))
    assert (dataset.domains.tolist(), dataset.labels.tolist()) == truth(dataset)
    assert (dataset.samples[:28, 0, 0, 0] % 2 == 0).all()
    assert (dataset.samples[28:, 0, 0, 0] % 2 == 1).all()
    assert dataset.warnings == ("56 samples, not the 9,991 that were published",)


def test_domainnet_keeps_its_ten_classes_of_the_lists(make, load, save_images):
    root, layout = make("domainnet10", 2), LAYOUTS["domainnet10"]
    save_images(root / "real" / "aircraft_carrier", [0])
    for d, domain in enumerate(layout.domains):
        for i, part in enumerate(("train", "test")):
            lines = [f"{domain}/{n}/pic_{40 * d + 4 * c + i:03d}.png {30 * c}" for c, n in enumerate(layout.classes)]
            (root / f"{domain}_{part}.txt").write_text("\n".join([f"{domain}/aircraft_carrier/000.png 1", *lines]))
    dataset = load("domainnet10", root=root, size=8)
    assert (dataset.train_rows, dataset.test_rows) == (60, 60)
    assert (dataset.domains.tolist(), dataset.labels.tolist()) == truth(dataset)


def test_real_pacs_with_its_table_of_parts(shared, load):
    importing.import_files("pacs", shared / "pacs")
    dataset = load("pacs")
    assert (dataset.train_rows, dataset.test_rows, dataset.shape) == (1680, 560, (3, 64, 64))
    cells = np.zeros((4, 7), int)
    np.add.at(cells, (dataset.domains[:1680], dataset.labels[:1680]), 1)
    assert (cells == 60).all()
    assert dataset.class_names == PACS.classes


def test_missing_domains_and_classes(make, refused):
    root = make("pacs", 5)
    shutil.rmtree(root / "photo" / "horse")
    assert "photo: no folder for class horse" in refused("pacs", root=root)
    (root / "photo" / "horse").mkdir()
    assert "photo/horse: no images in it" in refused("pacs", root=root)
    shutil.rmtree(root / "sketch")
    assert "sketch missing in" in refused("pacs", root=root)
    (root / "sketch").write_text("")
    assert "no folder for domain sketch" in refused("pacs", root=root)


def test_wrong_lists(pacs, refused):
    file = pacs / "photo_train_kfold.txt"
    lines = file.read_text().splitlines()
    for line, text in (
        ("photo/guitar/pic_999.png 4", "photo/guitar/pic_999.png is missing"),
        (lines[2], "row 4: pic_088.png is listed twice"),
        (lines[3][:-1] + "5", "row 4: class guitar has number 5, before it had 4"),
        (lines[3][:-2], "row 4: expected a path and a class number"),
        ("sketch/dog/pic_120.png 1", "row 4: sketch/dog/pic_120.png is not of the domain photo"),
        ("photo/guitar 4", "row 4: photo/guitar is not DOMAIN/CLASS/FILE"),
        ("../x/dog/a.png 1", "is not a path inside"),
    ):
        file.write_text("\n".join([*lines[:3], line, *lines[4:]]))
        assert text in refused("pacs", root=pacs)
    file.unlink()
    assert "photo_train_kfold.txt: missing, but the set has other lists" in refused("pacs", root=pacs)


def test_wrong_tables(make, refused):
    root = make("pacs", 2)
    rows = ["domain,class,part,path"]
    rows += [f"x,y,{('train', 'test')[int(f.stem[4:]) % 2]},{f.relative_to(root)}" for f in sorted(root.rglob("*.png"))]
    for row, line, text in (
        (0, "domain,class,split,path", "splits.csv, row 1: expected columns path and part"),
        (3, "x,y,valid,photo/dog/pic_080.png", "splits.csv, row 4: part 'valid'; expected train or test"),
        (3, "x,y,train", "row 4: 3 values, expected 4"),
        (3, "x,y,train,photo/cow/a.png", "row 4: photo/cow/a.png is not in a class of this set"),
        (3, rows[5], "is listed twice"),
    ):
        (root / "splits.csv").write_text("\n".join([*rows[:row], line, *rows[row + 1 :]]))
        assert text in refused("pacs", root=root)
    (root / "splits.csv").write_text("\n".join(row for row in rows if "photo/" not in row))
    assert "photo: no training images of this domain" in refused("pacs", root=root)


@with_any_damage
def test_any_damage_to_a_list_is_one_line_or_harmless(data, pacs, load_damaged):
    file = pacs / data.draw(st.sampled_from(["photo_train_kfold.txt", "sketch_crossval_kfold.txt"]))
    dataset = load_damaged(data, file, "pacs", root=pacs)
    assert dataset is None or (dataset.domains.tolist(), dataset.labels.tolist()) == truth(dataset)
