"""Kills processes of small runs at random moments, and compares what the runs leave with undisturbed ones.

    python benchmarks/faults.py [--count 100] [--seed 0] [--out FOLDER] [--victims NAME ...] [--compare] [--limit 600]
                               [--engine compiled]

A victim is the driver, a host, a trial of a grid, the raylet or the control (GCS) of a local Ray, the main process, a
whole machine of a cluster (where namespaces can be made), or the main process between two of its steps of writing. Or
the command gets a signal that ends it (its whole group gets SIGHUP, as from a closed terminal), or the messages in
transit are deleted. With --compare all of this happens to comparisons, whose trials have neither drivers nor hosts.

The same command is given again until it ends. It has to end with the bits of the undisturbed run, no command may take
longer than `--limit` seconds, and nothing may be left: no process, no scratch file, no file that was half written;
after a signal this holds before the next command, whose exit code is 128 and the signal. A command that ends early
says why in at most three lines. Fault number i of a seed is always the same one; those that --out holds already are
not done again. Ends non-zero if anything is wrong.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.end_to_end.commands import Command, Process, processes, rounds_in
from tests.machines import Machines, possible

ROOT = Path(__file__).resolve().parent.parent
METHODS = ("fedavg", "fedper", "fedrep", "ditto", "apfl", "fedcac", "fedala", "fedpac", "floco", "co-pfl")
SIGNALS = {"terminated": signal.SIGTERM, "hung-up": signal.SIGHUP, "interrupted": signal.SIGINT}
VICTIMS = ("driver", "host", "trial", "raylet", "main", "machine", "writer", "control", "messages", *SIGNALS)
OF_A_COMPARISON = ("trial", "raylet", "main", "writer", "control", *SIGNALS)
TITLES = {
    "driver": "ray::DriverActor",
    "host": "ray::HostActor",
    "trial": "ray::Trial",
    "raylet": "raylet",
    "control": "gcs_server",
}
PROGRESS = re.compile(
    r"loading PyTorch|starting Ray|writing the report|(seed \d+  )?round \d|trials \d|(grid of )?[\w-]+ on |"
    r"cluster: |hosts: |.* runs?, .* gradient steps?: about|(one|two) seeds? cannot"
)
MOST_LINES = 3
"""Of a command that ends early, besides those that say how far it is."""
RECORDS = ("metrics.jsonl", "clients.parquet", "traces.parquet")
ROUNDS, LINES, STEPS = 24, 2, 200
SMALL = (
    "--model mlp --model.hidden 16 --train.epochs 1 --train.lr 0.1 --participation 0.5 --checkpoint.every 3 "
    f"--rounds {ROUNDS} --out out"
).split()
RATES = "train.lr=0.05,0.1"
MARK, FATAL_STEP = "FEDBENCH_FAULTS", "FEDBENCH_FAULTS_STEP"
DYING = """
import os, sys
step, _, folder = os.environ.get("FEDBENCH_FAULTS_STEP", "").partition(":")
left = int(step or 0)

def look(event, given):
    global left
    if event == "open":
        changes = bool((given[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    else:
        changes = event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")
    if changes and isinstance(given[0], (str, bytes, os.PathLike)):
        if os.path.abspath(os.fsdecode(given[0])).startswith(folder):
            left -= 1
            if not left:
                os.kill(os.getpid(), 9)

if left:
    sys.addaudithook(look)
"""
"""What a writer starts with: it ends itself before it changes anything in a folder for the given time."""
OF_WANDB = ("wandb-media", "wandb-artifacts")
"""Ends of the names of empty folders that W&B makes when Ray Tune imports it, and that stay after kill -9."""
OF_COMPILER = "torchinductor_"
"""How the name of the folder begins in which PyTorch's compiler keeps compiled headers, for later processes."""
TRIES, GONE = 6, 60.0
"""How often a command is given, and seconds in which what it started has to end."""


@dataclass(frozen=True)
class Fault:
    """What happens to a run. At a round, and some seconds after it was recorded, a victim is killed; then once more."""

    number: int
    victim: str
    method: str
    moments: tuple[tuple[int, float], ...]
    step: int
    study: str = "run"
    engine: str = "auto"

    @classmethod
    def of(
        cls, seed: int, number: int, victims: Sequence[str], compares: bool = False, engine: str = "auto"
    ) -> "Fault":
        draw = random.Random(f"{seed}-{number}")
        victim = victims[number % len(victims)]
        method = METHODS[(number // len(victims) + number) % len(METHODS)]
        count = draw.choice((1, 1, 2)) if victim in ("driver", "host", "main") else 1
        rounds = sorted(draw.randrange(ROUNDS - 2) for _ in range(count))
        moments = tuple((r, draw.random()) for r in rounds)
        study = "compare" if compares else "grid" if victim == "trial" else "run"
        return cls(number, victim, method, moments, draw.randrange(1, STEPS), study, engine)

    @property
    def words(self) -> list[str]:
        return [*self._study_words(), "--train.engine", self.engine]

    def _study_words(self) -> list[str]:
        if self.study == "compare":
            small = ["--tune", "0", "--seeds", "0", "1", "--trials", "2", "--hosts", "0"]
            return ["compare", "--methods", self.method, *small, *SMALL]
        if self.study == "grid":
            study = ["grid", "--space", RATES, "--baselines", "none", "--seeds", "0", "--trials", "2"]
            return [*study, "--method", self.method, *SMALL]
        hosts = {"machine": ["--hosts", "2", "--strategy", "spread"], "writer": ["--hosts", "0"]}
        return ["run", "--method", self.method, *hosts.get(self.victim, ["--hosts", "2"]), *SMALL]


@dataclass
class Outcome:
    """What became of a run. wrong: what differs, hangs or is left; struck: how many kills found their victim."""

    fault: Fault
    struck: int = 0
    commands: int = 0
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)


class Sandbox:
    """Temporary folders for commands, told to them by the environment, and what commands leave there and running."""

    def __init__(self) -> None:
        self.token = uuid.uuid4().hex
        self.short = Path(tempfile.mkdtemp(prefix="ff", dir="/tmp"))  # the paths of Ray's sockets are limited
        self.temporary = self.short / "tmp"
        memory = Path("/dev/shm")
        self.scratch = (memory if memory.is_dir() else self.short) / f"faults-{self.token[:8]}"
        for folder in (self.temporary, self.scratch):
            folder.mkdir(parents=True)
        (self.short / "sitecustomize.py").write_text(DYING)
        os.environ |= {
            MARK: self.token,
            "TMPDIR": str(self.temporary),
            "RAY_TMPDIR": str(self.short),
            "RAY_AUTH_MODE": "disabled",
            "TORCHINDUCTOR_CACHE_DIR": str(self.short / "compiled"),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), str(self.short), os.environ.get("PYTHONPATH")])),
        }

    def close(self) -> None:
        for process in self.own():
            process.kill()
        for folder in (self.short, self.scratch):
            shutil.rmtree(folder, ignore_errors=True)

    def own(self) -> list[Process]:
        """Processes that were started with this environment, told by its mark."""
        return [process for process in processes() if process.number != os.getpid() and self._marked(process)]

    def _marked(self, process: Process) -> bool:
        with suppress(OSError):
            return f"{MARK}={self.token}".encode() in Path(f"/proc/{process.number}/environ").read_bytes()
        return False

    def left(self) -> list[str]:
        """What is there that should not be. It is ended and removed."""
        deadline = time.monotonic() + GONE
        while (own := self.own()) and time.monotonic() < deadline:
            time.sleep(0.5)
        wrong = [f"process left: {process.title.strip()[:60]}" for process in own]
        for process in own:
            process.kill()
        folders = (self.scratch, self.temporary)
        stays = (f"fedbench-{os.getuid()}", *OF_WANDB)  # if it is empty
        compiled = {*self.temporary.glob(f"{OF_COMPILER}*")}
        found = [p for folder in folders for p in folder.rglob("*") if compiled.isdisjoint({p, *p.parents})]
        wrong += [f"left: {path}" for path in found if not (path.name.endswith(stays) and is_empty(path))]
        for folder in folders:
            shutil.rmtree(folder)
            folder.mkdir()
        return wrong


class Campaign:
    """Faults one after another, in a folder of their own."""

    def __init__(self, out: Path, limit: float) -> None:
        self.out, self.limit, self.sandbox = out, limit, Sandbox()
        out.mkdir(parents=True, exist_ok=True)

    def play(self, fault: Fault) -> Outcome:
        """A run and what happens to it; its folder is kept only where something is wrong."""
        expected = self.undisturbed(fault)
        place = self.out / f"fault-{fault.number:04d}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        outcome, begun = Outcome(fault), time.monotonic()
        machines = Machines(1, place) if fault.victim == "machine" else None
        try:
            more = ["--address", machines.address] if machines else ["--scratch", str(self.sandbox.scratch)]
            self._until_it_ends([*fault.words, *more], place, outcome, machines)
        finally:
            if machines:
                machines.close()
        if not outcome.wrong and records(place / "out") != expected:
            outcome.wrong.append("other bits")
        outcome.wrong += self._left(place)
        outcome.seconds = round(time.monotonic() - begun, 1)
        if not outcome.wrong:
            shutil.rmtree(place)
        return outcome

    def _until_it_ends(self, words: Sequence[str], place: Path, outcome: Outcome, machines: Machines | None) -> None:
        moments = list(outcome.fault.moments)
        while outcome.commands < TRIES:
            outcome.commands += 1
            if outcome.fault.victim == "writer" and outcome.commands == 1:
                os.environ[FATAL_STEP] = f"{outcome.fault.step}:{place / 'out'}"
                command = Command(*words, cwd=place)
                del os.environ[FATAL_STEP]
            else:
                command = Command(*words, cwd=place)
            deadline = time.monotonic() + self.limit
            while moments and wait_for(command, place / "out", *moments[0], deadline):
                moments.pop(0)
                outcome.struck += strike(outcome.fault.victim, command, machines, self.sandbox.scratch)
            try:
                code = command.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                outcome.wrong.append(f"hangs: command {outcome.commands} ran for {self.limit:g} s")
                for process in [*command.family()]:
                    process.kill()
                command.kill()
                return
            if code == -9 and outcome.fault.victim == "writer":
                outcome.struck += 1
            outcome.wrong += self._answer(outcome.fault.victim, code, command.said())
            if code == 0 or outcome.wrong:
                return
        outcome.wrong.append(f"not over after {TRIES} commands")

    def _answer(self, victim: str, code: int, said: str) -> list[str]:
        """What is wrong with the end of a command. said: what all commands so far have printed."""
        wrong = ["a stack trace"] if "Traceback" in said else []
        if victim in SIGNALS and code not in (0, 128 + SIGNALS[victim]):
            wrong.append(f"exit code {code}")
        if victim in SIGNALS and code:
            wrong += [f"process left: {process.title.strip()[:60]}" for process in self.sandbox.own()]
            wrong += [f"left: {path}" for path in self.sandbox.scratch.glob("*/*")]
        if victim in (*SIGNALS, "messages") and code > 0:
            errors = [line for line in said.splitlines() if line and not is_progress(line)]
            wrong += ["more than three lines"] if len(errors) > MOST_LINES else []
        return wrong

    def _left(self, place: Path) -> list[str]:
        """What is there that should not be."""
        hidden = [path for path in (place / "out").rglob(".*") if path.name != ".wandb"]
        halves = [*hidden, *(place / "out").rglob("checkpoint")]
        return [*self.sandbox.left(), *(f"left: {path.relative_to(place)}" for path in halves)]

    def undisturbed(self, fault: Fault) -> dict[str, bytes]:
        """The records of the same command where nothing happens to it, without Ray."""
        place = self.out / f"undisturbed-{fault.study}-{fault.method}"
        if not (place / "over").exists():
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            words = [*fault.words]
            alone = {"--hosts": "0"} | ({} if fault.study == "run" else {"--trials": "1"})
            for flag, value in alone.items():
                words += [] if flag in words else [flag, value]
                words[words.index(flag) + 1] = value
            code = Command(*words, cwd=place).process.wait(self.limit)
            if code:
                raise RuntimeError(f"undisturbed: {(place / 'output.txt').read_text()}")
            (place / "over").touch()
        return records(place / "out")


def records(folder: Path) -> dict[str, bytes]:
    """All that a run or a study promises the bits of, by path."""
    found = [path for name in RECORDS for path in folder.rglob(name)]
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(found)}


def is_empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def is_progress(line: str) -> bool:
    """Whether a line says how far a command is."""
    return PROGRESS.match(line) is not None


def wait_for(command: Command, out: Path, round: int, seconds: float, deadline: float) -> bool:
    """Whether the moment comes: a run has recorded the round, and some seconds have passed."""
    while command.process.poll() is None and time.monotonic() < deadline:
        if max(map(rounds_in, [out, *out.glob("run/*")]), default=0) >= round * LINES:
            with suppress(subprocess.TimeoutExpired):
                command.process.wait(seconds)
            return command.process.poll() is None
        time.sleep(0.02)
    return False


def strike(victim: str, command: Command, machines: Machines | None, scratch: Path) -> bool:
    """kill -9 of a victim, or of a process of this title, or what happens instead. Whether it was found."""
    if victim == "messages":
        found = list(scratch.glob("*/*/messages"))
        for folder in found:
            shutil.rmtree(folder, ignore_errors=True)
        return bool(found)
    if victim == "writer":
        return False
    if victim in SIGNALS:
        os.killpg(command.process.pid, SIGNALS[victim])
        return True
    if victim == "main":
        command.kill()
        return True
    if machines:
        machines.lose(0)
        return True
    while command.process.poll() is None:
        for process in command.family():
            if TITLES.get(victim, victim) in (process.title.strip(), process.name):
                return process.kill()
        time.sleep(0.02)
    return False


def table(outcomes: Iterable[Outcome]) -> str:
    """By victim and method, how many runs ended as they should, of all."""
    outcomes = list(outcomes)
    total, good = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for outcome in outcomes:
        for key in ((outcome.fault.victim, outcome.fault.method), (outcome.fault.victim, "all")):
            total[key] += 1
            good[key] += not outcome.wrong
    cell: Callable[[str, str], str] = lambda v, m: f"{good[v, m]}/{total[v, m]}" if total[v, m] else ""  # noqa: E731
    lines = ["| victim | " + " | ".join(METHODS) + " | all | kills | commands |", "|" + " --- |" * (len(METHODS) + 4)]
    for victim in VICTIMS:
        own = [outcome for outcome in outcomes if outcome.fault.victim == victim]
        if own:
            cells = [cell(victim, method) for method in (*METHODS, "all")]
            sums = [str(sum(outcome.struck for outcome in own)), str(sum(outcome.commands for outcome in own))]
            lines.append(f"| {victim} | " + " | ".join([*cells, *sums]) + " |")
    return "\n".join(lines)


def known(path: Path) -> dict[int, Outcome]:
    lines = path.read_text().splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines if line.endswith("}")]
    return {tree["fault"]["number"]: Outcome(**{**tree, "fault": Fault(**tree["fault"])}) for tree in found}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--victims", nargs="+", choices=VICTIMS, default=list(VICTIMS))
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--limit", type=float, default=600)
    parser.add_argument("--engine", choices=("auto", "loop", "compiled"), default="auto")
    asked = parser.parse_args()
    kinds = OF_A_COMPARISON if asked.compare else VICTIMS
    victims = [victim for victim in asked.victims if victim in kinds and (victim != "machine" or possible())]
    out = (asked.out or Path(f"results/faults-{asked.seed}")).absolute()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is ended
    campaign, log = Campaign(out, asked.limit), out / "faults.jsonl"
    done = known(log)
    try:
        for number in range(asked.count):
            if number in done:
                continue
            fault = Fault.of(asked.seed, number, victims, asked.compare, asked.engine)
            done[number] = outcome = campaign.play(fault)
            with log.open("a") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")
            said = "; ".join(outcome.wrong) or "the same bits"
            print(f"{number}: {fault.victim} of {fault.method} at {fault.moments}: {said}", flush=True)
    finally:
        campaign.sandbox.close()
    asked_for = [outcome for number, outcome in sorted(done.items()) if number < asked.count]
    print(table(asked_for))
    return int(any(outcome.wrong for outcome in asked_for))


if __name__ == "__main__":
    sys.exit(main())
