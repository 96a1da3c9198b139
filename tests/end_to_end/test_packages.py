"""A laboratory's own package, installed by pip as docs/extending.md shows it, stands beside what fedbench brings."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

# In one process where tests run side by side, so that the package is installed once.
pytestmark = pytest.mark.xdist_group("packages")
ROOT = Path(__file__).parents[2]
FILES = {
    "__init__.py": '"""What our laboratory shares."""\n',
    "methods.py": """
from pydantic import Field

from fedbench.methods.base import About, Method
from fedbench.methods.local import Local


class Pull(Method):
    about = About("pulls a little", "regularisation", "ours", 2026)

    class Options(Method.Options):
        strength: float = Field(0.1, ge=0, description="of the pull")


class Alone(Local):
    about = About("trains alone", "none", "ours", 2026)


class Mean(Method):
    about = About("averages", "none", "ours", 2026)
""",
    "data.py": """
import numpy as np


def blobs(train: bool, spread: float = 1.0):
    draw = np.random.default_rng(int(train))
    labels = np.arange(200 if train else 100) % 4
    return (labels[:, None] + spread * draw.normal(size=(len(labels), 3))).astype(np.float32), labels
""",
    "more.py": """
from fedbench.data.partitions.schemes.iid import SCHEME

__all__ = ["SCHEME"]


def middle(vectors, weights, current):
    return vectors.median(0).values


def hello(words):
    \"\"\"greets\"\"\"
    print("hello", *words)
    return 0
""",
    "broken.py": "import no_such_module\n",
}
MORE = """
[project.entry-points."fedbench.aggregators"]
lab-middle = "lab_methods.more:middle"

[project.entry-points."fedbench.schemes"]
lab-even = "lab_methods.more:SCHEME"

[project.entry-points."fedbench.commands"]
lab-hello = "lab_methods.more:hello"
lab-broken = "lab_methods.broken:main"
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that pip installed the package into."""
    source, site = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("env") / "site-packages"
    (shown,) = re.findall(r"^```toml\n(.*?)^```", (ROOT / "docs/extending.md").read_text(), re.MULTILINE | re.DOTALL)
    broken = '[project.entry-points."fedbench.methods"]\nlab-broken = "lab_methods.broken:Broken"\n'
    shown = shown.replace('[project.entry-points."fedbench.methods"]\n', broken)
    (source / "pyproject.toml").write_text(shown + MORE)
    for name, text in FILES.items():
        (source / "lab_methods" / name).parent.mkdir(exist_ok=True)
        (source / "lab_methods" / name).write_text(text)
    install = ["pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", str(site)]
    subprocess.run([sys.executable, "-m", *install, str(source)], check=True, capture_output=True)
    return site


SEVERAL = """
import sys
from fedbench.cli import main
for line in sys.argv[1:]:
    code = main(line.split())
    for stream in (sys.stdout, sys.stderr):
        print("END", code, file=stream)
"""
LOOK = ["methods", "data --help", "--help", "methods lab-pull", "lab-hello you"]
RUN = (
    "run --method lab-pull --data lab-blobs --data.spread 0.5 --aggregator lab-middle --partition lab-even "
    "--rounds 1 --hosts 0 --out run"
)
MISTAKES = {
    "--method lab-pul": "unknown method 'lab-pul': did you mean lab-pull",
    "--method lab-pull --method.strenth 1": "unknown key method.strenth: did you mean strength?",
    "--method lab-broken": "method 'lab-broken' of the installed package lab-methods: 'lab_methods.",
    "--data lab-blob": "unknown data set 'lab-blob': did you mean lab-blobs",
    "--data lab-blobs --data.spred 1": "unknown key data.spred: lab-blobs takes no such argument",
}


@dataclass
class Command:
    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands were given."""
    return tmp_path_factory.mktemp("user")


@pytest.fixture(scope="module")
def commands(site: Path, folder: Path) -> dict[str, Command]:
    """All commands of these tests, given one after another in a fresh process."""
    lines = [*LOOK, RUN, *(f"run --hosts 0 {words}" for words in MISTAKES)]
    known = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", SEVERAL, *lines], cwd=folder, env=known, capture_output=True, text=True
    )
    parts = [re.findall(r"(.*?)^END (\d+)\n", text, re.MULTILINE | re.DOTALL) for text in (done.stdout, done.stderr)]
    return {
        line: Command(int(code), out, err)
        for line, (out, code), (err, _) in zip(lines, *parts, strict=True)
    }  # fmt: skip


def test_it_is_listed_and_what_cannot_be_imported_is_left_out(commands):
    listed, *more = (commands[line] for line in LOOK)
    assert {"lab-pull", "lab-alone", "lab-mean", "fedavg"} <= {line.split()[0] for line in listed.out.splitlines()}
    assert "lab-broken" not in listed.out
    assert (
        "left out: method 'lab-broken' of the installed package lab-methods: 'lab_methods.broken:Broken': module "
        "lab_methods.broken cannot be imported (No module named 'no_such_module')" in listed.err
    )
    said = "".join(each.out for each in more)
    for words in ("lab-blobs", "lab-even", "--method.strength", "  lab-hello  greets\n"):
        assert words in said
    assert "  lab-broken command 'lab-broken' of the installed package lab-methods: " in said
    assert commands["lab-hello you"].out == "hello you\n"
    assert {each.code for each in (listed, *more)} == {0}


def test_it_runs_and_belongs_to_what_the_run_is_known_by(commands, folder):
    assert commands[RUN].code == 0, commands[RUN].err
    assert "lab-pull" in (folder / "run" / "report.html").read_text()
    code = json.loads((folder / "run" / "environment.json").read_text())["code"]
    content = code.pop("content")
    assert content["files"].keys() == {"data lab-blobs"}
    assert code.keys() == {"method", "data", "aggregator", "partition"}
    assert all(own["files"] == {"lab-methods": "0.1"} for own in code.values())


@pytest.mark.parametrize(("words", "said"), MISTAKES.items())
def test_mistakes_are_one_line(words, said, commands):
    found = commands[f"run --hosts 0 {words}"]
    (line,) = [line.removeprefix("fedbench: error: ") for line in found.err.splitlines() if "error: " in line]
    assert line.startswith(said)
    assert (found.code, found.out) == (2, "")
