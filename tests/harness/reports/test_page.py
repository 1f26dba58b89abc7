"""The HTML page: whole, safe, and fit to be read on a phone; a browser looks at it."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image

from cuvil_regress.model import Report
from cuvil_regress.reports import html
from cuvil_regress.workspace import Workspace
from tests.needs import need

VOID = {"meta", "link", "input", "rect", "line", "br"}
MEASURE = """
<script>
const page = document.documentElement;
const outside = [...document.querySelectorAll("body *")]
  .filter(each => !each.closest(".scroll") && each.getBoundingClientRect().right > innerWidth + 0.5)
  .map(each => each.tagName);
const scrolls = [...document.querySelectorAll(".scroll")].filter(each => each.scrollWidth > each.clientWidth);
const flat = [...document.querySelectorAll("summary")].filter(each => each.clientHeight < 20);
const found = [innerWidth, page.scrollWidth, outside.join("+") || "none", scrolls.length, flat.length];
parent.postMessage(found.join(), "*");
</script>
"""
"""Measures the page that it stands in, and tells the one around it."""

PHONE = """
<!DOCTYPE html>
<script>
addEventListener("message", event => { document.documentElement.dataset.measured = event.data; });
</script>
<iframe src="report.html" width="390" height="844" style="border: 0"></iframe>
"""
"""A screen of a phone's width: a browser's own window may not be that narrow."""


class Outline(HTMLParser):
    """The tags of a page, which must be closed in their order, and the places that its links lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        values = dict(attrs)
        self.links += [str(values[key]) for key in ("href", "src") if key in values]
        self.ids += [str(values["id"])] if "id" in values else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture
def page(report: Report, workspace: Workspace) -> Path:
    path = workspace.root / "report.html"
    path.write_text(html.render(report, workspace), encoding="utf-8")
    return path


def chromium(page: str, *arguments: str, profile: Path) -> subprocess.CompletedProcess[str]:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    need("chromium", found is not None)
    options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-extensions")
    logging = ("--enable-logging=stderr", f"--user-data-dir={profile}", "--virtual-time-budget=2000")
    command = [str(found), *options, *logging, *arguments, page]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in finished.stderr, finished.stderr
    return finished


def test_the_page_needs_nothing_else(page: Path) -> None:
    outline = Outline(page.read_text(encoding="utf-8"))
    assert outline.open == []
    assert len(outline.ids) == len(set(outline.ids))
    assert {link for link in outline.links if not link.startswith("#")} == {"data:,"}
    assert {link[1:] for link in outline.links if link.startswith("#")} <= set(outline.ids)
    assert outline.tags.count("script") == outline.tags.count("style") == 1
    assert "url(" not in page.read_text(encoding="utf-8")


def test_every_cell_has_its_place_and_its_drill_down(page: Path, report: Report) -> None:
    text = page.read_text(encoding="utf-8")
    outline = Outline(text)
    assert [link for link in outline.links if link.startswith("#torch")] == [
        f"#{result.cell.id}" for result in report.results
    ]
    assert set(outline.ids) >= {result.cell.id for result in report.results}
    assert outline.tags.count("figure") == sum(
        output.ulp_histogram is not None for result in report.results for output in result.outputs
    )
    assert "<title>2 to 3 ULP: 20 elements</title>" in text
    assert "487 of 487" not in text


def test_the_column_of_bits_is_that_of_the_whole_row(page: Path) -> None:
    rows = re.findall(r'<th scope="row">(\w+)</th>.*?<b>(\S+)</b></td>', page.read_text(), re.DOTALL)
    # One output of a cell that crashed tells nothing of the others.
    assert rows == [("mlp", "yes"), ("resnet", "NO"), ("encoder", "-"), ("lstm", "-")]


def test_texts_are_shown_and_not_obeyed(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "<script>alert" not in text
    assert "\\x1b[31mred\\x1b[0m \\ufffe" in text
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]", text)


def test_the_ends_of_the_logs(page: Path, workspace: Workspace) -> None:
    text = page.read_text(encoding="utf-8")
    crash = text.partition('id="torch-2.13.0/encoder/riscv64-linux"')[2].partition("</pre>")[0]
    assert "line 99 of outputs" in crash
    assert "line 42 of outputs" in crash
    assert "line 39 of outputs" not in crash
    assert str(workspace.root) not in text


def test_a_log_outside_of_the_folder_is_not_read(report: Report, workspace: Workspace) -> None:
    secret = workspace.root.parent / "secret"
    secret.write_text("secret words")
    result = report.results[0]
    for log in ("../secret", str(secret)):
        step = replace(result.steps[0], log=log)
        assert html.read_tail(workspace, step) is None


def test_a_run_that_ended_early(report: Report, workspace: Workspace) -> None:
    text = html.render(replace(report, results=report.results[:1]), workspace)
    assert "interrupted, 11 cells not finished" in text
    assert text.count("not finished</td>") == 11
    html.render(replace(report, results=(), planned=()), workspace)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_a_browser_shows_it(
    page: Path, tmp_path_factory: pytest.TempPathFactory, width: int, scheme: str
) -> None:
    folder = tmp_path_factory.mktemp("browser")
    picture = folder / "page.png"
    dark = ("--blink-settings=preferredColorScheme=0",) if scheme == "dark" else ()
    arguments = (f"--screenshot={picture}", f"--window-size={width},1600", *dark)
    chromium(page.as_uri(), *arguments, profile=folder / "profile")
    with Image.open(picture) as image:
        assert image.size == (width, 1600)
        colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 24) or ()}
    names = ("ground", "pass-ground", "fail-ground", "warn-ground")
    assert {declared(name, scheme) for name in names} <= colours


def declared(name: str, scheme: str) -> tuple[int, int, int]:
    """A colour of the style sheet."""
    style = Path(html.__file__).with_name("page.css").read_text()
    values = re.findall(rf"--{name}: #(\w+);", style)
    digits = values[scheme == "dark"]
    whole = digits if len(digits) == 6 else "".join(digit * 2 for digit in digits)
    return int(whole[:2], 16), int(whole[2:4], 16), int(whole[4:], 16)


def test_nothing_sticks_out_on_a_phone(page: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Measured by a script in a copy of the page, whose own policy would not let it in."""
    folder = tmp_path_factory.mktemp("browser")
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text(encoding="utf-8"))
    opened = text.replace("<details", "<details open").replace("</body>", f"{MEASURE}</body>")
    (folder / "report.html").write_text(opened, encoding="utf-8")
    (folder / "phone.html").write_text(PHONE, encoding="utf-8")
    dom = chromium((folder / "phone.html").as_uri(), "--dump-dom", profile=folder / "profile").stdout
    found = re.search(r'data-measured="([^"]*)"', dom)
    assert found, dom
    inner, content, outside, scrolls, flat = found[1].split(",")
    assert (inner, content, outside, flat) == ("390", "390", "none", "0")
    assert int(scrolls) > 0  # the tables are wider, and scroll for themselves


def test_a_link_of_the_grid_opens_its_cell(page: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A cell that passes is closed until then; the page's own policy lets its script run."""
    profile = tmp_path_factory.mktemp("browser")
    cell = "torch-2.13.0/mlp/aarch64-linux"
    dom = chromium(f"{page.as_uri()}#{cell}", "--dump-dom", profile=profile).stdout
    states = dict(re.findall(r'<details class="cell clean" id="([^"]*)"([^>]*)>', dom))
    assert [name for name, state in states.items() if "open" in state] == [cell]
