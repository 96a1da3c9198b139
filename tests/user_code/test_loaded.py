"""What a process has of a module is compared with what its file says, whatever was asked for first."""

import importlib
import sys
from pathlib import Path

import pytest

from fedbench.user_code.files import on_disk, with_imports
from fedbench.user_code.loaded import code_differences

TEXT = '''
"""A module."""
import functools
from own_part import SIZE, Base, scaled

LR = 0.01
LAYERS = [64, 32]
STEPS = [0]
SEEN = {}
COUNT = 0


def rate(step, power=2, *, floor=0.0):
    """Says the rate."""
    global COUNT
    COUNT += 1
    SEEN[step] = power
    STEPS.append(step)
    return LR


@functools.cache
def slow(x):
    return x + 1


class Net(Base):
    width = 16
    __hidden = 2
    calls = 0

    def forward(self, x):
        Net.calls += 1
        return [y for y in x if y]

    @property
    def size(self):
        return SIZE

    @size.setter
    def size(self, value):
        self.value = value

    def __private(self):
        return self.__hidden

    @staticmethod
    def make(k=1):
        return Net

    def inner(self):
        def deep():
            return {"a", "b"}

        return deep
'''
PART = "SIZE = 3\ndef scaled(x):\n    return x\nclass Base:\n    def start(self):\n        return 1\n"


@pytest.fixture
def own(tmp_path, monkeypatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a file that is written twice within a second
    write(tmp_path, TEXT)
    write(tmp_path, PART, "own_part.py")
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]


def write(folder: Path, text: str, name: str = "own_mod.py") -> None:
    (folder / name).write_text(text)
    importlib.invalidate_caches()


def found() -> set[tuple[str, str, str]]:
    modules = with_imports(["own_mod"], on_disk)
    return {(one.module, one.name, one.source) for one in code_differences(modules)}


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        ("LR = 0.01", "LR = 0.5", "LR"),
        ("LR = 0.01", "LR = True", "LR"),
        ("LAYERS = [64, 32]", "LAYERS = [64, 64]", "LAYERS"),
        ("power=2", "power=3", "rate"),
        ("floor=0.0", "floor=0.1", "rate"),
        ("return LR", "return -LR", "rate"),
        ("return x + 1", "return x + 2", "slow"),
        ("width = 16", "width = 32", "width"),
        ("for y in x if y", "for y in x", "forward"),
        ("return SIZE", "return SIZE + 1", "size"),
        ("self.value = value", "self.worth = value", "size"),
        ("k=1", "k=2", "make"),
        ('{"a", "b"}', '{"a", "c"}', "deep"),
        ("    def forward(self, x):", "    def forwards(self, x):", "forward"),
        ("    def inner(", "    def start(self):\n        return 3\n\n    def inner(", "start"),
        ("return self.__hidden", "return -self.__hidden", "__private"),
        ("__hidden = 2", "__hidden = 3", "__hidden"),
    ],
)
def test_what_a_file_says_otherwise_since_it_was_imported_is_named(own, before, after, name):
    importlib.import_module("own_mod")
    assert found() == set()
    write(own, TEXT.replace(before, after))
    name = "inner" if name == "deep" else name
    assert ("own_mod", name, "own_mod") in found()
    importlib.reload(sys.modules["own_mod"])
    assert found() == set()


def test_what_modules_change_while_they_work_and_how_they_are_written_is_no_difference(own):
    module = importlib.import_module("own_mod")
    module.rate(3)
    module.slow(1)
    module.Net().forward([1])
    assert (module.COUNT, module.SEEN, module.Net.calls) == (1, {3: 2}, 1)
    text = TEXT.replace("Says the rate.", "Says it.").replace("LR = 0.01", "# the rate\nLR = 0.010")
    write(own, text.replace("[64, 32]", "[\n    64,\n    32,\n]"))
    assert found() == set()


ODD = {
    "an enumeration": "import enum\nclass Kind(enum.Enum):\n"
    "    def __new__(cls, x):\n        return object.__new__(cls)\n    A = 1\n",
    "a star": "def floor(x):\n    return x\npi = 3\nfrom math import *\n",
    "any names": "A = 1\ndef f():\n    pass\nfor name in ('A', 'f'):\n    globals()[name] = 2\n",
    "another module": "class Net:\n    __module__ = 'own'\n    def forward(self):\n        pass\n",
    "a name that goes": "HERE = 1\nexec('del HERE')\n",
    "made by a metaclass": "class Meta(type):\n    def __new__(cls, name, bases, names):\n        names['size'] += 1\n"
    "        return super().__new__(cls, name, bases, names)\nclass Net(metaclass=Meta):\n    size = 1\n",
    "attributes by any name": "class Net:\n    def f(self): pass\nfor name in 'f':\n    setattr(Net, name, len)\n",
    "a decorator": "import functools\ndef main(f):\n    @functools.wraps(f)\n    def run(x=1):\n        return f(x)\n"
    "    return run\n@main\ndef run(x):\n    pass\n",
    "a branch": "import sys\nif sys:\n    X = 1\nelse:\n    X = 2\ndef f(): pass\nf = len\n",
}


@pytest.mark.parametrize("what", ODD)
def test_what_a_module_makes_of_itself_while_it_is_imported_is_no_difference(own, what):
    write(own, ODD[what])
    importlib.import_module("own_mod")
    assert found() == set()


def test_what_was_set_from_outside_is_a_difference(own, monkeypatch):
    module = importlib.import_module("own_mod")
    monkeypatch.setattr(module, "LR", 0.5)
    assert found() == {("own_mod", "LR", "own_mod")}
    monkeypatch.undo()
    monkeypatch.setattr(module.Net, "forward", lambda self, x: x)
    assert found() == {("own_mod", "forward", "own_mod")}
    monkeypatch.undo()
    monkeypatch.setattr(module, "rate", len)
    assert found() == {("own_mod", "rate", "own_mod")}


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        ("SIZE = 3", "SIZE = 4", {"SIZE"}),
        ("return x", "return -x", {"scaled"}),
        ("return 1", "return 2", {"Base"}),
        ("SIZE", "SIZE", set()),
    ],
)
def test_what_was_taken_from_a_module_before_that_was_imported_again_is_a_difference(own, before, after, names):
    importlib.import_module("own_mod")
    write(own, PART.replace(before, after), "own_part.py")
    importlib.reload(sys.modules["own_part"])
    assert found() == {("own_mod", name, "own_part") for name in names}


def test_a_class_whose_base_was_imported_again_is_a_difference(own):
    write(own, "import own_part\nclass Net(own_part.Base):\n    pass\n")
    importlib.import_module("own_mod")
    write(own, PART.replace("return 1", "return 2"), "own_part.py")
    importlib.reload(sys.modules["own_part"])
    assert found() == {("own_mod", "Base", "own_part")}


def test_a_module_that_was_not_imported_by_python_itself_is_not_compared(own):
    module = importlib.import_module("own_mod")
    module.LR = 0.5
    module.__spec__.loader = type("Other", (type(module.__spec__.loader),), {})("own_mod", module.__file__)
    assert found() == set()
