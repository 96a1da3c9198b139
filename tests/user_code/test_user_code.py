"""The fingerprint of a user's code changes with what the code does, and with nothing else."""

import importlib
import pickle
import subprocess
import sys
from collections.abc import Callable

import cloudpickle
import pytest

from fedbench.errors import ConfigError
from fedbench.import_string import import_string
from fedbench.user_code import (
    code_of,
    look_again,
    name_of,
    objects_to_send,
    outdated_files,
    receive_objects,
)
from tests.user_code.conftest import write


def test_a_module_stays_as_it_was_imported_until_it_is_imported_again(own):
    module = importlib.import_module("own_net")
    before = code_of("own_net:Net")
    write(own / "own_net.py", "class Net:\n    width = 22\n")
    assert code_of("own_net:Net") == before
    assert "own_net.py" in outdated_files("own_net:Net")
    importlib.reload(module)
    assert code_of("own_net:Net") != before
    assert outdated_files("own_net:Net") == []


def test_a_module_that_was_written_to_before_its_code_was_asked_for_is_other_code_than_its_file(own):
    write(own / "own_helper.py", "RATE = 0.01\n")
    helper = importlib.import_module("own_helper")
    write(own / "own_helper.py", "RATE = 0.25\n")
    before = code_of("own_net:Net")
    assert outdated_files("own_net:Net") == ["own_helper.py"]
    importlib.reload(helper)
    assert code_of("own_net:Net") != before
    assert outdated_files("own_net:Net") == []


def test_functions_of_installed_packages_are_as_their_version_says(own):
    write(
        own / "own_net.py",
        "from json import dumps\nfrom torch.nn.functional import cross_entropy\nclass Net:\n    pass\n",
    )
    importlib.import_module("own_net")
    assert outdated_files("own_net:Net") == []


def test_a_module_that_was_not_imported_again_stays_as_it_was_when_another_is(own):
    write(own / "own_net.py", "import own_pkg.part, own_helper\nclass Net:\n    pass\n")
    net = importlib.import_module("own_net")
    before = code_of("own_net:Net")
    write(own / "own_helper.py", "def scale():\n    return 1.5\n")
    importlib.reload(net)
    assert code_of("own_net:Net") == before
    assert outdated_files("own_net:Net") == ["own_helper.py"]
    importlib.reload(sys.modules["own_helper"])
    assert outdated_files("own_net:Net") == []
    assert code_of("own_net:Net") != before


def test_what_is_set_from_outside_counts_when_it_is_looked_at_again(own):
    net = importlib.import_module("own_net")
    before = code_of("own_net:Net")
    net.Net.width = 7
    assert code_of("own_net:Net") == before  # in the same command
    look_again("own_net:Net")
    assert code_of("own_net:Net") != before
    assert outdated_files("own_net:Net") == ["own_net.py"]


FACTORY = """
import functools
from own_helper import scale
def make(k):
    class Net:
        def width(self):
            return k * scale()
    return Net
def plain(): pass
class Outer:
    class Inner:
        pass
half = functools.wraps(plain)(lambda: 0.5)
"""


def test_what_a_function_makes_has_a_name_for_what_it_does(own):
    write(own / "own_factory.py", FACTORY)
    module = importlib.import_module("own_factory")
    kinds = [module.make(2), module.make(2), module.make(64), module.half, lambda: 1, lambda: 2]
    names = [name_of(kind) for kind in kinds]
    assert [name.partition("@")[0] for name in names] == [
        *["own_factory:make.<locals>.Net"] * 3,
        "own_factory:plain",
        *[f"{__name__}:test_what_a_function_makes_has_a_name_for_what_it_does.<locals>.<lambda>"] * 2,
    ]
    assert names[0] == names[1]
    assert len({*names}) == 5
    assert [name_of(kind) for kind in kinds] == names
    assert [import_string(name, "model") for name in names[1:]] == kinds[1:]
    assert code_of(names[0]) == code_of(names[1]) != code_of(names[2])
    known = code_of(names[0]).files
    assert {"make.<locals>.Net in own_factory", "own_factory.py", "own_helper.py"} <= known.keys()
    held = [name_of(thing) for thing in (module.plain, module.Outer, module.Outer.Inner)]
    assert held == ["own_factory:plain", "own_factory:Outer", "own_factory:Outer.Inner"]
    assert import_string(held[2], "model") is module.Outer.Inner


def test_a_class_that_its_module_holds_no_more_is_another_one(own):
    module = importlib.import_module("own_net")
    old = module.Net
    write(own / "own_net.py", "class Net:\n    width = 22\n")
    importlib.reload(module)
    assert name_of(module.Net) == "own_net:Net"
    assert name_of(old).startswith("own_net:Net@")
    assert import_string(name_of(old), "model") is old
    before = name_of(old)
    old.width = 3
    assert name_of(old) == before  # of the same class


def test_what_is_sent_is_known_by_the_code_that_it_had_where_it_came_from():
    def made(k: list) -> Callable:
        def width():
            return k

        return width

    k = [1]
    path = name_of(made(k))
    before, sent = code_of(path), objects_to_send([path, "own_net:Net"])
    assert list(sent) == [path]
    k.append(2)  # such as what was computed meanwhile
    receive_objects(pickle.loads(cloudpickle.dumps(sent)))
    assert import_string(path, "model")() == [1, 2]
    assert code_of(path) == before
    look_again(path)
    assert code_of(path) != before


def test_what_only_another_process_knows_is_one_line():
    with pytest.raises(ConfigError, match=r"only the process that defines make.<locals>.Net knows it: write it"):
        import_string("own_factory:make.<locals>.Net@00000000", "model")


SCRIPT = """
import sys
from fedbench.user_code import code_of
LIMITS = {{"a": {limit}, "b": {{"x", "y", "z"}}}}
def helper(x):
    '''{doc}'''
    return x in {{"q", "r", "s"}} and LIMITS["a"]
class Mine:
    '''{doc}'''
    def train(self):
        return [helper(i) for i in range(3)]
print(code_of("__main__:Mine").fingerprint)
"""


def in_a_process(seed: int, limit: int = 1, doc: str = "") -> str:
    script = SCRIPT.format(limit=limit, doc=doc)
    done = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONHASHSEED": str(seed), "PYTHONPATH": ":".join(sys.path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


def test_a_class_of_a_notebook_is_known_by_its_functions_and_all_they_refer_to():
    assert in_a_process(1) == in_a_process(2, doc="Says what it does.")
    assert in_a_process(1) != in_a_process(1, limit=2)
