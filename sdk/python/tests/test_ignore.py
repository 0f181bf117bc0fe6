"""The rules of `.dockerignore` files, and what is packed of a directory that has one."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import List, Optional

import pytest

from sandboxd import InvalidArgument, SandboxdError
from sandboxd import _build_context as build_context
from sandboxd._build_context import LocalContext, local_context
from sandboxd._ignore import IgnoreRules

pytestmark = pytest.mark.skipif(os.name == "nt", reason="names and links are those of Unix")


@pytest.mark.parametrize(
    ("rules", "omitted", "kept"),
    [
        ("", [], ["a", "a/b"]),
        ("# a\n\n  \n #b", ["#b"], ["a", "# a"]),
        ("a", ["a", "a/b", "a/b/c"], ["b/a", "ab", "A"]),
        ("/a/", ["a", "a/b"], ["b/a"]),
        ("./a/../b\r\n", ["b"], ["a", "a/b"]),
        ("  a b  ", ["a b"], ["a"]),
        ("a/b", ["a/b", "a/b/c"], ["a", "a/c", "b"]),
        ("*", ["a", ".a", "a/b"], []),
        ("*.log", ["a.log", ".log"], ["a/b.log", "a.log2", "alog"]),
        ("*/*.log", ["a/b.log"], ["b.log", "a/b/c.log"]),
        ("a?", ["ab", "ab/c"], ["a", "a/", "abc"]),
        ("**/*.log", ["a.log", "a/b.log", "a/b/c.log"], ["a"]),
        ("**", ["a", "a/b"], []),
        ("**/**", ["a", "a/b"], []),
        ("a**b", ["ab", "a/b", "ac/b"], ["acb"]),
        ("a/**", ["a/b", "a/b/c"], ["a", "b"]),
        ("a/**/b", ["a/b", "a/c/b", "a/c/d/b"], ["a", "a/cb"]),
        ("**/b", ["b", "a/b", "a/b/c"], ["ab", "a/bc"]),
        ("[a-c]1", ["a1", "c1"], ["d1", "-1", "1"]),
        ("[^a-c]", ["d"], ["a", "dd"]),
        ("[.*]x", [".x", "*x"], ["ax"]),
        (r"\*\[a\]", ["*[a]"], ["b[a]"]),
        ("a+(b)|c.d$^{1}", ["a+(b)|c.d$^{1}"], ["aab", "c"]),
        ("a\n!a/b", ["a", "a/c"], ["a/b", "a/b/c"]),
        ("!a\na", ["a"], []),
        ("*.md\n!README*.md\nREADME-secret.md", ["a.md", "README-secret.md"], ["README.md", "README-a.md"]),
        ("*\n! a \na/b\n!a/b/c", ["b", "a/b", "a/b/d"], ["a", "a/x", "a/b/c"]),
        (".", [], ["a"]),
        ("/", [], ["a"]),
    ],
)
def test_names_are_omitted_as_docker_omits_them(rules: str, omitted: List[str], kept: List[str]) -> None:
    parsed = IgnoreRules(rules)
    assert [name for name in omitted if not parsed.omits(name)] == []
    assert [name for name in kept if parsed.omits(name)] == []


@pytest.mark.parametrize("pattern", ["[", "a[b", "[]", "[z-a]", "!", "! "])
def test_a_malformed_pattern_is_named(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"pattern"):
        IgnoreRules(f"a\n{pattern}")


def test_only_directories_that_can_have_exceptions_are_searched() -> None:
    rules = IgnoreRules("*\n!a/b/c\n!docs/*.md\n!x[1]/y", "deploy/Dockerfile")
    for directory in ("a", "a/b", "docs", "x1", "x2", "deploy"):
        assert rules.may_keep_below(directory), directory
    for directory in ("b", "a/c", "a/b/d", "node_modules", "doc", "docs2", "deploy/x"):
        assert not rules.may_keep_below(directory), directory
    assert IgnoreRules("*\n!**/*.md").may_keep_below("node_modules")
    assert not IgnoreRules("*").may_keep_below("a")


def project(root: Path, ignore: Optional[str], *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    if ignore is not None:
        (root / ".dockerignore").write_text(ignore)
    return root


def packed(context: LocalContext) -> List[str]:
    with tarfile.open(fileobj=io.BytesIO(b"".join(context.chunks()))) as archive:
        for member in archive.getmembers():
            if member.isfile() and not member.name.endswith("ignore"):
                content = archive.extractfile(member)
                assert content is not None and content.read().decode() == member.name
        return archive.getnames()


def test_omitted_files_are_not_packed_and_the_dockerfile_is(tmp_path: Path) -> None:
    ignore = "# local files\nDockerfile\n.git\n**/*.pyc\nnode_modules\n!node_modules/kept/index.js\n.dockerignore\n"
    names = ["Dockerfile", ".git/HEAD", "src/a.py", "src/a.pyc", "node_modules/kept/index.js", "node_modules/kept/b", "node_modules/c/d"]
    root = project(tmp_path, ignore, *names)
    names = packed(local_context(root, "./Dockerfile"))
    expected = [".", "Dockerfile", "node_modules", "node_modules/kept", "node_modules/kept/index.js", "src", "src/a.py"]
    assert sorted(names) == expected
    # A directory comes before its contents.
    assert all(names.index(os.path.dirname(name)) < names.index(name) for name in names if "/" in name)
    assert "Dockerfile" not in packed(local_context(root, None))


def test_a_directory_that_is_omitted_with_all_its_contents_is_not_packed(tmp_path: Path) -> None:
    root = project(tmp_path, "*\n!**/*.md\n", "a/b/c", "d/e/f.md", "d/g")
    assert sorted(packed(local_context(str(root), None))) == [".", "d", "d/e", "d/e/f.md"]


def test_omitted_directories_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = project(tmp_path, "big\n!keep/me", "big/file", "keep/me", "Dockerfile")
    read: List[str] = []
    entries = build_context.entries

    def recorded(directory: Path, parent: str) -> object:
        read.append(parent)
        return entries(directory, parent)

    monkeypatch.setattr(build_context, "entries", recorded)
    packed(local_context(root, "Dockerfile"))
    assert sorted(read) == ["", "keep"]


def test_the_ignore_file_of_the_dockerfile_is_used(tmp_path: Path) -> None:
    root = project(tmp_path, "a", "a", "b", "deploy/web.Dockerfile")
    (root / "deploy" / "web.Dockerfile.dockerignore").write_text("b\ndeploy\n")
    names = packed(local_context(root, "deploy/web.Dockerfile"))
    assert sorted(names) == [".", ".dockerignore", "a", "deploy", "deploy/web.Dockerfile"]
    assert "a" not in packed(local_context(root, None))


def test_an_ignore_file_may_have_a_byte_order_mark_and_any_bytes(tmp_path: Path) -> None:
    root = project(tmp_path, None, "a", "b")
    odd = os.path.join(os.fsencode(root), b"\xff")
    with open(odd, "wb"):
        pass
    (root / ".dockerignore").write_bytes(b"\xef\xbb\xbfa\n\xff\n")
    assert sorted(packed(local_context(root, None))) == [".", ".dockerignore", "b"]


def test_symbolic_links_are_kept_and_not_followed(tmp_path: Path) -> None:
    root = project(tmp_path / "root", "target/file", "target/file", "target/other")
    (root / "link").symlink_to("target")
    (root / "away").symlink_to(tmp_path)
    names = packed(local_context(root, None))
    assert sorted(names) == [".", ".dockerignore", "away", "link", "target", "target/other"]


def test_a_context_that_cannot_be_packed_is_an_error(tmp_path: Path) -> None:
    for context in (local_context(tmp_path, "Dockerfile"), local_context(tmp_path / "missing", None)):
        with pytest.raises(FileNotFoundError):
            list(context.chunks())
    with pytest.raises(InvalidArgument, match="a file; pass its directory"):
        local_context(project(tmp_path, None, "file") / "file", None)
    project(tmp_path, "ok\n[")
    with pytest.raises(ValueError, match=r"\.dockerignore: the pattern '\['"):
        list(local_context(tmp_path, None).chunks())
    for wrong in ("/etc/passwd", "../Dockerfile", "a/../../b", ".", "a/..", ".."):
        with pytest.raises(SandboxdError) as caught:
            local_context(tmp_path, wrong)
        assert caught.value.details == {"argument": "dockerfile_path"}
