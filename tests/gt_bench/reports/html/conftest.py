"""A page in a browser."""

import pytest


@pytest.fixture
def look(browser, tmp_path):
    """`look(html, **context)` opens the page and its sections; at the end there was no request and no error."""
    opened = []

    def opening(html: str, unfold=True, **context):
        path = tmp_path / "index.html"
        path.write_text(html)
        place = browser.new_context(**context)
        page, wrong = place.new_page(), []
        page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        inside = ("file", "data", "blob")
        page.on("request", lambda made: wrong.append(made.url) if made.url.partition(":")[0] not in inside else None)
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready=yes]", state="attached")
        if unfold:
            folded = "document.querySelectorAll('details.part, .part > details')"
            page.evaluate(f"{folded}.forEach((node) => {{ node.open = true; }})")
        opened.append((place, wrong))
        return page

    yield opening
    for place, wrong in opened:
        place.close()
        assert wrong == []
