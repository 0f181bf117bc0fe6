"""Archives from sandboxes are hostile: unpacking them writes nothing outside the directory."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from pathlib import Path
from typing import Iterable, Iterator, List, Tuple

import pytest

from sandboxd import LocalFileError
from sandboxd import _tar as tar
from sandboxd._pack import LocalDirectory

pytestmark = pytest.mark.skipif(os.name == "nt", reason="modes and links are those of Unix")


def header(kind: bytes, name: str, link: str = "", size: int = 0, mode: int = 0o4755) -> bytes:
    """A header with any names, which a library would reject or normalize."""
    info = tarfile.TarInfo("x")
    info.type, info.size, info.mode, info.mtime = kind, size, mode, 1_000_000_000
    block = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    block[0:100] = name.encode().ljust(100, b"\0")
    block[157:257] = link.encode().ljust(100, b"\0")
    return checked(block)


def checked(block: bytearray) -> bytes:
    block[148:156] = b" " * 8
    block[148:156] = f"{sum(block):06o}\0 ".encode()
    return bytes(block)


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 512)


def archive(entries: Iterable[Tuple[bytes, str, str]]) -> bytes:
    parts: List[bytes] = []
    for kind, name, link in entries:
        content = b"evil" if kind == tarfile.REGTYPE else b""
        parts += [header(kind, name, link, len(content)), padded(content)]
    return b"".join(parts) + bytes(1024)


def extension(kind: bytes, content: bytes) -> bytes:
    return header(kind, "extension", size=len(content)) + padded(content)


def record(key: str, value: str) -> bytes:
    rest = f" {key}={value}\n"
    length = next(n for n in range(len(rest), len(rest) + 10) if len(str(n)) + len(rest) == n)
    return f"{length}{rest}".encode()


FILE, LINK, HARD, FOLDER = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "victim").write_text("good")
    (tmp_path / "in" / "side").mkdir(parents=True)
    tmp_path.chmod(0o700)
    return tmp_path


@pytest.mark.parametrize(
    "entries",
    [
        [(FILE, "../../victim", "")],
        [(FILE, "a/../../../victim", "")],
        [(LINK, "door", "../.."), (FILE, "door/victim", "")],
        [(LINK, "way", "OUTSIDE"), (FILE, "way/victim", "")],
        [(LINK, "v", "../../victim"), (FILE, "v", "")],
        [(HARD, "hard", "../../victim"), (FILE, "hard", "")],
        [(HARD, "hard", "OUTSIDE/victim"), (FILE, "hard", "")],
        [(LINK, "d", "../.."), (FOLDER, "d/new", "")],
        [(LINK, "e", "../.."), (FOLDER, "e", "")],
        [(LINK, "s", "../../victim"), (HARD, "t", "s"), (FILE, "t", "")],
        [(LINK, "p", "../.."), (HARD, "q", "p/victim"), (FILE, "q", "")],
        [(FILE, "OUTSIDE/victim", "")],
        [(LINK, ".", "../..")],
    ],
)
def test_nothing_is_written_outside(outside: Path, entries: List[Tuple[bytes, str, str]]) -> None:
    inside = outside / "in" / "side"
    entries = [
        (kind, name.replace("OUTSIDE", str(outside)), link.replace("OUTSIDE", str(outside)))
        for kind, name, link in entries
    ]
    try:
        tar.unpack([archive(entries)], inside)
    except LocalFileError:
        pass
    assert (outside / "victim").read_text() == "good"
    assert (outside / "victim").stat().st_nlink == 1
    assert not (outside / "new").exists()
    assert stat.S_IMODE(outside.stat().st_mode) == 0o700
    assert sorted(path.name for path in outside.iterdir()) == ["in", "victim"]


def test_long_names_do_not_escape(outside: Path) -> None:
    for name in ("../../victim", str(outside / "victim")):
        for kind, content in (
            (tarfile.XHDTYPE, record("path", name)),
            (tarfile.GNUTYPE_LONGNAME, name.encode() + b"\0"),
        ):
            data = extension(kind, content) + header(FILE, "file", size=4) + padded(b"evil") + bytes(1024)
            tar.unpack([data], outside / "in" / "side")
            assert (outside / "victim").read_text() == "good"


def test_devices_are_omitted_and_set_user_id_is_ignored(tmp_path: Path) -> None:
    entries = [(tarfile.FIFOTYPE, "fifo", ""), (tarfile.CHRTYPE, "null", ""), (FILE, "a", "")]
    unpacked = tar.unpack([archive(entries)], tmp_path / "new")
    assert (unpacked.files, unpacked.skipped, unpacked.bytes) == (1, 2, 4)
    assert stat.S_IMODE((tmp_path / "new" / "a").stat().st_mode) == 0o755
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a"]


def test_a_conflicting_entry_does_not_affect_others(tmp_path: Path) -> None:
    away, to = tmp_path / "away", tmp_path / "to"
    away.mkdir()
    to.mkdir()
    (to / "link").symlink_to(away)
    entries = [(FILE, "before", ""), (FOLDER, "link", "")]
    entries += [(FILE, f"link/{n}", "") for n in range(tar.MOST_FAULTS + 1)] + [(FILE, "behind", "")]
    with pytest.raises(LocalFileError) as raised:
        tar.unpack([archive(entries)], to)
    assert (to / "before").exists() and (to / "behind").exists()
    assert list(away.iterdir()) == []
    assert "link/0" in raised.value.message and raised.value.message.endswith("; and 2 more")


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE])
def test_long_names_do_not_use_memory(tmp_path: Path, kind: bytes) -> None:
    read = 0

    def chunks() -> Iterator[bytes]:
        nonlocal read
        yield header(kind, "x", size=8 << 20)
        for _ in range(8 << 10):
            read += 1024
            yield b"a" * 1024

    with pytest.raises(LocalFileError, match="longer than 65536 bytes"):
        tar.unpack(chunks(), tmp_path)
    assert read == 0


def test_contents_of_omitted_entries_have_any_length(tmp_path: Path) -> None:
    long = b"x" * (3 << 20)
    sparse = bytearray(header(tarfile.GNUTYPE_SPARSE, "sparse", size=len(long)))
    sparse[482] = 1
    sparse_map = bytearray(512)
    data = (
        extension(tarfile.XGLTYPE, long)
        + extension(tarfile.FIFOTYPE, long)
        + checked(sparse)
        + bytes(sparse_map)
        + long
        + extension(tarfile.XHDTYPE, record("GNU.sparse.major", "1"))
        + header(FILE, "sparse2", size=len(long))
        + long
        + extension(tarfile.XHDTYPE, record("comment", "c" * 60_000))
        + header(FILE, "file", size=len(long))
        + long
        + bytes(1024)
    )
    unpacked = tar.unpack([data], tmp_path)
    assert (unpacked.files, unpacked.skipped, unpacked.bytes) == (1, 3, len(long))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        header(FILE, "a", size=9),
        header(FILE, "a", size=600) + b"x" * 512,
        b"garbage" * 100,
        extension(tarfile.XHDTYPE, b"8 a=bc\n") + bytes(1024),
        extension(tarfile.XHDTYPE, b"0 a=b\n") + bytes(1024),
        extension(tarfile.XHDTYPE, b"9999999 a=b\n") + bytes(1024),
        extension(tarfile.XHDTYPE, record("size", "9" * 5000)) + bytes(1024),
        extension(tarfile.XHDTYPE, record("size", "-1")) + bytes(1024),
        checked(bytearray(header(FILE, "a"))[:124] + b"\xff" * 12 + bytearray(header(FILE, "a"))[136:]),
    ],
    ids=range(10),
)
def test_a_damaged_or_incomplete_archive_is_an_error(tmp_path: Path, damaged: bytes) -> None:
    with pytest.raises(LocalFileError):
        tar.unpack([damaged], tmp_path)


def test_odd_names_and_times_are_failures_of_their_entry(tmp_path: Path) -> None:
    data = (
        extension(tarfile.XHDTYPE, record("path", "zero\0byte"))
        + header(FILE, "a", size=4)
        + padded(b"evil")
        + extension(tarfile.XHDTYPE, record("mtime", "1e300"))
        + header(FILE, "late", size=4)
        + padded(b"good")
        + bytes(1024)
    )
    with pytest.raises(LocalFileError, match="null byte|null character"):
        tar.unpack([data], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["late"]


def test_closed_directories_get_their_mode_last(tmp_path: Path) -> None:
    data = (
        header(FOLDER, "closed", mode=0o555)
        + header(FOLDER, "closed/deep", mode=0o500)
        + header(FILE, "closed/deep/file", size=4)
        + padded(b"text")
        + bytes(1024)
    )
    unpacked = tar.unpack([data], tmp_path)
    assert unpacked.directories == 2
    assert stat.S_IMODE((tmp_path / "closed").stat().st_mode) == 0o555
    assert (tmp_path / "closed" / "deep" / "file").read_text() == "text"
    (tmp_path / "closed").chmod(0o755)
    (tmp_path / "closed" / "deep").chmod(0o755)


def test_many_closed_directories_do_not_use_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tar, "MOST_CLOSED", 3)
    data = b"".join(header(FOLDER, str(n), mode=0) for n in range(4)) + bytes(1024)
    with pytest.raises(LocalFileError, match="more than 3 directories"):
        tar.unpack([data], tmp_path)


def test_a_directory_survives_a_round_trip(tmp_path: Path) -> None:
    root, to = tmp_path / "from", tmp_path / "to"
    (root / "deep" / "er").mkdir(parents=True)
    (root / "deep" / "er" / "file").write_text("content")
    (root / "deep" / ("x" * 200)).write_text("")
    odd = os.path.join(os.fsencode(root), b"deep", b"\xff\xfe")
    with open(odd, "wb") as file:
        file.write(b"odd")
    os.utime(odd, (1_000_000_000, 1_000_000_000))
    (root / "deep" / "link").symlink_to("er/file")
    (root / "deep" / "far").symlink_to("y" * 200)
    (root / "deep" / "er" / "file").chmod(0o750)
    (root / "big").write_bytes(os.urandom(3 * tar.CHUNK + 1))
    os.mkfifo(root / "fifo")
    chunks = list(LocalDirectory(root).chunks())
    # Chunks may be split anywhere.
    whole = b"".join(chunks)
    unpacked = tar.unpack((whole[at : at + 1000] for at in range(0, len(whole), 1000)), to)
    assert (unpacked.files, unpacked.links, unpacked.skipped) == (4, 2, 0)
    assert (to / "deep" / "link").read_text() == "content"
    assert os.readlink(to / "deep" / "far") == "y" * 200
    assert (to / "deep" / ("x" * 200)).exists()
    copy = os.path.join(os.fsencode(to), b"deep", b"\xff\xfe")
    assert os.stat(copy).st_mtime == 1_000_000_000
    assert stat.S_IMODE((to / "deep" / "er" / "file").stat().st_mode) == 0o750
    assert (to / "big").read_bytes() == (root / "big").read_bytes()
    with tarfile.open(fileobj=io.BytesIO(whole)) as known:
        assert sorted(known.getnames())[:2] == [".", "big"]


def test_unpacking_twice_replaces_files(tmp_path: Path) -> None:
    root, to = tmp_path / "from", tmp_path / "to"
    root.mkdir()
    (root / "a").write_text("1")
    (root / "b").symlink_to("a")
    for text in ("1", "2"):
        (root / "a").write_text(text)
        tar.unpack(LocalDirectory(root).chunks(), to)
        assert (to / "b").read_text() == text


def test_a_file_that_changes_keeps_the_length_of_its_header(tmp_path: Path) -> None:
    root = tmp_path / "from"
    root.mkdir()
    (root / "a").write_bytes(b"x" * (2 * tar.CHUNK))
    packing = LocalDirectory(root).chunks()
    first = next(packing)
    (root / "a").write_bytes(b"")
    unpacked = tar.unpack([first, *packing], tmp_path / "to")
    assert unpacked.bytes == 2 * tar.CHUNK


def test_files_that_vanish_are_omitted(tmp_path: Path) -> None:
    root = tmp_path / "from"
    root.mkdir()
    for name in "abc":
        (root / name).write_bytes(name.encode() * tar.CHUNK)
    packing = LocalDirectory(root).chunks()
    first = next(packing)
    (present,) = [name for name in "abc" if name.encode() * 1000 in first]
    for name in set("abc") - {present}:
        (root / name).unlink()
    assert tar.unpack([first, *packing], tmp_path / "to").files == 1


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(LocalDirectory(tmp_path / "missing").chunks())
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        list(LocalDirectory(tmp_path / "file").chunks())
    with pytest.raises(LocalFileError):
        tar.unpack([bytes(1024)], tmp_path / "file" / "below")


def test_an_error_of_the_connection_is_passed_on(tmp_path: Path) -> None:
    def chunks() -> Iterator[bytes]:
        yield header(FILE, "a", size=1024)
        raise ConnectionResetError("lost")

    with pytest.raises(ConnectionResetError):
        tar.unpack(chunks(), tmp_path)
