"""The wheel and the sdist contain the package, its type marker and nothing else."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import List, Set

import pytest

import sandboxd

PACKAGE = Path(__file__).resolve().parent.parent
SOURCES = PACKAGE / "src" / "sandboxd"


def modules() -> Set[str]:
    paths = [*SOURCES.rglob("*.py"), SOURCES / "py.typed"]
    return {f"sandboxd/{path.relative_to(SOURCES).as_posix()}" for path in paths}


def build(kind: str, to: Path) -> Path:
    if any(importlib.util.find_spec(name) is None for name in ("build", "hatchling")):
        pytest.skip("needs the packages build and hatchling")
    command = [sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", str(to), str(PACKAGE)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = to.iterdir()
    return path


def test_the_wheel_has_the_modules_and_metadata(tmp_path: Path) -> None:
    wheel = build("wheel", tmp_path)
    assert wheel.name == f"sandboxd-{sandboxd.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names: List[str] = archive.namelist()
        (metadata_name,) = [name for name in names if name.endswith("/METADATA")]
        metadata = archive.read(metadata_name).decode()
    assert {name for name in names if ".dist-info/" not in name} == modules()
    assert "Requires-Python: >=3.9" in metadata and "# sandboxd for Python" in metadata
    required = {line.split(":", 1)[1].strip() for line in metadata.splitlines() if line.startswith("Requires-Dist:")}
    assert {each for each in required if "extra" not in each} == {"httpx<1,>=0.27", "websockets<18,>=15"}


def test_the_sdist_has_the_sources(tmp_path: Path) -> None:
    sdist = build("sdist", tmp_path)
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    sources = {f"src/{name}" for name in modules()}
    assert sources | {"README.md", "pyproject.toml", "PKG-INFO"} <= names
    others = {name for name in names if not name.startswith("src/")}
    assert others <= {"README.md", "pyproject.toml", "PKG-INFO", ".gitignore"}, others
