"""docs/extending.md keeps its word: its files work as printed, in a copy of the project."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "extending.md").read_text()
SEVERAL = """
import sys
import pytest
from fedbench.cli import main
print("NEXT" * (pytest.main(["-p", "no:cacheprovider", "tests/methods/test_pulled.py"]) == 0))
for line in sys.argv[1:]:
    print("NEXT" * (main(line.split()[1:]) == 0))
"""

# In one process where tests run side by side, so that the project is copied once.
pytestmark = pytest.mark.xdist_group("extending")


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with every file that the page shows."""
    folder = tmp_path_factory.mktemp("extended")
    for name in ("fedbench", "tests/methods"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    shown = re.findall(r"`((?:fedbench|tests)/[\w/]+\.py)`:\n\n```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    for name, code in shown:
        assert not (folder / name).exists()
        (folder / name).write_text(code)
    assert len(shown) == 5
    return folder


def python(folder: Path, *words: str) -> str:
    """What Python prints in the copy, where it must succeed."""
    done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_shown_tests_pass_and_the_commands_run(extended):
    (block,) = re.findall(r"^```sh\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    tested, described, trained, _ = python(extended, "-c", SEVERAL, *block.splitlines()).split("NEXT\n")
    assert "2 passed" in tested
    assert "upper" in described
    assert "pulled" in trained
    assert "report.html" in trained


def test_its_files_are_formatted(extended):
    files = re.findall(r"`((?:fedbench|tests)/[\w/]+\.py)`:\n\n```python", TEXT)
    python(extended, "-m", "ruff", "check", "-q", *files)
    python(extended, "-m", "ruff", "format", "--check", *files)


def test_whole_methods_are_shown_as_they_are():
    shown = re.findall(
        r"\[(fedbench/methods/\w+\.py)\]\(\S+\):\n\n```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL
    )
    assert [name for name, _ in shown] == ["fedbench/methods/scaffold.py", "fedbench/methods/knn_per.py"]
    for name, code in shown:
        assert code == (ROOT / name).read_text()
