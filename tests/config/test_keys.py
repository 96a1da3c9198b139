"""Trees of keys and dotted keys are the same."""

from hypothesis import given
from hypothesis import strategies as st

from fedbench.config.keys import flat, nest

names = st.text("abc_", min_size=1, max_size=4)
plain = st.one_of(st.integers(), st.booleans(), st.none(), st.lists(st.integers(), max_size=2))
values = st.one_of(plain, st.dictionaries(st.text("ab.", max_size=4), plain, max_size=3))
sections = st.dictionaries(names, values, min_size=1, max_size=3)


@given(st.dictionaries(names, st.one_of(plain, sections), max_size=4))
def test_nested_undoes_flat(tree):
    """Also of values that are dicts, empty or with dots in their keys."""
    assert nest(flat(tree)) == tree


def test_a_key_of_a_value_that_is_a_dict_leaves_the_given_one_as_it_is():
    given = {"a": 1}
    assert nest({"method.weights": given, "method.weights.b": 2}) == {"method": {"weights": {"a": 1, "b": 2}}}
    assert given == {"a": 1}


def test_a_name_and_keys_of_one_section_are_merged_in_any_order():
    assert nest({"method": "fedcac", "method.tau": 0.3}) == {"method": {"name": "fedcac", "tau": 0.3}}
    assert nest({"method.tau": 0.3, "method": "fedcac"}) == {"method": {"tau": 0.3, "name": "fedcac"}}
