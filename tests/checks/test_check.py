import pytest

from fedbench.checks.check import Check, CheckFailure, CheckReport, DoesNotApply, results_of
from fedbench.errors import RunError


def check(name: str, raises: Exception | None = None, returns: str = "") -> Check[int]:
    def function(subject: int) -> str:
        if raises:
            raise raises
        return returns and f"{returns} {subject}"

    return Check(name, "what it proves", "data", function)


CHECKS = [
    check("quiet"),
    check("says", returns="saw"),
    check("wrong", CheckFailure("wrong here: do that")),
    check("idle", DoesNotApply("nothing to ask")),
    check("broken", RunError("Mine.train fails", "mine.py:3")),
    check("raises", KeyError("name")),
]


def test_the_outcome_and_the_line_of_every_end():
    found = [(result.name, result.outcome, result.line) for result in results_of(CHECKS, 7)]
    assert found[:5] == [
        ("quiet", "passed", "what it proves"),
        ("says", "passed", "saw 7"),
        ("wrong", "failed", "wrong here: do that"),
        ("idle", "does not apply", "nothing to ask"),
        ("broken", "failed", "Mine.train fails (mine.py:3)"),
    ]
    assert found[5][1] == "failed"
    assert found[5][2].startswith("KeyError: 'name'")


def test_a_report_is_a_table_in_text_html_and_json():
    report = CheckReport("data <mine>", list(results_of(CHECKS, 7)))
    assert [result.name for result in report.failed] == ["wrong", "broken", "raises"]
    assert str(report).splitlines()[-1] == "2 passed, 3 failed, 1 did not apply"
    assert "data    wrong            failed          wrong here: do that" in str(report)
    assert "data &lt;mine&gt;" in report._repr_html_()
    assert report.as_json()["checks"][2]["outcome"] == "failed"


def test_nobody_else_is_asked_after_an_interrupt():
    with pytest.raises(KeyboardInterrupt):
        check("stopped", KeyboardInterrupt())(1)  # type: ignore[arg-type]
