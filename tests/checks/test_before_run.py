import pytest

from fedbench.checks.before_run import check_new_code, line_of
from fedbench.checks.check import CheckResult
from fedbench.config import Config
from tests.checks.wrong_methods import SharedMomentum
from tests.checks.wrong_models import Net, OwnGenerator


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path))


def asked(**sections) -> Config:
    return Config(**{"partition": {"name": "iid", "clients": 3}, "resources": {"hosts": 0}, **sections})


def test_new_code_is_checked_once():
    config = asked(model=Net)
    (line,) = check_new_code(config)
    assert line == (
        "tests.checks.wrong_models:Net trains as in Lightning (difference 0), 3 checks passed; `fedbench check` runs 9"
    )
    assert list(check_new_code(config)) == []


def test_code_that_several_runs_have_is_checked_in_the_first():
    lines = [*check_new_code(asked(method="fedprox", model=OwnGenerator), asked(model=OwnGenerator))]
    assert len(lines) == 1


@pytest.mark.parametrize(
    ("sections", "words"), [({"model": OwnGenerator}, "lightning"), ({"method": SharedMomentum}, "order")]
)
def test_what_fails_is_named_every_time(sections, words):
    for _ in range(2):
        (line,) = check_new_code(asked(**sections))
        assert f"the check `{words}` fails" in line


def test_fedbenchs_own_code_is_not_asked():
    assert list(check_new_code(asked(method="fedprox", model="mlp"))) == []


def test_the_line_of_a_method():
    results = [CheckResult("method", "order", "passed", "fine")]
    assert line_of("mine:Mine", results, 25) == "mine:Mine: 1 check passed; `fedbench check` runs 25"
