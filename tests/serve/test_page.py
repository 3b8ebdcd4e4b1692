"""The page in a real browser: headless Chromium, driven as a person would."""

import os
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from playwright.sync_api import expect, sync_playwright

from anyorder.serve.app import create_app
from anyorder.tables.model import TableModel
from tests.serve.conftest import serving

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 30_000
"""Milliseconds: a busy machine is slow."""

KEEP = os.environ.get("ANYORDER_SCREENSHOTS")
"""A folder for the pictures that the tests take, if somebody wants to look at them."""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt install it")


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        expect.set_options(timeout=PATIENCE)
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


@pytest.fixture
def visit(browser):
    """Opens a page, which must not complain while it is used."""
    complaints, contexts = [], []

    def open_page(address, **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 860}} | options)
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address)
        page.wait_for_selector("body[data-ready]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not complaints


def card(page, name):
    return page.locator("article", has=page.get_by_role("heading", name=name, exact=True))


def answered(page, action):
    """Does something, and waits for the answer that it brings about."""
    body = page.locator("body")
    before = body.get_attribute("data-answers")
    action()
    expect(body).not_to_have_attribute("data-answers", before)


def test_evidence_moves_the_other_columns(visit, table_address):
    page = visit(table_address)
    income = card(page, "income")
    before = income.locator("path.line").get_attribute("d")
    said = income.locator(".readout").inner_text()
    assert "90% in" in said
    slider = page.get_by_role("slider", name="age", exact=True)
    answered(page, lambda: slider.press("End"))
    expect(income.locator("path.line")).not_to_have_attribute("d", before)
    assert income.locator(".readout").inner_text() != said
    expect(card(page, "age")).to_have_class(re.compile("known"))
    expect(page.locator("#formula")).to_contain_text("age = ")
    expect(page.locator(".surprise-text")).to_contain_text("More surprising than")
    expect(page.locator("pre")).to_contain_text('given = {"age": ')
    page.get_by_role("button", name="curl").click()
    expect(page.locator("pre")).to_contain_text("/v1/conditionals")
    page.get_by_role("button", name="Forget all").click()
    expect(income.locator("path.line")).to_have_attribute("d", before)


def test_ranges_sets_menus_and_dates_are_evidence(visit, table_address):
    page = visit(table_address)
    answered(page, lambda: page.get_by_role("combobox", name="job").select_option("nurse"))
    expect(page.locator("#formula")).to_contain_text("job = nurse")
    answered(page, lambda: card(page, "age").get_by_role("radio", name="Range").check())
    expect(page.get_by_role("slider", name="age, least")).to_be_visible()
    expect(page.get_by_role("slider", name="age, greatest")).to_be_visible()
    expect(page.locator("#formula")).to_contain_text("age in ")
    typed = page.get_by_role("textbox", name="born, typed")
    answered(page, lambda: (typed.fill("1966-05-01"), typed.press("Enter")))
    expect(page.locator("#formula")).to_contain_text("born = 1966-05-01")
    level = card(page, "member").get_by_role("button", name=re.compile("true"))
    answered(page, lambda: level.press("Enter"))
    expect(level).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#notice")).to_have_text("")


def test_columns_may_be_called_as_what_every_object_has(visit):
    names = ["__proto__", "constructor", "toString"]
    frame = pd.DataFrame({name: ["u", "v", "w", "v"] * 10 for name in names})
    model = TableModel(layers=1, width=16, heads=2, max_steps=2).fit(frame)
    with serving(create_app(model)) as (address, _):
        page = visit(address)
        for name in names[:2]:
            level = card(page, name).get_by_role("button", name=re.compile("u"))
            answered(page, level.first.click)
            expect(page.locator("#formula")).to_contain_text(f"{name} = u")
            expect(card(page, name)).to_have_class(re.compile("known"))


def test_completions_are_drawn_given_what_is_known(visit, table_address):
    page = visit(table_address)
    rows = page.locator("table tbody tr")
    expect(rows).to_have_count(6)
    answered(page, lambda: page.get_by_role("combobox", name="job").select_option("clerk"))
    expect(rows.locator("td.known")).to_have_text(["clerk"] * 6)
    before = page.locator("table tbody").inner_text()
    page.get_by_role("button", name="Draw again").click()
    expect(page.locator("table tbody")).not_to_have_text(before, use_inner_text=True)
    expect(page.locator(".gains li").first).to_be_visible()
    page.get_by_label("to know").select_option("income")
    expect(page.locator(".panel", has_text="What to measure next")).to_contain_text("about income")


def test_an_invalid_value_is_refused_kindly(visit, table_address):
    page = visit(table_address)
    typed = page.get_by_role("textbox", name="age, typed")
    typed.fill("forty")
    typed.press("Enter")
    message = card(page, "age").get_by_role("alert")
    expect(message).to_contain_text('"forty" is no number')
    typed.fill("300")
    answered(page, lambda: typed.press("Enter"))
    expect(page.locator("#notice")).to_contain_text("the model extrapolates")
    expect(message).to_have_text("")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [(1280, 860), (390, 844)], ids=["desktop", "phone"])
def test_it_fits_every_width_and_does_not_jump(visit, table_address, size, scheme):
    viewport = {"width": size[0], "height": size[1]}
    page = visit(table_address, viewport=viewport, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    expect(page.locator("table tbody tr")).to_have_count(6)
    places = "[...document.querySelectorAll('.card, .panel')].map(e => e.offsetTop)"
    before = page.evaluate(places)
    slider = page.get_by_role("slider", name="age", exact=True)
    answered(page, lambda: slider.press("End"))
    expect(page.locator("td.known").first).to_be_attached()
    assert page.evaluate(places) == before
    expect(page.locator("#notice")).to_have_text("")
    ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    lightness = sum(map(int, re.findall(r"\d+", ground)[:3])) / 3
    assert (lightness > 128) == (scheme == "light")
    if KEEP:
        page.screenshot(path=Path(KEEP) / f"table-{size[0]}-{scheme}.png", full_page=True)


def test_every_control_has_a_name_and_is_reached_by_keys(visit, table_address):
    page = visit(table_address)
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('input, select, textarea, button')].filter(e =>
        !(e.getAttribute('aria-label') || e.labels?.length || e.textContent.trim())).length"""
    )
    assert nameless == 0
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the content")).to_be_focused()
    for _ in range(4):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement !== document.body")


def test_the_page_asks_for_a_token(visit, browser, table_model):
    token = "a-token-of-some-length"
    with serving(create_app(table_model, token=token)) as (address, _):
        page = visit(f"{address}/#token={token}")
        expect(page.locator(".card").first).to_be_visible()
        assert token not in page.url
        context = browser.new_context()
        page = context.new_page()
        page.goto(address)
        page.get_by_label("This server wants its token.").fill(token)
        page.get_by_role("button", name="Go on").click()
        expect(page.locator(".card").first).to_be_visible(timeout=PATIENCE)
        context.close()


def test_text_is_filled(visit, text_address):
    page = visit(text_address)
    expect(page.locator(".fills li")).to_have_count(5)
    box = page.get_by_label("Text with holes")
    answered(page, lambda: box.fill("th_ statement"))
    expect(page.locator(".cell.hole")).to_have_count(1)
    expect(page.locator(".holes li code").first).to_have_text("e")
    expect(page.locator(".fills mark").first).to_be_visible()
    answered(page, lambda: box.fill("The st_tement"))
    expect(page.locator("#notice")).to_contain_text("lower case")
    if KEEP:
        page.screenshot(path=Path(KEEP) / "text.png", full_page=True)


def test_a_hole_in_a_picture_is_painted(visit, image_address):
    page = visit(image_address)
    expect(page.locator(".gallery canvas")).to_have_count(6)
    answered(page, lambda: page.get_by_role("button", name="Right half").click())
    canvas = page.locator("canvas.canvas")
    before = canvas.evaluate("e => e.toDataURL()")
    answered(page, lambda: canvas.click(position={"x": 12, "y": 12}))
    assert canvas.evaluate("e => e.toDataURL()") != before
    answered(page, lambda: (canvas.focus(), canvas.press("ArrowUp"), canvas.press(" ")))
    page.get_by_role("button", name="No hole").click()
    expect(page.locator(".gallery")).to_contain_text("Paint a hole first.")
    if KEEP:
        page.screenshot(path=Path(KEEP) / "image.png", full_page=True)
