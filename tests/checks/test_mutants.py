from importlib import import_module
from pathlib import Path

import pytest

from fedbench.checks.mutants import Breaking, Mutant, concerns
from fedbench.errors import ConfigError
from tests.checks.pulled import Pulled

FLIPPED = "add_pull: w - s.anchor -> w + s.anchor"
UNSEEN = "add_pull: s.mu * 1 -> s.mu / 1"
LIGHT = """
class Light:
    def rate(self):
        return 1 + 2
"""
TESTS = """
from {module} import Light

def test_rate():
    assert Light().rate() == {rate}
"""


def test_changes_that_no_check_notices_are_named():
    breaking = Breaking(Pulled)
    changes = {change.what: change for change in breaking.changes()}
    assert all(what.startswith(("Pulled.", "add_pull")) for what in changes)
    assert (
        "Pulled.train: client.fit(received, client.train, step=pull) -> client.fit(received, client.train)" in changes
    )
    assert breaking.mutant(changes[FLIPPED]).noticed_by == "numbers"
    assert breaking.mutant(changes[UNSEEN]).noticed_by == ""


def light(folder: Path, monkeypatch, module: str, rate: int) -> tuple[type, Path]:
    """A class that needs no PyTorch, and a file that tests it."""
    (folder / f"{module}.py").write_text(LIGHT)
    (folder / "test_light.py").write_text(TESTS.format(module=module, rate=rate))
    monkeypatch.syspath_prepend(str(folder))
    return import_module(module).Light, folder / "test_light.py"


def test_tests_of_the_author_are_tried_on_the_changed_module(tmp_path, monkeypatch):
    kind, file = light(tmp_path, monkeypatch, "light_right", 3)
    breaking = Breaking(kind, tests=file)
    (change,) = [change for change in breaking.changes() if change.what == "Light.rate: 1 + 2 -> 1 - 2"]
    assert breaking.mutant(change).test == "test_rate"


def test_tests_that_fail_on_the_class_as_it_is_are_refused(tmp_path, monkeypatch):
    kind, file = light(tmp_path, monkeypatch, "light_wrong", 4)
    with pytest.raises(ConfigError, match="fails on Light as it is: test_rate; correct it first"):
        Breaking(kind, tests=file)


def test_who_notices_a_change_is_in_its_line():
    assert str(Mutant(7, "f: 1 -> 2", "order")) == "line 7    order        f: 1 -> 2"
    assert "NO CHECK" in str(Mutant(7, "f: 1 -> 2", "", "test_it"))
    assert "NO TEST" in str(Mutant(7, "f: 1 -> 2", "order", ""))


def test_other_classes_of_the_file_are_left_alone():
    assert concerns("Pulled.train: 1 -> 2", Pulled)
    assert concerns("add_pull: 1 -> 2", Pulled)
    assert not concerns("Other.train: 1 -> 2", Pulled)
