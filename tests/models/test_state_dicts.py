"""State dicts in files: what models start from."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from fedbench.errors import ConfigError
from fedbench.jobs.resolve import resolve
from fedbench.models import build, state_dicts
from fedbench.studies.run import run
from tests.runtime.networks import Parted
from tests.runtime.rounds import driver, small


def mlp(hidden: int = 16) -> torch.nn.Module:
    return build("mlp", (1, 8, 8), 10, hidden=hidden)


def written(path: Path, hidden: int = 16) -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    state = mlp(hidden).state_dict()
    torch.save(state, path)
    return state


def refused(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        state_dicts.load_state_dict(mlp(), path)
    return str(caught.value)


def test_every_form_gives_the_same_model(tmp_path):
    state = written(tmp_path / "plain.pt")
    torch.save({"state_dict": state, "epoch": 3, "pytorch-lightning_version": "2.5"}, tmp_path / "lightning.ckpt")
    save_file(state, tmp_path / "safe.safetensors")
    (tmp_path / "ours.safetensors").write_bytes(state_dicts.encode_state_dict(state))
    for path in tmp_path.iterdir():
        module = mlp()
        state_dicts.load_state_dict(module, path)
        assert all(torch.equal(tensor, module.state_dict()[name]) for name, tensor in state.items()), path.name


def test_a_buffer_that_pytorch_leaves_out_may_be_in_the_file(tmp_path):
    module = mlp()
    module.register_buffer("mean", torch.zeros(3), persistent=False)
    for given, mean in (({}, 0.0), ({"mean": torch.ones(3)}, 1.0)):
        torch.save(module.state_dict() | given, tmp_path / "kept.pt")
        state_dicts.load_state_dict(module, tmp_path / "kept.pt")
        assert module.mean.tolist() == [mean] * 3


def test_every_client_starts_from_it(tmp_path):
    state = written(tmp_path / "w.pt")
    resolved = resolve(small(model__weights=tmp_path / "w.pt", seeds=[5]))
    flat = torch.cat([tensor.flatten() for tensor in state.values()])
    assert torch.equal(driver(resolved, tmp_path).initial.params, flat)


def test_what_is_no_state_dict_of_the_model_is_one_line(tmp_path):
    state = written(tmp_path / "w.pt")
    first, *rest = state
    assert "cannot be read (No such file or directory)" in refused(tmp_path / "none.pt")
    torch.save({name: state[name] for name in rest}, tmp_path / "short.pt")
    assert f"the model's tensor '{first}' is missing" in refused(tmp_path / "short.pt")
    torch.save({**state, "more": torch.zeros(1)}, tmp_path / "long.pt")
    assert "the model has no tensor 'more'; known: " in refused(tmp_path / "long.pt")
    written(tmp_path / "wide.pt", hidden=8)
    assert "has the shape [8, 64], and the model's is [16, 64]" in refused(tmp_path / "wide.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    assert "no state dict; write it with torch.save(model.state_dict(), PATH)" in refused(tmp_path / "list.pt")
    torch.save(mlp(), tmp_path / "module.pt")
    assert "it holds more than tensors" in refused(tmp_path / "module.pt")
    for name, value, line in (
        ("nan.pt", torch.full_like(state[first], torch.nan), f"'{first}' holds values that are not finite"),
        ("sparse.pt", state[first].to_sparse(), f"'{first}' is sparse, complex or without numbers"),
        ("complex.pt", state[first].to(torch.complex64), f"'{first}' is sparse, complex or without numbers"),
    ):
        torch.save({**state, first: value}, tmp_path / name)
        assert line in refused(tmp_path / name)
    for name, content in (("key.pt", {**state, 3: state[first]}), ("empty.pt", {})):
        torch.save(content, tmp_path / name)
        assert "no state dict" in refused(tmp_path / name)
    for text in ("hi\n", "hello world", "{}"):
        (tmp_path / "text.pt").write_text(text)
        assert "model.weights" in refused(tmp_path / "text.pt")
    for name in ("cut.pt", "cut.safetensors"):
        (tmp_path / name).write_bytes((tmp_path / "w.pt").read_bytes()[:100])
        assert "it is damaged or has another format" in refused(tmp_path / name), name


def test_a_run_is_not_gone_on_with_from_other_weights(tmp_path):
    written(tmp_path / "w.pt")
    asked = small(model__weights=tmp_path / "w.pt", rounds=1, out=tmp_path / "run")
    run(asked, report=False)
    run(asked, report=False)
    torch.save({name: tensor + 1 for name, tensor in mlp().state_dict().items()}, tmp_path / "w.pt")
    with pytest.raises(ConfigError, match=r"began with other weights: .*w\.pt has changed since"):
        run(asked, report=False)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_compiled_model_and_one_that_is_not_take_each_other_s_weights(compiled, tmp_path):
    torch.manual_seed(3)
    state = Parted(not compiled).state_dict()
    torch.save(state, tmp_path / "w.pt")
    module = Parted(compiled)
    state_dicts.load_state_dict(module, tmp_path / "w.pt")
    assert all(map(torch.equal, module.state_dict().values(), state.values()))
    torch.save({**state, "net.head.more": torch.zeros(1)}, tmp_path / "long.pt")
    with pytest.raises(ConfigError, match=r"has no tensor 'net\.head\.more'"):
        state_dicts.load_state_dict(module, tmp_path / "long.pt")
