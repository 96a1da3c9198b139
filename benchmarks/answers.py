"""Plays faults of users, files and machines on small commands, and judges how each of them is answered.

    python benchmarks/answers.py [--out FOLDER] [--only TEXT ...]

A fault is a row of mistakes.py: what is made or damaged beforehand, a command, and what happens to it. Rows that name
no command go to `run`, `grid` and `compare` in turn. An answer is right if the exit code is the expected one; if what
is said beside progress is at most three lines and 600 letters, without a stack trace, and names the remedy; if it
comes in time; and if nothing is left behind: no process, no scratch file, no half of a file, and after a refusal
(exit code 2) no new file at all. Faults that were answered well in --out are not played again. Ends non-zero if an
answer is wrong.
"""

import argparse
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.faults import Sandbox, is_progress
from benchmarks.mistakes import COMMANDS, FAULTS, FINISHED, MINE, Fault, Play
from tests.end_to_end.commands import Command

MOST_LINES, MOST_LETTERS = 3, 600


@dataclass
class Outcome:
    """How a fault was answered. wrong: why that is not right."""

    kind: str
    name: str
    command: str
    seconds: float = 0.0
    answer: str = ""
    wrong: list[str] = field(default_factory=list)


class Player:
    """Plays faults one after another, in a folder of their own."""

    def __init__(self, out: Path) -> None:
        self.out, self.sandbox = out, Sandbox()
        out.mkdir(parents=True, exist_ok=True)

    def finish(self, name: str) -> None:
        """Has a command finish whose results are to be damaged."""
        place = self.out / f"finished-{name}"
        if not (place / "over").exists():
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            words = words_of(FINISHED[name], "", self.sandbox.scratch)
            assert Command(*words, cwd=place).finish() == 0, (place / "output.txt").read_text()
            (place / "over").touch()

    def play(self, fault: Fault, command: str) -> Outcome:
        """A fault and its answer; its folder is kept only where the answer is wrong."""
        place, begun = self.out / "fault", time.monotonic()
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        (place / "mine.py").write_text(MINE)
        for act in fault.before:
            act(place)
        before, words = files(place), words_of(fault.words, command, self.sandbox.scratch)
        within = ["bash", "-c", f'{fault.shell or ":"}; exec "$0" "$@" 2>>errors.txt']
        play = Play(Command(*words, cwd=place, within=within), words, place, self.sandbox.scratch)
        outcome = Outcome(fault.kind, fault.name, " ".join(words)[:300])
        try:
            if fault.during:
                fault.during(play)
            code = play.command.process.wait(max(1.0, fault.limit + begun - time.monotonic()))
        except (subprocess.TimeoutExpired, AssertionError) as error:
            outcome.wrong.append(f"no end within {fault.limit:g} s ({str(error)[:200]})")
            for process in play.command.family():
                process.kill()
            play.command.kill()
        else:
            outcome.wrong += judged(fault, code, place)
            new = files(place) - before
            outcome.wrong += [
                f"new: {path}" for path in sorted(new) if (code == 2 and not fault.during) or is_half(path)
            ]
        outcome.seconds = round(time.monotonic() - begun, 1)
        outcome.answer = "\n".join(said(place))[:2000]
        outcome.wrong += self.sandbox.left()
        if outcome.wrong:
            kept = self.out / re.sub(r"\W+", "-", fault.name)
            shutil.rmtree(kept, ignore_errors=True)
            place.rename(kept)
        return outcome


def words_of(given: str, command: str, scratch: Path) -> list[str]:
    """The words of a command; its own flags replace those that all have. command: where only flags are given."""
    first, *rest = shlex.split(given)
    if first.startswith("--") or first == "METHOD":
        first, rest = command, [first, *rest]
    if first not in COMMANDS:
        return [first, *rest]
    method = "fedper"
    if "METHOD" in rest:
        method = rest.pop(rest.index("METHOD") + 1)
        rest.remove("METHOD")
    more = [] if "--scratch" in rest else ["--scratch", str(scratch)]
    own = {word.partition("=")[0] for word in rest if word.startswith("--")}
    usual = re.findall(r"--\S+(?: (?!--)\S+)*", COMMANDS[first].replace("METHOD", method))
    return [first, *(word for flag in usual if flag.split()[0] not in own for word in flag.split()), *more, *rest]


def said(place: Path) -> list[str]:
    """What a command has said beside its progress and its results."""
    path = place / "errors.txt"
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    return [line for line in lines if line.strip() and not is_progress(line)]


def judged(fault: Fault, code: int, place: Path) -> list[str]:
    """What is wrong with an answer."""
    lines = said(place)
    text = "\n".join(lines)
    whole = text + (place / "output.txt").read_text() if code == 0 else text
    page = place / "out" / "report.html"
    checks = {
        f"exit code {code}, not {fault.code}": code in (fault.code if isinstance(fault.code, tuple) else [fault.code]),
        f"no remedy: {fault.remedy}": re.search(fault.remedy, whole, re.DOTALL),
        f"{len(lines)} lines": len(lines) <= MOST_LINES,
        f"{len(text)} letters": len(text) <= MOST_LETTERS,
        "a stack trace": "Traceback" not in whole,
        "not on the page": not fault.page or re.search(fault.page, page.read_text() if page.exists() else ""),
    }
    return [what for what, good in checks.items() if not good]


def files(folder: Path) -> set[str]:
    """All files in a folder but what Python, a cache and this script write."""
    found = {path.relative_to(folder) for path in folder.rglob("*")}
    ours = {"__pycache__", "output.txt", "errors.txt", "second"}
    return {str(path) for path in found if not ours.intersection(path.parts)}


def is_half(path: str) -> bool:
    """Whether it is half a file, or a hidden one. Checkpoints may hold such files, and Tune's records a marker."""
    parts = Path(path).parts
    return not {"checkpoint", "tune"}.intersection(parts) and any(part.startswith(".") for part in parts)


def table(outcomes: list[Outcome]) -> str:
    """By kind, how many faults were answered as they should be."""
    total, wrong = Counter(o.kind for o in outcomes), Counter(o.kind for o in outcomes if o.wrong)
    longest = {kind: max(o.seconds for o in outcomes if o.kind == kind) for kind in total}
    rows = [f"| {kind} | {total[kind]} | {wrong[kind]} | {longest[kind]:.0f} |" for kind in total]
    return "\n".join(["| kind | faults | wrong | longest, s |", "| --- | ---: | ---: | ---: |", *rows])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/answers"))
    parser.add_argument("--only", nargs="+", default=[""], help="parts of the names or kinds of faults")
    asked = parser.parse_args()
    out = asked.out.absolute()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is ended
    player, log = Player(out), out / "answers.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    known = [Outcome(**json.loads(line)) for line in lines]
    done = {outcome.name: outcome for outcome in known if not outcome.wrong}
    chosen = [
        (number, fault)
        for number, fault in enumerate(FAULTS)
        if any(part in f"{fault.kind}: {fault.name}" for part in asked.only)
    ]
    try:
        for name in FINISHED:
            player.finish(name)
        for number, fault in chosen:
            if fault.name in done:
                continue
            done[fault.name] = outcome = player.play(fault, list(COMMANDS)[number % len(COMMANDS)])
            with log.open("a") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")
            print(f"{fault.kind}: {fault.name}: {'; '.join(outcome.wrong) or outcome.answer[:300]}", flush=True)
    finally:
        player.sandbox.close()
    outcomes = [done[fault.name] for _, fault in chosen]
    print(table(outcomes))
    return int(any(outcome.wrong for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
