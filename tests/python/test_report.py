"""The views of a report: text, JSON, page, fragment and plots of the same data."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
import re
import sys
from html.parser import HTMLParser

import pytest
import torch

import safeops
from safeops._events import Frame
from safeops._report import AuditedLine, Contents, Notice, Report, Unattributed
from safeops._steps import HitsPerStep
from test_import import in_subprocess


@pytest.fixture(autouse=True)
def hundred_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The width of a report, whatever the terminal is."""
    monkeypatch.setenv("COLUMNS", "100")


HOSTILE = "<script>alert(\"a\") & 'b'</script> {{ 7 * 7 }}"


def site(**changes: object) -> AuditedLine:
    return AuditedLine(
        **{
            "filename": "/srv/train/model.py",
            "lineno": 41,
            "function": "forward",
            "source": "return F.normalize(x, dim=-1)",
            "operator": "normalize",
            "condition": "zero_norm",
            "policies": ("stock",),
            "forward": 12,
            "rows": 3072,
            "calls": 6,
            "all_calls": 48,
            "backward": 11,
            "first_step": 3,
            "last_step": 5,
            "first_row": 2,
            "largest_gradient": 1e12,
            "shapes": ((64, 8),),
            "dtypes": ("float32",),
            "modules": ("Model.layers.0",),
            "stack": (
                Frame("/srv/train/run.py", 9, "main"),
                Frame("/srv/train/model.py", 41, "forward"),
            ),
            "hits_per_step": HitsPerStep(1, (0, 0, 0, 8, 8, 7)),
            **changes,
        }
    )


def contents(*sites: AuditedLine, **changes: object) -> Contents:
    return Contents(
        **{
            "policy": None,
            "operators": ("normalize", "softmax"),
            "sites": sites,
            "unattributed": (),
            "notices": (),
            "steps": 10,
            "rows": 4000,
            "calls": 60,
            "lines": 5,
            "versions": {"safeops": "0.1.0", "torch": "2.15.0", "python": "3.12.1"},
            **changes,
        }
    )


EMPTY_ROW = site(
    filename="/srv/python/lib/site-packages/losses/contrastive/normalized_temperature.py",
    lineno=1200,
    source=HOSTILE,
    function="<lambda>",
    operator="softmax",
    condition="empty_row",
    largest_gradient=math.nan,
    hits_per_step=HitsPerStep(4, (2, 5)),
    forward=1_000_000,
    backward=7,
)
REST = {
    "unattributed": (Unattributed("softmax", ("empty_row",), 4, 3),),
    "notices": (Notice("normalize", "rescued", 1234),),
}
FULL = contents(site(), EMPTY_ROW, **REST)
MANY = contents(*[site(lineno=i, largest_gradient=None) for i in range(1, 31)])


# Data


def test_the_attributes_are_those_of_the_contents() -> None:
    report = Report(FULL)
    for field in dataclasses.fields(Contents):
        assert getattr(report, field.name) is getattr(FULL, field.name)
        assert field.name in dir(report)
    with pytest.raises(AttributeError, match="'Report' object has no attribute 'site'"):
        report.site  # noqa: B018


def test_a_report_is_read_until_it_is_frozen() -> None:
    calls = iter((contents(steps=1), contents(steps=2)))
    report = Report(lambda: next(calls))
    assert report.steps == 1
    report.freeze()
    assert report.steps == report.steps == 2


def test_a_report_survives_pickling() -> None:
    report = pickle.loads(pickle.dumps(Report(lambda: contents(site()))))
    assert report.contents == contents(site())
    assert repr(report) == "<safeops.Report: 1 sites, 10 steps>"


# Text


def test_the_text_is_a_table_and_a_paragraph_for_every_line() -> None:
    text = str(Report(FULL))
    lines = text.splitlines()
    assert lines[0].startswith("safeops audit (observed, nothing changed; 10 optimizer steps): ")
    assert " ".join(lines[:2]).endswith(
        "1,000,016 singular rows forward and 21 backward, on 2 lines; seen: 4,000 rows in 60 calls "
        "of 5 lines"
    )
    assert lines[5].split() == [
        *("#", "line", "operator", "condition", "rows", "hit", "of", "seen", "backward", "steps"),
        "|gradient|",
    ]
    assert lines[6].split() == [
        *("1", "/srv/train/model.py:41", "normalize", "zero_norm", "12", "3,072", "11", "3-5"),
        "1e+12",
    ]
    assert lines[7].split()[2:] == [
        *("softmax", "empty_row", "1,000,000", "3,072", "7", "3-5", "nan"),
    ]
    assert lines[7].split()[1].endswith("temperature.py:1200")
    for expected in (
        "  1  /srv/train/model.py:41 in forward, module Model.layers.0",
        "     > return F.normalize(x, dim=-1)",
        "     12 of 3,072 rows forward and 11 backward, in 6 of 48 calls, at steps 3-5",
        "     float32 of shape [64, 8], policy 'stock'; first at step 3, row 2",
        "policies at zero_norm of normalize:",
        "  zero     value 0, gradient 0",
        "no line (compiled code, C++, other threads): softmax empty_row: 4 forward, 3 backward",
        "notice: normalize rescued: 1,234",
    ):
        assert expected in lines
    assert "  2  losses/contrastive/normalized_temperature.py:1200 in <lambda>" in text


@pytest.mark.parametrize(
    ("columns", "width", "left_out"),
    [("200", 100, ()), ("85", 85, ("of seen",)), ("60", 80, ("of seen",))],
)
def test_the_text_fits_the_terminal(monkeypatch, columns: str, width: int, left_out) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    lines = str(Report(FULL)).splitlines()
    assert width - 12 < max(map(len, lines)) <= width
    (header,) = [line for line in lines if line.startswith("#")]
    assert [name for name in ("of seen", "steps", "backward") if name not in header] == list(
        left_out
    )


def words(view: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", view).split())


def views(report: Report) -> tuple[str, str, str]:
    return words(str(report)), words(report.to_html()), words(report._repr_html_())


def test_a_clean_run_says_so() -> None:
    assert str(Report(contents(rows=1, calls=1, steps=1))) == (
        "safeops audit (observed, nothing changed; 1 optimizer step): nothing singular was met: "
        "1 row in 1\ncall of 5 lines\n"
        "not observed: compiled code, other threads, worker processes, fused kernels\n"
        "(safeops.patch.unreachable())"
    )
    assert "under policy 'zero'" in str(Report(contents(policy="zero")))


@pytest.mark.parametrize("found", [contents(), contents(calls=0, rows=0, lines=0), FULL])
def test_every_view_says_what_observing_does_not_see(found: Contents) -> None:
    unseen = "not observed: compiled code, other threads, worker processes, fused kernels"
    for view in views(Report(found)):
        assert unseen in view
    for view in views(Report(dataclasses.replace(found, policy="zero"))):
        assert "not observed" not in view


def test_a_run_without_a_covered_call_is_not_called_clean() -> None:
    for view in views(Report(contents(calls=0, rows=0, lines=0))):
        assert "no covered call was seen" in view
        assert "nothing singular" not in view


def test_hits_without_a_line_are_not_a_clean_run() -> None:
    text = str(Report(contents(**REST)))
    assert "4 singular rows forward and 3 backward, on 0 lines" in text.replace("\n", " ")


def test_many_lines_are_cut_short_in_text_and_fragment_alone() -> None:
    report = Report(MANY)
    assert "... and 10 more in report.sites" in str(report)
    assert " 20  /srv/train/model.py:20 in" in str(report)
    assert "model.py:21 in" not in str(report)
    assert "... and 10 more in report.sites" in report._repr_html_()
    assert 'id="line-30"' in report.to_html()


# JSON


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def test_json_has_everything_and_no_number_that_json_lacks() -> None:
    data = json.loads(Report(FULL).to_json(), parse_constant=refuse)
    assert data.pop("format") == "safeops.audit/1"
    assert set(data) == {field.name for field in dataclasses.fields(Contents)}
    first, second = data["sites"]
    assert second["largest_gradient"] == "nan"
    assert first["remedies"]["stock"] == {
        "value": "0",
        "gradient": ["g / eps"],
        "needs_eps": False,
    }
    assert first["suggestion"] == site().suggestion
    stack = tuple(Frame(**frame) for frame in first.pop("stack"))
    hits = first.pop("hits_per_step")
    assert (stack, hits) == (site().stack, {"width": 1, "counts": [0, 0, 0, 8, 8, 7]})
    for field in dataclasses.fields(AuditedLine):
        if field.name in first:
            expected = getattr(site(), field.name)
            assert first[field.name] == json.loads(json.dumps(expected)), field.name
    assert data["notices"] == [{"operator": "normalize", "condition": "rescued", "count": 1234}]
    assert data["unattributed"][0]["conditions"] == ["empty_row"]
    assert data["policy"] is None


def test_json_on_one_line() -> None:
    assert "\n" not in Report(FULL).to_json(indent=None)


# Page and fragment


class Page(HTMLParser):
    """Checks nesting; collects identifiers, links and text."""

    VOID = {"meta", "link", "br", "img", "input"}

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name == "id":
                self.ids.append(value or "")
            elif name in ("href", "xlink:href", "src"):
                self.links.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in self.VOID:
            self.open.pop()

    def handle_data(self, text: str) -> None:
        self.words.append(text)


def test_the_page_needs_nothing_else_and_its_links_lead_somewhere() -> None:
    text = Report(FULL).to_html()
    page = Page(text)
    assert page.links
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    assert all(link.startswith("#") for link in page.links)
    assert not re.search(r"@import|url\((?!#)", text)
    assert len(page.ids) == len(set(page.ids))
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert page.tags.count("svg") == 2
    assert page.tags.count("article") == 2


def test_what_comes_from_the_program_is_text(monkeypatch) -> None:
    monkeypatch.setattr("linecache.getlines", lambda name: [f"{HOSTILE}\n"] * 1300, raising=True)
    for view in (Report(FULL).to_html(), Report(contents(site(modules=(HOSTILE,)))).to_html()):
        page = Page(view)
        assert "script" not in page.tags
        assert HOSTILE in "".join(page.words)
    fragment = Report(contents(site(filename=HOSTILE)))._repr_html_()
    assert "script" not in Page(fragment).tags


def test_the_page_shows_the_source_around_a_line() -> None:
    line = test_the_page_shows_the_source_around_a_line.__code__.co_firstlineno
    text = Report(contents(site(filename=__file__, lineno=line))).to_html()
    here = re.search(r'<span class="here"><i>\s*(\d+)</i>  (.*?)</span>', text)
    assert here is not None
    assert (int(here[1]), here[2]) == (
        line,
        "def test_the_page_shows_the_source_around_a_line() -&gt; None:",
    )


def test_the_page_is_a_function_of_the_report() -> None:
    assert Report(FULL).to_html() == Report(FULL).to_html()


def test_a_clean_page_has_no_table_and_no_plot() -> None:
    page = Page(Report(contents()).to_html())
    assert not {"table", "svg"} & set(page.tags)
    assert any("nothing singular was met" in words for words in page.words)


def test_the_fragment_is_the_table() -> None:
    page = Page(Report(FULL)._repr_html_())
    assert page.open == [] and page.tags[0] == "div"
    assert page.tags.count("tr") == 3
    assert "1,000,000" in page.words


def test_without_matplotlib_page_and_plot_name_the_extra(monkeypatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text = Report(FULL).to_html()
    assert "svg" not in Page(text).tags
    assert "pip install safeops[report]" in text
    with pytest.raises(ImportError, match=r"Report.plot: .*pip install safeops\[report\]"):
        Report(FULL).plot()


# Of a real audit


def test_every_view_of_a_real_report(tmp_path) -> None:
    x = torch.zeros(3, 2, requires_grad=True)
    with safeops.audit() as report:
        torch.nn.functional.normalize(x, dim=-1).sum().backward()
    assert "test_report.py:" in str(report)
    assert json.loads(report.to_json())["sites"][0]["forward"] == 3
    assert "torch.nn.functional.normalize(x, dim=-1).sum().backward()" in report.to_html()
    assert "normalize" in report._repr_html_()


def test_importing_safeops_imports_no_view() -> None:
    code = (
        "import torch, sys; before = set(sys.modules); import safeops\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new & {'tabulate', 'jinja2', 'matplotlib', 'rich'}))"
    )
    done = in_subprocess(code)
    assert done.stdout.strip() == "[]", done.stderr
