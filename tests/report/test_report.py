"""The page of a run or grid: one file, every section that has data, the right answer, nothing that breaks it."""

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fedbench.cli.report import main
from fedbench.errors import ConfigError
from fedbench.report import make_report
from tests.report.conftest import write_traces

Make = Callable[..., Path]
EVERYWHERE = ["answer", "tiles", "table", "curves", "clients", "cost", "partition", "configuration", "environment"]


class Page(HTMLParser):
    """Sections, charts, texts and references of a page; the inlined library is left aside."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.sections: list[str] = []
        self.charts: dict[str, dict] = {}
        self.references: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self._chart: str | None = None
        self._inside = ""
        self.source = path.read_text()
        self.feed(re.sub(r"<script>/\*\*.*?</script>", "", self.source, flags=re.S))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append(tag)
        self._inside = tag
        self._chart = found.get("data-chart")
        if tag == "section":
            self.sections.append(found["id"] or "")
        self.references += [str(found[name]) for name in ("src", "href", "srcset", "action") if name in found]

    def handle_endtag(self, tag: str) -> None:
        self._chart, self._inside = None, ""

    def handle_data(self, data: str) -> None:
        if self._chart:
            self.charts[self._chart.removeprefix("chart-")] = json.loads(data)
        elif self._inside not in ("script", "style"):
            self.text += data

    @property
    def answer(self) -> str:
        found = re.search(r'<p class="answer">(.*?)</p>', self.source, re.S)
        return found[1].replace("\u00a0", " ") if found else ""


def page_of(folder: Path) -> Page:
    return Page(make_report(folder))


@pytest.fixture(scope="module")
def grid_page(a_grid: Path) -> Page:
    return page_of(a_grid)


def test_the_page_of_a_run_has_every_section_with_data(make_run: Make) -> None:
    page = page_of(make_run(warnings=["beware"]))
    assert set(page.sections) == {*EVERYWHERE, "warnings"}


def test_the_page_of_a_grid_has_every_section_with_data(grid_page: Page) -> None:
    assert set(grid_page.sections) == {*EVERYWHERE, "grid", "inside", "warnings"}
    assert {"grid-0", "grid-1", "curve-after_agg", "curve-after_fit", "mask-share", "overlap"} <= set(grid_page.charts)


def test_lambda_traces_show_the_flipped_client_by_name(make_run: Make, with_lambda: Callable) -> None:
    folder = make_run(method="fedmosaic", partition_keys={"flip_clients": [0]})
    with_lambda(folder)
    page = page_of(folder)
    names = [note["text"] for note in page.charts["lambda"]["layout"]["annotations"]]
    assert names == ["client 0: flipped", "other 9 clients"]
    assert {"lambda", "inside"} <= set(page.sections)


def test_whatever_a_method_traces_is_drawn(make_run: Make) -> None:
    folder = make_run(method="fedamp")
    rows = [(0, r, c, f"weight/{(c + 1) % 3}", 0.1 * r) for r in (1, 2) for c in range(3)]
    rows += [(0, r, c, "mixture/0", 0.5) for r in (1, 2) for c in range(3)]
    rows += [(0, r, c, "epsilon", r + c) for r in (1, 2) for c in range(3)]
    rows += [(0, r, -1, "live_share", 0.3 * r) for r in (1, 2)] + [(0, 1, -1, "live_share/head", 0.3)]
    write_traces(folder, rows)
    charts = page_of(folder).charts
    assert {"weights", "mixture", "trace-0", "trace-1"} <= set(charts)
    assert charts["weights"]["data"][0]["z"] == [[None, 20, None], [None, None, 20], [20, None, None]]
    assert charts["trace-0"]["data"][1]["y"] == [2.0, 3.0]  # epsilon: the mean over clients
    assert charts["trace-1"]["data"][1]["y"] == [0.3, 0.6]
    assert "trace-2" not in charts


def test_the_page_is_one_file_that_loads_nothing(a_grid: Path, grid_page: Page) -> None:
    page = grid_page
    assert {path.name for path in a_grid.iterdir()} == {"plan.json", "final", "report.html"}
    assert page.references == []
    assert "link" not in page.tags
    assert not re.search(r"@import|url\(", re.search(r"<style>(.*?)</style>", page.source, re.S)[1])
    assert "default-src 'none'" in page.source


def test_the_charting_library_is_inlined_once(make_run: Make) -> None:
    assert len(re.findall(r"plotly\.js v\d", page_of(make_run()).source)) == 1


def test_every_colour_of_a_figure_has_a_twin_in_the_dark(grid_page: Page) -> None:
    from fedbench.report.theme import DARK, LIGHT, faded

    known = {*LIGHT.values()} | {faded(colour, 0).rsplit(",", 1)[0] for colour in LIGHT.values()} | {"rgba(0,0,0"}
    text = json.dumps(grid_page.charts)
    used = set(re.findall(r'"(#[0-9a-f]{6}|rgba\(\d+,\d+,\d+)[",]', text))
    assert used
    assert used <= known
    assert LIGHT.keys() == DARK.keys()
    assert len(set(LIGHT.values())) == len(LIGHT)


def test_a_method_has_one_colour_in_all_figures(grid_page: Page) -> None:
    charts = grid_page.charts
    for method in ("fedcac", "local", "centralized", "fedavg-ft"):
        found = {
            trace["line"]["color"]
            for name in ("curve-after_agg", "curve-after_fit", "traffic")
            for trace in charts[name]["data"]
            if trace.get("name") == method
        }
        assert len(found) == 1


def test_a_gain_whose_interval_excludes_zero_paid(make_grid: Make) -> None:
    answer = page_of(make_grid(gain=0.1, seeds=(0, 1, 2, 3, 4))).answer
    assert answer.startswith("fedcac with tau = 0.3, beta = 10 and train.lr = 0.01 won the grid with ")
    assert re.search(r"\d\.\d points above training alone \(95 % interval \+\d+\.\d to \+\d+\.\d\)", answer)
    assert answer.endswith("collaboration paid.")


def test_a_loss_did_not_pay(make_grid: Make) -> None:
    answer = page_of(make_grid(gain=-0.12, seeds=(0, 1, 2, 3, 4))).answer
    assert re.search(r"points below training alone \(95 % interval −\d+\.\d to −\d+\.\d\)", answer)
    assert answer.endswith("collaboration did not pay.")


def test_an_interval_that_includes_zero_is_undecided(make_grid: Make) -> None:
    answer = page_of(make_grid(gain=0.02, skew=0.05)).answer
    assert re.search(r"\(95 % interval −\d+\.\d to \+\d+\.\d\)", answer)
    assert "the interval includes 0, so with 3 seeds it is undecided whether collaboration paid." in answer


def test_one_seed_decides_nothing(make_grid: Make) -> None:
    assert (
        "(one seed, so no interval): whether collaboration paid is undecided." in page_of(make_grid(seeds=(0,))).answer
    )


def test_a_grid_whose_cells_all_failed_says_so(make_grid: Make) -> None:
    page = page_of(make_grid(space={"method.tau": [0.1, 0.3], "method.beta": [5]}, fail=(0, 1)))
    assert page.answer == "No point of the grid finished: 2 of 2 failed, so there is no answer."
    assert "table" not in page.sections
    assert "RuntimeError: client 3: loss is nan" in page.text


def test_a_grid_without_final_runs_names_its_winner(make_grid: Make) -> None:
    page = page_of(make_grid(final=False))
    assert page.answer.endswith("won on validation (83.7 %); its final runs are not there yet.")
    assert "grid" in page.sections


def test_the_best_cell_is_framed_and_failed_ones_say_so(grid_page: Page) -> None:
    layouts = [grid_page.charts[f"grid-{i}"]["layout"] for i in range(2)]
    assert [shape["line"]["width"] for shape in layouts[0]["shapes"]] == [1, 4]
    assert [note["text"] for note in layouts[0]["annotations"]] == ["failed"]
    assert "shapes" not in layouts[1]


@pytest.mark.parametrize(
    ("space", "panels", "kind"),
    [
        ({"method.tau": [0.1, 0.3, 0.5]}, 1, "scatter"),
        ({"method.tau": [0.1, 0.3], "method.beta": [5, 10]}, 1, "heatmap"),
        (
            {"method.tau": [0.1, 0.3], "method.beta": [5, 10], "train.lr": [0.01, 0.1], "train.epochs": [1, 2]},
            4,
            "heatmap",
        ),
    ],
)
def test_any_number_of_varying_keys_has_its_picture(make_grid: Make, space: dict, panels: int, kind: str) -> None:
    found = [
        chart for name, chart in page_of(make_grid(space=space, final=False)).charts.items() if name.startswith("grid-")
    ]
    assert [chart["data"][0]["type"] for chart in found] == [kind] * panels


def test_a_run_tells_both_points_with_intervals(make_run: Make) -> None:
    answer = page_of(make_run(level=0.84, fit_level=0.7)).answer
    number = r"\d\d\.\d % {} \(95 % interval \d\d\.\d % to \d\d\.\d %\)"
    pattern = f"fedcac reached {number.format('after aggregation')} and {number.format('after local training')}."
    assert re.fullmatch(pattern, answer)


def test_no_interval_promises_more_than_everything(make_run: Make) -> None:
    page = page_of(make_run(level=0.995, seeds=(0, 1)))
    assert re.search(r"after aggregation \(95 % interval \d\d\.\d % to 100\.0 %\)", page.answer)
    assert not re.search(r"1\d\d\.[1-9]", page.answer)


def test_a_short_run_has_no_ticks_between_its_rounds(make_run: Make, with_lambda: Callable) -> None:
    for rounds, tick in ((3, 1), (20, None)):
        folder = make_run(f"of-{rounds}", method="fedmosaic", rounds=rounds)
        with_lambda(folder, rounds)
        charts = page_of(folder).charts
        axes = [charts[name]["layout"]["xaxis"] for name in ("curve", "lambda")]
        assert [axis.get("dtick") for axis in axes] == [tick] * 2


def test_a_run_that_is_not_over_says_how_far_it_is(make_run: Make) -> None:
    page = page_of(make_run(done=4))
    assert page.answer.startswith("So far, after round 4 of 6, fedcac reached ")
    assert "this run is not complete" in page.text


def test_a_finished_run_that_has_lost_its_end_is_named(make_run: Make) -> None:
    folder = make_run()
    path = folder / "metrics.jsonl"
    path.write_text(path.read_text()[:900])
    assert "metrics.jsonl ends before the last round of a run that was finished" in page_of(folder).text


def test_failed_clients_and_warnings_are_listed(make_run: Make) -> None:
    page = page_of(make_run(warnings=["the public set is small"], failed=[(5, 3, "loss is nan")]))
    assert "fedcac: the public set is small" in page.text
    assert "client 3 was left out in round 5 of seed 0: loss is nan" in page.text


def test_the_configuration_shows_what_differs_first(make_run: Make) -> None:
    found = re.search(r'<section id="configuration">(.*?)</section>', page_of(make_run()).source, re.S)[1]
    table, everything = found.split("<details>")
    assert re.findall(r'<th scope="row"><code>(.*?)</code>', table) == ["method.name", "rounds", "seeds"]
    assert "batch_size: 50" in everything


def test_half_written_files_do_not_break_the_page(make_run: Make) -> None:
    folder = make_run()
    for name in ("metrics.jsonl", "timings.jsonl"):
        text = (folder / name).read_text()
        (folder / name).write_text(text[:-30])
    for name in ("clients.parquet", "traces.parquet", "summary.json", "partition.json", "environment.json"):
        (folder / name).write_bytes(b"PAR1{")
    page = page_of(folder)
    assert {"answer", "table", "curves", "warnings"} <= set(page.sections)
    assert not {"clients", "partition", "environment"} & set(page.sections)
    assert "clients.parquet cannot be read and is left out" in page.text


@pytest.mark.parametrize("kept", ["config.yaml", "metrics.jsonl"])
def test_a_single_file_is_enough(make_run: Make, kept: str) -> None:
    folder = make_run()
    for path in folder.iterdir():
        if path.name != kept:
            path.unlink()
    assert page_of(folder).answer


def test_values_are_escaped(make_run: Make, make_grid: Make) -> None:
    evil = "<script>alert(1)</script>"
    run = page_of(make_run(warnings=[evil], failed=[(1, 1, evil)]))
    grid = page_of(
        make_grid(fail=(1,), error=evil, final=False, space={"method.tau": [0.1, 0.3, evil], "method.beta": [5, 10]})
    )
    for page in (run, grid):
        assert evil not in page.source
    assert evil in run.text


def test_a_hundred_clients_fit_on_the_page(make_run: Make) -> None:
    page = page_of(make_run(clients=100, seeds=(0,), rounds=3))
    assert "The first 40 of 100 clients." in page.text


def test_the_command_prints_the_path(make_run: Make, capsys: pytest.CaptureFixture) -> None:
    folder = make_run()
    assert main([str(folder)]) == 0
    assert capsys.readouterr().out.strip() == str(folder / "report.html")


def test_a_folder_without_results_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(ConfigError, match="no run here"):
        make_report(tmp_path)
    with pytest.raises(ConfigError, match="no such folder"):
        make_report(tmp_path / "nowhere")
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
