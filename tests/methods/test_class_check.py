"""A mistake in how a class is written is found when it is loaded, with the line of that code."""

import pytest

from fedbench import methods
from fedbench.errors import ConfigError
from fedbench.methods.class_check import check_class
from tests.methods import mistakes
from tests.methods.test_contract import line_of

MISTAKES = {
    "ForeignState": "ForeignState.State must derive from PrivateState, as a dataclass",
    "StateWithoutDataclass": "is no dataclass, so count would be lost: write @dataclass above it",
    "StateWithoutDefault": "StateWithoutDefault.State.h has no default, which every client starts with: add one",
    "ServerWithoutDataclass": "is no dataclass, so momentum would be lost: write @dataclass above it",
    "ForeignOptions": "ForeignOptions.Options must derive from Method.Options",
    "TooFew": "TooFew.train must take self, client, received: too many positional arguments",
    "NoClassMethod": "NoClassMethod.steps must be a class method: write @classmethod above it",
    "UnknownDefault": "UnknownDefault.train_defaults: unknown key train.learning_rate",
    "UnknownOptimizer": "UnknownOptimizer.optimizer = 'mine': must be one of run, own, plain",
    "TraceWithoutWords": "TraceWithoutWords.traces must be a tuple of fedbench.results.trace.Trace",
    "UnknownNeed": "UnknownNeed.needs = frozenset({'labels'}): must be a frozenset of head, public, classes, epochs",
    "MisspeltHook": "MisspeltHook.agregate has no effect: did you mean aggregate? (if not, name it _agregate)",
    "MisspeltTrait": "MisspeltTrait.optimiser has no effect: did you mean optimizer? (if not, name it _optimiser)",
    "MisspeltSpace": "MisspeltSpace.SPACES has no effect: did you mean SPACE? (if not, name it _SPACES)",
    "NoExtraPass": "NoExtraPass.answer is never called: derive NoExtraPass from ExtraPass",
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_with_its_place(name):
    with pytest.raises(ConfigError) as error:
        check_class(getattr(mistakes, name))
    assert MISTAKES[name] in str(error.value)
    assert str(error.value).endswith(f"(mistakes.py:{line_of(name)})")
    assert "\n" not in str(error.value)


HIDING = """from dataclasses import dataclass
from fedbench.methods.base import Method
from fedbench.methods.client import PrivateState
from fedbench.methods.server import ServerState
from fedbench.module.weights import Weights


@dataclass
class {kind}({base}):
    {field}
"""


@pytest.mark.parametrize(
    ("base", "field", "name"),
    [
        ("Weights", "buffers: object = None", "buffers"),
        ("ServerState", "params: object = None", "params"),
        ("ServerState", "round = 3", "round"),
        ("PrivateState", "residual: object = None", "residual"),
    ],
)
def test_a_field_that_hides_one_of_its_base_is_named_as_soon_as_the_class_is_made(
    base, field, name, tmp_path, monkeypatch
):
    kind = f"Hides{base}{name}"
    (tmp_path / f"{kind.lower()}.py").write_text(HIDING.format(kind=kind, base=base, field=field))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError) as error:
        methods.load(f"{kind.lower()}:{kind}")
    said = f"{kind}.{name} hides the field {name} of {base}, which fedbench reads: give it another name"
    assert str(error.value) in {f"{said} ({kind.lower()}.py:{line})" for line in (8, 9)}


@pytest.mark.parametrize("name", methods.names())
def test_the_methods_keep_to_it(name):
    check_class(methods.load(name))
