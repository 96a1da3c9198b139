"""Every command of README and docs/ runs, small, in a folder that holds what the pages speak of.

What needs more than this machine is parsed only (test_readme.py): NOT_HERE says why.
"""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.end_to_end.test_readme import PAGES, ROOT, commands_of, example

pytestmark = pytest.mark.night

NOT_HERE = {
    "fedcac-cifar10": "downloads CIFAR-10",
    "reproduce": "downloads image sets",
    "femnist": "needs a clone of LEAF",
    "leaf:": "needs a clone of LEAF",
    "fedbench claims --only": "downloads image sets",
    "--address": "needs a cluster",
    "--gpus-per-host": "needs a GPU",
    "my_texts": "a module that the page leaves to the reader",
    "midrange": "extending.md adds it; test_extending.py runs its lines",
    "moons": "extending.md adds it; test_extending.py runs its lines",
    "my_package": "extending.md adds it; test_extending.py runs its lines",
    "my_momentum": "a check that fails, which the last test runs",
    "METHODS": "stands for many methods",
    "parquet:FOLDER": "needs image sets",
    "fedbench wandb results/grid/NAME": "sends to W&B",
    "fedbench watch": "serves until it is stopped; test_watch.py asks it",
    "fedbench completion": "writes to the reader's own folders; test_completion.py runs the scripts",
}
SMALL = {"--rounds": "2", "--train.epochs": "1", "--hosts": "0", "--seeds": "0"}
STUDY = {**SMALL, "--tune-seeds": "90", "--trials": "1"}
DROPPED = {"--loggers", "--wandb.project", "--wandb.tags", "--preset", "--train.width", "--states"}
"""Flags with their values that do not go with two rounds in this process."""
LIMIT = 300


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the modules, images, tables and results that the pages name."""
    place = tmp_path_factory.mktemp("reader")
    pages = "\n".join((ROOT / "docs" / name).read_text() for name in ("own.md", "right.md"))
    for name, code in re.findall(r"`(my_\w+)\.py`:\n\n```python\n(.*?)^```", pages, re.MULTILINE | re.DOTALL):
        (place / f"{name}.py").write_text(code)
    for file in ("my_method.py", "my_model.py"):
        (place / file).write_text(example(file))
    draw = np.random.default_rng(0)
    for folder in ("pets/cats", "pets/dogs", *(f"hospitals/{at}/{c}" for at in "abcdefgh" for c in ("ill", "well"))):
        (place / folder).mkdir(parents=True)
        for number in range(50):
            image = draw.integers(0, 256, (32, 32, 3), np.uint8)
            Image.fromarray(image).save(place / folder / f"{number}.png")
    rows = [f"{i % 2},{'abc'[i % 3]},{draw.normal():.3f},{draw.normal():.3f}" for i in range(120)]
    (place / "patients.csv").write_text("\n".join(["outcome,hospital,age,pulse", *rows]) + "\n")
    for line in (
        "fedbench run --out results/run/NAME",
        "fedbench compare --methods fedcac,ditto --tune 0 --out results/compare/NAME",
        "fedbench compare --methods fedper,fedcac --over method.tau=0.1,0.5 --tune 0 --out ablation",
    ):
        assert run_line(line, place) == "", line
    return place


def smaller(line: str) -> list[str]:
    """The words of a command, so that it takes seconds."""
    line = line.replace("METHOD", "fedavg").replace("DIR", "ablation" if "ablation" in line else "results/compare/NAME")
    name, *rest = shlex.split(line, comments=True)[1:]
    fixed = {"run": SMALL, "grid": STUDY, "compare": STUDY}.get(name, {})
    if not fixed:
        return [name, *rest]
    words, skipping = [name], False
    for word in rest:
        if word.startswith("--"):
            skipping = word.partition("=")[0] in {*fixed, *DROPPED, "--max-seeds"}
        if not skipping:
            words.append(word)
    if "--until-decided" in words:
        fixed = {key: value for key, value in fixed.items() if key != "--seeds"}
        fixed["--max-seeds"] = "5"
    if "--tune 0" in line:
        fixed = {key: value for key, value in fixed.items() if key != "--tune-seeds"}
    return [*words, *(part for pair in fixed.items() for part in pair)]


def run_line(line: str, place: Path) -> str:
    """What a command says that fails; nothing if it ends well."""
    words = [sys.executable, "-m", "fedbench", *smaller(line)]
    done = subprocess.run(words, cwd=place, capture_output=True, text=True, timeout=LIMIT, check=False)
    return "" if done.returncode == 0 else f"{shlex.join(words[2:])}\n{done.stdout[-300:]}{done.stderr[-600:]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_runs(page: Path, place: Path) -> None:
    failed = []
    for line in commands_of(page):
        if any(words in line for words in NOT_HERE):
            continue
        for folder in ("mine", "kept", "deployed", "client-7", "client-3"):
            if f"--out {folder}" in line and "--resume" not in line:
                shutil.rmtree(place / folder, ignore_errors=True)
        failed.append(run_line(line, place))
    assert not any(failed), "\n".join(filter(None, failed))


def test_what_is_left_out_is_on_a_page() -> None:
    text = "\n".join(line for page in PAGES for line in commands_of(page))
    assert [words for words in NOT_HERE if words not in text] == []


def test_the_wrong_method_of_a_page_fails_as_it_is_shown(place: Path) -> None:
    words = [sys.executable, "-m", "fedbench", "check", "--method", "my_momentum:Momentum", "--only", "resume"]
    done = subprocess.run(words, cwd=place, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 1, done.stderr
    failed = next(line for line in done.stdout.splitlines() if "failed" in line)
    assert " ".join(failed.split()) in " ".join((ROOT / "docs" / "right.md").read_text().split())
