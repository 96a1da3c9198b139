"""Answers are given again while nothing has changed that they were made of, and never after."""

import os
import shutil
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

import fedbench
from fedbench.cli import kept_answers
from fedbench.cli.kept_answers import Question, state_of
from fedbench.cli.parse import question_of
from fedbench.config import Config

SOURCES = Path(fedbench.__file__).parent


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """A process that has not imported PyTorch, in a folder of its own, with a cache of its own."""
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def test_an_answer_is_known_until_a_file_changes_that_it_depends_on(fresh):
    asked, data = Question(["methods"]), fresh / "data"
    assert asked.known() is None
    for change in (
        lambda: data.mkdir(),
        lambda: (data / "a").write_text("1"),
        lambda: (data / "a").write_text("2"),
        lambda: (data / "a").rename(data / "b"),
        lambda: (data / "b").unlink(),
        lambda: data.rmdir(),
    ):
        asked.keep("text", [data])
        assert asked.known() == "text"
        change()
        assert Question(["methods"]).known() is None


def test_other_words_variables_folders_and_modules_are_other_questions(fresh, monkeypatch):
    Question(["methods", []]).keep("text")
    assert Question(["methods", ["fedper"]]).known() is None
    assert Question(["methods", []]).known() == "text"
    monkeypatch.setattr(sys, "path", [str(fresh), *sys.path])
    assert Question(["methods", []]).known() is None


def test_nothing_is_looked_up_where_pytorch_is_there(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path))
    Question(["methods"]).keep("text")
    assert "torch" in sys.modules
    assert Question(["methods"]).known() is None


def test_a_damaged_answer_is_none(fresh):
    asked = Question(["methods"])
    asked.keep("text")
    kept = asked.file.read_text()
    for damage in ("", "{", "[]", "{}", '{"states": 1}', kept.replace('"text"', '"test"')):
        asked.file.write_text(damage)
        assert asked.known() is None


def test_the_oldest_answers_are_removed(fresh, monkeypatch):
    monkeypatch.setattr(kept_answers, "MOST_KEPT", 2)
    questions = [Question([number]) for number in range(3)]
    for number, asked in enumerate(questions):
        asked.keep("text")
        os.utime(asked.file, (number, number))
    Question([3]).keep("text")
    assert [asked.known() for asked in questions] == [None, None, "text"]


def test_the_state_of_a_file_differs_although_size_and_time_are_the_same(tmp_path):
    file = tmp_path / "a"
    file.write_text("1")
    before, stat = state_of(file), file.stat()
    file.write_text("2")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert state_of(file) != before


@pytest.mark.parametrize(
    "own",
    [
        {"method": "my_method:Own"},
        {"data": "csv:patients.csv"},
        {"data": {"name": "cifar10", "root": "/data"}},
        {"model": {"name": "mlp", "weights": "w.safetensors"}},
        {"loggers": ["csv"]},
        {"resources": {"address": "auto"}},
    ],
)
def test_answers_that_the_user_s_files_or_machines_decide_are_not_kept(own):
    asked = Namespace(tuning=None, given=set(), config=None, debug=False)
    assert question_of("fedbench run", Config(method="fedper"), asked).may_be_kept
    assert not question_of("fedbench run", Config(**own), asked).may_be_kept


def test_data_that_are_here_later_are_another_question(fresh):
    asked = Namespace(tuning=None, given=set(), config=None, debug=False)
    absent = question_of("fedbench run", Config(data="cifar10"), asked).words
    folder = fresh.parent / "cache" / "files" / "cifar10"
    folder.mkdir(parents=True)
    before = question_of("fedbench run", Config(data="cifar10"), asked).words
    assert before != absent
    os.utime(folder, (1, 1))  # imported again
    assert question_of("fedbench run", Config(data="cifar10"), asked).words != before


ASK = """
import io, sys
from contextlib import redirect_stdout
from fedbench.cli import main
out = io.StringIO()
with redirect_stdout(out):
    assert main(sys.argv[1:]) == 0
print("torch" in sys.modules)
print(out.getvalue())
"""


@pytest.mark.slow
def test_a_changed_method_and_a_changed_plug_in_give_the_new_text(tmp_path):
    code, plug = tmp_path / "code", tmp_path / "code" / "plug"
    shutil.copytree(SOURCES, code / "fedbench", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(SOURCES.parent / "tune_spaces", code / "tune_spaces")
    plug.mkdir()
    (plug / "helper.py").write_text("WHAT = 'first'\n")
    (plug / "__init__.py").write_text(
        "from fedbench.methods.base import About, Method\nfrom plug.helper import WHAT\n\n\n"
        "class Plug(Method):\n    about = About(f'the {WHAT} idea')\n"
    )
    info = code / "plug-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plug\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[fedbench.methods]\nplugged = plug:Plug\n")
    variables = os.environ | {"PYTHONPATH": str(code), "FEDBENCH_CACHE": str(tmp_path / "cache")}

    def ask() -> tuple[bool, str]:
        command = [sys.executable, "-c", ASK, "methods"]
        text = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=variables).stdout
        imported, _, answer = text.partition("\n")
        return imported == "True", answer

    imported, first = ask()
    assert imported
    assert "the first idea" in first
    assert ask() == (False, first)
    (plug / "helper.py").write_text("WHAT = 'other'\n")
    assert ask() == (True, first.replace("the first idea", "the other idea"))
    method = code / "fedbench" / "methods" / "fedper.py"
    (line,) = [line for line in first.splitlines() if line.startswith("fedper ")]
    said = line.split("  ")[-1]
    method.write_text(method.read_text().replace(said, "said anew"))
    imported, last = ask()
    assert imported
    assert f"{line.removesuffix(said)}said anew" in last.splitlines()
