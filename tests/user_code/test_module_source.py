"""Where loaded modules differ from their source."""

import importlib
import sys
from types import ModuleType

import pytest

from fedbench.user_code.files import on_disk, with_imports
from fedbench.user_code.module_source import loaded_differences
from tests.user_code.conftest import write

TEXT = '''
"""A module."""
import functools
from own_helper import SIZE, Base, scaled

LR = 0.01
STEPS = [0]
COUNT = 0


def rate(step, power=2):
    """Says the rate."""
    global COUNT
    COUNT += 1
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
    def make(start, sizes=(1, -2), *, scale=1.0, kinds=[], name):
        return Net

    def inner(self, /, bias=True, size=SIZE):
        def deep():
            return {"a", "b"}

        return deep
'''
HELPER = "SIZE = 3\ndef scaled(x):\n    return x\nclass Base:\n    def start(self):\n        return 1\n"


@pytest.fixture
def module(own) -> ModuleType:
    write(own / "own_net.py", TEXT)
    write(own / "own_helper.py", HELPER)
    return importlib.import_module("own_net")


def differences() -> set[str]:
    """The names in own_net that differ from its source now."""
    return {*loaded_differences(with_imports(["own_net"], on_disk)).get("own_net", ())}


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        ("LR = 0.01", "LR = 0.5", "LR"),
        ("LR = 0.01", "LR = True", "LR"),
        ("return LR", "return -LR", "rate"),
        ("return x + 1", "return x + 2", "slow"),
        ("width = 16", "width = 32", "Net.width"),
        ("for y in x if y", "for y in x", "Net.forward"),
        ("return SIZE", "return SIZE + 1", "Net.size"),
        ("self.value = value", "self.worth = value", "Net.size"),
        ("return Net", "return Net()", "Net.make"),
        ('{"a", "b"}', '{"a", "c"}', "Net.inner"),
        ("    def forward(self, x):", "    def forwards(self, x):", "Net.forward"),
        ("return self.__hidden", "return -self.__hidden", "Net.__private"),
        ("power=2", "power=3", "rate"),
        ("scale=1.0", "scale=2.0", "Net.make"),
        ("sizes=(1, -2)", "sizes=(1, 2)", "Net.make"),
        ("bias=True", "bias=None", "Net.inner"),
    ],
)
def test_edits_after_an_import_are_differences_until_the_next(own, module, before, after, name):
    assert differences() == set()
    write(own / "own_net.py", TEXT.replace(before, after))
    assert name in differences()
    importlib.reload(module)
    assert differences() == set()


def test_what_modules_do_while_they_work_and_how_they_are_written_is_no_difference(own, module):
    module.rate(3)
    module.slow(1)
    module.Net().forward([1])
    module.Net.make.__kwdefaults__["kinds"].append(3)
    assert (module.COUNT, module.STEPS, module.Net.calls) == (1, [0, 3], 1)
    write(own / "own_net.py", TEXT.replace("Says the rate.", "Says it.").replace("LR = 0.01", "# rate\nLR = 0.010"))
    assert differences() == set()


ODD = {
    "an enumeration": "import enum\nclass Kind(enum.Enum):\n"
    "    def __new__(cls, x):\n        return object.__new__(cls)\n    A = 1\n",
    "a star": "def floor(x):\n    return x\npi = 3\nfrom math import *\n",
    "any names": "A = 1\ndef f():\n    pass\nfor name in ('A', 'f'):\n    globals()[name] = 2\n",
    "another module": "class Net:\n    __module__ = 'own'\n    x = 1\n",
    "a name that goes": "HERE = 1\nexec('del HERE')\n",
    "made by a metaclass": "class Meta(type):\n    def __new__(cls, name, bases, names):\n        names['size'] += 1\n"
    "        return super().__new__(cls, name, bases, names)\nclass Net(metaclass=Meta):\n    size = 1\n",
    "attributes by any name": "class Net:\n    def f(self): pass\nfor name in 'f':\n    setattr(Net, name, len)\n",
    "a decorator": "import functools\ndef main(f):\n    @functools.wraps(f)\n    def run(x=1):\n        return f(x)\n"
    "    return run\n@main\ndef run(x):\n    pass\n",
    "a branch": "import sys\nif sys:\n    X = 1\nelse:\n    X = 2\ndef f(): pass\nf = len\n",
    "its own defaults": "def f(a=1): pass\nf.__defaults__ = (2,)\n",
    "a lambda in defaults": "first = lambda x: x\ndef named(g=lambda a, b=5: a): return g\nheld = named()\n",
    "a decorator with a lambda": "def keep(g):\n    return lambda f: g\nlast = lambda: 0\n"
    "@keep(lambda a=3: a)\ndef held(): pass\n",
    "an import": "from own_helper import SIZE\nSIZE = SIZE + 1\n",
}


@pytest.mark.parametrize("what", ODD)
def test_what_a_module_makes_of_itself_while_it_is_imported_is_no_difference(own, module, what):
    write(own / "own_net.py", ODD[what])
    importlib.reload(module)
    assert differences() == set()


@pytest.mark.parametrize(("name", "value"), [("LR", 0.5), ("rate", len), ("Net.forward", lambda self, x: x)])
def test_values_set_from_outside_are_differences(module, monkeypatch, name, value):
    owner, key = (module.Net, "forward") if "." in name else (module, name)
    monkeypatch.setattr(owner, key, value)
    assert differences() == {name}


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        ("SIZE = 3", "SIZE = 4", {"SIZE"}),
        ("return x", "return -x", {"scaled"}),
        ("return 1", "return 2", {"Base.start"}),
        ("SIZE", "SIZE", set()),
    ],
)
def test_what_was_taken_from_a_module_before_that_was_imported_again_is_a_difference(own, module, before, after, names):
    write(own / "own_helper.py", HELPER.replace(before, after))
    importlib.reload(sys.modules["own_helper"])
    assert differences() == names


def test_a_module_that_was_not_imported_by_python_itself_is_not_compared(module):
    module.LR = 0.5
    module.__spec__.loader = type("Other", (type(module.__spec__.loader),), {})("own_net", module.__file__)
    assert differences() == set()
