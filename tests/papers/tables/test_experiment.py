"""The experiments of the papers, as their files and published.csv have them."""

import csv
import inspect
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from functools import cache
from itertools import chain, product
from typing import Any

import pytest
import torch
from lightning import LightningModule

from fedbench import methods, models, tasks
from fedbench.aggregation.ranks import quantile_rank
from fedbench.cli.flags import PRESET_NAMES, merge_layers
from fedbench.config import Config, ModelConfig
from fedbench.config.counts import count_of
from fedbench.config.keys import nest
from fedbench.data import partition
from fedbench.errors import ConfigError
from fedbench.jobs.resolve import with_defaults
from fedbench.methods.base import Method, ModelFacts
from fedbench.methods.co_pfl import READINGS
from fedbench.methods.cotraining import LEARNT
from fedbench.methods.server import Context
from fedbench.module.layout import Layout
from fedbench.runtime.warnings import method_warnings
from fedbench_papers.tables.experiment import EXPERIMENTS_FOLDER, SCALES, Experiment, figures, names, sets
from tests.papers.tables.sets import published

RUN = [name for name in names() if Experiment.load(name).cells]
FIGURES = figures()
OF_NO_PAPER = ("fedmosaic/figure-attacks", "fedmosaic/figure-privacy")
"""Figures of what the papers leave to future work, such as budgets too large for a guarantee, of which methods warn."""


def test_every_experiment_of_the_table_has_a_file():
    assert len(names()) == 25 + 8
    assert len(RUN) == 20 + 8
    assert "cifar10" in sets()


@pytest.mark.parametrize("name", RUN)
@pytest.mark.parametrize("scale", ["full", "small"])
def test_every_cell_has_numbers_and_a_configuration_that_is_legal(name, scale):
    experiment = Experiment.load(name)
    for cell in experiment.cells:
        asked = Config(**nest(experiment.values(cell, scale)))
        compared = experiment.compared_methods(cell, scale)
        assert [method.label for method in compared] == [number.method for number in experiment.of(cell)] != []
        for method in compared:
            method.config(asked, method.points[0])


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("scale", ["full", "small"])
def test_every_line_of_a_figure_has_a_configuration_that_is_legal(name, scale):
    experiment = Experiment.load(name)
    assert experiment.cells
    assert experiment.figure.draw != "values" or not any(" " in line for line in experiment.figure.lines)
    for cell in experiment.cells:
        asked = Config(**nest(experiment.values(cell, scale)))
        compared = experiment.compared_methods(cell, scale)
        assert [method.label for method in compared] == list(experiment.figure.runs(scale))
        found = [method.config(asked, method.points[0]) for method in compared]
        assert len({config.key() for config in found}) == len(found), "no two are the same run"


def test_every_partition_can_be_dealt_on_data_of_the_published_size():
    dealt = set()
    for experiment in map(Experiment.load, (*RUN, *FIGURES)):
        for cell, scale in product(experiment.cells, SCALES):
            asked = Config(**nest(experiment.values(cell, scale)))
            found = f"{cell.dataset} {asked.partition} {asked.public}"
            if found not in dealt:
                rows = partition(published(cell.dataset), asked, 0)
                assert min(rows.sizes("train").min(), rows.sizes("test").min()) > 0, (experiment.id, cell.name, scale)
            dealt.add(found)
    assert len(dealt) > 50


@cache
def network(data: str, model: str) -> tuple[LightningModule, Layout]:
    """The model of a section, given as JSON, for a data set, without a number in it."""
    dataset, section = published(data), ModelConfig.model_validate_json(model)
    with torch.device("meta"):
        module = models.build(section.name, dataset.shape, dataset.outputs, tasks.load(dataset.task), **section.options)
    return module, Layout.of(module)


def made(config: Config) -> Method:
    """The method of a configuration on the layout of its model."""
    dataset, kind = published(config.data.name), methods.load(config.method.name)
    options = kind.Options(**config.method.options)
    module, layout = network(config.data.name, config.model.model_dump_json())
    if kind.adapt_model.__func__ is not Method.adapt_model.__func__:  # type: ignore[attr-defined]
        kind.adapt_model(module := deepcopy(module), layout, options, ModelFacts(0))
        layout = Layout.of(module)
    sizes = (100,) * config.partition.clients
    return kind(options, Context(layout, config.train, 0, 1, dataset.classes, sizes))


def warnings(method: Method, config: Config) -> list[str]:
    """What the method of a configuration says before round 1."""
    public, drawn = config.public.size or 0, count_of(config.partition.clients, config.participation)
    more = {"train": config.train, "planned_rounds": config.rounds, "public": public, "participants_per_round": drawn}
    method.context = replace(method.context, **more)
    return method_warnings(method, config.method.name)


def asked(experiment: Experiment) -> Iterator[tuple[str, Config]]:
    """Every configuration of an experiment, with where it is asked for."""
    for cell, scale in product(experiment.cells, SCALES):
        common = Config(**nest(experiment.values(cell, scale)))
        for method in experiment.compared_methods(cell, scale):
            for point in method.points:
                yield f"{experiment.id}, {cell.name}, {scale}: {method.label}", method.config(common, point)


@pytest.mark.night
@pytest.mark.parametrize("paper", sorted({name.partition("/")[0] for name in RUN}))
def test_no_experiment_asks_for_what_its_method_warns_of(paper):
    alike: dict[str, list[tuple[str, Config]]] = {}
    for where, config in chain.from_iterable(
        asked(Experiment.load(name)) for name in (*RUN, *FIGURES) if name.startswith(paper) and name not in OF_NO_PAPER
    ):
        config, dataset = with_defaults(config), published(config.data.name)
        method, model = config.method.model_dump_json(), config.model.model_dump_json()
        key = f"{method} {model} {dataset.shape} {dataset.classes} {config.partition.clients}"
        alike.setdefault(key, []).append((where, config))
    for found in alike.values():
        method = made(found[0][1])  # takes masks as large as the model: one at a time
        for where, config in found:
            assert warnings(method, config) == [], where


@pytest.mark.parametrize("name", PRESET_NAMES)
def test_no_preset_asks_for_what_its_method_warns_of(name):
    config = with_defaults(Config(**nest(merge_layers(name, None, {}))))
    assert warnings(made(config), config) == []


def test_published_numbers_of_fedavg_are_of_personal_models_in_co_pfl_alone():
    loaded = [Experiment.load(name) for name in RUN]
    fit = {one.id for one in loaded for cell in one.cells if one.point_of("fedavg", cell) == "after_fit"}
    assert {"co-pfl/main", "co-pfl/main-v2", "co-pfl/data-size", "co-pfl/data-size-v2"} <= fit
    assert all(name.startswith("co-pfl/") for name in fit)
    main = Experiment.load("co-pfl/main")
    assert {main.point_of("fedper", cell) for cell in main.cells} == {"after_agg"}


def test_published_numbers_below_a_guess_between_two_classes_are_of_no_personal_model():
    """Of clients with two classes; where fedavg is compared after aggregation, `open` says why, with the number."""
    found = {}
    for experiment in map(Experiment.load, [name for name in RUN if name.startswith("co-pfl/")]):
        for cell in experiment.cells:
            mean = next((number.mean for number in experiment.of(cell) if number.method == "fedavg"), None)
            if mean is not None and "s=2" in cell.setting.split():
                point = experiment.point_of("fedavg", cell)
                assert (point == "after_agg") == (mean < 50), (experiment.id, cell.name)
                if point == "after_agg":
                    assert any("after aggregation" in line and f"{mean:.2f}" in line for line in experiment.open)
                    found[experiment.id.removesuffix("-working"), cell.setting] = mean
    assert found == {
        ("co-pfl/data-size", "clients=10 s=2 m_bound=10"): 24.3,
        ("co-pfl/data-size-v2", "clients=10 s=2 m_bound=10"): 24.3,
        ("co-pfl/main-v2", "clients=50 s=2 m_bound=50"): 14.0,
    }


def test_the_ablation_of_the_second_version_has_the_p_at_which_its_numbers_stand():
    """79.42 on CIFAR10-C is that of (.15, .50) in the grid; the first version's text has .25 for all."""
    rates = {}
    for name in ("co-pfl/ablation-cowa", "co-pfl/ablation-cowa-v2"):
        experiment = Experiment.load(name)
        rates[name] = {
            cell.dataset: {c.fixed["method.personalization_rate"] for c in experiment.compared_methods(cell, "full")}
            for cell in experiment.cells
        }
    first = {name: {0.25} for name in ("cifar10", "cifar10c", "cinic10", "mini-imagenet")}
    assert rates["co-pfl/ablation-cowa"] == first
    assert rates["co-pfl/ablation-cowa-v2"] == {**first, "cifar10c": {0.15}}
    grid = Experiment.load("co-pfl/p-gamma-grid")
    numbers = {(n.dataset, n.mean): n.method for n in grid.numbers}
    assert "rate=0.15 personalization_budget=0.50" in numbers["cifar10c", 79.42]
    assert "rate=0.25 personalization_budget=0.50" in numbers["cifar10c", 78.35]


def test_quantiles_are_those_of_the_papers_table():
    with open(EXPERIMENTS_FOLDER / "published.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["experiment"] == "settings" and row["metric"] == "quantile"]
    table = {f"{row['dataset']}, {row['setting']}": float(row["mean"]) for row in rows}
    main = Experiment.load("fedobp/main")
    found = {
        cell.name: next(c.fixed["method.quantile"] for c in main.compared_methods(cell, "full") if c.label == "fedobp")
        for cell in main.cells
    }
    assert found == table
    for name in ("fedobp/figure-5", "fedobp/figure-10"):
        figure = Experiment.load(name)
        own = {cell.name: cell.own["fedobp"]["method.quantile"] for cell in figure.cells}
        assert own == {name: table[name] for name in own}


@pytest.mark.parametrize(
    "name", [name for name in (*RUN, *FIGURES) if name.startswith("fedmosaic/") and name not in OF_NO_PAPER]
)
def test_the_first_vote_is_among_what_is_open_wherever_it_is_cast(name):
    experiment = Experiment.load(name)
    labels = {one.name for cell in experiment.cells for one in experiment.compared_methods(cell, "full")}
    lines = [line for line in experiment.open if line.startswith("first vote")]
    assert len(lines) == bool(labels)
    for method in labels & {"fedmosaic", "fedct", "perfed-ckt"}:
        assert methods.load(method).Options().first_vote is None
        assert f"{LEARNT} gradient steps each, on average (method.first_vote none)" in lines[0]


@pytest.mark.parametrize(
    "name", ["label-skew-pathological", "label-skew-practical", "figure-5", "figure-6", "figure-7"]
)
def test_the_network_on_fashion_mnist_has_the_megabytes_of_the_paper(name):
    experiment = Experiment.load(f"fedmosaic/{name}")
    (cell,) = [cell for cell in experiment.cells if cell.dataset == "fmnist"]
    config = Config(**nest(experiment.values(cell, "full")))
    _, layout = network("fmnist", config.model.model_dump_json())
    assert layout.size == 671_754
    assert 4 * layout.size / 2**20 == pytest.approx(2.6, abs=0.05)
    assert any(line.startswith("architecture: not said") and "671,754" in line for line in experiment.open)
    assert any(slot.norm for slot in layout.params), "for FedBN"


def test_an_iid_public_set_stands_for_alpha_1_in_every_figure_of_the_skew():
    for number in (1, 9):
        experiment = Experiment.load(f"fedmosaic/figure-{number}")
        found = {one.label: one.fixed for one in experiment.compared_methods(experiment.cells[0], "full")}
        assert found["fedmosaic alpha=1"] == {"public.balance": "classes"}
        assert found["fedmosaic alpha=0.7"] == {"public.alpha": 0.7}
        assert any(line.startswith("alpha = 1: ") for line in experiment.open)


def test_the_layer_of_1000_is_among_what_is_open():
    experiment = Experiment.load("fedobp/resnet18")
    assert any("512x1000" in line for line in experiment.open)
    _, layout = network(
        "cifar10", Config(**nest(experiment.values(experiment.cells[0], "full"))).model.model_dump_json()
    )
    assert [slot.shape for slot in layout.params if slot.head] == [(10, 512), (10,)]


def test_counts_that_runs_trace_stand_beside_those_of_the_tables():
    main = Experiment.load("fedobp/main")
    counts = {cell.name: [number.mean for number in main.traced_of(cell)] for cell in main.cells}
    assert all(len(own) == 1 for own in counts.values())
    assert (counts["cifar10, Dir(0.1)"], counts["emnist, Dir(0.1)"]) == ([18.0], [3044.0])
    resnet = Experiment.load("fedobp/resnet18")
    shares = {cell.dataset: [(n.mean, n.trace, n.times) for n in resnet.traced_of(cell)] for cell in resnet.cells}
    assert shares["emnist"] == [(0.4, "personal_share", 100.0)]
    other = Experiment.load("fedobp/normalization")
    assert not any(map(other.traced_of, other.cells)), "of other settings"


def test_what_a_method_warns_of_is_seen():
    """Without this the two tests above would say nothing."""
    keys = {"data.name": "svhn", "model.name": "avgcnn", "method.name": "fedobp", "method.scope": "head"}
    few, more = (with_defaults(Config(**nest({**keys, "method.quantile": q}))) for q in (0.9999, 0.983))
    assert "leaves none of 5130 numbers personal" in warnings(made(few), few)[0]
    assert warnings(made(more), more) == []


def fixed(experiment: Experiment, label: str, scale: str = "full") -> dict[str, dict[str, Any]]:
    """By data set, what a method takes."""
    return {
        cell.dataset: next(dict(c.fixed) for c in experiment.compared_methods(cell, scale) if c.label == label)
        for cell in experiment.cells
    }


def test_quantiles_of_resnet18_are_the_shares_of_its_table():
    with open(EXPERIMENTS_FOLDER / "published.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["metric"] == "personalised_parameters_percent"]
    shares = {row["dataset"]: float(row["mean"]) for row in rows if row["experiment"] == "resnet18"}
    found = fixed(Experiment.load("fedobp/resnet18"), "fedobp")
    assert {name: 1 - own["method.quantile"] for name, own in found.items()} == pytest.approx(
        {name: share / 100 for name, share in shares.items()}
    )


def test_the_head_alone_keeps_as_many_numbers_as_the_whole_model_or_as_the_code_has_it():
    experiment = Experiment.load("fedobp/normalization")
    whole = fixed(experiment, "fedobp normalization=global scope=all")
    head = fixed(experiment, "fedobp normalization=global scope=head")
    by_code = {"cifar10": 0.983, "cifar100": 0.91078, "emnist": 0.9057}
    for name, own in head.items():
        dataset = published(name)
        layout = Layout.of(models.load("avgcnn")(input_shape=dataset.shape, classes=dataset.classes))
        in_head = sum(slot.size for slot in layout.params if slot.head)
        count = in_head - quantile_rank(in_head, own["method.quantile"], "inf")
        if name in by_code:
            assert own["method.quantile"] == by_code[name]
            assert count > 0
        else:
            assert count == layout.size - quantile_rank(layout.size, whole[name]["method.quantile"], "inf") > 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fedmosaic/hybrid", ["ViT: not said; the small one", "AlexNet: with or without BatchNorm"]),
        ("fedmosaic/label-skew-practical", ["concentration: not said; 0.1, because"]),
        ("co-pfl/main", ["training part of cifar10c"]),
    ],
)
def test_what_a_paper_leaves_open_is_named_as_it_is_run(name, words):
    experiment = Experiment.load(name)
    assert all(any(word in line for line in experiment.open) for word in words)
    if name == "fedmosaic/label-skew-practical":
        assert experiment.config["partition.alpha"] == 0.1
    assert inspect.signature(models.load("vit")).parameters["size"].default == "small"
    assert inspect.signature(models.load("alexnet")).parameters["norm"].default == "batch"


def test_clients_share_images_where_classes_are_too_small_for_all_and_the_page_says_so():
    experiment = Experiment.load("co-pfl/main-v2")
    for cell in experiment.cells:
        asked = Config(**nest(experiment.values(cell, "full")))
        rows = partition(published(cell.dataset), asked, 0)
        short = cell.dataset in ("cifar10c", "mini-imagenet")
        assert any(line.startswith("partition.reuse: ") for line in rows.warnings) == short
        assert set(rows.sizes("test")) == {100 * asked.partition.classes}
    assert any("partition.reuse" in line for line in experiment.open)


@pytest.mark.parametrize("name", ["co-pfl/main", "fedobp/resnet18"])
def test_the_stem_of_resnet18_is_the_one_of_7x7(name):
    experiment = Experiment.load(name)
    model = dict(Config(**nest(experiment.values(experiment.cells[0], "full"))).model)
    assert model["name"] == "resnet18"
    assert "stem" not in model  # the model's own
    assert models.load("resnet18")(input_shape=(3, 32, 32), classes=10).body.conv1.kernel_size == (7, 7)
    assert not any("3x3" in line for line in experiment.open)


@pytest.mark.parametrize("name", RUN)
def test_no_number_of_a_cell_is_left_out(name):
    experiment = Experiment.load(name)
    cells = {(cell.dataset, cell.setting) for cell in experiment.cells}
    left = {(number.dataset, number.setting) for number in experiment.numbers} - cells
    assert not {setting for _, setting in left if setting}


def test_what_an_experiment_is_like_and_what_it_adds():
    first, second = Experiment.load("fedcac/main-pathological"), Experiment.load("fedcac/main-dirichlet")
    assert second.config == {**first.config, "partition.name": "dirichlet-fixed"}
    assert second.open[: len(first.open)] == first.open
    assert Experiment.load("fedobp/resnet18").open[: len(Experiment.load("fedobp/main").open)]


@pytest.mark.parametrize("name", [name for name in RUN if name.startswith("co-pfl/") and "working" not in name])
def test_every_experiment_of_co_pfl_exists_under_both_readings(name):
    literal, working = Experiment.load(name), Experiment.load(f"{name}-working")
    assert (literal.what, working.what) == tuple(
        literal.what.replace("literal", kind) for kind in ("literal", "working")
    )
    assert (literal.config, literal.cells, literal.numbers) == (working.config, working.cells, working.numbers)
    assert any("`fedbench methods co-pfl`" in line for line in literal.open)
    readings = [{f"method.{key}": value for key, value in READINGS[kind].items()} for kind in ("literal", "working")]
    for scale, cell in product(SCALES, literal.cells):
        for one, other in zip(
            literal.compared_methods(cell, scale), working.compared_methods(cell, scale), strict=True
        ):
            first, second = readings if one.name == "co-pfl" else ({}, {})
            assert one.fixed == {**one.fixed, **first}
            assert other.fixed == {**one.fixed, **second}
            assert (one.label, one.points) == (other.label, other.points)


def test_methods_that_the_paper_scores_over_batches_are_scored_so():
    experiment = Experiment.load("co-pfl/main")
    found = {c.label: c.fixed for c in experiment.compared_methods(experiment.cells[0], "full")}
    assert found["co-pfl"]["evaluate.accuracy"] == "batches"
    assert found["co-pfl"]["evaluate.batch_size"] == 32
    assert "evaluate.accuracy" not in found["local"]


def test_a_key_that_the_user_sets_is_not_tuned_and_wins():
    experiment = Experiment.load("co-pfl/main")
    found = {c.label: c for c in experiment.compared_methods(experiment.cells[0], "full", ["train.lr", "train.epochs"])}
    assert found["local"].points == ({},)
    assert "train.epochs" not in found["co-pfl"].fixed
    assert {"train.lr": 0.01} in Experiment.load("co-pfl/main").compared_methods(experiment.cells[0], "full")[0].points


def test_options_of_one_method_are_its_own():
    experiment = Experiment.load("fedcac/main-pathological")
    found = {c.label: c.fixed for c in experiment.compared_methods(experiment.cells[1], "full")}
    assert found["fedcac"] == {"method.beta": 170}
    assert found["fedper"] == {}
    small = {c.label: c.fixed for c in experiment.compared_methods(experiment.cells[1], "small")}
    assert small["fedcac"] == {"method.beta": 6}


def test_cells_are_chosen_by_data_set_or_word():
    experiment = Experiment.load("co-pfl/main")
    assert [cell.dataset for cell in experiment.select_cells(["cifar10"])] == ["cifar10"]
    assert [cell.dataset for cell in experiment.select_cells(["clients=20"])] == ["cinic10", "mini-imagenet"]
    assert [cell.dataset for cell in experiment.select_cells(["cifar10,clients=20"])] == [
        "cifar10",
        "cinic10",
        "mini-imagenet",
    ]
    name = experiment.cells[0].name
    assert "," in name
    assert [cell.name for cell in experiment.select_cells([name])] == [name]
    assert len(experiment.select_cells([])) == 4
    with pytest.raises(ConfigError, match="--cells svhn: no cell of co-pfl/main; it has cifar10, clients=10"):
        experiment.select_cells(["svhn"])


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["mnist, Dir(0.1)"], ["mnist, Dir(0.1)"]),
        (["mnist, Dir(0.1),svhn, Dir(0.5)"], ["svhn, Dir(0.5)", "mnist, Dir(0.1)"]),
        (["svhn", "mnist, Dir(0.1)"], ["svhn, Dir(0.1)", "svhn, Dir(0.5)", "mnist, Dir(0.1)"]),
        (["mnist"], ["mnist, Dir(0.1)", "mnist, Dir(0.5)"]),
        (
            ["mnist, Dir"],
            [f"{name}mnist, Dir({alpha})" for name in ("e", "", "f", "organa", "organc") for alpha in (0.1, 0.5)],
        ),
    ],
)
def test_a_cell_is_chosen_by_its_exact_name_first(words, names):
    assert [cell.name for cell in Experiment.load("fedobp/main").select_cells(words)] == names


def test_methods_are_chosen_by_label_or_by_the_name_before_their_options():
    main, grid = Experiment.load("co-pfl/main"), Experiment.load("co-pfl/ablation-cowa")
    assert main.select_methods(["fedavg", "local"], main.cells, "full") == ["local", "fedavg"]
    assert len(main.select_methods([], main.cells, "full")) == 8
    assert len(grid.select_methods(["co-pfl"], grid.cells, "full")) == 4
    one = "co-pfl grad_score=on pred_score=on"
    assert grid.select_methods([one], grid.cells, "full") == [one]
    figure = Experiment.load("fedcac/figure-6")
    assert len(figure.select_methods(["fedcac"], figure.cells, "small")) == 5
    with pytest.raises(ConfigError, match="--methods fedavgg: no method of co-pfl/main; it has local, fedavg, "):
        main.select_methods(["fedavgg"], main.cells, "full")
    classes = Experiment.load("fedmosaic/figure-10")
    with pytest.raises(ConfigError, match="--methods local: no method of fedmosaic/figure-10; no method is trained"):
        classes.select_methods(["local"], classes.cells, "full")


def test_a_name_that_is_none():
    with pytest.raises(ConfigError, match=r"co-pfl/mian: no published experiment; .*co-pfl/main"):
        Experiment.load("co-pfl/mian")
