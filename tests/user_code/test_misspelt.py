"""A name that is close to a hook's, and that nothing in the class uses, is taken for a misspelling."""

from functools import cached_property

import pytest

from fedbench.user_code.misspelt import misspelt_names

HOOKS = ("aggregate", "receive", "Options")


class Base:
    def agregate(self):
        """A base class is not looked at."""


class Misspelt(Base):
    option = 1

    def agregate(self):
        pass


class Below(Misspelt):
    def aggregate(self):
        pass


class Used(Base):
    def agregate(self):
        pass

    def receive(self):
        return [lambda: self.agregate() for _ in range(2)]


class UsedByProperty(Base):
    @property
    def whole(self):
        return self.agregate

    @cached_property
    def kept(self):
        return self.recieve

    def agregate(self):
        pass

    recieve = 1


class Overrides(Used):
    agregate = 2
    """The class above uses it."""


class Private(Base):
    def _agregate(self):
        pass


class Both(Base):
    def aggregate(self):
        pass

    def aggregated(self):
        pass


class Other(Base):
    def combine(self):
        pass


def test_what_is_close_to_a_hook_and_never_used():
    found = [(Misspelt, "agregate", "aggregate"), (Misspelt, "option", "Options")]
    assert list(misspelt_names(Misspelt, Base, HOOKS)) == list(misspelt_names(Below, Base, HOOKS)) == found


@pytest.mark.parametrize("kind", [Used, UsedByProperty, Overrides, Private, Both, Other, Base])
def test_what_is_used_private_far_or_beside_the_hook_itself_is_meant_as_it_is(kind):
    assert list(misspelt_names(kind, Base, HOOKS)) == []
