"""Names, places and roles in the flat vectors."""

import pytest
import torch
from torch import nn

from fedbench.errors import ConfigError
from fedbench.module.layout import Layout, Slot, slots_with_one
from tests.runtime.networks import Parted


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
        self.head = nn.Linear(3, 2)
        self.register_buffer("scale", torch.ones(2, 2))
        self.register_buffer("used", torch.zeros(2, dtype=torch.bool))


def test_slots_are_in_registration_order_without_gaps():
    layout = Layout.of(Model())
    assert [s.name for s in layout.params] == [
        "body.0.weight",
        "body.0.bias",
        "body.1.weight",
        "body.1.bias",
        "head.weight",
        "head.bias",
    ]
    assert [(s.start, s.stop) for s in layout.params] == [(0, 12), (12, 15), (15, 18), (18, 21), (21, 27), (27, 29)]
    assert [s.shape for s in layout.params][:2] == [(3, 4), (3,)]
    assert layout.size == 29


def test_a_slot_cuts_its_tensor_out_of_vectors():
    one, other, rows = Slot("a", (2, 2), 0, 4), Slot("b", (), 4, 5), torch.zeros(3, 5)
    assert one.view(torch.arange(5.0)).tolist() == [[0, 1], [2, 3]]
    assert float(other.view(torch.arange(5.0))) == 4
    assert other.view(rows).shape == (3,)
    one.view(rows)[1] = 1
    assert rows.sum(1).tolist() == [0, 4, 0]


def test_buffers_by_kind():
    layout = Layout.of(Model())
    assert [s.name for s in layout.buffers] == ["scale", "body.1.running_mean", "body.1.running_var"]
    assert [s.name for s in layout.counters] == ["used", "body.1.num_batches_tracked"]
    assert (layout.buffer_size, layout.counter_size) == (10, 3)


def test_roles():
    layout = Layout.of(Model())
    assert layout.mask("head").nonzero().flatten().tolist() == list(range(21, 29))
    assert torch.equal(layout.mask("body"), ~layout.mask("head"))
    assert layout.mask("norm").nonzero().flatten().tolist() == list(range(15, 21))
    assert layout.masks("norm").buffers.tolist() == [False] * 4 + [True] * 6
    assert layout.masks("body").buffers.all()
    assert layout.has_batchnorm


def test_what_is_no_role_is_told_how_modules_are_marked():
    layout = Layout.of(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2)), head="1")
    with pytest.raises(ConfigError, match=r"'0' is no role of parameters, .*; layout\.under\(\['0'\]\)"):
        layout.masks("0")
    assert layout.under(["0"]).params.sum() == 9


def test_a_norm_is_known_by_its_type_not_its_name():
    model = nn.Sequential()
    model.add_module("bn", nn.Linear(2, 2))
    model.add_module("plain", nn.BatchNorm1d(2))
    assert Layout.of(model).mask("norm").nonzero().flatten().tolist() == [6, 7, 8, 9]


def test_a_declared_head_beats_the_attribute():
    layout = Layout.of(Model(), head="body.0")
    assert layout.mask("head").nonzero().flatten().tolist() == list(range(15))


def test_without_a_head_the_message_names_the_last_layer():
    layout = Layout.of(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    with pytest.raises(ConfigError, match=r"--model\.head NAME \(the last layer is '1'\)"):
        layout.mask("head")
    assert not layout.mask("norm").any()


def test_an_unknown_head_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match="no such submodule; did you mean head"):
        Layout.of(Model(), head="heads")


def test_a_tied_tensor_counts_once_and_is_head_if_any_owner_is():
    model = Model()
    model.head = nn.Linear(4, 3)
    model.head.weight = model.body[0].weight
    layout = Layout.of(model)
    assert [s.name for s in layout.params] == [
        "body.0.weight",
        "body.0.bias",
        "body.1.weight",
        "body.1.bias",
        "head.bias",
    ]
    assert layout.mask("head").nonzero().flatten().tolist() == [*range(12), *range(21, 24)]
    assert layout.mask("tied").nonzero().flatten().tolist() == [*range(12)]
    assert not Layout.of(Model()).mask("tied").any()


def test_a_tied_tensor_is_known_though_the_head_was_there_first():
    model = nn.Sequential()
    model.add_module("head", nn.Linear(3, 2, bias=False))
    model.add_module("body", nn.Linear(3, 2))
    model.body.weight = model.head.weight
    assert Layout.of(model).mask("tied").tolist() == [True] * 6 + [False] * 2


def test_any_norm_means_every_kind_of_normalisation_layer():
    model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2), nn.BatchNorm1d(2), nn.GroupNorm(1, 2))
    model.append(nn.InstanceNorm1d(2, affine=True, track_running_stats=True))
    layout = Layout.of(model)
    assert layout.mask("norm").nonzero().flatten().tolist() == [*range(10, 14)]
    assert layout.mask("any_norm").nonzero().flatten().tolist() == [*range(6, 22)]
    assert layout.masks("norm").buffers.tolist() == [True] * 4 + [False] * 4
    assert layout.masks("any_norm").buffers.all()


def test_frozen_parameters_are_not_in_the_vector():
    model = Model()
    model.body[0].requires_grad_(False)
    assert Layout.of(model).params[0].name == "body.1.weight"


def test_masks_of_dotted_prefixes():
    layout = Layout.of(Model())
    found = layout.under(["body.1", "head.bias"])
    params, buffers = found.params, found.buffers
    assert params.nonzero().flatten().tolist() == [15, 16, 17, 18, 19, 20, 27, 28]
    assert buffers.tolist() == [False] * 4 + [True] * 6
    with pytest.raises(ConfigError, match="no parameter of the model is under 'bod'"):
        layout.under(["bod"])


def test_a_linear_head():
    weight, bias = Layout.of(Model()).linear_head()
    assert (weight.name, weight.shape) == ("head.weight", (2, 3))
    assert (bias.name, bias.shape) == ("head.bias", (2,))
    plain = Model()
    plain.head = nn.Sequential(nn.Flatten(), nn.Linear(2, 3, bias=False))
    weight, bias = Layout.of(plain).linear_head()
    assert (weight.name, bias) == ("head.1.weight", None)


@pytest.mark.parametrize("head", [nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 3)), nn.Conv2d(2, 3, 1), nn.Flatten()])
def test_a_head_of_more_than_one_linear_layer_is_none(head):
    model = Model()
    model.head = head
    with pytest.raises(ConfigError, match="one linear layer: 'head' has parameters of shape"):
        Layout.of(model).linear_head()


class Residual(nn.Module):
    def __init__(self, norm) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = norm
        self.relu = nn.ReLU()
        self.shortcut = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4, affine=False))
        self.head = nn.Linear(4, 2)


@pytest.mark.parametrize(
    "norm", [nn.BatchNorm2d(4), nn.InstanceNorm2d(4, affine=True), nn.GroupNorm(2, 4), nn.LayerNorm(4), nn.RMSNorm(4)]
)
def test_a_group_is_a_layer_with_the_norm_behind_it(norm):
    layout = Layout.of(Residual(norm))
    owners = {name: layout.groups[name] for name in layout.groups if name.startswith(("norm.", "shortcut.1."))}
    assert {s.name: layout.groups[s.name] for s in layout.params if s.name not in owners} == {
        "scale": 0,
        "conv.weight": 1,
        "conv.bias": 1,
        "shortcut.0.weight": 2,
        "shortcut.0.bias": 2,
        "head.weight": 3,
        "head.bias": 3,
    }
    assert {owners[name] for name in owners if name.startswith("norm.")} == {1}
    assert {owners[name] for name in owners if name.startswith("shortcut.1.")} == {2}


def test_a_norm_in_front_is_a_group_of_its_own():
    assert set(Layout.of(nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 2))).groups.values()) == {0, 1}


def test_a_model_may_declare_its_groups():
    model = Residual(nn.BatchNorm2d(4))
    model.layer_groups = ["scale", ("conv", "norm", "shortcut")]
    groups = Layout.of(model).groups
    assert groups["scale"] == 0
    assert {groups[name] for name in groups if name != "scale"} == {1}
    assert "head.weight" not in groups
    model.layer_groups = 7
    assert Layout.of(model).groups == Layout.of(Residual(nn.BatchNorm2d(4))).groups


@pytest.mark.parametrize("head", ["net.head", "net._orig_mod.head"])
def test_a_compiled_part_changes_nothing(head):
    layouts = [Layout.of(Parted(compiled), head) for compiled in (False, True)]
    assert layouts[0] == layouts[1]
    assert not any(slot.tied for slot in layouts[1].params)
    assert [slot.name for slot in layouts[1].params if slot.head] == ["net.head.weight", "net.head.bias"]
    assert layouts[1].under(["net._orig_mod.body"]).params.sum() == 64 * 12 + 3 * 12


def test_declared_groups_may_name_compiled_parts():
    class Declared(Parted):
        layer_groups = ("net._orig_mod.body", "net.head")

    assert set(Layout.of(Declared(True)).groups.values()) == {0, 1}


def test_the_slots_in_which_a_mask_has_a_one():
    layout = Layout.of(Model())
    mask = torch.zeros(layout.size, dtype=torch.bool)
    assert slots_with_one(mask, layout.params) == (False,) * 6
    for number in (1, 4):
        mask[layout.params[number].stop - 1] = True
    assert slots_with_one(mask, layout.params) == (False, True, False, False, True, False)
    assert slots_with_one(None, layout.params) == (True,) * 6
