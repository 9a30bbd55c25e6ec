"""The list of topologies as a page: what others named is text there, and only those that run lead on."""

from __future__ import annotations

from typing import Any

from headgate.dashboards.web.topologies_page import listed


def topology(name: str, **more: Any) -> dict[str, Any]:
    of = {
        "topology": name,
        "run": "r1",
        "stage": "running",
        "priority": 0,
        "weight": 1,
        "quota": None,
        "needs": 6,
    }
    return (
        of
        | {"gets": 4, "slots": ["vm1/0", "vm1/1"], "planned_tps": 57.5, "usd_per_hour": 0.39, "text": ""}
        | more
    )


def test_each_has_a_row_and_a_link_while_it_runs() -> None:
    page = listed({"slots": 8, "topologies": [topology("shop"), topology("old", stage="over", needs=None)]})
    assert (
        page.count("data-page") == 1 and 'href="/topology/shop"' in page and "1 topology on 8 slots" in page
    )
    assert "<td>6</td><td>4</td><td>2</td><td>57.5</td><td>0.39</td>" in page
    assert "None" not in page


def test_texts_of_others_are_no_html() -> None:
    page = listed({"slots": 1, "topologies": [topology("a", text="<script>x</script>", stage='"><b>')]})
    assert "<script>x" not in page and "<b>" not in page and "&lt;script&gt;" in page
