"""How large the page of a comparison is, and how long it takes to open.

    python benchmarks/page.py [--methods 30] [--seeds 5] [--rounds 400] [--repeats 5]

Records are made up. A page is open where headless Chromium has drawn what is in its window, if one is on the PATH: the
median of so many starts.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from tempfile import TemporaryDirectory
from threading import Thread

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from fedbench import methods
from fedbench.report import make_report
from tests.report.conftest import write_comparison

TELL = """<script>addEventListener("load", () => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(
() => { location = "/seconds/" + performance.now() / 1000; }))))</script>"""
"""Charts are drawn in the first frame after the page is loaded; this speaks after it. The page may fetch nothing."""
PATIENCE = 120.0
"""Seconds."""


def opened(page: bytes, browser: str) -> float:
    """Seconds from the start of the navigation until the charts in the window are drawn."""
    told: Queue[float] = Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/seconds/"):
                told.put(float(self.path.rpartition("/")[2]))
            if self.path != "/":
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *words: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, TemporaryDirectory() as profile:
        Thread(target=server.serve_forever, daemon=True).start()
        flags = ["--headless", "--no-sandbox", "--window-size=1280,900", f"--user-data-dir={profile}"]
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        browsing = subprocess.Popen([browser, *flags, "--remote-debugging-port=0", address], stderr=subprocess.DEVNULL)
        try:
            return told.get(timeout=PATIENCE)
        finally:
            browsing.terminate()
            browsing.wait()
            server.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, count in (("methods", 30), ("seeds", 5), ("rounds", 400), ("repeats", 5)):
        parser.add_argument(f"--{name}", type=int, default=count)
    asked = parser.parse_args()
    levels = {name: 0.6 + 0.01 * place for place, name in enumerate(sorted(methods.names())[: asked.methods])}
    with TemporaryDirectory() as folder:
        study = write_comparison(
            Path(folder), levels, range(asked.seeds), spread=0.03, asked={"": {"rounds": asked.rounds}}
        )
        begun = time.perf_counter()
        page = make_report(study).read_bytes()
        made = time.perf_counter() - begun
    what = f"{len(levels)} methods, {asked.seeds} seeds, {asked.rounds} rounds"
    print(f"{what}: {len(page) / 1e6:.2f} MB, made in {made:.1f} s")
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        print("no chromium on the PATH, so it was not opened")
        return
    seconds = [opened(page + TELL.encode(), browser) for _ in range(asked.repeats)]
    print(f"open after {statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})")


if __name__ == "__main__":
    main()
