"""Archives: unpacked where they should be, or one line."""

import io
import re
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import strategies as st

from fedbench.data import archives
from fedbench.errors import ConfigError
from tests.data.loading import with_any_damage

FILES = {"set/train/a.png": b"a" * 500, "set/train/b.txt": b"b" * 50, "set/test/c.png": bytes(range(256))}


@pytest.fixture(params=["zip", "gztar", "xztar", "tar"])
def packed(request, tmp_path) -> Path:
    for name, data in FILES.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(data)
    return Path(shutil.make_archive(str(tmp_path / "packed"), request.param, tmp_path / "in"))


def unpacked(path: Path, folder: Path, wanted=lambda name: True) -> dict[str, bytes]:
    folder.mkdir()
    archives.extract(path, folder, wanted)
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_everything_or_what_is_wanted(packed, tmp_path):
    assert archives.is_archive(packed)
    assert unpacked(packed, tmp_path / "all") == FILES
    pictures = unpacked(packed, tmp_path / "some", lambda name: name.endswith(".png"))
    assert set(pictures) == {"set/train/a.png", "set/test/c.png"}


def test_progress_counts_files(packed, tmp_path):
    seen = []
    archives.extract(packed, tmp_path / "out", lambda name: True, lambda *step: seen.append(step))
    assert [step[1:] for step in seen] == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "C:/evil", "..\\evil"])
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_members_that_point_outside_unpack_nothing(tmp_path, kind, name):
    if kind == "zip":
        with zipfile.ZipFile(tmp_path / "a", "w") as archive:
            archive.writestr("good", "x")
            archive.writestr(name, "x")
    else:
        with tarfile.open(tmp_path / "a", "w") as tar:
            tar.addfile(tarfile.TarInfo("good"), io.BytesIO())
            tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    with pytest.raises(ConfigError, match=re.escape(f"refused, its member {name!r} points outside")):
        unpacked(tmp_path / "a", tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())
    assert not list(tmp_path.rglob("*evil"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_refused(tmp_path, kind):
    member = tarfile.TarInfo("inside")
    member.type, member.linkname = kind, "/etc/passwd"
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.addfile(member)
    with pytest.raises(ConfigError, match="refused, its member 'inside' is neither a file nor a folder"):
        unpacked(tmp_path / "a.tar", tmp_path / "out")


@with_any_damage
def test_any_damage_is_one_line_or_harmless(data, packed, tmp_path):
    changed = bytearray(packed.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    path, folder = tmp_path / "damaged", tmp_path / "out"
    path.write_bytes(changed[: data.draw(st.just(len(changed)) | st.integers(0, len(changed)))])
    shutil.rmtree(folder, ignore_errors=True)
    try:
        unpacked(path, folder)
    except ConfigError as error:
        text = str(error)
    else:
        return
    assert "\n" not in text
    assert str(path) in text
