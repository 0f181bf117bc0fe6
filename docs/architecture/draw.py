"""Draws picture.svg from picture.txt. With --check it only tells whether picture.svg is up to date."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Dict, List, Tuple

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "picture.txt"
TARGET = HERE / "picture.svg"
# Pixels of a unit of the grid.
X, Y = 20, 14
MARGIN = 12
# Readable on a light and on a dark page, because the picture has its own background.
STYLE = (
    "text{font:14px system-ui,sans-serif;fill:#1d2326}.title{font-weight:600}.line,.label{font-size:12px;fill:#566067}"
    ".frame{font-weight:600;paint-order:stroke;stroke:#f3f4f2;stroke-width:5px}"
    ".group{fill:#f3f4f2;stroke:#566067;stroke-dasharray:5 4}.box{fill:#fff;stroke:#1d2326}"
    ".arrow{stroke:#0a5d8f;stroke-width:1.5;fill:none;marker-end:url(#head)}.head{fill:#0a5d8f}.paper{fill:#fdfdfc}"
)


@dataclass(frozen=True)
class Part:
    x: int
    y: int
    width: int
    height: int
    texts: Tuple[str, ...]

    @property
    def right(self) -> int:
        return self.x + self.width

    @property
    def bottom(self) -> int:
        return self.y + self.height


@dataclass(frozen=True)
class Arrow:
    start: str
    end: str
    text: str


@dataclass
class Picture:
    groups: Dict[str, Part]
    boxes: Dict[str, Part]
    arrows: List[Arrow]


def read(text: str) -> Picture:
    picture = Picture({}, {}, [])
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] == "arrow":
            picture.arrows.append(Arrow(words[1], words[2], " ".join(words[3:])))
        elif words[0] in ("box", "group"):
            column, row, width, height = (int(word) for word in words[2:6])
            texts = tuple(part.strip() for part in " ".join(words[6:]).split("|"))
            place = picture.boxes if words[0] == "box" else picture.groups
            place[words[1]] = Part(column * X + MARGIN, row * Y + MARGIN, width * X, height * Y, texts)
        else:
            raise SystemExit(f"{SOURCE.name}, line {number}: {words[0]!r} is neither box, group nor arrow")
    return picture


def middle(one: Tuple[int, int], other: Tuple[int, int]) -> int:
    """The middle of what two intervals have in common."""
    low, high = max(one[0], other[0]), min(one[1], other[1])
    if low >= high:
        raise SystemExit(f"an arrow joins parts that share no column and no row: {one}, {other}")
    return (low + high) // 2


def line_of(start: Part, end: Part) -> Tuple[int, int, int, int]:
    if end.y >= start.bottom:
        x = middle((start.x, start.right), (end.x, end.right))
        return x, start.bottom, x, end.y
    y = middle((start.y, start.bottom), (end.y, end.bottom))
    return start.right, y, end.x, y


def drawn_part(part: Part, kind: str) -> List[str]:
    shape = f'<rect class="{kind}" x="{part.x}" y="{part.y}" width="{part.width}" height="{part.height}" rx="5"/>'
    title, *lines = part.texts
    if kind == "group":
        return [shape]
    x, y = part.x + part.width // 2, part.y + part.height // 2 - 8 * len(lines) + 5
    texts = [f'<text class="title" x="{x}" y="{y}" text-anchor="middle">{escape(title)}</text>']
    for at, line in enumerate(lines, 1):
        texts.append(f'<text class="line" x="{x}" y="{y + 16 * at}" text-anchor="middle">{escape(line)}</text>')
    return [shape, *texts]


def drawn_title(group: Part) -> str:
    """Over the arrows, which cross the frames."""
    return f'<text class="frame" x="{group.x + 8}" y="{group.y + 19}">{escape(group.texts[0])}</text>'


def drawn_arrow(picture: Picture, arrow: Arrow) -> List[str]:
    x1, y1, x2, y2 = line_of(picture.boxes[arrow.start], picture.boxes[arrow.end])
    drawn = [f'<line class="arrow" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>']
    if arrow.text:
        drawn.append(f'<text class="label" x="{x1 + 8}" y="{y1 + 38}">{escape(arrow.text)}</text>')
    return drawn


def svg(picture: Picture) -> str:
    parts = [*picture.groups.values(), *picture.boxes.values()]
    width, height = max(part.right for part in parts) + MARGIN, max(part.bottom for part in parts) + MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">',
        "<title>Architecture of sandboxd</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="head" d="M0 0L8 4L0 8z"/></marker></defs>',
        f'<rect class="paper" width="{width}" height="{height}"/>',
    ]
    for group in picture.groups.values():
        lines += drawn_part(group, "group")
    for box in picture.boxes.values():
        lines += drawn_part(box, "box")
    for arrow in picture.arrows:
        lines += drawn_arrow(picture, arrow)
    lines += [drawn_title(group) for group in picture.groups.values()]
    return "\n".join([*lines, "</svg>", ""])


def main(arguments: List[str]) -> int:
    text = svg(read(SOURCE.read_text(encoding="utf-8")))
    if arguments != ["--check"]:
        TARGET.write_text(text, encoding="utf-8")
        return 0
    if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text:
        return 0
    print(f"{TARGET.name} is old: run docs/architecture/draw.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
