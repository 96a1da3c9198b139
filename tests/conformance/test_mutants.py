"""Methods are broken in every small way that their code allows, and tests notice."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from fedbench.methods import names
from tests.mutants import EACH, KINDS, METHODS, ROOT, changes, equivalents, mutants

TOY = """
class Toy:
    def check(self):
        if self.lr > 2:
            raise ConfigError("more than", 2)

    def train(self, client, model):
        '''More than 3.'''
        self.note(client.id, 0.5, whole=True, strict=True)
        model.rate = client.lr - 1
        return -model
"""


def file_of(method: str) -> Path:
    return METHODS / f"{method.replace('-', '_')}.py"


def test_every_kind_of_change_and_none_of_words_for_people(tmp_path):
    (tmp_path / "toy.py").write_text(TOY)
    assert {mutant.what for mutant in mutants(tmp_path / "toy.py", 99)} == {
        "Toy.check: self.lr > 2 -> self.lr <= 2",
        "Toy.check: 2 -> 3",
        "Toy.train: self.note(client.id, 0.5, whole=True, strict=True) -> pass",
        "Toy.train: self.note(client.id, 0.5, whole=True, strict=True) -> self.note(client.id, 0.5, strict=True)",
        "Toy.train: self.note(client.id, 0.5, whole=True, strict=True) -> "
        "self.note(0.5, client.id, whole=True, strict=True)",
        "Toy.train: 0.5 -> 1.5",
        "Toy.train: True -> False",
        "Toy.train: model.rate = client.lr - 1 -> pass",
        "Toy.train: client.lr - 1 -> client.lr + 1",
        "Toy.train: 1 -> 2",
        "Toy.train: -model -> model",
    }


@pytest.mark.parametrize("method", names())
def test_every_method_has_mutants(method):
    found = mutants(file_of(method))
    code = ast.parse(file_of(method).read_text())
    assert len(found) == min(EACH, len({change.what for change in changes(code)}))
    assert len({mutant.source for mutant in found}) == len(found)
    assert {mutant.kind for mutant in found} <= set(KINDS)
    for mutant in found:
        compile(mutant.source, mutant.method, "exec")


def test_mutants_are_always_the_same():
    assert mutants(file_of("fedper")) == mutants(file_of("fedper"))


def test_what_is_said_to_be_without_effect_is_a_mutant():
    for method, known in equivalents().items():
        assert set(known) <= {mutant.what for mutant in mutants(file_of(method))}


@pytest.mark.night
def test_a_broken_method_is_noticed():
    words = [sys.executable, "tests/mutants.py", "fedper", "--each", "1", "--jobs", "1"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "1 of 1 caught or without effect", done.stdout + done.stderr
