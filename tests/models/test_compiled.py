"""What torch.compile wraps in a module has the names and the numbers that it has without it."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from fedbench.models.compiled import unwrap, unwrapped_name, without_compiler

Compile = Callable[[nn.Module], nn.Module]


def compiled(module: nn.Module) -> nn.Module:
    return torch.compile(module, backend="eager")  # type: ignore[return-value]


def same(module: nn.Module) -> nn.Module:
    return module


def nested(of: Compile) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(of(nn.Sequential(nn.Linear(4, 3), of(nn.ReLU()), of(nn.BatchNorm1d(3)))), of(nn.Linear(3, 2)))


def shared(of: Compile) -> nn.Module:
    """One part under two names, plain and compiled."""
    torch.manual_seed(0)
    whole = nn.ModuleDict({"raw": nn.Linear(4, 2)})
    whole["fast"] = of(whole["raw"])
    whole.forward = lambda x: whole["fast"](x)  # type: ignore[method-assign]
    return whole


@pytest.mark.parametrize("build", [nested, shared])
def test_names_and_numbers_are_those_without_it(build):
    module, expected, x = build(compiled), build(same), torch.randn(5, 4)
    assert [unwrapped_name(name) for name in module.state_dict()] == [*expected.state_dict()]
    unwrap(module)
    unwrap(module)
    assert [*module.state_dict()] == [*expected.state_dict()]
    assert [name for name, _ in module.named_modules()] == [name for name, _ in expected.named_modules()]
    assert torch.equal(module(x), expected(x))


def test_it_stays_compiled():
    torch.compiler.reset()  # of code that many modules share, PyTorch compiles eight variants and no more
    calls = []

    def backend(graph, inputs):
        calls.append(graph)
        return graph.forward

    module = nn.Sequential(torch.compile(nn.Linear(4, 2), backend=backend))
    unwrap(module)
    module(torch.randn(3, 4))
    assert calls


def test_user_code_may_look_through_the_wrapper():
    module = nested(compiled)
    inner = module[0]._orig_mod
    unwrap(module)
    assert module[0] is inner
    assert module[0]._orig_mod is inner


def test_hooks_that_come_later_are_called_uncompiled():
    module, calls, x = nested(compiled), [], torch.randn(5, 4)
    unwrap(module)
    module(x)
    module[0][0].register_forward_hook(lambda *_: calls.append(1))
    with without_compiler():
        module(x)
    assert calls == [1]
