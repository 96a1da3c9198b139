import pytest

from fedbench.checks.methods import METHOD_CHECKS
from fedbench.testing import method_checks, numbers_by_hand
from tests.checks.wrong_methods import StaleModel


def case(method, name):
    (found,) = [own.values[0] for own in method_checks(method) if repr(own.values[0]) == name]
    return found


def test_a_case_a_check():
    assert [own.id for own in method_checks("fedavg")] == [check.name.replace(" ", "-") for check in METHOD_CHECKS]


def test_a_case_passes_fails_or_skips():
    case("fedavg", "fresh")()
    with pytest.raises(AssertionError, match="round 2 sends the numbers of round 1"):
        case(StaleModel, "fresh")()
    with pytest.raises(pytest.skip.Exception, match="no entry of the model is private"):
        case("fedavg", "private")()


def test_numbers_by_hand_are_plain_tuples():
    assert numbers_by_hand("fedavg")[0] == (1, 0, (0.0, 0.0), (0.75, 1.5), (0.75, 1.5))
