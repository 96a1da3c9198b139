"""What a page does in a browser: the choice of methods, its address, zoom and contents."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from fedbench.report import make_report
from tests.report.conftest import write_comparison

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# The page logs what it finds: a dump after a span of virtual time may come before the frame that draws a chart.
SCRIPT = """<script>addEventListener("load", async () => {
  const one = name => document.querySelector(name);
  const shown = name => [...document.querySelectorAll(name)].filter(element => !element.hidden);
  const rows = () => shown("#leaders tbody tr").map(row => row.dataset.row), chart = one("#chart-curve-after_agg");
  const tools = one('[data-tools="chart-curve-after_agg"]'), said = {};
  const drawn = async node => {
    while (!node.data) await new Promise(done => setTimeout(done, 50));
    return node.data;
  };
  try {
    window.scrollTo(0, chart.offsetTop);
    said.address = [rows(), shown("figure[data-row]").map(figure => figure.dataset.row)];
    said.curves = (await drawn(chart)).filter(trace => !trace.meta.band).map(trace => trace.meta.method);
    said.forest = (await drawn(one("#chart-forest"))).at(-1).y;
    one("[data-only]").click();
    one('[data-method="fedcac"]').click();
    said.hash = location.hash;
    said.all = rows().length;
    const own = chart.layout.yaxis.range;
    tools.querySelector("[data-full]").click();
    said.full = chart.layout.yaxis.range;
    await Plotly.relayout(chart, { "xaxis.range[0]": 2, "xaxis.range[1]": 3 });
    said.zoomed = [chart.layout.xaxis.range, tools.querySelector("[data-reset]").hidden];
    tools.querySelector("[data-reset]").click();
    said.reset = JSON.stringify(chart.layout.yaxis.range) === JSON.stringify(own);
    said.picture = (await Plotly.toImage({ data: chart.data, layout: chart.layout }, { format: "svg" })).slice(0, 18);
    said.contents = shown("#contents a").map(link => link.textContent).slice(0, 2);
  } catch (error) {
    said.error = error.stack;
  }
  console.log(`SAID ${JSON.stringify(said)}`);
})</script>"""


def said_by(page: Path, choice: str, profile: Path) -> dict[str, Any]:
    """What the script on the page logs in a headless browser."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1280,9000", "--enable-logging=stderr"]
    command = [BROWSER, *flags, f"--user-data-dir={profile}", f"{page.as_uri()}{choice}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        end = Timer(300, process.kill)
        end.start()
        printed = []
        for line in process.stderr:
            printed.append(line)
            if found := re.search(r'"SAID (\{.*\})", source: ', line):
                break
        end.cancel()
        process.terminate()
    assert found, "".join(printed)
    return json.loads(found[1])


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="needs chromium on the PATH")
def test_charts_and_tables_follow_the_choice_that_the_address_keeps(tmp_path: Path) -> None:
    levels = {"local": 0.6, "fedper": 0.7, "fedcac": 0.9, "ditto": 0.8}
    page = make_report(write_comparison(tmp_path / "study", levels, asked={"": {"rounds": 3, "clients": 4}}))
    page.write_text(page.read_text() + SCRIPT)
    said = said_by(page, "#methods=fedper,ditto&only", tmp_path / "browser")
    assert "error" not in said, said["error"]
    assert said["address"] == [["ditto", "fedper"] * 2, ["ditto", "fedper"]]  # scores and costs, clients
    assert sorted(said["curves"]) == ["ditto", "fedper"]
    assert said["forest"] == ["ditto", "fedper"]
    assert said["hash"] == "#methods=fedper,ditto,fedcac"
    assert said["all"] == 8
    assert said["full"] == [-1, 101]
    assert said["zoomed"] == [[2, 3], False]
    assert said["reset"]
    assert said["picture"] == "data:image/svg+xml"
    assert said["contents"] == ["Leaderboard", "Both evaluation points"]
