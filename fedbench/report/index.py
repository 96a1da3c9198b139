"""The index of a folder of studies and runs: one line for each, with its answer and a link to its page."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import unescape
from pathlib import Path

from fedbench.config.words import plural
from fedbench.plugins import PAGES
from fedbench.report import make_report
from fedbench.report.template import render
from fedbench.report.theme import DARK, LIGHT
from fedbench.report.typeset import join_words
from fedbench.results.files import read_json, write_atomically
from fedbench.results.plan import PLAN_FILE, STUDY_PARTS, Plan, is_study
from fedbench.results.reader import Records, is_run
from fedbench.results.settings_file import is_matrix

FILE = "index.html"
SETTINGS = STUDY_PARTS[0]
HEAD = 100_000
"""Characters at the start of a page, among which its title and answer are."""
FINISHED, OPEN, FAILED, BROKEN = "finished", "open", "failed", "cannot be read"


@dataclass(frozen=True)
class Line:
    """A study or a run. path: of its folder, relative to the index; changed: when its plan last changed, as a time
    stamp in seconds; error: why it cannot be read."""

    path: str
    title: str = ""
    command: str = ""
    data: str = ""
    methods: Sequence[str] = ()
    seeds: int = 0
    state: str = BROKEN
    answer: str = ""
    changed: float = 0.0
    error: str = ""

    @property
    def date(self) -> str:
        return datetime.fromtimestamp(self.changed).strftime("%Y-%m-%d %H:%M") if self.changed else ""


def is_page_folder(folder: Path) -> bool:
    """Whether the folder holds a study or a run, which has a page of its own."""
    return is_study(folder) or is_run(folder) or is_matrix(folder) or any((folder / f).exists() for f in PAGES.names())


def page_folders(folder: Path) -> Iterator[Path]:
    """The folders of studies and runs below a folder, without those that are parts of others."""
    for path in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        if is_page_folder(path):
            yield path
        else:  # a study over settings that is not over has their studies, beside jobs that have no page
            yield from page_folders(path / SETTINGS if (path / SETTINGS).is_dir() else path)


def write_index(folder: Path) -> Path:
    """Writes index.html and the pages that are missing or older than their study, and returns its path."""
    lines = sorted((index_line(path, folder) for path in page_folders(folder)), key=lambda line: -line.changed)
    counts = {state: sum(line.state.startswith(state) for line in lines) for state in (FINISHED, OPEN, FAILED, BROKEN)}
    page = render(
        "index.html.j2",
        kind="report",
        title=folder.absolute().name,
        asked="",
        answer=f"{plural(len(lines), 'result')}: {join_words([f'{n} {s}' for s, n in counts.items() if n])}.",
        besides=[],
        lines=lines,
        palettes={"light": LIGHT, "dark": DARK},
        plotly="",
    )
    write_atomically(folder / FILE, page)
    return folder / FILE


def index_line(path: Path, above: Path) -> Line:
    """The line of a study or a run; what cannot be read is named with its error."""
    name = path.relative_to(above).as_posix()
    try:
        return _line(path, name)
    except Exception as error:  # one damaged folder must not hide the others
        return Line(name, error=str(error).partition("\n")[0] or type(error).__name__)


def _line(path: Path, name: str) -> Line:
    folders = [path, *(plan.parent for deep in ("*", "*/*") for plan in path.glob(f"{deep}/{PLAN_FILE}"))]
    plans = [(folder, Plan.read(folder)) for folder in folders if is_study(folder) or is_run(folder)]
    report = path / "report.html"
    changed = max((file.stat().st_mtime for file in _records(path, plans)), default=0.0)
    if not report.exists() or report.stat().st_mtime < changed:
        make_report(path)
    with report.open() as file:
        head = file.read(HEAD)
    configs = [plan.config for _, plan in plans]
    return Line(
        name,
        _text_inside(head, r"<h1>(.*?)</h1>"),
        _command(plans),
        ", ".join(dict.fromkeys(str((config.get("data") or {}).get("name", "")) for config in configs)),
        list(dict.fromkeys(label for _, plan in plans for label in plan.labels())),
        len({seed for config in configs for seed in config.get("seeds") or []}),
        study_state(plans),
        _text_inside(head, r'<p class="answer">(.*?)</p>'),
        changed,
    )


def _records(path: Path, plans: Sequence[tuple[Path, Plan]]) -> Iterator[Path]:
    """The files by which a result changes: its plans, else its metrics."""
    files = [folder / name for folder, _ in plans for name in (PLAN_FILE, "metrics.jsonl")]
    yield from (file for file in [*files, *(path / name for name in PAGES.names())] if file.exists())


def _text_inside(page: str, pattern: str) -> str:
    match = re.search(pattern, page, re.S)
    return unescape(re.sub(r"<[^>]*>", "", match[1])).strip() if match else ""


def _command(plans: Sequence[tuple[Path, Plan]]) -> str:
    """The command line that the first run recorded."""
    folders = (folder / entry.path for folder, plan in plans for entry in plan.entries)
    first = next((folder for folder in folders if (folder / "environment.json").exists()), None)
    words = [] if first is None else str(read_json(first / "environment.json", []).get("command") or "").split(" ")
    return " ".join(["fedbench", *words[1:]]) if words[0:1] not in ([], [""]) else ""


def study_state(plans: Sequence[tuple[Path, Plan]]) -> str:
    """Whether all jobs are over, and how many failed."""
    entries = [entry for _, plan in plans if plan.kind != "run" for entry in plan.entries]
    runs = [Records(folder) for folder, plan in plans if plan.kind == "run"]
    failed = sum(entry.status == "failed" for entry in entries)
    if any(entry.status == "missing" for entry in entries) or not all(run.finished() for run in runs):
        return f"{OPEN}, {failed} failed" if failed else OPEN
    if entries and failed == len(entries):
        return FAILED
    return f"{FINISHED}, {plural(failed, 'job')} failed" if failed else FINISHED
