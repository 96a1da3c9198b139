"""Folders of those that are gone are removed, and of those that live none, whatever their process is called."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedbench.errors import ConfigError
from fedbench.runtime.states.scratch import LARGE, Scratch, shared_memory, sweep_all

OWNER = """
import sys, time
from pathlib import Path
from fedbench.runtime.states.scratch import Scratch
scratch = Scratch(Path(sys.argv[1]))
(scratch.folder / "held").touch()
print(scratch.folder, flush=True)
time.sleep(600)
"""


def test_the_living_keep_their_folders_and_the_dead_lose_theirs(tmp_path):
    with subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as owner:
        theirs = owner.stdout.readline().strip()
        mine = Scratch(tmp_path)
        assert os.path.exists(f"{theirs}/held")
        owner.send_signal(signal.SIGKILL)
    other = Scratch(tmp_path)
    (ours,) = tmp_path.iterdir()
    assert sorted(path.name for path in ours.iterdir()) == sorted([mine.folder.name, other.folder.name])
    mine.close()
    other.close()
    assert not list(ours.iterdir())


def test_the_folders_of_the_dead_are_removed_without_making_another_one(tmp_path):
    sweep_all(tmp_path / "missing")
    assert not list(tmp_path.iterdir())
    mine = Scratch(tmp_path)
    with subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as owner:
        theirs = owner.stdout.readline().strip()
        owner.send_signal(signal.SIGKILL)
    sweep_all(tmp_path)
    assert not os.path.exists(theirs)
    assert mine.folder.exists()
    mine.close()


def test_what_is_not_ours_stays(tmp_path):
    """The user may name a folder with whatever is in it."""
    theirs = [tmp_path / "thesis" / "chapter.tex", tmp_path / f"fedbench-{os.getuid()}" / "notes" / "a.txt"]
    for file in theirs:
        file.parent.mkdir(parents=True)
        file.touch()
    Scratch(tmp_path).close()
    assert all(file.exists() for file in theirs)


def test_what_may_become_very_large_is_on_a_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("fedbench.runtime.states.scratch.shared_memory", lambda: tmp_path / "memory")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "disk"))
    for bytes, place in ((LARGE, "memory"), (LARGE + 1, "disk")):
        scratch = Scratch(bytes=bytes)
        assert scratch.folder.is_relative_to(tmp_path / place)
        scratch.close()
    asked = Scratch(tmp_path / "asked", bytes=LARGE + 1)
    assert asked.folder.is_relative_to(tmp_path / "asked")
    asked.close()


def test_shared_memory_is_used_if_it_has_room_for_all_messages(monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=3 << 30))
    monkeypatch.setattr(Path, "is_dir", lambda path: True)
    assert shared_memory() == shared_memory((2 << 30) - 1) == Path("/dev/shm")
    assert shared_memory(2 << 30) == Path(tempfile.gettempdir())


def test_a_folder_by_name_is_taken_over_from_the_dead_and_not_from_the_living(tmp_path):
    command = [sys.executable, "-c", OWNER.replace("(Path(sys.argv[1]))", "(Path(sys.argv[1]), 'host')"), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        owner.stdout.readline()
        mine = Scratch(tmp_path, "host")
        assert mine.folder.name != "host"
        owner.send_signal(signal.SIGKILL)
    taken = Scratch(tmp_path, "host")
    assert taken.folder.name == "host"
    assert (taken.folder / "held").exists()
    mine.close()
    taken.close()


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(
        ConfigError, match=r"resources.scratch: .*/file/fedbench-\d+ cannot be used \(Not a directory\)"
    ):
        Scratch(tmp_path / "file")
