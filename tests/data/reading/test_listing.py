"""Folders and lists of image files."""

import sys

import pytest

from fedbench.config import DataConfig
from fedbench.data.reading.listing import (
    SeenFiles,
    images_in,
    nonempty_images,
    path_below,
    path_in_name,
    read_list,
    require_folders,
    subfolders,
)
from fedbench.errors import ConfigError


@pytest.fixture
def folder(tmp_path):
    for name in ("b.png", "a.JPG", ".hidden.png", "notes.txt"):
        (tmp_path / name).touch()
    (tmp_path / "dogs").mkdir()
    (tmp_path / ".git").mkdir()
    return tmp_path


def test_images_and_folders_ascending_without_hidden_ones(folder):
    assert [path.name for path in images_in(folder)] == ["a.JPG", "b.png"]
    assert [path.name for path in subfolders(folder)] == ["dogs"]


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="resolves such a link; reading what it names is refused")
def test_a_link_that_leads_to_itself_is_refused(tmp_path):
    (tmp_path / "pets").symlink_to("pets")
    with pytest.raises(ConfigError, match=r"Symlink loop from .*pets'; give the path of the files themselves"):
        path_in_name(DataConfig(name=f"folder:{tmp_path / 'pets'}"))


def test_a_folder_without_images_is_refused(folder):
    with pytest.raises(ConfigError, match=r"dogs: no images in it \(.*\.png"):
        nonempty_images(folder / "dogs")
    with pytest.raises(ConfigError, match="cats: no such folder"):
        nonempty_images(folder / "cats")


def test_missing_classes_are_named(folder):
    (folder / "in" / "dogs").mkdir(parents=True)
    require_folders(folder / "in", ("dogs",))
    with pytest.raises(ConfigError, match="no folder for class cats; it has dogs"):
        require_folders(folder / "in", ("cats", "dogs"))


def test_rows_of_a_list_know_where_they_stand(folder):
    (folder / "list.txt").write_text("a.png 0\n\nb.png  1\n")
    first, second = read_list(folder / "list.txt", " ")
    assert (first.values, second.where) == (["a.png", "0"], f"{folder / 'list.txt'}, row 3")


@pytest.mark.parametrize(("content", "said"), [(b"", "empty file"), (b"\xff\xfe\xff", r"cannot be read \(not text")])
def test_lists_that_cannot_be_read(folder, content, said):
    (folder / "list.txt").write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        list(read_list(folder / "list.txt", ","))


def test_a_file_is_listed_once_and_is_there(folder):
    seen = SeenFiles()
    seen.add(folder / "b.png", "row 1")
    with pytest.raises(ConfigError, match=r"row 2: b.png is listed twice, first in row 1"):
        seen.add(folder / "b.png", "row 2")
    with pytest.raises(ConfigError, match=r"row 3: .*c\.png is missing"):
        seen.add(folder / "c.png", "row 3")


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../a.png", "a/../../b.png", "\\server", "a\0b"])
def test_a_listed_path_stays_inside(folder, name):
    assert path_below(folder, "dogs/a.png", "row 1") == folder / "dogs/a.png"
    with pytest.raises(ConfigError, match=r"row 1: .* is not a path inside"):
        path_below(folder, name, "row 1")
