"""What a page reads, whole or in part."""

import pytest

from tests.report.reading import Make, page_of


def test_a_finished_run_that_has_lost_its_end_is_named(make_run: Make) -> None:
    folder = make_run()
    path = folder / "metrics.jsonl"
    path.write_text(path.read_text()[:900])
    assert "metrics.jsonl of a finished run ends before the last round" in page_of(folder).text


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
