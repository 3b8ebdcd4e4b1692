"""Reports: pages that stand alone, and say what is so."""

import json
import re
from functools import partial
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.dates import ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.text import Text

from anyorder.cli.app import main
from anyorder.diagnostics.calibration import SHARES, surprise_by_evidence
from anyorder.images.data import bundled_digits
from anyorder.images.model import ImageModel
from anyorder.images.report import image_report
from anyorder.inference.queries import log_prob
from anyorder.report.page import Code, Grid, Page, Panels, Points, Section, Words
from anyorder.report.sections import (
    NATS,
    column_figures,
    pair_figures,
    read_curves,
    training_section,
)
from anyorder.tables.model import TableModel
from anyorder.tables.report import table_report
from anyorder.text.data import embedded_text
from anyorder.text.model import TextModel
from anyorder.text.report import text_report
from anyorder.training.progress import Metrics
from anyorder.training.settings import TrainingSettings

SHAPE = {"layers": 1, "width": 16, "heads": 2}
SETTINGS = TrainingSettings(steps=3, batch=4, warmup=1)
VOID = {"meta", "img"}
BITS = 1 / np.log(2)


class Document(HTMLParser):
    """Reads a page, and remembers what a reader would want to know of it."""

    def __init__(self, html):
        super().__init__()
        self.open, self.images, self.ids, self.links, self.titles = [], [], [], [], []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if tag == "img":
            self.images.append(found)
        if tag == "a":
            self.links.append(found["href"])
        self.ids += [found["id"]] if "id" in found else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "h2":
            self.titles.append(data)


def stands_alone(page):
    """A page that is well formed, links to itself only, and says what its pictures show."""
    html = page.html()
    found = Document(html)
    assert all(image["alt"] for image in found.images)
    assert all(image["src"].startswith("data:image/png;base64,") for image in found.images)
    assert {link.removeprefix("#") for link in found.links} == set(found.ids)
    assert len(set(found.ids)) == len(found.ids)
    assert "http" not in html
    return found


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 80, 120),
            "income": rng.normal(30, 5, 120).round(2),
            "job": rng.choice(["nurse", "clerk", "a <b> & c"], 120),
            "member": rng.random(120) < 0.5,
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, 120), "D"),
        }
    )
    frame.loc[::9, "income"] = np.nan
    return frame


@pytest.fixture(scope="module")
def model(people):
    return TableModel(**SHAPE, max_steps=10).fit(people)


def test_a_page_escapes_what_it_is_given():
    parts = [Words("<p>"), Points(["a & b"]), Code("<x>"), Grid(["<"], [["&"]], caption="<>")]
    html = Page("<title>", "a < b", [Section("One & two", parts)], [("n <", "&")]).html()
    assert "<x>" not in html
    assert Document(html).titles == ["One & two"]


def test_a_table_is_reported(model, people):
    page = table_report(model, people, name="people", data="people.csv")
    found = stands_alone(page)
    assert found.titles[0] == "Prediction of each column from the others"
    assert "Samples beside real rows" in found.titles
    assert "Does it agree with itself?" in found.titles
    assert len(found.images) >= 5
    assert dict(page.facts)["rows"] == "120"
    # What a nat is stands where nats are first told of, and nowhere else.
    before, *after = re.sub("<[^>]*>", "", page.html()).split(NATS)
    assert len(after) == 1
    assert len(re.findall("nats", before)) == 1


def test_figures_are_narrow_enough_to_be_read_on_a_phone(model, people):
    """A phone shows some 320 pixels beside its margins: letters may shrink by a fifth, no more."""
    page = table_report(model, people, name="people", data="people.csv")
    panels = [b for part in page.sections for b in part.blocks if isinstance(b, Panels)]
    assert len(panels) >= 5
    for picture in (picture for part in panels for picture in part.pictures):
        assert picture.source.get_figwidth() * 96 <= 320 / 0.8


def test_columns_are_drawn_as_what_the_model_takes_them_for():
    """Dates of a file are text; an ignored column has nothing to show."""
    days = pd.date_range("2025-01-01", periods=60).strftime("%Y-%m-%d")
    frame = pd.DataFrame(
        {
            "code": [f"K{i}" for i in range(60)],
            "day": days,
            "count": [-999, *range(59)],
            "lasts": pd.to_timedelta(range(60), "h"),
        }
    )
    types = {"code": "ignore", "day": "datetime"}
    model = TableModel(**SHAPE, max_steps=3, types=types, missing_values=[-999]).fit(frame)
    page = table_report(model, frame, name="rows", data="rows.csv")
    section = next(part for part in page.sections if part.title == "Samples beside real rows")
    _, columns, _, grid = section.blocks
    axes = [picture.source.axes[0] for picture in columns.pictures]
    titles = [part.get_title() for part in axes]
    assert titles == ["day", "count", "lasts"]
    assert isinstance(axes[0].xaxis.get_major_formatter(), ConciseDateFormatter)
    assert axes[1].get_xlim()[0] > -100  # a marker is no number
    assert grid.titles == ["day", "count", "lasts"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", row[0]) for row in grid.rows)


def test_columns_that_are_always_given_are_those_of_rows(people):
    model = TableModel(**SHAPE, max_steps=3, context=["job"], queries=[(["job"], ["age"], 1.0)])
    page = table_report(model.fit(people), people, name="people", data="people.csv")
    assert "QueryList" in page.html()


@pytest.mark.parametrize(
    ("make", "read", "report", "title"),
    [
        (partial(TextModel, length=12), embedded_text, text_report, "Holes and fills"),
        (ImageModel, bundled_digits, image_report, "Inpainting"),
    ],
    ids=["text", "images"],
)
def test_text_and_images_are_reported(make, read, report, title):
    data = read()
    model = make(**SHAPE, settings=SETTINGS).fit(data)
    page = report(model, data, name="run")
    assert title in stands_alone(page).titles
    said = [b.sentences for part in page.sections for b in part.blocks if isinstance(b, Points)]
    assert model.check(data).calibration_sentences() in said  # as `anyorder check` has it


def test_surprise_is_that_of_single_cells(model, people):
    x, missing = model.table_.encode(people)
    found = surprise_by_evidence(
        model.model_, x, missing, generator=torch.Generator().manual_seed(0)
    )
    assert list(found) == list(SHARES)
    assert all(len(part.rows) == len(people) for part in found.values())
    nothing = found["nothing"].rows  # each is the marginal of one of the row's cells
    alone = torch.stack([-log_prob(model.model_, x, query=[i]) for i in range(5)], dim=1)
    near = torch.isclose(alone.double(), nothing[:, None].double(), atol=1e-4) & ~missing
    assert near.any(dim=1).all()
    everything = found["all but one"].rows
    rest = torch.stack(
        [
            -log_prob(
                model.model_,
                x,
                query=torch.eye(5, dtype=torch.bool)[i].expand_as(missing),
                given=~missing & ~torch.eye(5, dtype=torch.bool)[i],
            )
            for i in range(5)
        ],
        dim=1,
    )
    near = torch.isclose(rest.double(), everything[:, None].double(), atol=1e-4) & ~missing
    assert near.any(dim=1).all()


def test_curves_are_read_where_there_are_any(tmp_path):
    assert read_curves(None) == {}
    assert read_curves(tmp_path) == {}
    lines = ['{"step": 1, "loss": 2.0, "seconds": 60}', '{"step": 2, "loss": 1.0, "seconds": 120}']
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    assert read_curves(tmp_path) == {"training rows": [(1.0, 2.0 * BITS), (2.0, 1.0 * BITS)]}


def test_both_curves_are_in_bits_and_say_so(tmp_path):
    """A held-out loss that is as good as the training's is drawn as high as it."""
    lines = [f'{{"step": {i}, "loss": {i}, "seconds": 60}}' for i in (2, 1)]
    lines += [f'{{"step": {i}, "held_out": {i * BITS}, "seconds": 60}}' for i in (2, 1)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    curves = read_curves(tmp_path)
    assert curves["training rows"] == curves["held-out rows"]
    panels = training_section(tmp_path, None, ["a"], dimension="cell").blocks[-1]
    for name, picture in zip(curves, panels.pictures, strict=True):
        assert picture.alt == f"Loss on {name}, bits a cell: from 2.89 to 1.44"
        assert picture.source.axes[0].get_ylabel() == "bits a cell"


@pytest.mark.parametrize("cut", [b'{"step": 3, "lo', b'{"step": 3, "loss": "\xff', b"\xff", b"3"])
def test_a_line_that_is_no_whole_one_is_left_out(tmp_path, cut):
    lines = b"".join(b'{"step": %d, "loss": 2.0, "seconds": 60}\n' % step for step in (1, 2))
    (tmp_path / "metrics.jsonl").write_bytes(lines + cut)
    assert len(read_curves(tmp_path)["training rows"]) == 2
    Metrics(tmp_path, step=2, tensorboard=False).close()
    assert (tmp_path / "metrics.jsonl").read_bytes() == lines


def test_columns_that_a_file_lacks_are_not_drawn(model, people):
    page = table_report(model, people[["job", "member", "age"]], name="people", data="people.csv")
    assert stands_alone(page)
    for pair in ("age and job", "age and member", "job and member"):
        assert f"Scatter of {pair}, of rows" in page.html()


def test_dollars_are_drawn_as_they_are():
    levels = ["$1-$5", r"$\frac$", r"\$", "$"] * 10
    frame = pd.DataFrame({r"$\frac$": levels, "$a$": np.arange(40.0)})
    drawn = frame.sample(30, random_state=0)
    drawings = (column_figures(frame, drawn), pair_figures(frame, drawn))
    for figure in (next(iter(found.values())) for found in drawings):
        figure.canvas.draw()
        texts = [text for text in figure.findobj(Text) if "frac" in text.get_text()]
        assert texts
        for text in texts:
            shown, is_math = text._preprocess_math(text.get_text())
            assert not is_math
            assert shown == r"$\frac$"
    model = TableModel(**SHAPE, max_steps=2).fit(frame)
    model.conditional(r"$\frac$").plot(axes := Figure().subplots())
    axes.figure.canvas.draw()


def test_the_command_writes_a_page(model, people, tmp_path, capsys):
    model.save(tmp_path / "run")
    rows = tmp_path / "rows.csv"
    people.to_csv(rows, index=False)
    out = tmp_path / "deep" / "report.html"
    arguments = ["evaluate", str(tmp_path / "run"), str(rows), "--report"]
    main([*arguments, str(out)])
    page = unescape(out.read_text())
    assert '<h1>The model "run"</h1>' in page
    assert "Evaluated on rows.csv." in page
    for odd in ("report.pdf", str(tmp_path)):
        with pytest.raises(SystemExit) as stop:
            main([*arguments, odd])
        assert stop.value.code == 2
    assert "`--report` must end in .html" in capsys.readouterr().err


@pytest.mark.parametrize("seed", ["0", "3"])
def test_the_page_says_of_a_file_what_check_says(
    model, people, tmp_path, capsys, monkeypatch, seed
):
    """Both look at the same rows in the same order, though the page keeps more of them."""
    for module in ("tables.scoring.CHECKED_ROWS", "tables.report.CHECKED_ROWS"):
        monkeypatch.setattr(f"anyorder.{module}", 40)
    monkeypatch.setattr("anyorder.tables.scoring.MOST_ROWS", 70)
    model.save(tmp_path / "run")
    people.to_csv(tmp_path / "rows.csv", index=False)
    of_file = [str(tmp_path / "run"), str(tmp_path / "rows.csv"), "--seed", seed]
    # Parts of the file end elsewhere for each.
    monkeypatch.setattr("anyorder.tables.scoring.ROWS_AT_ONCE", 9)
    main(["evaluate", *of_file, "--report", str(tmp_path / "page.html")])
    capsys.readouterr()
    monkeypatch.setattr("anyorder.tables.scoring.ROWS_AT_ONCE", 8)
    main(["check", *of_file, "--json"])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["rows"] == 40
    page = unescape((tmp_path / "page.html").read_text())
    for sentence in found["sentences"]:
        assert f"<li>{sentence}</li>" in page
