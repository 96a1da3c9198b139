"""Decisions of readers: kept with the decoded data, and asked where they are open."""

from fedbench.data.description import Decision, open_decision


def test_a_decision_is_the_same_after_json():
    decision = Decision("targets", "column died is the target", "given", "data.label", "died")
    assert Decision.from_json(decision.as_json()) == decision


def test_an_open_decision_names_both_readings_and_the_key_of_each():
    error = open_decision("data csv:a.csv", "y stands beside x", {"--data.label y": "a target", "--data.label z": "no"})
    assert str(error) == "data csv:a.csv: y stands beside x: a target (--data.label y) or no (--data.label z)?"
