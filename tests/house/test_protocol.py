"""The rules of the exchange: each has a test and a place in the source, and a row of the page that is made of them."""

import importlib.util

import pytest
from places import TOOLS


@pytest.fixture(scope="module")
def protocol():
    spec = importlib.util.spec_from_file_location("protocol", TOOLS / "protocol.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_rule_has_a_test_and_a_place(protocol):
    places, tests = protocol.places(), protocol.tests()
    assert [rule for rule in protocol.IDS if not tests[rule]] == []
    assert [rule for rule in protocol.IDS if not places[rule]] == []


def test_every_rule_that_a_test_names_is_in_the_table(protocol):
    assert set(protocol.tests()) <= protocol.IDS


def test_the_page_has_a_row_for_every_rule(protocol):
    page = protocol.document()
    assert [rule for rule in protocol.IDS if page.count(f"\n| `{rule}` |") != 1] == []


def test_rules_are_sentences_with_sources(protocol):
    for rules in protocol.RULES.values():
        for identifier, (source, sentence) in rules.items():
            assert sentence.endswith("."), identifier
            assert source, identifier
            assert "|" not in sentence + source, identifier
