"""`make check` runs the tests of what has changed."""

import subprocess
from pathlib import Path

import pytest

from tests.touched import affected, changed

FILES = {
    "fedbench/methods/mine.py": "from fedbench.methods.parts.half import half",
    "fedbench/methods/parts/half.py": "def half(): ...",
    "fedbench/report/page.py": "page_of('page.html.j2')",
    "fedbench/report/page.html.j2": "",
    "fedbench/claims/mine.yaml": "",
    "papers/fedbench_papers/tables/one.py": "",
    "README.md": "",
    "tests/help.py": "",
    "tests/methods/test_mine.py": "import tests.help",
    "tests/report/conftest.py": "",
    "tests/report/test_page.py": "",
    "tests/claims/test_judge.py": "",
    "tests/papers/tables/test_one.py": "",
    "tests/end_to_end/test_readme.py": "README.md",
    "tests/end_to_end/test_all.py": "import tests.help",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "tests"),
    [
        ("fedbench/methods/mine.py", ["tests/methods/test_mine.py"]),
        ("fedbench/methods/parts/half.py", ["tests/methods/test_mine.py"]),
        ("fedbench/report/page.html.j2", ["tests/report/test_page.py"]),
        ("fedbench/claims/mine.yaml", ["tests/claims/test_judge.py"]),
        ("papers/fedbench_papers/tables/one.py", ["tests/papers/tables/test_one.py"]),
        ("README.md", ["tests/end_to_end/test_readme.py"]),
        ("tests/help.py", ["tests/methods/test_mine.py"]),
        ("tests/report/conftest.py", ["tests/report/test_page.py"]),
        ("tests/end_to_end/test_all.py", ["tests/end_to_end/test_all.py"]),
    ],
)
def test_a_file_has_the_tests_that_would_notice(file, tests, project):
    assert affected([file], project) == tests


def test_what_differs_from_a_commit_and_what_is_new_has_changed(project):
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"]):
        subprocess.run(["git", *words], cwd=project, check=True)
    assert changed(root=project) == []
    (project / "README.md").write_text("more")
    (project / "fedbench/new.py").write_text("")
    (project / "tests/help.py").unlink()
    assert changed(root=project) == ["README.md", "fedbench/new.py"]
