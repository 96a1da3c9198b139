"""The faults that `answers.py` plays: what is made or damaged, the command, and what its answer has to say.

A row without a command is given to `run`, `grid` and `compare` in turn, METHOD being fedper unless it says so.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from benchmarks.faults import strike, wait_for
from tests.end_to_end.commands import Command

ALONE = "--rounds 2 --train.epochs 1 --model mlp --out out --hosts 0"
TUNED = f"{ALONE} --trials 1 --seeds 0 1"
COMMANDS = {
    "run": f"run {ALONE} --method METHOD",
    "grid": f"grid {TUNED} --baselines none --space train.batch_size=20,50 --tune-seeds 90 --method METHOD",
    "compare": f"compare {TUNED} --tune 0 --methods METHOD",
}
FINISHED = {
    "run": "run --seeds 0 1",
    "compare": "compare",
    "settings": "compare --over partition.alpha=0.5,1",
}
"""What commands have finished before a fault, by name."""
LONG = {"rounds": "--rounds 60 --checkpoint.every 3", "Ray": "--hosts 2", "trials": "--trials 2"}
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
        if client.learner.train.batch_size == 20:
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
    "$(free -b | awk '/Mem/ {print ($2 - $7 + 3 * 1073741824) / $2}')"
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
    """name: what it is. words: the command, or flags of any. remedy: a pattern of its answer; page: of its page.

    before: what is done in its folder; during: while it runs; shell: words of bash before it, such as limits.
    """

    name: str
    words: str
    remedy: str
    before: tuple[Before, ...] = ()
    code: int | tuple[int, ...] = 2
    during: Callable[[Play], object] | None = None
    shell: str = ""
    page: str = ""
    limit: float = 60
    kind: str = ""


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
    tree = {"clients": [{"train": [*train], "test": [*test]} for train, test in clients]}
    return write("deal.json", json.dumps(tree))


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


def cut_meanwhile(play: Play) -> None:
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


REPORT, RESTORE = "report out", "bring the file back|delete .* to run it again"
RUN, COMPARE = FINISHED["run"], FINISHED["compare"]
PLAN, SUMMARY, JOB, CLAIMS = "out/plan.json", "out/summary.json", "out/run/*-s0", "out/claims/claims.json"


def own_code() -> Iterator[Fault]:
    leaves = (write("leaves.py", "import sys\nsys.exit(0)\n"),)
    for command in COMMANDS:
        for what, words in {
            "method": "METHOD leaves:A",
            "model": "--model leaves:A",
            "data": "--data leaves:a",
        }.items():
            remedy = "module leaves ends the program.*__main__"
            yield Fault(f"sys.exit(0) at import, as {what} of {command}", f"{command} {words}", remedy, leaves)
    yield Fault("a method with Options = None", "METHOD mine:NoOptions", "Options must derive from Method.Options")
    yield Fault("a bad default", "METHOD mine:BadDefault", "method.weight = -1.0: must be a number >= 0")
    yield Fault("a required option", "METHOD mine:Required", "method.weight: a value is required")
    yield Fault("a method's __init__ raises", "METHOD mine:Begins", r"no start \(mine\.py:\d+")
    yield Fault("a method's check raises", "METHOD mine:Checks", r"no check \(mine\.py:\d+")
    yield Fault("parameters on the device meta", "--model mine:Meta", "head.weight.*create it on the CPU")
    yield Fault("a model's __init__ raises", "--model mine:Raises", r"no network, mine\.py:\d+")
    yield Fault("a factory of data raises", "--data mine:make", r"no data \(mine\.py:\d+")
    axes = "SPACE = {'train.lr': [0.1, 0.2]}\n"
    for name, content, remedy in (
        ("is no Python", "SPACE = {", r"SyntaxError.*fedper\.py, line 1"),
        ("raises", "raise RuntimeError('no space')", r"no space \(fedper\.py:1"),
        ("exits", "import sys; sys.exit(0)", r"sys\.exit\(0\).*fedper\.py:1"),
        ("has no SPACE", "X = 1", "has no SPACE: keys with lists of values"),
        ("is a list", "SPACE = [1]", "keys with lists of values"),
        ("has a CONSTRAINT that raises", f"{axes}def CONSTRAINT(point): 1 / 0", r"CONSTRAINT.*division.*fedper\.py:2"),
        ("has a number as CONSTRAINT", f"{axes}CONSTRAINT = 3", "CONSTRAINT"),
    ):
        own = (write("tune_spaces/__init__.py", ""), write("tune_spaces/fedper.py", content))
        yield Fault(f"a tune space {name}", "compare --tune 2", remedy, own)
    yield Fault("a class with SPACE = 5", "compare METHOD mine:Five --tune 2", "Five: SPACE = 5: keys with lists")
    yield Fault("a class's CONSTRAINT raises", "compare METHOD mine:Constrained --tune 2", "no constraint")
    yield Fault("steps raise under a budget", "compare METHOD mine:Steps --tune 2 --budget-steps", "no steps")
    for text, remedy in {
        "quniform(0.1,0.2,0)": "the step must be > 0",
        "loguniform(1e-1,1e-4)": "the first bound must be below the second",
        "randint(0.5,1.5)": "whole numbers are expected",
        "uniform(1,2": "does not end with a bracket",
        "gauss(0,1)": "unknown distribution 'gauss'",
    }.items():
        yield Fault(f"--space {text}", f"grid --search random --samples 2 --space 'train.lr={text}'", remedy)
    yield Fault("--over a distribution", "compare --over 'partition.alpha=uniform(0.1,1)'", "are listed, not drawn")
    yield Fault("--over half a distribution", "compare --over 'partition.alpha=uniform(0.1,1'", "over: uniform")


def result_files() -> Iterator[Fault]:
    def of_plan(**changes: object) -> Before:
        return edited(PLAN, lambda tree: [entry.update(changes) for entry in tree["entries"]])

    def of_setting(**changes: object) -> Before:
        return edited("out/matrix.json", lambda tree: tree["settings"][0].update(changes))

    study, run, settings = finished("compare"), finished("run"), finished("settings")
    for name, act in {
        "of text": write(PLAN, "no plan"),
        "that is a list": write(PLAN, "[1, 2]"),
        "whose entries are text": edited(PLAN, lambda tree: tree.update(entries="none")),
        "with a seed of text": of_plan(seed="one"),
        "cut in half": halved(PLAN),
        "that is a folder": folder_for(PLAN),
        "that is a pipe": pipe_for(PLAN),
    }.items():
        yield Fault(f"plan.json {name}", REPORT, r"plan\.json: damaged.*(bring the file back|repeat)", (study, act))
    yield Fault("plan.json of text, same command", COMPARE, "plan.json: damaged", (study, write(PLAN, "no plan")))
    yield Fault("a label of 5,000 letters", REPORT, "report", (study, of_plan(label="l" * 5000)), 0)
    yield Fault("a path of 5,000 letters", REPORT, "too long for the name", (study, of_plan(path="p" * 5000)))
    yield Fault("matrix.json of text", REPORT, "matrix.json: damaged", (settings, write("out/matrix.json", "none")))
    for name, path in {"itself": ".", "nothing": "no"}.items():
        act, said = of_setting(path=path), "alpha=0.5: nothing was evaluated yet"
        yield Fault(f"matrix.json that names {name}", REPORT, "report", (settings, act), 0, page=said)
    for value in (5, [1, 2], [{"a": 1}], None):
        odd = edited(f"{JOB}/summary.json", partial(dict.update, warnings=value))
        yield Fault(f"warnings = {value} in summary.json", REPORT, "report", (run, odd), 0)
    huge = edited(f"{JOB}/metrics.jsonl", lambda row: row.update(round=10**30))
    yield Fault("a round of 31 digits", REPORT, "report", (run, huge), 0, page="metrics.jsonl: the line of")
    begun = (run, gone(SUMMARY))
    for table in ("clients.parquet", "traces.parquet"):
        yield Fault(f"{table} gone, report", REPORT, "report", (run, gone(f"{JOB}/{table}")), 0)
        for name, break_it in {"cut in half": halved, "a folder": folder_for, "a pipe": pipe_for}.items():
            said = f"{table} cannot be read and is left out"
            yield Fault(f"{table} {name}, report", REPORT, "report", (run, break_it(f"{JOB}/{table}")), 0, page=said)
            yield Fault(f"{table} {name}, same command", RUN, RESTORE, (run, break_it(f"out/{table}")))
        yield Fault(f"a seed's {table} gone", RUN, RESTORE, (*begun, gone(f"{JOB}/{table}")))
    for name in ("metrics.jsonl", "timings.jsonl"):
        for what, break_it in {"a folder": folder_for, "a pipe": pipe_for}.items():
            yield Fault(f"a seed's {name} {what}", RUN, name, (*begun, break_it(f"{JOB}/{name}")))
    table = f"{JOB}/clients.parquet"
    yield Fault("a seed's table cut, the other one to run", RUN, RESTORE, (*begun, gone("out/run/*-s1"), halved(table)))
    long = f"{RUN} {LONG['rounds']}"
    yield Fault("a seed's table cut while the other runs", long, f"clients.parquet.*({RESTORE})", during=cut_meanwhile)
    yield Fault("partition.json of a seed gone", RUN, RESTORE, (*begun, gone(f"{JOB}/partition.json")))
    yield Fault("a seed's folder is a file", RUN, "older|directory", (*begun, file_for(JOB)))
    yield Fault("config.yaml of a seed of text", RUN, RESTORE, (*begun, write_to(f"{JOB}/config.yaml", ": no")))
    for name, text in {
        "of text": "none",
        "with an empty row": '{"rows": [{}]}',
        "with a row of text": '{"rows": ["C1"]}',
        "with a row without parts": '{"rows": [{"id": "C1", "status": "judged"}]}',
        "with seeds of text": '{"rows": [], "seeds": "all"}',
    }.items():
        for words in ("claims --out out", "report out/claims"):
            yield Fault(f"claims.json {name}, {words}", words, "claims.json: damaged", (write(CLAIMS, text),))


def sizes() -> Iterator[Fault]:
    for name, content, remedy in (
        ("an alias of itself", "train: &a\n  lr: *a\n", "levels of nesting|train.lr"),
        ("an alias bomb", BOMB, "more than 100000 values"),
        ("3,000 levels", f"rounds: {'[' * 3000}{']' * 3000}", "levels of nesting"),
        ("a number of 5,000 digits", f"rounds: {'9' * 5000}", "not valid YAML"),
        ("a key of 5,000 letters", f"{'k' * 5000}: 1", "not valid YAML"),
    ):
        yield Fault(f"YAML with {name}", "--config asks.yaml", remedy, (write("asks.yaml", content),))
    yield Fault("a flag of 5,000 letters", f"--{'f' * 5000} 1", "unknown flag")
    yield Fault("a value of 5,000 digits", f"--seeds {'9' * 5000}", "not a value in YAML")
    for scheme in ("pathological", "dirichlet-fixed", "iid"):
        for count in (10**9, 10**7):
            words = f"--partition {scheme} --partition.clients {count}"
            yield Fault(f"{count:,} clients, {scheme}", words, "lower partition|partition.clients = ")
    shards = f"--partition shards --partition.clients {10**8} --rounds {2**40}"
    yield Fault("10^8 clients and 2^40 rounds, shards", shards, "rounds|clients")


def no_files() -> Iterator[Fault]:
    def pipe(path: str) -> Before:
        return lambda place: os.mkfifo(place / path)

    def link(path: str, target: str) -> Before:
        return lambda place: (place / path).symlink_to(target)

    pets = "--data folder:pets"
    yield Fault("a pipe among images", pets, "pipe.png", (images, pipe("pets/cat/pipe.png")))
    yield Fault("a dangling link among images", pets, "link.png", (images, link("pets/cat/link.png", "nowhere.png")))
    yield Fault("a folder that is a link to itself", pets, "pets", (link("pets", "pets"),))
    yield Fault("a configuration that is a folder", "--config pets", "cannot be read", (images,))
    for command in COMMANDS:
        yield Fault(f"--out of 300 letters, {command}", f"{command} --out {'o' * 300}", "too long")
        yield Fault(f"--out of nothing, {command}", f"{command} --out ''", "out")
    yield Fault("--scratch is a file", "--scratch file", "resources.scratch", (write("file", ""),))
    yield Fault("--scratch is not writable", "--scratch /proc", "resources.scratch.*you may write")
    yield Fault("--out is a file", "--out file", "choose another folder", (write("file", ""),))


def leaks() -> Iterator[Fault]:
    crossed = (dealt((range(100), range(1000, 1050)), (range(1020, 1120), range(1500, 1550))),)
    own = (dealt((range(100), range(50, 150)), (range(200, 300), range(1500, 1550))),)
    flags, said = "--partition file --partition.path deal.json --partition.clients 2", "of another client"
    yield Fault("a test row that another client trains on", f"run {flags}", said, crossed, 0, page=said)
    yield Fault("the same in a comparison", f"compare {flags}", said, crossed, 0, page=said)
    yield Fault("a row in a client's train and test", flags, "row", own)


def machine() -> Iterator[Fault]:
    for gigabytes in (2, 3):
        for words in ("methods", "run"):
            limit = f"ulimit -v {gigabytes * 10**6}"
            yield Fault(f"{words} in {gigabytes} GB", words, "ulimit -v", code=1, shell=limit)
    yield Fault("files of 8 KB at most", "run", "ulimit -f", code=1, shell="ulimit -f 8")
    for victim, code in {"terminated": 143, "hung-up": 129, "interrupted": 130}.items():
        for command in COMMANDS:
            words = f"{command} METHOD fedavg {LONG['rounds']} {LONG['Ray' if command == 'run' else 'trials']}"
            yield Fault(f"{command} {victim}", words, "repeat the command", (), code, struck(victim), limit=120)
    ray = f"run {LONG['rounds']} {LONG['Ray']}"
    for title in ("gcs_server", "raylet", "ray::DashboardAgent", "ray::RuntimeEnvAgent"):
        yield Fault(f"{title} killed, run", ray, "results: out", (), 0, struck(title), limit=240)
    for title in ("gcs_server", "raylet"):
        words = f"compare {LONG['rounds']} {LONG['trials']}"
        yield Fault(f"{title} killed, compare", words, "results: out", (), 0, struck(title), limit=240)
    for name, folder in {"a file": "$PWD/file", "a long name": f"/tmp/{'r' * 90}"}.items():
        shell = f"export RAY_TMPDIR={folder}"
        yield Fault(f"a start of Ray that fails: {name}", ray, "RAY_TMPDIR", (write("file", ""),), shell=shell)
    second = "another command is at work.*the second ended with 0"
    yield Fault("a second compare", f"compare {LONG['rounds']}", second, (), 0, twice, limit=240)
    either = "results: out|was deleted; repeat the command|keep others from deleting"  # by what is still to be read
    for what, files in {"messages": "messages", "states": "host-*"}.items():
        yield Fault(f"{what} deleted", ray, either, (), (0, 1, 2), deleted(f"*/*/{files}"), limit=240)
    said = "failed: .*batch_size=20 .*Ray ended its process to save memory"
    yield Fault("Ray ends a worker", f"grid METHOD mine:Greedy {LONG['trials']}", said, (), 0, shell=FULL, limit=240)


def watched() -> Iterator[Fault]:
    run, study = finished("run"), finished("compare")

    def link(place: Path) -> None:
        (place / "secret.csv").write_text("secret")
        (place / "out/far.csv").symlink_to(place / "secret.csv")

    yield Fault("a link that points outside", "watch out", "HTTP 404", (run, link), 130, asks_for("far.csv"))
    yield Fault("a name of 5,000 letters", "watch out", "HTTP 404", (run,), 130, asks_for(f"{'n' * 5000}.csv"))
    yield Fault("a plan of text", "watch out", "HTTP 200", (study, write(PLAN, "none")), 130, asks_for("page"))


KINDS = {
    "own code": own_code,
    "files of results": result_files,
    "sizes": sizes,
    "what is no file": no_files,
    "leaks": leaks,
    "the machine": machine,
    "watch": watched,
}
FAULTS = [replace(fault, kind=kind) for kind, rows in KINDS.items() for fault in rows()]
