"""The faults that `answers.py` plays: what is made or damaged, the command, and what its answer has to say.

A row without a command is given to `run`, `grid` and `compare` in turn, METHOD being fedper unless it says so.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from benchmarks.faults import strike, wait_for
from tests.end_to_end.commands import Command

SMALL = "--rounds 2 --train.epochs 1 --model mlp --out out"
ALONE = f"{SMALL} --hosts 0"
COMMANDS = {
    "run": f"run {ALONE} --method METHOD",
    "grid": f"grid {ALONE} --trials 1 --baselines none --space train.epochs=1,2 --tune-seeds 90 --method METHOD",
    "compare": f"compare {ALONE} --trials 1 --tune 0 --methods METHOD",
}
FINISHED = {
    "run": "run --seeds 0 1",
    "compare": "compare --seeds 0 1",
    "settings": "compare --over partition.alpha=0.5,1",
}
"""What commands have finished before a fault, by name."""
LONG = {"rounds": "--rounds 300 --checkpoint.every 3", "Ray": "--hosts 2", "trials": "--trials 2"}
MINE = """
import torch
from lightning import LightningModule
from pydantic import Field
from torch import nn
from fedbench.methods.fedavg import FedAvg
from fedbench.methods.fedper import FedPer

class NoOptions(FedPer):
    Options = None

class BadDefault(FedPer):
    class Options(FedPer.Options):
        weight: float = Field(-1.0, ge=0, description="a weight")

class Required(FedPer):
    class Options(FedPer.Options):
        weight: float = Field(description="a weight")

class Begins(FedPer):
    def __init__(self, options, context):
        raise RuntimeError("no start")

class Checks(FedPer):
    def check(self):
        raise RuntimeError("no check")

class Steps(FedPer):
    @classmethod
    def steps(cls, options, train, samples, public):
        raise RuntimeError("no steps")

class Five(FedPer):
    SPACE = 5

class Constrained(FedPer):
    SPACE = {"train.lr": [0.1, 0.2]}
    def CONSTRAINT(point):
        raise RuntimeError("no constraint")

class Greedy(FedPer):
    def train(self, client, received):
        if client.learner.train.epochs > 1:
            held = torch.ones(GIGABYTES * 2**28)
        return super().train(client, received)

class Net(LightningModule):
    def __init__(self, classes=10):
        super().__init__()
        self.head = nn.Linear(64, classes)
    def forward(self, x):
        return self.head(x.flatten(1))
    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

class Meta(Net):
    def __init__(self, classes=10):
        super().__init__()
        self.head = nn.Linear(64, classes, device="meta")

class Raises(Net):
    def __init__(self, classes=10):
        raise RuntimeError("no network")

def make():
    raise RuntimeError("no data")
""".replace("GIGABYTES", "6")
FULL = (
    "export RAY_memory_monitor_refresh_ms=100 RAY_memory_usage_threshold="
    "$(free -b | awk '/Mem/ {print ($2 - $7 + 3 * 2 ** 30) / $2}')"
)
"""Ray ends workers once 3 GB more are in use than now."""
BOMB = "a0: &a0 [1, 1]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40)) + "rounds: *a39\n"
Before = Callable[[Path], object]


@dataclass
class Play:
    """A fault under way: the command, its words, the folder in which it runs, and where its scratch files are."""

    command: Command
    words: list[str]
    place: Path
    scratch: Path

    @property
    def out(self) -> Path:
        return self.place / "out"

    def say(self, text: str) -> None:
        """Adds a line to what the command has said."""
        with (self.place / "errors.txt").open("a") as file:
            file.write(f"{text}\n")


@dataclass(frozen=True)
class Fault:
    """kind, name: what it is. words: the command, or flags of any. remedy: a pattern of its answer; page: of its page.

    before: what is done in its folder; during: while it runs; shell: words of bash before it, such as limits.
    """

    kind: str
    name: str
    words: str
    remedy: str
    before: tuple[Before, ...] = ()
    code: int = 2
    during: Callable[[Play], object] | None = None
    shell: str = ""
    page: str = ""
    limit: float = 60


def write(path: str, content: str) -> Before:
    def act(place: Path) -> None:
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(content)

    return act


def write_to(pattern: str, content: str) -> Before:
    return each(pattern, lambda path: path.write_text(content))


def each(pattern: str, act: Callable[[Path], object]) -> Before:
    """Does something to every file of a pattern, of which there has to be one."""

    def on(place: Path) -> None:
        found = sorted(place.glob(pattern))
        assert found, f"no {pattern} in {place}"
        for path in found:
            act(path)

    return on


def finished(name: str) -> Before:
    """Puts the results of a finished command into `out`."""
    return lambda place: shutil.copytree(place.parent / f"finished-{name}" / "out", place / "out")


def gone(pattern: str) -> Before:
    return each(pattern, lambda path: shutil.rmtree(path) if path.is_dir() else path.unlink())


def halved(pattern: str) -> Before:
    return each(pattern, lambda path: os.truncate(path, path.stat().st_size // 2))


def folder_for(pattern: str) -> Before:
    """A folder where a file was."""
    return each(pattern, lambda path: (path.unlink(), path.mkdir()))


def pipe_for(pattern: str) -> Before:
    """A pipe where a file was."""
    return each(pattern, lambda path: (path.unlink(), os.mkfifo(path)))


def file_for(pattern: str) -> Before:
    """A file where a folder was."""
    return each(pattern, lambda path: (shutil.rmtree(path), path.write_text("")))


def edited(pattern: str, change: Callable[[Any], object]) -> Before:
    """A file of JSON (or its first line) that somebody changed."""

    def act(path: Path) -> None:
        first, rest = (path.read_text(), "") if path.suffix == ".json" else path.read_text().split("\n", 1)
        tree = json.loads(first)
        change(tree)
        path.write_text(json.dumps(tree) + ("\n" + rest if rest else ""))

    return each(pattern, act)


def images(place: Path) -> None:
    """A folder data set of two classes."""
    import numpy as np
    from PIL import Image

    for number in range(60):
        path = place / "pets" / ("cat" if number % 2 else "dog") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.default_rng(number).integers(0, 256, (8, 8), np.uint8)).save(path)


def dealt(*clients: tuple[range, range]) -> Before:
    """A partition file, from the rows of each client's train and test part."""
    return write(
        "deal.json", json.dumps({"clients": [{"train": [*train], "test": [*test]} for train, test in clients]})
    )


def struck(victim: str, round: int = 3) -> Callable[[Play], object]:
    """Does to a command what `faults` does, after a round."""

    def act(play: Play) -> None:
        wait_for(play.command, play.out, round, 0.0, time.monotonic() + 120)
        if not strike(victim, play.command, None, play.scratch):
            play.say("the victim was not found")

    return act


def deleted(pattern: str, round: int = 3) -> Callable[[Play], object]:
    """Deletes what is under way in the scratch folder."""

    def act(play: Play) -> None:
        wait_for(play.command, play.out, round, 0.0, time.monotonic() + 120)
        found = list(play.scratch.glob(pattern))
        for path in found:
            shutil.rmtree(path, ignore_errors=True)
        if not found:
            play.say("nothing was found to delete")

    return act


def damaged_meanwhile(play: Play) -> None:
    """Halves a table of the first seed while the second is under way."""
    while play.command.process.poll() is None and not list(play.out.glob("run/*-s1/metrics.jsonl")):
        time.sleep(0.02)
    halved("run/*-s0/clients.parquet")(play.out)


def twice(play: Play) -> None:
    """Gives the same command a second time while the first one runs; it has to end well, too."""
    wait_for(play.command, play.out, 3, 0.0, time.monotonic() + 120)
    (play.place / "second").mkdir()
    within = ["bash", "-c", f'cd ..; exec "$0" "$@" 2>>{play.place}/errors.txt']
    second = Command(*play.words, cwd=play.place / "second", within=within)
    play.say(f"the second ended with {second.process.wait(120)}")


def asks_for(name: str) -> Callable[[Play], object]:
    """Asks a page that is served for a file, then ends it."""

    def act(play: Play) -> None:
        play.command.until(lambda: "Ctrl-C" in play.command.said(), "the page is served")
        address = play.command.said().split()[0]
        try:
            with urlopen(address + name) as answer:
                play.say(f"HTTP {answer.status}: {answer.read()[:40]!r}")
        except HTTPError as error:
            play.say(f"HTTP {error.code}")
        play.command.interrupt()

    return act


OWN_CODE = "own code"
FILES = "files of results"
SIZES = "sizes"
NO_FILES = "things that are no files"
LEAKS = "leaks"
MACHINE = "the machine"
WATCH = "watch"
EXITS = write("leaves.py", "import sys\nsys.exit(0)\n")
REPORT, RESTORE = "report out", "restore it|delete .* to run it again"


def space(content: str) -> tuple[Before, ...]:
    """A tuning space of fedper in a file of the user's."""
    return write("tune_spaces/__init__.py", ""), write("tune_spaces/fedper.py", content)


def own_code() -> Iterator[Fault]:
    for command in COMMANDS:
        for part in ("method leaves:Mine", "model leaves:Net", "data leaves:make"):
            what = part.split()[0]
            words = f"{command} METHOD leaves:Mine" if what == "method" else f"{command} --{part}"
            exits = "module leaves ends the program.*__main__"
            yield Fault(OWN_CODE, f"sys.exit(0) at import, as {what} of {command}", words, exits, (EXITS,))
    for name, remedy in {
        "NoOptions": "Options",
        "BadDefault": "weight.*must be a number >= 0",
        "Required": "method.weight|needs .*weight",
        "Begins": r"no start.*mine\.py:\d+",
        "Checks": r"no check.*mine\.py:\d+",
    }.items():
        yield Fault(OWN_CODE, f"method {name}", f"METHOD mine:{name}", remedy)
    for name, remedy in {"Meta": "meta", "Raises": r"no network.*mine\.py:\d+"}.items():
        yield Fault(OWN_CODE, f"model {name}", f"--model mine:{name}", remedy)
    yield Fault(OWN_CODE, "a factory that raises", "--data mine:make", r"no data \(mine\.py:\d+")
    for name, content, remedy in (
        ("no Python", "SPACE = {", "tune_spaces.*SyntaxError"),
        ("raises", "raise RuntimeError('no space')", "tune_spaces.*no space"),
        ("exits", "import sys; sys.exit(0)", "tune_spaces.*sys.exit"),
        ("without SPACE", "X = 1", "has no SPACE"),
        ("of another shape", "SPACE = [1]", "keys with lists of values"),
        ("CONSTRAINT raises", "SPACE = {'train.lr': [0.1, 0.2]}\ndef CONSTRAINT(point): 1 / 0", "CONSTRAINT.*division"),
        ("CONSTRAINT is none", "SPACE = {'train.lr': [0.1, 0.2]}\nCONSTRAINT = 3", "CONSTRAINT"),
    ):
        yield Fault(OWN_CODE, f"space {name}", "compare METHOD fedper --tune 2", remedy, space(content))
    yield Fault(OWN_CODE, "SPACE = 5", "compare METHOD mine:Five --tune 2", "keys with lists of values")
    yield Fault(OWN_CODE, "CONSTRAINT of a class raises", "compare METHOD mine:Constrained --tune 2", "no constraint")
    yield Fault(OWN_CODE, "steps raise under a budget", "compare METHOD mine:Steps --tune 2 --budget-steps", "no steps")
    for text, remedy in {
        "quniform(0.1,0.2,0)": "quniform",
        "loguniform(1e-1,1e-4)": "loguniform",
        "randint(0.5,1.5)": "randint",
        "uniform(1,2": "uniform",
        "uniform(a,b)": "uniform",
        "gauss(0,1)": "gauss",
    }.items():
        words = f"grid --search random --samples 2 --space 'train.lr={text}'"
        yield Fault(OWN_CODE, f"--space {text}", words, remedy)
    yield Fault(OWN_CODE, "--over a distribution", "compare --over 'partition.alpha=uniform(0.1,1)'", "list|values")
    yield Fault(OWN_CODE, "--over uniform(0.1,1", "compare --over 'partition.alpha=uniform(0.1,1'", "partition.alpha")


def files() -> Iterator[Fault]:
    plan, summary, job = "out/plan.json", "out/summary.json", "out/run/*-s0"
    for name, act in {
        "of text": write(plan, "no plan"),
        "a list": write(plan, "[1, 2]"),
        "with an entry too few": edited(plan, lambda tree: tree["entries"][0].pop("label")),
        "with entries of text": edited(plan, lambda tree: tree.update(entries="none")),
        "cut in half": halved(plan),
        "a folder": folder_for(plan),
        "a pipe": pipe_for(plan),
    }.items():
        yield Fault(FILES, f"plan.json {name}", REPORT, r"plan\.json: damaged", (finished("compare"), act))
    yield Fault(
        FILES,
        "plan.json of text, same command again",
        FINISHED["compare"],
        r"plan\.json: damaged|results: out",
        (finished("compare"), write(plan, "no plan")),
        code=0,
    )
    label = edited(plan, lambda tree: [entry.update(label="l" * 5000) for entry in tree["entries"]])
    path = edited(plan, lambda tree: [entry.update(path="p" * 5000) for entry in tree["entries"]])
    yield Fault(FILES, "a label of 5,000 letters", REPORT, "report", (finished("compare"), label), code=0)
    yield Fault(FILES, "a path of 5,000 letters", REPORT, "plan.json|path", (finished("compare"), path))
    for name, act in {
        "of text": write("out/matrix.json", "no matrix"),
        "without settings": edited("out/matrix.json", lambda tree: tree.pop("settings")),
        "that names itself": edited("out/matrix.json", lambda tree: tree["settings"][0].update(path=".")),
        "that names what is not there": edited("out/matrix.json", lambda tree: tree["settings"][0].update(path="no")),
    }.items():
        yield Fault(
            FILES, f"matrix.json {name}", REPORT, "matrix.json|no such folder|no run", (finished("settings"), act)
        )
    for name, value in {"a number": 5, "numbers": [1, 2], "objects": [{"a": 1}], "nothing": None}.items():
        odd = edited(summary, lambda tree, value=value: tree.update(warnings=value))
        yield Fault(FILES, f"warnings that are {name}", REPORT, "summary.json|report", (finished("run"), odd), code=0)
    huge = edited("out/metrics.jsonl", lambda row: row.update(round=10**30))
    yield Fault(FILES, "a round of 31 digits", REPORT, "metrics.jsonl", (finished("run"), huge), code=0)
    for table in ("clients.parquet", "traces.parquet"):
        for name, act in {"gone": gone, "cut in half": halved, "a folder": folder_for, "a pipe": pipe_for}.items():
            before = (finished("run"), act(f"out/{table}"))
            yield Fault(FILES, f"{table} {name}, report", REPORT, f"{table}|report", before, code=0)
            before = (finished("run"), act(f"{job}/{table}"))
            yield Fault(FILES, f"{table} of a seed {name}, same command", FINISHED["run"], RESTORE, before)
    for name in ("metrics.jsonl", "timings.jsonl"):
        for what, act in {"a folder": folder_for, "a pipe": pipe_for}.items():
            before = (finished("run"), act(f"{job}/{name}"))
            yield Fault(FILES, f"{name} {what}, same command", FINISHED["run"], f"{name}.*", before)
    unfinished = (finished("run"), gone("out/run/*-s1"), gone(summary))
    yield Fault(
        FILES,
        "a seed's table cut, the other is to run",
        FINISHED["run"],
        RESTORE,
        (*unfinished, halved(f"{job}/clients.parquet")),
    )
    yield Fault(
        FILES,
        "a seed's table cut while the other runs",
        f"{FINISHED['run']} {LONG['rounds']}",
        f"clients.parquet.*({RESTORE})",
        during=damaged_meanwhile,
    )
    yield Fault(
        FILES,
        "partition.json of a seed gone",
        FINISHED["run"],
        RESTORE,
        (finished("run"), gone(f"{job}/partition.json")),
    )
    yield Fault(
        FILES,
        "a seed's folder is a file",
        FINISHED["run"],
        "folder|directory",
        (finished("run"), gone(summary), file_for(job)),
    )
    yield Fault(
        FILES,
        "config.yaml of a seed of text",
        FINISHED["run"],
        RESTORE,
        (finished("run"), write_to(f"{job}/config.yaml", ": no")),
    )
    claims = "out/claims/claims.json"
    yield Fault(FILES, "claims.json of text", "claims --out out", "claims.json: damaged", (write(claims, "none"),))
    for name, tree in {
        "an empty row": {"rows": [{}]},
        "a row of text": {"rows": ["C1"]},
        "rows without parts": {"rows": [{"id": "C1", "status": "judged"}]},
        "seeds of text": {"rows": [], "seeds": "all"},
    }.items():
        yield Fault(
            FILES, f"claims.json with {name}", "claims --out out", "claims.json", (write(claims, json.dumps(tree)),)
        )
        yield Fault(
            FILES,
            f"claims.json with {name}, report",
            "report out/claims",
            "claims.json",
            (write(claims, json.dumps(tree)),),
        )


def sizes() -> Iterator[Fault]:
    for name, content, remedy in (
        ("an alias of itself", "train: &a\n  lr: *a\n", "asks.yaml|train"),
        ("an alias bomb", BOMB, "more than 100000 values"),
        ("3,000 levels", "rounds: " + "[" * 3000 + "]" * 3000, "levels of nesting"),
        ("a number of 5,000 digits", "rounds: " + "9" * 5000, "not valid YAML"),
        ("a key of 5,000 letters", "k" * 5000 + ": 1", "unknown key"),
    ):
        yield Fault(SIZES, f"YAML with {name}", "--config asks.yaml", remedy, (write("asks.yaml", content),))
    yield Fault(SIZES, "a flag of 5,000 letters", f"--{'f' * 5000} 1", "unknown flag")
    yield Fault(SIZES, "a value of 5,000 digits", f"--seeds {'9' * 5000}", "YAML|seeds")
    for scheme in ("pathological", "dirichlet-fixed", "iid"):
        for count, remedy in {
            10**9: r"partition\.clients = 1000000000",
            10**7: "partition.clients|training samples",
        }.items():
            yield Fault(
                SIZES, f"{count:,} clients, {scheme}", f"--partition {scheme} --partition.clients {count}", remedy
            )
    shards = f"--partition shards --partition.clients {10**8} --rounds {2**40}"
    yield Fault(SIZES, "10^8 clients and 2^40 rounds, shards", shards, "rounds|clients")


def no_files() -> Iterator[Fault]:
    pets = "--data folder:pets"
    fifo: Before = lambda place: os.mkfifo(place / "pets/cat/pipe.png")  # noqa: E731
    link: Before = lambda place: (place / "pets/cat/link.png").symlink_to("nowhere.png")  # noqa: E731
    yield Fault(NO_FILES, "a pipe among images", pets, "pipe.png", (images, fifo))
    yield Fault(NO_FILES, "a dangling link among images", pets, "link.png", (images, link))
    yield Fault(
        NO_FILES, "a link of a folder to itself", pets, "pets", (lambda place: (place / "pets").symlink_to("pets"),)
    )
    yield Fault(
        NO_FILES,
        "a configuration that is a pipe",
        "--config asks.yaml",
        "asks.yaml",
        (lambda place: os.mkfifo(place / "asks.yaml"),),
    )
    yield Fault(
        NO_FILES,
        "a partition that is a pipe",
        "--partition file --partition.path deal.json",
        "deal.json",
        (lambda place: os.mkfifo(place / "deal.json"),),
    )
    for command in COMMANDS:
        yield Fault(NO_FILES, f"--out of 300 letters, {command}", f"{command} --out {'o' * 300}", "too long")
        yield Fault(NO_FILES, f"--out of nothing, {command}", f"{command} --out ''", "out")
    yield Fault(NO_FILES, "--scratch is a file", "--scratch file", "resources.scratch", (write("file", ""),))
    yield Fault(NO_FILES, "--scratch is not writable", "--scratch /proc", "resources.scratch")
    yield Fault(NO_FILES, "--out is a file", "--out file", "choose another folder", (write("file", ""),))


def leaks() -> Iterator[Fault]:
    crossed = dealt((range(100), range(1000, 1050)), (range(1020, 1120), range(1500, 1550)))
    own = dealt((range(100), range(50, 150)), (range(200, 300), range(1500, 1550)))
    asked = "--partition file --partition.path deal.json --partition.clients 2"
    yield Fault(
        LEAKS,
        "a test row that another client trains on",
        f"run {asked}",
        "of another client",
        (crossed,),
        code=0,
        page="of another client",
    )
    yield Fault(
        LEAKS,
        "the same, compared",
        f"compare {asked}",
        "of another client",
        (crossed,),
        code=0,
        page="of another client",
    )
    yield Fault(LEAKS, "a row in a client's train and test", asked, "deal.json|row", (own,))


def machine() -> Iterator[Fault]:
    for gigabytes in (2, 3):
        for words in ("methods", "run"):
            shell = f"ulimit -v {gigabytes * 10**6}"
            yield Fault(MACHINE, f"{words} in {gigabytes} GB", words, "ulimit -v", code=1, shell=shell)
    yield Fault(
        MACHINE,
        "a configuration that is a folder",
        "--config asks",
        "cannot be read",
        (lambda place: (place / "asks").mkdir(),),
    )
    yield Fault(MACHINE, "files limited to 8 KB", "run", "free some space", code=1, shell="ulimit -f 8")
    for victim, code in {"terminated": 143, "hung-up": 129, "interrupted": 130}.items():
        for command in COMMANDS:
            side = LONG["Ray"] if command == "run" else LONG["trials"]
            words = f"{command} METHOD fedavg {LONG['rounds']} {side}"
            yield Fault(
                MACHINE, f"{command} {victim}", words, "repeat the command", code=code, during=struck(victim), limit=120
            )
    ray = f"run {LONG['rounds']} {LONG['Ray']}"
    for title in ("gcs_server", "ray::DashboardAgent", "ray::RuntimeEnvAgent"):
        yield Fault(MACHINE, f"{title} killed", ray, "results: out", code=0, during=struck(title), limit=240)
    yield Fault(
        MACHINE,
        "a start of Ray that fails: a file",
        ray,
        "RAY_TMPDIR",
        (write("file", ""),),
        shell="export RAY_TMPDIR=$PWD/file",
    )
    yield Fault(
        MACHINE, "a start of Ray that fails: a long name", ray, "RAY_TMPDIR", shell=f"export RAY_TMPDIR=/tmp/{'r' * 90}"
    )
    yield Fault(
        MACHINE,
        "a second compare",
        f"compare {LONG['rounds']}",
        "another command is at work.*the second ended with 0",
        code=0,
        during=twice,
        limit=240,
    )
    for what in ("messages", "states"):
        yield Fault(
            MACHINE,
            f"{what} deleted",
            f"{ray} METHOD fedper",
            "results: out|repeat the command",
            code=0,
            during=deleted(f"*/*/{what}"),
            limit=240,
        )
    yield Fault(
        MACHINE,
        "Ray ends a worker for want of memory",
        f"grid METHOD mine:Greedy {LONG['trials']}",
        "memory",
        code=1,
        shell=FULL,
        limit=240,
    )


def watched() -> Iterator[Fault]:
    def link(place: Path) -> None:
        (place / "secret.csv").write_text("secret")
        (place / "out/far.csv").symlink_to(place / "secret.csv")

    yield Fault(
        WATCH,
        "a link that points outside",
        "watch out",
        "HTTP 404",
        (finished("run"), link),
        code=130,
        during=asks_for("far.csv"),
    )
    yield Fault(
        WATCH,
        "a name of 5,000 letters",
        "watch out",
        "HTTP 404",
        (finished("run"),),
        code=130,
        during=asks_for("n" * 5000 + ".csv"),
    )
    yield Fault(
        WATCH,
        "a plan of text",
        "watch out",
        "HTTP 200",
        (finished("compare"), write("out/plan.json", "none")),
        code=130,
        during=asks_for("page"),
    )


FAULTS = [*own_code(), *files(), *sizes(), *no_files(), *leaks(), *machine(), *watched()]
