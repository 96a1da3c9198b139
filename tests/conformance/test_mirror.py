"""Every module has a test file of its name."""

from tests.touched import ROOT, TESTS, mirror

ELSEWHERE = ("__init__.py", "__main__.py")


def test_every_module_has_its_tests():
    modules = [path.relative_to(ROOT) for package in TESTS for path in (ROOT / package).rglob("*.py")]
    asked = [path for path in modules if path.name not in ELSEWHERE]
    assert [str(path) for path in asked if not (ROOT / mirror(path)).exists()] == []
