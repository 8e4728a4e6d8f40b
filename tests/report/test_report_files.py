"""A report as a file: JSON by its own schema, SARIF by the official one, a page that a browser shows."""

import html.parser
import json
import os
import re
from pathlib import Path

import fetched_data
import pytest
from places import SRC
from seeded import SEEDED

from softmetal.report import advice, building, files, page, sarif, silences, text

jsonschema = pytest.importorskip("jsonschema")
pytestmark = [pytest.mark.needs_kernels, pytest.mark.needs_softmetal]

PACKAGE = Path(building.__file__).parent
KINDS = set(json.loads((PACKAGE / "schema.json").read_text())["$defs"]["finding"]["properties"]["kind"]["enum"])


@pytest.fixture
def report(reported):
    """A report with a defect of each kernel, one of them silenced, and a silence that is not needed."""
    silences.read("total:11 seen\nnone:1 not needed\n", "b.txt")

    chosen = [one for one in SEEDED.values() if len(one.defects) > 1]

    def run():
        for seeded in chosen:
            seeded.run(seeded.defects[-1])
        SEEDED["total"].run()

    found = reported(run)
    assert len(found["findings"]) >= len(chosen)
    assert [one["silenced"] is None for one in found["findings"]].count(False) == 1
    return found


def written(report, path):
    files.write(report, str(path))
    return path.read_text()


def test_the_json_is_as_its_schema_says(report, tmp_path):
    schema = json.loads((PACKAGE / "schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    assert json.loads(written(report, tmp_path / "r.json")) == report
    jsonschema.Draft202012Validator(schema).validate(report)


def test_each_kind_is_in_the_schema_and_has_a_rule():
    header = (SRC / "softmetal" / "checker" / "finding.h").read_text()
    kinds = set(re.findall(r'X\(SOFT_FOUND_\w+, "([\w-]+)"\)', header))
    assert kinds | set(advice.KINDS) == KINDS == set(sarif.RULES)


def test_sarif_is_as_the_official_schema_says(report, tmp_path):
    schema = json.loads(fetched_data.file("sarif-2.1.0").read_text())
    jsonschema.validators.validator_for(schema)(schema).validate(json.loads(written(report, tmp_path / "r.sarif")))


def test_sarif_names_both_threads_at_files_below_the_root(report):
    (run,) = sarif.sarif_of(report)["runs"]
    rules = [one["id"] for one in run["tool"]["driver"]["rules"]]
    assert rules == sorted({one["kind"] for one in report["findings"]})
    for finding, result in zip(report["findings"], run["results"], strict=True):
        assert rules[result["ruleIndex"]] == result["ruleId"] == finding["kind"]
        for access, place in zip(finding["accesses"], result["relatedLocations"], strict=True):
            physical = place["physicalLocation"]
            assert physical["region"]["startLine"] == access["line"]
            assert physical["artifactLocation"]["uriBaseId"] == "%SRCROOT%"
            assert not physical["artifactLocation"]["uri"].startswith(("/", "file:"))
            assert f"Thread {text.triple(access['thread'])} of threadgroup" in place["message"]["text"]
        assert result["locations"][0]["physicalLocation"] == result["relatedLocations"][0]["physicalLocation"]
        assert ("suppressions" in result) == (finding["silenced"] is not None)


def test_a_fingerprint_stays_when_lines_are_added_above(report):
    def marks(report):
        return [one["partialFingerprints"] for one in sarif.sarif_of(report)["runs"][0]["results"]]

    moved = json.loads(json.dumps(report))
    for finding in moved["findings"]:
        for access in finding["accesses"]:
            access["line"] += 7
            access["context"] = [[number + 7, line] for number, line in access["context"]]
    assert marks(moved) == marks(report)
    assert len({str(one) for one in marks(report)}) == len(report["findings"])


class _Page(html.parser.HTMLParser):
    """Are all elements closed, and what is asked for from elsewhere?"""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.asked = [], set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.asked += [value for name, value in attrs if name in {"src", "href"} or name.startswith("on")]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_has_no_scripts_and_escapes_what_it_shows(report, tmp_path):
    report["program"] = ["<script>alert(1)</script>", "&"]
    report["findings"][0]["accesses"][0]["context"][0][1] = "</pre><img src=x>"
    content = written(report, tmp_path / "r.html")
    read = _Page()
    read.feed(content)
    assert (read.open, read.asked) == ([], [])
    assert read.tags.isdisjoint({"script", "img", "link", "iframe"})
    for finding in report["findings"]:
        assert finding["kind"] in content
        for access in finding["accesses"]:
            assert f"{text.shown(report, access['file'])}:{access['line']}" in content


@pytest.mark.long
@pytest.mark.parametrize("width", [400, 1000])
def test_a_browser_shows_the_page_light_and_dark(report, tmp_path, browser, width):
    """Ground and text differ in both, and nothing but code and tables is wider than the window."""
    written(report, tmp_path / "r.html")
    grounds = {}
    for scheme in ("light", "dark"):
        with browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 800}) as tab:
            tab.goto((tmp_path / "r.html").as_uri())
            style = "getComputedStyle(document.body)"
            grounds[scheme] = tab.evaluate(f"[{style}.backgroundColor, {style}.color]")
            assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert tab.locator("article").count() == len(report["findings"])
    assert grounds["light"] == grounds["dark"][::-1] or len({*grounds["light"], *grounds["dark"]}) == 4


def test_a_report_of_several_processes_counts_what_is_the_same_once(report):
    twice = building.merged([report, json.loads(json.dumps(report))])
    assert [one["text"] for one in twice["findings"]] == [one["text"] for one in report["findings"]]
    for one, two in zip(report["findings"], twice["findings"], strict=True):
        assert (two["launches"], two["times"]) == (2 * one["launches"], 2 * one["times"])
    assert {(one["name"], one["launches"]) for one in twice["kernels"]} == {
        (one["name"], 2 * one["launches"]) for one in report["kernels"]
    }


def test_what_had_no_room_is_said_in_each_form(report, tmp_path):
    said = "8,976 are not in this report."
    for lost in (0, 8976):
        report["lost"] = lost
        forms = [text.text_of(report), *(written(report, tmp_path / f"{lost}.{end}") for end in ("html", "sarif"))]
        assert [form.count(said) for form in forms] == [bool(lost)] * 3
    schema = json.loads(fetched_data.file("sarif-2.1.0").read_text())
    jsonschema.validators.validator_for(schema)(schema).validate(json.loads(forms[-1]))


def test_a_failed_write_leaves_the_old_file(report, tmp_path):
    path = tmp_path / "r.json"
    path.write_text("old")
    report["program"] = [object()]  # no JSON
    with pytest.raises(TypeError):
        files.write(report, str(path))
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["r.json"]


def test_the_command_of_the_page_says_how_much_there_is(report):
    assert text.summary(report).partition("; ")[0] in page.page_of(report)
    assert text.text_of(report).startswith(f"softmetal: {text.summary(report)}\n")
