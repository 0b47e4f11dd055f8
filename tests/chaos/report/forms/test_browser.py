"""The page in a real browser, headless: nothing to complain of, at the width of a phone too, and its search works."""

import os
import re
import shutil
import subprocess

import pytest

from diloco_chaos.chaos.report.forms.page import report_html
from diloco_chaos.chaos.report.model import model_of

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if BROWSER is None and not os.environ.get("DILOCO_CHAOS_REQUIRE_BROWSER"):
    pytest.skip("no Chromium on this machine: install chromium", allow_module_level=True)


@pytest.fixture
def shown(tmp_path):
    """shown(page, width, script) -> (the document after the script, what the console said)."""
    def show(text, width=1200, script=""):
        page = tmp_path / "report.html"
        page.write_text(text.replace("</body>", f"<script>{script}</script></body>"))
        done = subprocess.run(
            [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom",
             f"--user-data-dir={tmp_path}/profile", f"--window-size={width},900", page.as_uri()],
            capture_output=True, text=True, check=True, timeout=120)
        return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return show


@pytest.fixture(scope="module")
def page(results):
    return report_html(model_of(results[0]))


def test_the_console_says_nothing(shown, page):
    assert shown(page)[1] == []


def test_an_error_on_a_page_would_be_seen(shown, page):
    assert "nothing_there" in shown(page, script="nothing_there()")[1][0]
    assert "Content Security Policy" in shown(page, script="fetch('http://127.0.0.1:9/')")[1][0]


@pytest.mark.parametrize("width", [420, 768, 1200])
def test_nothing_but_what_scrolls_by_itself_is_wider_than_the_window(shown, page, width):
    measure = "document.title = `${document.documentElement.scrollWidth} of ${innerWidth}`"
    found = re.search(r"<title>(\d+) of (\d+)</title>", shown(page, width, measure)[0])
    assert int(found[1]) <= int(found[2])


def test_the_search_leaves_the_events_that_have_the_word(shown, page):
    search = ("const all = document.querySelectorAll('#events tr').length; find.value = 'PARTITION'; "
              "find.dispatchEvent(new Event('input')); const left = [...document.querySelectorAll('#events tr')]"
              ".filter(row => !row.hidden); document.title = `${left.length} of ${all}: `"
              " + left.every(row => row.textContent.toLowerCase().includes('partition'))")
    found = re.search(r"<title>(\d+) of (\d+): (\w+)</title>", shown(page, script=search)[0])
    assert 0 < int(found[1]) < int(found[2])
    assert found[3] == "true"
