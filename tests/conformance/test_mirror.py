"""Every module has a test file of its name."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
ELSEWHERE = ("__init__.py", "__main__.py")


def test_every_module_has_its_tests():
    modules = [path.relative_to(ROOT / "fedbench") for path in (ROOT / "fedbench").rglob("*.py")]
    asked = [path for path in modules if path.name not in ELSEWHERE]
    assert [str(path) for path in asked if not (ROOT / "tests" / path.parent / f"test_{path.name}").exists()] == []
