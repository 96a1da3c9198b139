"""Checksums: any change of a file is noticed."""

import json

import pytest

from fedbench.checksums import (
    BLOCK,
    change_of,
    changes,
    checksum,
    checksum_of,
    checksums,
    is_changed,
    others_in,
    with_own_checksum,
)

CONTENT = bytes(range(256)) * 20


def test_a_checksum_is_crc32_and_the_number_of_bytes(tmp_path):
    path = tmp_path / "digits"
    path.write_bytes(b"123456789")
    assert checksum(path) == checksum_of(b"123456789") == "cbf43926-9", "the check value of CRC-32"
    path.write_bytes(b"123456789" * BLOCK)
    assert checksum(path) == checksum_of(b"123456789" * BLOCK)
    assert checksum(path, 9) == "cbf43926-9"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (CONTENT, None),
        (CONTENT[:1000] + bytes([CONTENT[1000] ^ 1]) + CONTENT[1001:], "changed since it was written"),
        (CONTENT[256:512] + CONTENT[:256] + CONTENT[512:-1] + b"x", "changed since it was written"),
        (CONTENT + b"x", "changed since it was written"),
        (CONTENT[:-1], "cut from 5120 to 5119 bytes"),
        (b"", "cut from 5120 to 0 bytes"),
    ],
)
def test_what_changed_is_said(tmp_path, content, why):
    path = tmp_path / "records"
    path.write_bytes(content)
    assert change_of(path, checksum_of(CONTENT)) == why


def test_lines_may_have_been_added(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(CONTENT + b"more")
    assert change_of(path, checksum_of(CONTENT), grows=True) is None
    path.write_bytes(CONTENT[:-1] + b"?more")
    assert change_of(path, checksum_of(CONTENT), grows=True) == "changed since it was written"


def test_what_is_no_file_is_said(tmp_path):
    for name in ("whole", "gone", "folder", "loop"):
        (tmp_path / name).write_text("a")
    known = checksums(tmp_path, ["whole", "gone", "folder", "loop", "never"])
    for name in ("gone", "folder", "loop"):
        (tmp_path / name).unlink()
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    assert list(changes(tmp_path, known)) == [("gone", "missing"), ("folder", "no file"), ("loop", "no file")]


def test_a_json_object_knows_its_own_checksum():
    value = {"score": 0.1 + 0.2, "name": "é", "seeds": [0, 1], "crc32": {"other": "0-0"}}
    text = json.dumps(with_own_checksum(value, "own.json"), indent=2)
    read = json.loads(text)
    assert not is_changed(read, "own.json")
    assert others_in(read, "own.json") == {"other": "0-0"}
    assert not is_changed(json.loads(json.dumps(with_own_checksum(read, "own.json"))), "own.json")
    for before, after in (("0.30", "0.31"), ("0-0", "0-1"), ('"seeds"', '"sEeds"')):
        assert is_changed(json.loads(text.replace(before, after)), "own.json")
    assert not is_changed({"score": 1}, "own.json"), "made by hand"
    assert others_in({"score": 1}, "own.json") == {}
