"""Numbers stay as they were recorded, to the bit, on every kind of processor of which there are records."""

import json

import pytest

from tests.golden import bits_are_of, hash_file, hash_of, hashed, played

CASES = hashed()


@pytest.fixture(scope="module")
def recorded() -> dict[str, str]:
    """The hashes of this kind of processor. Elsewhere, and with other libraries, the last bits may be others."""
    file, here = hash_file(), bits_are_of()
    if not file.exists():
        pytest.skip(f"no hashes of {here['processor']}: python tests/golden.py hash records them")
    kept = json.loads(file.read_text())
    if changed := {key: value for key, value in kept["bits_are_of"].items() if here.get(key) != value}:
        pytest.skip(f"recorded with {changed}: python tests/golden.py hash records them anew")
    return kept["hashes"]


@pytest.mark.parametrize("case", CASES)
def test_a_run_has_the_numbers_that_were_recorded(case, recorded):
    if case not in recorded:
        pytest.skip(f"no hash of {case}: python tests/golden.py hash records them anew")
    assert hash_of(played((case, CASES[case], 0))) == recorded[case]
