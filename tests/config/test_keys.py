"""Trees of keys and dotted keys are the same."""

from hypothesis import given
from hypothesis import strategies as st

from fedbench.config.keys import flat, nest

names = st.text("abc_", min_size=1, max_size=4)
trees = st.recursive(
    st.one_of(st.integers(), st.booleans(), st.none(), st.lists(st.integers(), max_size=2)),
    lambda inner: st.dictionaries(names, inner, min_size=1, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(names, trees, max_size=4))
def test_nested_undoes_flat(tree):
    assert nest(flat(tree)) == tree


def test_a_name_and_keys_of_one_section_are_merged_in_any_order():
    assert nest({"method": "fedcac", "method.tau": 0.3}) == {"method": {"name": "fedcac", "tau": 0.3}}
    assert nest({"method.tau": 0.3, "method": "fedcac"}) == {"method": {"tau": 0.3, "name": "fedcac"}}
