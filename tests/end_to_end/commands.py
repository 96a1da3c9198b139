"""Commands in processes of their own, which the tests watch and kill."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

DEADLINE = 300.0
LOOK = 0.02
"""Seconds between two looks."""


@dataclass(frozen=True)
class Process:
    """A process, told from a later one of the same number by its start."""

    number: int
    parent: int
    start: str
    title: str
    name: str

    def kill(self) -> bool:
        """kill -9. False if it does not run any more."""
        if not any((p.number, p.start) == (self.number, self.start) for p in processes()):
            return False
        with suppress(ProcessLookupError):
            os.kill(self.number, signal.SIGKILL)
        return True


def processes() -> list[Process]:
    """All that run now."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            known, _, rest = (folder / "stat").read_text().rpartition(")")
            fields, name = rest.split(), known.partition("(")[2]
            title = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if fields[0] != "Z":
                found.append(Process(int(folder.name), int(fields[1]), fields[19], title.split(".")[0], name))
    return found


def descendants(number: int) -> list[Process]:
    """The processes that a process started, and those that they started."""
    running, known = processes(), {number}
    found: list[Process] = []
    while more := [p for p in running if p.parent in known and p.number not in known]:
        known |= {process.number for process in more}
        found += more
    return found


class Command:
    """A fedbench command under way. within: words before it, of a program that runs it."""

    def __init__(self, *words: str, cwd: Path, within: Sequence[str] = ()) -> None:
        self.log = cwd / "output.txt"
        with open(self.log, "a") as output:
            self.process = subprocess.Popen(
                [*within, sys.executable, "-m", "fedbench", *words],
                cwd=cwd,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # A shell or nohup may have handed down that these are to be ignored.
                preexec_fn=lambda: [signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGHUP)],
            )

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition while the command runs."""
        deadline = time.monotonic() + DEADLINE
        while not condition():
            assert self.process.poll() is None, f"ended before {what}: {self.said()}"
            assert time.monotonic() < deadline, f"never {what}: {self.said()}"
            time.sleep(LOOK)

    def kill_one(self, title: str) -> None:
        """kill -9 of a process of this command that calls itself `title`."""
        self.until(lambda: any(process.kill() for process in self.titled(title)[:1]), f"a process {title} was killed")

    def titled(self, title: str) -> list[Process]:
        return [process for process in self.family() if title in (process.title.strip(), process.name)]

    def family(self) -> list[Process]:
        """The processes that this command started."""
        return descendants(self.process.pid)

    def listens_beyond_loopback(self) -> list[str]:
        """Processes of this command that take connections from other machines."""
        found = []
        for process in self.family():
            links = [os.readlink(link) for link in Path(f"/proc/{process.number}/fd").glob("*") if link.is_symlink()]
            if listening().intersection(links):
                found.append(f"{process.name} {process.title}")
        return found

    def kill(self) -> None:
        """kill -9 of the command; what it had started is left to itself."""
        self.process.kill()
        self.process.wait()

    def interrupt(self) -> int:
        """Ctrl-C, which a terminal sends to the whole group."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.finish()

    def finish(self) -> int:
        return self.process.wait(DEADLINE)

    def said(self) -> str:
        return self.log.read_text()


def listening() -> set[str]:
    """Sockets that listen on more than the loopback, as links of a process name them."""
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    local = ("0100007F:", "0000000000000000FFFF00000100007F:", "00000000000000000000000001000000:")
    return {f"socket:[{line[9]}]" for line in lines if line[3] == "0A" and not line[1].startswith(local)}


@contextmanager
def started(*words: str, cwd: Path, within: Sequence[str] = ()) -> Iterator[Command]:
    """A command; whatever it leaves behind is ended."""
    command = Command(*words, cwd=cwd, within=within)
    try:
        yield command
    finally:
        family = command.family()
        command.kill()
        for process in family:
            process.kill()


def rounds_in(folder: Path) -> int:
    """Whole lines of metrics.jsonl."""
    path = folder / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0
