"""What a page does in a browser: the choice of methods, its address, zoom and contents."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fedbench.report import make_report
from tests.report.conftest import write_comparison

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SCRIPT = """<script>addEventListener("load", async () => {
  const one = name => document.querySelector(name);
  const shown = name => [...document.querySelectorAll(name)].filter(element => !element.hidden);
  const rows = () => shown("#leaders tbody tr").map(row => row.dataset.row), chart = one("#chart-curve-after_agg");
  const tools = one('[data-tools="chart-curve-after_agg"]'), said = {};
  window.scrollTo(0, chart.offsetTop);
  await new Promise(done => setTimeout(done, 300));
  said.address = [rows(), shown("figure[data-row]").map(figure => figure.dataset.row)];
  said.curves = chart.data.filter(trace => !trace.meta.band).map(trace => trace.meta.method);
  said.forest = one("#chart-forest").data.at(-1).y;
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
  const out = document.createElement("pre");
  out.id = "said";
  out.textContent = JSON.stringify(said);
  document.body.append(out);
})</script>"""


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="needs chromium on the PATH")
def test_charts_and_tables_follow_the_choice_that_the_address_keeps(tmp_path: Path) -> None:
    levels = {"local": 0.6, "fedper": 0.7, "fedcac": 0.9, "ditto": 0.8}
    page = make_report(write_comparison(tmp_path / "study", levels, asked={"": {"rounds": 3, "clients": 4}}))
    page.write_text(page.read_text() + SCRIPT)
    address = f"{page.as_uri()}#methods=fedper,ditto&only"
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--window-size=1280,9000",
        f"--user-data-dir={tmp_path / 'own'}",
    ]
    ran = subprocess.run(
        [BROWSER, *flags, "--virtual-time-budget=20000", "--dump-dom", address],
        capture_output=True,
        text=True,
        timeout=300,
    )
    found = re.search(r'<pre id="said">(.*?)</pre>', ran.stdout, re.S)
    assert found, ran.stderr
    said = json.loads(found[1].replace("&amp;", "&"))
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
