"""What the code of a notebook is known by."""

import subprocess
import sys
import threading

import numpy as np
import pytest

from fedbench.user_code.objects import Walk

OTHER = {  # by what is between the braces two cells do something else
    "tensor": "import torch\nW = torch.tensor([1.0, {}])\ndef f(x): return x * W",
    "type of a tensor": "import torch\nW = torch.zeros({}, dtype=torch.bfloat16)\ndef f(x): return x * W",
    "conjugated tensor": "import torch\nW = torch.tensor([{} + 2j]).conj()\ndef f(x): return x * W",
    "negated tensor": "import torch\nW = torch.tensor([1 + {}j]).conj().imag\ndef f(x): return x * W",
    "number out of a tensor": "import torch\nW = torch.tensor([[{}, 2], [3, 4]])[:1, 0]\ndef f(x): return x * W",
    "array": "import numpy as np\nW = np.array([1.0, {}])\ndef f(x): return x * W",
    "array of objects": "import numpy as np\nW = np.array([['a'], {}], dtype=object)\ndef f(x): return x * W",
    "tensor of a class": "import torch\nclass f:\n    w = torch.tensor([1.0, {}])",
    "instance": "from dataclasses import dataclass\n@dataclass\nclass C:\n    a: float\nC = C({})\ndef f(): return C.a",
    "method of an instance": "class C:\n    def s(self): return {}\nC1 = C()\ndef f(): return C1.s()",
    "default of a field": "from dataclasses import dataclass\n@dataclass\nclass f:\n    a: int = {}",
    "namespace": "import types\nC = types.SimpleNamespace(lr={})\ndef f(): return C.lr",
    "cached function": "from functools import cache\n@cache\ndef g(): return {}\ndef f(): return g()",
    "partial": "from functools import partial\ng = partial(pow, {})\ndef f(x): return g(x)",
    "dispatch": "from functools import singledispatch as s\n@s\ndef g(x): pass\n@g.register\ndef _(x: int): return {}\n"
    "def f(x): return g(x)",
    "property": "class f:\n    @property\n    def z(self): return {}",
    "setter": "class f:\n    @property\n    def z(self): pass\n    @z.setter\n    def z(self, x): self.x = {}",
    "cached property": "from functools import cached_property as c\nclass f:\n    @c\n    def z(self): return {}",
    "loss": "from torch import nn\nL = nn.CrossEntropyLoss(label_smoothing=0.{})\ndef f(x, y): return L(x, y)",
    "path": "from pathlib import Path\nP = Path('{}')\ndef f(): return P",
    "type": "import torch\nD = [torch.float16, torch.float32, torch.float64][{}]\ndef f(): return D",
    "regular expression": "import re\nR = re.compile('{}')\ndef f(x): return R.sub('', x)",
    "option": "from pydantic import BaseModel, Field\nclass f(BaseModel):\n    mu: float = Field({})",
    "closure": "def make(k):\n    def g(): return k\n    return g\nf = make({})",
    "content of a closure": "def make(k):\n    def g(): return k\n    return g\nf = make([1, {{'a': {}}}])",
    "attribute of a function": "def f(): return f.k\nf.k = {}",
    "bound method": "class C:\n    def __init__(self, k): self.k = k\n    def s(self): pass\ng = C({}).s\ndef f(): g()",
    "set of tuples": "S = {{(1, 2), (3, {})}}\ndef f(): return S",
}

TWO = "def g(): pass\ndef h(): return 1\n"


def made(code: str, name: str = "f") -> object:
    names = {"__name__": "__main__"}
    exec(code, names)
    return names[name]


@pytest.mark.parametrize("what", OTHER)
def test_what_is_done_otherwise_is_other_code(what):
    prints = [Walk(made(OTHER[what].format(value))).fingerprint for value in (1, 1, 2)]
    assert prints[0] == prints[1] != prints[2]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("def f(x): return x.mean()", "def f(x): return x.sum()"),  # names of attributes
        ("def f(x, y): return g(x=1)\ndef g(**k): pass", "def f(x, y): return g(y=1)\ndef g(**k): pass"),
        ("class f:\n    def a(self, scale): pass", "class f:\n    def a(self, shift): pass"),  # names of arguments
        (TWO + "L = g\ndef f(): return (g, h, L)", TWO + "L = h\ndef f(): return (g, h, L)"),
        ("def f(): return {'a': [1, 2]}\nD = [[1], 2]\ndef g(): return D", "D = [[1, 2]]\ndef g(): return D"),
        ("import numpy as m\ndef f(): return m.log", "import math as m\ndef f(): return m.log"),
    ],
)  # fmt: skip
def test_names_and_nesting_are_told_apart(one, other):
    name = "g" if "def g(): return D" in one else "f"
    assert Walk(made(one, name)).fingerprint != Walk(made(other, name)).fingerprint


@pytest.mark.parametrize(
    "same",
    [
        "data = {}\ndef f(x): return x.data",  # a global that is only called like an attribute
        "def f(x):\n    '''Says {}.'''\n    return x",
        "import threading\nL = [threading.Lock() for _ in range(2)]\ndef f(): return L and '{{}}'",
        "import weakref\nW = weakref.WeakSet()\ndef f(): return W",
    ],
)
def test_what_does_not_count(same):
    assert Walk(made(same.format(1))).fingerprint == Walk(made(same.format(2))).fingerprint


def test_an_object_that_refers_to_itself_has_an_end():
    loop: list = [threading.Lock()]
    loop.append({"again": loop})
    assert Walk(loop).fingerprint == Walk(loop).fingerprint
    deep: list = []
    for _ in range(10_000):
        deep = [deep]
    assert Walk(deep).fingerprint


def test_an_optimiser_class_that_was_used_is_the_same():
    import torch

    kind = made(
        "import torch\nclass f(torch.optim.SGD):\n    def step(self, closure=None): return super().step(closure)"
    )
    before = Walk(kind).fingerprint
    kind([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    assert Walk(kind).fingerprint == before


def test_modules_that_anything_comes_from_are_known():
    code = "import json\nfrom collections import Counter\nC = Counter()\n"
    code += "def f():\n    import own_late\n    from own_pkg import part\n    import importlib\n"
    code += "    importlib.import_module('own_named')\n    return json, C"
    assert {"json", "collections", "own_late", "own_pkg.part", "own_named"} <= {*Walk(made(code)).modules}


SCRIPT = """
import enum, re
from collections import OrderedDict
import numpy as np
from pydantic import BaseModel
from fedbench.user_code.objects import Walk
class Kind(enum.Enum):
    A = 1
class Options(BaseModel):
    kind: Kind = Kind.A
    names: frozenset = frozenset({"x", "y", "z"})
KNOWN = {Kind.A: OrderedDict(a=np.float32(1)), "b": {("p", "q"), ("r", "s"), frozenset("xyz")}, "c": re.compile("a|b")}
class Mine:
    def train(self):
        return [KNOWN[k] in {"q", "r", "s"} for k in Options().names]
print(Walk(Mine).fingerprint)
"""


def test_every_process_comes_to_the_same():
    done = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert done[0] == done[1]


def test_an_array_in_a_file_is_known_by_the_file(tmp_path, monkeypatch):
    file = np.memmap(tmp_path / "rows", np.uint8, "w+", shape=(4, 2))
    file.flush()
    first, rest = (np.memmap(tmp_path / "rows", np.uint8, "r", offset=start, shape=(1, 2)) for start in (0, 2))
    monkeypatch.setattr(np.memmap, "__reduce_ex__", None)  # would read it
    assert Walk(first).fingerprint == Walk(first).fingerprint != Walk(rest).fingerprint
