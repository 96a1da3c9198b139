"""README and docs/ keep their word: examples run as printed, commands are legal, flags and files exist."""

import os
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from fedbench.cli import (
    COMMANDS,
    check,
    compare,
    data,
    export,
    figure,
    flags,
    grid,
    main,
    table,
    wandb,
    watch,
)
from fedbench.cli import run as run_command
from fedbench.cli.exits import PrintedExit
from fedbench.cli.parse import parse
from fedbench.config import Config
from fedbench.studies.run import Result
from fedbench_papers.claims import command as claims
from fedbench_papers.field import command as field
from fedbench_papers.tables import command as reproduce

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
COMMAND_LINES = [
    line for kind, block in BLOCKS if kind == "sh" for line in block.splitlines() if line.startswith("fedbench")
]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "papers" / "docs").glob("*.md")),
]
FOREIGN = {"--no-wait", "--num-cpus", "--working-dir", "--precision", "--probabilities", "--threshold", "--medians"}
"""Flags of Ray, of a benchmark and of predict.py that pages name."""
QUICK = ["--hosts", "0", "--train.epochs", "1"]


def example(file: str) -> str:
    """The block that follows "`file`:" at the end of a paragraph."""
    found = re.search(rf"`{re.escape(file)}`:\n\n```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    assert found, f"the README shows no {file}"
    return found[1]


def command(start: str) -> list[str]:
    """The words of the one command line that begins so."""
    (line,) = [line for line in COMMAND_LINES if line.startswith(start)]
    return shlex.split(line, comments=True)[1:]


@pytest.mark.parametrize(
    ("file", "start"),
    [("my_method.py", "fedbench run --method my_method:Pulled"), ("my_model.py", "fedbench run --model my_model:Net")],
)
def test_an_example_runs_as_printed(file, start, tmp_path, monkeypatch, capsys):
    (tmp_path / file).write_text(example(file))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert main([*command(start), *QUICK]) == 0
    (folder,) = (tmp_path / "results" / "run").iterdir()
    assert (folder / "report.html").exists()
    assert len((folder / "metrics.jsonl").read_text().splitlines()) >= 3
    assert str(folder.relative_to(tmp_path)) in capsys.readouterr().out


def test_a_model_that_is_kept_is_exported_as_printed(tmp_path, monkeypatch):
    lines = commands_of(ROOT / "docs" / "models.md")
    (keep,) = [line for line in lines if line.endswith("--save-models --out mine")]
    (export_line,) = [
        line for line in lines if line.startswith("fedbench export mine --client 3 --format torch.export")
    ]
    monkeypatch.chdir(tmp_path)
    assert main([*shlex.split(keep)[1:], *QUICK]) == 0
    assert main(shlex.split(export_line)[1:]) == 0
    assert {path.name for path in (tmp_path / "client-3").iterdir()} == {"model.json", "model.pt2", "predict.py"}


def test_the_own_method_differs_from_fedavg_by_its_pull(tmp_path, monkeypatch):
    (tmp_path / "my_method.py").write_text(example("my_method.py"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    asked = ["run", "--rounds", "2", *QUICK]
    for name, more in (("fedavg", []), ("my_method:Pulled", ["--method.mu", "0"]), ("fedprox", ["--method.mu", "0.3"])):
        assert main([*asked, "--method", name, *more, "--out", name.partition(":")[0]]) == 0
    assert main([*asked, "--method", "my_method:Pulled", "--method.mu", "0.3", "--out", "pulled"]) == 0
    lines = {folder: (tmp_path / folder / "metrics.jsonl").read_text() for folder in ("fedavg", "my_method", "fedprox")}
    pulled = (tmp_path / "pulled" / "metrics.jsonl").read_text()
    assert lines["my_method"] == lines["fedavg"] != pulled == lines["fedprox"]


def test_the_notebook_lines_run_as_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "commands.md").read_text(), re.MULTILINE | re.DOTALL)
    (code,) = [block for block in blocks if "import Config, run" in block]
    found: dict = {}
    exec(code.replace("rounds=5", "rounds=1, resources={'hosts': 0}"), found)
    assert {"after_fit", "after_agg"} <= set(found["result"].metrics["point"])
    assert found["result"].report.exists()


def test_the_script_in_python_runs_as_printed(tmp_path):
    (code,) = [block for kind, block in BLOCKS if kind == "python" and "import Config, compare" in block]
    assert len(code.splitlines()) <= 30
    quick = code.replace("rounds=10", "rounds=1, seeds=[0], train={'steps': 1}").replace("tune=0", "tune=0, trials=1")
    (tmp_path / "script.py").write_text(quick)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "after aggregation, the best of 4 methods and" in done.stdout
    (table,) = (tmp_path / "results" / "compare").glob("*/table.csv")
    methods = {line.split(",")[0] for line in table.read_text().splitlines()[1:]}
    assert methods == {"__main__:HeadAtHome", "ditto", "local", "centralized", "fedavg-ft"}


def command_lines(text: str) -> list[str]:
    """The lines of blocks of code, fenced or indented, that begin with `fedbench`; a backslash continues a line."""
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [line.strip() for line in lines if re.match(r"(    )?fedbench [a-z]", line) and "..." not in line]


def commands_of(page: Path) -> list[str]:
    """Commands of a page; a line of a paragraph may begin with the name, too, but outside of a block of code."""
    text = page.read_text()
    fenced = "\n".join(block for _, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    rest = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    indented = re.findall(r"^    .*", re.sub(r"\\\n\s*", " ", rest), re.MULTILINE)
    return command_lines("\n".join([fenced, *indented]))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_line_is_legal(page):
    for line in commands_of(page):
        if " moons" in line:  # a data set that extending.md adds; test_extending.py runs its lines
            continue
        line = line.replace("METHOD", "fedavg").replace(" --config data.yaml", "")  # a file that the line before writes
        name, *rest = shlex.split(line, comments=True)[1:]
        assert name in {*COMMANDS, "claims", "field", "reproduce"}, line
        if name in {"run", "grid", "compare", "claims"}:
            module = {"run": run_command, "grid": grid, "compare": compare, "claims": claims}[name]
            with suppress(PrintedExit):  # of --print-config and --help
                parse(rest, module.FLAGS, tuning=getattr(module, "TUNING", None))
        elif name == "data":
            with suppress(PrintedExit):
                parse(["--data", *rest], data.FLAGS)
        elif name == "methods":
            assert len(rest) <= 1, line
        else:
            assert {word.partition("=")[0] for word in rest if word.startswith("--")} <= known_flags(), line


def test_pages_show_commands():
    shown = {page.name: len(commands_of(page)) for page in PAGES}
    assert shown["README.md"] == len(COMMAND_LINES) > 8
    assert min(shown[f"{name}.md"] for name in ("index", "commands", "partitions", "own", "faq", "searches")) > 2


def known_flags() -> set[str]:
    keys = (*flags.CONFIG_KEYS, *flags.SHORT)
    known = {f"--{key}" for key in keys} | {f"--{key.replace('_', '-')}" for key in keys}
    commands = (run_command, grid, compare, check, reproduce, claims, field, data, export, figure, table, wandb, watch)
    every = (flags.COMMON, *(module.FLAGS for module in commands))
    return known | {f"--{flag.name}" for own in every for flag in own}


def test_every_flag_in_the_text_exists():
    options = {"--method.mu", "--model.hidden", "--data.size", "--data.label", "--data.user"}
    assert set(re.findall(r"--[a-z][\w.-]*", TEXT)) <= known_flags() | options


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.name)
def test_every_flag_that_a_page_names_exists(page):
    named = set(re.findall(r"`(--[a-z][\w.-]*)", page.read_text()))
    own = {
        flag for flag in named if flag.startswith(("--method.", "--data.", "--model.", "--aggregator.", "--partition."))
    }
    assert named - own <= known_flags() | FOREIGN


@pytest.mark.slow
def test_what_own_md_shows_runs_as_printed(tmp_path, monkeypatch, capsys):
    page = ROOT / "docs" / "own.md"
    shown = re.findall(r"`(my_\w+)\.py`:\n\n```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    assert [name for name, _ in shown] == ["my_head", "my_methods", "my_models", "my_data", "my_metrics"]
    for name, code in shown:
        (tmp_path / f"{name}.py").write_text(code)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for line in commands_of(page):
        name, *rest = shlex.split(line.replace("--rounds 3", "--rounds 1"), comments=True)[1:]
        quick = {"run": QUICK, "compare": [*QUICK, "--trials", "1", "--seeds", "0"]}.get(name, [])
        assert main([name, *rest, *quick]) == 0, line
    printed = capsys.readouterr().out
    assert "--method.past" in printed
    assert (
        "worst_class" in (max((tmp_path / "results" / "run").glob("*/metrics.jsonl"), key=os.path.getmtime)).read_text()
    )


@pytest.mark.slow
def test_the_server_that_sends_different_models_divides_clients_and_passes_checks(tmp_path, monkeypatch):
    page = ROOT / "docs" / "clusters.md"
    (code,) = re.findall(r"`my_clusters\.py`:\n\n```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "my_clusters.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    asked, run_line = (shlex.split(line)[1:] for line in commands_of(page))
    assert main([*asked, "--only", "order", "resume", "degenerate"]) == 0
    assert main([*run_line, *QUICK, "--out", "out"]) == 0
    traces = Result(tmp_path / "out", Config()).traces
    assert set(traces[traces["name"] == "cluster"]["value"]) == {0, 1, 2}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_points_to_exists(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("name", ["own", "extending"])
def test_a_whole_example_stands_before_the_first_table(name):
    text = (ROOT / "docs" / f"{name}.md").read_text()
    example = re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert re.search(r"^class \w+\(Method", example[1], re.MULTILINE)
    assert len(example[1].splitlines()) < 35
    assert "\n| " not in text[: example.end()]


def test_it_is_a_page():
    assert len(TEXT.splitlines()) <= 150


def test_the_picture_is_small():
    assert (ROOT / "docs" / "report.png").stat().st_size < 300_000
