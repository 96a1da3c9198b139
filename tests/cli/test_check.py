import json

import pytest

from fedbench.cli.check import main
from fedbench.cli.exits import FAILED, MISTAKE, OK

WRONG = "tests.checks.wrong_methods:StaleModel"


def test_a_line_a_check_and_the_exit_code(capsys):
    assert main(["--method", "fedavg", "--only", "fresh,weights"]) == OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "method fedavg"
    assert [line.split()[:3] for line in lines[1:3]] == [["method", "fresh", "passed"], ["method", "weights", "passed"]]
    assert lines[3] == "2 passed, 0 failed"
    assert main(["--method", WRONG, "--only", "fresh"]) == FAILED


def test_json(capsys):
    assert main(["--method", WRONG, "--only", "fresh", "--json"]) == FAILED
    found = json.loads(capsys.readouterr().out)
    assert found["checks"][0]["outcome"] == "failed"
    assert found["title"] == f"method {WRONG}"


def test_numbers_are_printed_and_written(tmp_path, capsys):
    file = tmp_path / "test_mine.py"
    assert main(["--method", "fedavg", "--write", str(file)]) == OK
    assert "0.75, 1.5" in capsys.readouterr().out
    assert 'numbers_by_hand("fedavg")' in file.read_text()
    assert main(["--method", "fedavg", "--write", str(file)]) == MISTAKE


@pytest.mark.parametrize(
    "argv", [[], ["--rounds", "3"], ["--model", "mlp", "--numbers"], ["--model", "mlp", "--mutants"]]
)
def test_what_is_checked_must_be_named(argv, capsys):
    assert main(argv) == MISTAKE
    assert "name" in capsys.readouterr().err


@pytest.mark.parametrize(("more", "words"), [(["--mutants"], "there is no such file"), ([], "add --mutants")])
def test_tests_are_a_file_that_is_tried_on_a_broken_class(more, words, capsys):
    assert main(["--method", "tests.checks.pulled:Pulled", "--tests", "no_such_test.py", *more]) == MISTAKE
    assert words in capsys.readouterr().err


@pytest.mark.night
def test_mutants(capsys):
    assert main(["--method", "tests.checks.pulled:Pulled", "--mutants"]) == OK
    out = capsys.readouterr().out
    assert "NO CHECK" in out
    assert "changes are noticed" in out
