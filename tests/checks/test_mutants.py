from fedbench.checks.mutants import concerns, mutants_of
from tests.checks.pulled import Pulled


def test_changes_that_no_check_notices_are_named():
    found = {mutant.what: mutant.noticed_by for mutant in mutants_of(Pulled)}
    assert found["add_pull: w - s.anchor -> w + s.anchor"] == "numbers"
    without = "Pulled.train: client.fit(received, client.train, step=pull) -> client.fit(received, client.train)"
    assert found[without] == "numbers"
    assert found["add_pull: s.mu * 1 -> s.mu / 1"] == ""
    assert all(what.startswith(("Pulled.", "add_pull")) for what in found)


def test_other_classes_of_the_file_are_left_alone():
    assert concerns("Pulled.train: 1 -> 2", Pulled)
    assert concerns("add_pull: 1 -> 2", Pulled)
    assert not concerns("Other.train: 1 -> 2", Pulled)
