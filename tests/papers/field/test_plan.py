"""The plan: settings in YAML, with what they share, and where their data are."""

import pytest

from fedbench.errors import ConfigError
from fedbench_papers.field.plan import PLAN, FieldPlan, part_of

SMALL = """
tuning: {until_decided: true, margin: 2, max_seeds: 5}
common: {rounds: 4, train: {epochs: 2, lr: 0.1}}
settings:
  one: {title: One, like: a, kind: labels, config: {data: {name: "{fmnist}"}, partition: {name: dirichlet, alpha: 0.1}}}
  two: {title: Two, like: b, kind: labels, base: one, config: {partition: {name: iid}, train: {lr: 0.2}}}
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "plan.yaml").write_text(SMALL)
    return tmp_path / "plan.yaml"


def test_a_setting_has_the_keys_of_its_base_and_of_all(file):
    plan = FieldPlan.read(file)
    config = plan.config("two", {}, {"resources.hosts": 0})
    assert (config.rounds, config.train.epochs, config.train.lr) == (4, 2, 0.2)
    assert config.data.name == "fmnist"
    assert config.resources.hosts == 0
    assert plan.config("one", {}).train.lr == 0.1


def test_a_section_with_a_name_replaces_that_of_the_base(file):
    assert FieldPlan.read(file).tree("two")["partition"] == {"name": "iid"}


def test_another_data_set_keeps_what_all_settings_share(file):
    shared = SMALL.replace("common: {", "common: {data: {val: 0.2}, ")
    file.write_text(shared.replace("{partition: {name: iid}", "{data: {name: digits}, partition: {name: iid}"))
    assert FieldPlan.read(file).tree("two")["data"] == {"val": 0.2, "name": "digits"}


def test_a_set_is_where_the_sources_say(file, tmp_path):
    config = FieldPlan.read(file).config("one", {"fmnist": str(tmp_path)})
    assert (config.data.name, config.data.root) == ("fmnist", tmp_path)


def test_a_place_without_a_source_is_asked_for():
    plan = FieldPlan.read(PLAN)
    with pytest.raises(ConfigError, match=r"setting two-scanners: where is mnist\? Give --sources mnist=FOLDER"):
        plan.config("two-scanners", {})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("settings: {}", "settings"),
        (SMALL.replace("kind: labels, config", "knid: labels, config", 1), "settings.one.kind"),
        (SMALL.replace("base: one", "base: three"), "two: base = three"),
        (SMALL.replace("margin: 2, ", ""), "margin"),
        (SMALL.replace("max_seeds: 5", "max_seeds: 6"), "max_seeds"),
    ],
)
def test_a_plan_that_says_something_else_is_refused(file, text, words):
    file.write_text(text)
    with pytest.raises(ConfigError, match=words):
        FieldPlan.read(file)


def test_a_missing_plan_is_named(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        FieldPlan.read(tmp_path / "none.yaml")


def test_settings_are_chosen_by_name_in_the_order_of_the_plan(file):
    plan = FieldPlan.read(file)
    assert plan.choose(["two", "one"]) == ["one", "two"]
    assert plan.choose(["all"]) == ["one", "two"]
    with pytest.raises(ConfigError, match=r"--only tow: .*two"):
        plan.choose(["tow"])


def test_shards_are_all_settings_once():
    names = [*FieldPlan.read().settings]
    parts = [part_of(names, f"{k}/4") for k in (1, 2, 3, 4)]
    assert sorted(name for part in parts for name in part) == sorted(names)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("shard", ["0/2", "3/2", "2", "a/b"])
def test_a_shard_that_is_none_is_refused(shard):
    with pytest.raises(ConfigError, match="K/N"):
        part_of(["a"], shard)


def test_a_part_without_settings_is_refused():
    with pytest.raises(ConfigError, match="there are 1 settings, and none in this part"):
        part_of(["a"], "2/2")


def test_the_plan_has_at_least_ten_settings_of_many_kinds():
    plan = FieldPlan.read()
    assert len(plan.settings) >= 10
    assert {"labels", "amounts", "inputs", "few positives", "natural groups", "wrong labels", "participation"} <= {
        setting.kind for setting in plan.settings.values()
    }
    assert plan.comparison_tuning().stopping_rule == {"margin": 2, "most": 12}
    places = {name: f"/{name}" for name in plan.sets()}
    assert all(plan.config(name, places).partition.clients for name in plan.settings)
