"""A self-contained HTML page: sections of paragraphs, lists, tables and pictures.

Its style, `page.css`, covers wide and narrow screens, dark mode and print.
"""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from typing import Any, Protocol

STYLE = files("anyorder.report").joinpath("page.css").read_text(encoding="utf-8")

SHARPNESS, PIXELS_AN_INCH = 160, 96
"""Dots per inch of a picture, and of a screen."""


class Block(Protocol):
    """A part of a section."""

    def html(self) -> str:
        """Returns it as HTML."""
        ...


@dataclass(frozen=True)
class Words:
    """A paragraph."""

    text: str

    def html(self) -> str:
        """Returns it as HTML."""
        return f"<p>{escape(self.text)}</p>"


@dataclass(frozen=True)
class Points:
    """A list of sentences."""

    sentences: Sequence[str]

    def html(self) -> str:
        """Returns it as HTML."""
        items = "".join(f"<li>{escape(sentence)}</li>" for sentence in self.sentences)
        return f"<ul>{items}</ul>"


@dataclass(frozen=True)
class Code:
    """Lines to copy, or text that is shown character by character."""

    text: str

    def html(self) -> str:
        """Returns it as HTML."""
        return f"<pre>{escape(self.text)}</pre>"


@dataclass(frozen=True)
class Grid:
    """A table; columns that `numbers` names are aligned to the right."""

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Sequence[str] = ()
    caption: str = ""

    def html(self) -> str:
        """Returns it as HTML."""
        kinds = [' class="number"' if title in self.numbers else "" for title in self.titles]
        head = "".join(
            f'<th scope="col"{kind}>{escape(title)}</th>'
            for kind, title in zip(kinds, self.titles, strict=True)
        )
        body = "".join(
            "<tr>"
            + "".join(f"<td{kind}>{escape(c)}</td>" for kind, c in zip(kinds, row, strict=True))
            + "</tr>"
            for row in self.rows
        )
        caption = f"<caption>{escape(self.caption)}</caption>" if self.caption else ""
        return (
            f'<div class="scroll" tabindex="0"><table>{caption}<thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>"
        )


@dataclass(frozen=True)
class Picture:
    """A picture with alternative text and a caption.

    Args:
        source: Figure of matplotlib, or the bytes of a PNG file.
        alt: Alternative text: what the picture shows.
        caption: Line below it: what it means.
        pixelated: If True, pixels stay sharp when it is enlarged.
    """

    source: Any
    alt: str
    caption: str = ""
    pixelated: bool = False

    def html(self) -> str:
        """Returns it as HTML."""
        return f"<figure>{self.image()}{_caption(self.caption)}</figure>"

    def image(self) -> str:
        """Returns it as HTML, without the caption."""
        kind = ' class="pixels"' if self.pixelated else f' style="width: {self._width()}px"'
        data = base64.b64encode(self._png()).decode()
        return f'<img{kind} alt="{escape(self.alt)}" src="data:image/png;base64,{data}">'

    def _width(self) -> int:
        """Returns the width on a screen at which letters are as large as those around it."""
        return round(self.source.get_figwidth() * PIXELS_AN_INCH)

    def _png(self) -> bytes:
        if isinstance(self.source, bytes):
            return self.source
        file = io.BytesIO()
        self.source.savefig(file, format="png", dpi=SHARPNESS, metadata={"Software": None})
        return file.getvalue()


@dataclass(frozen=True)
class Panels:
    """Small pictures beside each other, as many as there is room for: on a phone, one."""

    pictures: Sequence[Picture]
    caption: str = ""

    def html(self) -> str:
        """Returns it as HTML."""
        images = "".join(picture.image() for picture in self.pictures)
        return f'<figure><div class="panels">{images}</div>{_caption(self.caption)}</figure>'


def _caption(words: str) -> str:
    return f"<figcaption>{escape(words)}</figcaption>" if words else ""


@dataclass(frozen=True)
class Section:
    """A part of the page; `blocks` follow each other."""

    title: str
    blocks: Sequence[Block]

    @property
    def anchor(self) -> str:
        """Target of links to it."""
        return "".join(c if c.isalnum() else "-" for c in self.title.lower()).strip("-")

    def html(self) -> str:
        """Returns it as HTML."""
        blocks = "\n".join(block.html() for block in self.blocks)
        return f'<section id="{self.anchor}"><h2>{escape(self.title)}</h2>\n{blocks}\n</section>'


@dataclass(frozen=True)
class Page:
    """The whole page: title, facts, table of contents and sections."""

    title: str
    subtitle: str
    sections: Sequence[Section]
    facts: Sequence[tuple[str, str]] = field(default_factory=tuple)
    """Names and values that stand in large letters at the top."""

    def html(self) -> str:
        """Returns the document."""
        links = "".join(
            f'<li><a href="#{part.anchor}">{escape(part.title)}</a></li>' for part in self.sections
        )
        facts = "".join(
            f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
            for name, value in self.facts
        )
        listed = f"<dl>{facts}</dl>" if facts else ""
        sections = "\n".join(part.html() for part in self.sections)
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(self.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
            f"<header><h1>{escape(self.title)}</h1><p>{escape(self.subtitle)}</p>"
            f'{listed}<nav aria-label="Sections"><ul>{links}</ul></nav></header>\n'
            f"<main>\n{sections}\n</main>\n</body>\n</html>\n"
        )
