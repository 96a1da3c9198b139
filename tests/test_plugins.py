"""Names of fedbench's own, of packages, and of the user."""

from importlib.metadata import EntryPoint
from types import ModuleType, SimpleNamespace

import pytest

from fedbench import plugins
from fedbench.errors import ConfigError
from fedbench.plugins import PluginTable

GROUP = "fedbench.knives"


def refuse_numbers(name, thing):
    if isinstance(thing, int):
        raise ConfigError(f"knife '{name}' is a number")


KNIVES = PluginTable(
    "knife", GROUP, {"pi": "math:pi", "text": "textwrap"}, extra_names=("none",), form="a:b", check=refuse_numbers
)


@pytest.fixture
def added(monkeypatch):
    """Adds names of packages to the table."""
    points: dict[str, list] = {}
    monkeypatch.setattr(plugins, "entry_points_of", lambda group: points if group == GROUP else {})

    def add(name: str, value: str, package: str = "sharp-tools") -> None:
        points.setdefault(name, []).append(SimpleNamespace(name=name, value=value, dist=SimpleNamespace(name=package)))

    return add


def refused(name: str) -> str:
    with pytest.raises(ConfigError) as caught:
        KNIVES.load(name)
    return str(caught.value)


def test_names_of_all_three_kinds_are_loaded(added):
    added("e", "math:e")
    added("maths", "math")
    import math
    import textwrap

    assert [KNIVES.load(name) for name in ("pi", "text", "e", "maths", "math:tau")] == [
        math.pi,
        textwrap,
        math.e,
        math,
        math.tau,
    ]
    assert KNIVES.names() == ["e", "maths", "none", "pi", "text"]


def test_where_others_wrote_something_is_known_without_importing_it(added):
    added("e", "nowhere:e")
    names = ("e", "pi", "mine:x", "unknown")
    assert [KNIVES.path(name) for name in names] == ["nowhere:e", "", "mine:x", ""]


def test_a_name_of_fedbench_stays_its_own(added):
    added("pi", "math:e")
    assert KNIVES.load("pi") > 3
    assert KNIVES.path("pi") == ""


def test_an_unknown_name_is_told_the_nearest_of_all(added):
    added("cleaver", "math:e")
    assert refused("cleavr") == "unknown knife 'cleavr': did you mean cleaver? (your own: a:b)"
    assert refused("x") == "unknown knife 'x': known: cleaver, none, pi, text (your own: a:b)"


def test_one_that_does_not_work_names_its_package_and_is_left_out_of_lists(added):
    added("gone", "nowhere.at_all:x")
    added("number", "sys:maxsize")
    added("e", "math:e")
    line = "knife 'gone' of the installed package sharp-tools: 'nowhere.at_all:x': module nowhere.at_all cannot be"
    assert refused("gone").startswith(line)
    assert refused("number") == "knife 'number' is a number"
    assert [name for name, _ in KNIVES.loadable()] == ["e", "pi", "text"]
    assert [fault.partition(" of ")[0] for fault in KNIVES.faults()] == ["knife 'gone'", "knife 'number' is a number"]


def test_a_name_of_two_packages_is_none(added):
    added("e", "math:e")
    added("e", "cmath:e", "blunt-tools")
    assert refused("e") == (
        "knife 'e' is math:e of sharp-tools and cmath:e of blunt-tools: choose one as package.module:name"
    )
    assert KNIVES.load("cmath:e")


def test_files_of_a_package_are_names(tmp_path):
    for name in ("my_rule", "other", "skipped"):
        (tmp_path / f"{name}.py").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "__init__.py").write_text("")
    assert plugins.modules("pk", [str(tmp_path)], ("skipped",)) == {"my-rule": "pk.my_rule", "other": "pk.other"}


def test_the_class_of_a_file_is_the_one_that_it_defines():
    module = ModuleType("own")
    module.Base, module.helper = int, len
    module.Own = type("Own", (int,), {"__module__": "own"})
    module.Text = type("Text", (str,), {"__module__": "own"})
    assert plugins.only_class(module, int) is module.Own


def test_a_package_without_metadata_is_called_by_its_module():
    assert plugins.package_of(EntryPoint("e", "math.deep:e", GROUP)) == "math"
