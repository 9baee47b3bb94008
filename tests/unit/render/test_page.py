"""The page as a file: columns that unpack to what they were, text that cannot leave its place, one policy."""

import hashlib
import json
import re
import tomllib
from base64 import b64encode

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipusim.app.render.page.columns import pack
from ipusim.app.render.page.fills import Shades, page_looks
from ipusim.app.render.page.page import SCRIPTS, STYLES, html_page, json_text
from ipusim.app.render.page.run import tables_of_looks
from ipusim.app.render.page.sort_keys import sort_key
from ipusim.pipeline.holders import LAYERS
from ipusim.timeline.kinds import LOOKS, SpanKind
from tests.pages import unpacked
from tests.random_runs import any_text
from tests.scenarios import ROOT

COLUMNS = st.lists(st.integers(-(2**53), 2**53), max_size=20)


@given(COLUMNS, COLUMNS, st.lists(st.integers(0, 300), max_size=20))
def test_columns_unpack_to_what_they_were(one, other, short):
    columns = {"one": one, "other": other, "rising": sorted(map(abs, one)), "short": short}
    described, content = pack({name: np.array(each, dtype=np.int64) for name, each in columns.items()}, ["rising"])
    assert unpacked(described, content) == columns


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([0, 255], "Uint8"),
        ([-1, 127], "Int8"),
        ([256], "Uint16"),
        ([-2, 200], "Int16"),
        ([2**16], "Uint32"),
        ([-1, 2**31 - 1], "Int32"),
        ([-1, 2**31], "Float64"),
        ([2**32], "Float64"),
        ([], "Uint8"),
    ],
)
def test_the_narrowest_type_that_holds_a_column_is_taken(values, kind):
    assert pack({"a": np.array(values, dtype=np.int64)})[0][0]["type"] == kind


@given(st.recursive(any_text(), lambda inner: st.dictionaries(any_text(), inner, max_size=3), max_leaves=5))
def test_json_in_the_page_is_the_same_data_and_cannot_end_its_element(data):
    text = json_text({"it": data})
    assert json.loads(text) == {"it": data}
    assert not set("<>&\u2028\u2029") & set(text)


def test_parts_of_the_page_are_put_in_once_whatever_they_hold():
    page = html_page("</title>{{data}}", {"name": "{{script}}</script><script>"}, ["AAAA"]).decode()
    assert "<title>&lt;/title&gt;{{data}}</title>" in page
    assert '{"name":"{{script}}\\u003c/script\\u003e\\u003cscript\\u003e"}' in page
    assert (page.count("<script"), page.count("</script>")) == (3, 3)
    assert html_page("a", {}, []) == html_page("a", {}, [])


def test_the_policy_lets_the_pages_own_script_and_style_run_and_nothing_be_fetched():
    page = html_page("it", {}, []).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    for tag, name in (("style", "style-src"), ("script", "script-src")):
        content = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert len(content) == 1
        digest = b64encode(hashlib.sha256(content[0].encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert not re.search(r"(src|href|url)\s*[=(]\s*['\"]?(https?:)?//", page)


def test_every_part_of_the_page_is_shipped_with_the_package():
    shipped = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["ipusim"]
    found = {path.name for pattern in shipped for path in (ROOT / "ipusim").glob(pattern)}
    parts = {
        path.name for path in (ROOT / "ipusim" / "app" / "render" / "page").iterdir() if path.suffix not in (".py", "")
    }
    assert parts == {"page.html", *(f"{name}.css" for name in STYLES), *(f"{name}.js" for name in SCRIPTS)}
    assert parts <= found


def test_looks_are_those_of_the_tables_and_scripts_and_styles_repeat_none_of_them():
    tables = tables_of_looks()
    assert tables["looks"][: len(LOOKS)] == page_looks(LOOKS)
    assert {look["name"] for look in tables["holders"]} == {look.name for look in LAYERS}
    for kind, shown in zip(sorted(SpanKind), tables["kinds"], strict=True):
        look = tables["looks"][shown["look"]]
        assert look["name"] == (kind.row.look.name if kind.row.look else kind.row.track.value)
    link = tables["looks"][tables["kinds"][SpanKind.LINK]["look"]]
    assert link["light"] == page_looks([SpanKind.EXCHANGE.row.look])[0]["light"]
    page = html_page("it", {}, []).decode()
    shown = [
        look[scheme][part]
        for look in page_looks((*LOOKS, *LAYERS))
        for scheme in Shades._fields
        for part in ("fill", "edge")
    ]
    assert [colour for colour in shown if colour and colour in page] == []


@pytest.mark.parametrize(
    ("cell", "key"),
    [
        ("1,234 cycles, 3 us", 1234),
        ("1.5 KiB", 1536),
        ("2 MiB", 2**21),
        ("33.4%", 33.4),
        ("3.7 us", 3.7e-6),
        ("2.5 ms", 2.5e-3),
        ("16 GB/s", 16e9),
        ("2 of 3", 2),
        ("-", None),
        ("dense1", None),
        ("", None),
    ],
)
def test_cells_sort_by_what_they_begin_with(cell, key):
    assert sort_key(cell) == (key if key is None else pytest.approx(key))
