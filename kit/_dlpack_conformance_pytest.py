"""The pytest plugin of dlpack_conformance: one test for each rule of DLPack, for the libraries that are named.

pytest imports this module in every run of everybody who has the kit installed.  So it stands outside of the
package, and imports the package only when an option is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dlpack_conformance import Result, Rule

KNOWN = "dlpack_known_failures"
#: (side, library): what became of the rules that this run selected, or why there is nothing to judge.
_results = pytest.StashKey[dict[tuple[str, str], "dict[str, Result] | str"]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("dlpack", "the rules of DLPack, a test for each: dlpack_conformance")
    name = "numpy, torch, ... or module:attribute, a Library of yours"
    group.addoption("--dlpack-producer", action="append", default=[], metavar="NAME", help=f"judge a producer: {name}")
    group.addoption("--dlpack-consumer", action="append", default=[], metavar="NAME", help="judge a consumer")
    parser.addini(
        KNOWN, "rules that are expected to fail, a line each: consumer copy-true", type="linelist", default=[]
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "dlpack: a rule of DLPack, tried by --dlpack-producer or --dlpack-consumer")
    config.stash[_results] = {}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add the rules, before -k and -m choose."""
    asked = {"producer": config.option.dlpack_producer, "consumer": config.option.dlpack_consumer}
    if not any(asked.values()):
        return
    from dlpack_conformance import RULES

    known = known_failures(config)
    for rule in RULES:
        for library in dict.fromkeys(asked[rule.side]):
            name = f"{library}::{rule.side}::{rule.name}"
            item: RuleItem = RuleItem.from_parent(session, name=name, nodeid=f"dlpack::{name}")
            item.library, item.rule = library, rule
            item.add_marker("dlpack")
            if (rule.side, rule.name) in known:
                item.add_marker(pytest.mark.xfail(raises=Lost, reason=f"in {KNOWN}", strict=True))
            items.append(item)


def known_failures(config: pytest.Config) -> set[tuple[str, str]]:
    """The (side, rule) of each line; one that names no rule is an error, so that the list stays true."""
    from dlpack_conformance import RULES

    known = {tuple(line.split()) for line in config.getini(KNOWN)}
    unknown = known - {(rule.side, rule.name) for rule in RULES}
    if unknown:
        raise pytest.UsageError(
            f"{KNOWN}: there is no rule {' '.join(sorted(unknown)[0])!r}; write: consumer copy-true"
        )
    return known


class Lost(Exception):
    """A rule is broken."""


class NotJudged(Exception):
    """The library cannot be imported, or nothing has its name."""


class RuleItem(pytest.Item):
    """One rule, for one library."""

    library: str
    rule: Rule

    def runtest(self) -> None:
        result = self.result()
        if result.outcome == "absent":
            pytest.skip(f"does not apply: {result.happened}")
        if result.outcome == "broken" and self.rule.level == "should":
            pytest.skip(f"advice: {result.happened}")
        if result.outcome == "broken":
            raise Lost(result.happened)

    def result(self) -> Result:
        """From one batch for all rules of this library and side that the run has."""
        from dlpack_conformance import Missing, judge

        key, results = (self.rule.side, self.library), self.config.stash[_results]
        if key not in results:
            chosen = [item for item in self.session.items if isinstance(item, RuleItem)]
            names = [item.rule.name for item in chosen if (item.rule.side, item.library) == key]
            try:
                report = judge(self.rule.side, self.library, names)
            except Missing as missing:
                results[key] = str(missing)
            else:
                results[key] = {result.rule.name: result for result in report.results}
        if isinstance(found := results[key], str):
            raise NotJudged(found)
        return found[self.rule.name]

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, NotJudged):
            return str(excinfo.value)
        if not isinstance(excinfo.value, Lost):
            return super().repr_failure(excinfo, style)
        source = self.rule.source
        return f"happened: {excinfo.value}\nstandard: {self.rule.says}\nsource:   {source.title}: {source.url}"

    def reportinfo(self) -> tuple[Any, int | None, str]:
        return self.path, None, self.name
