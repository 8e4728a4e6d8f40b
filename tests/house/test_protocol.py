"""The rules of the exchange: each has a test and a place in the source, and a row of the page that is made of them."""

import protocol
from places import INSIDE
from protocol_rules import RULES


def test_every_rule_has_a_test_a_place_and_a_row():
    places, tests = protocol.places(), protocol.tests()
    assert set(tests) == protocol.IDS, "a rule has no test, or a test names no rule"
    assert [rule for rule in protocol.IDS if not places[rule]] == []
    page = protocol.document(places, tests)
    assert [rule for rule in protocol.IDS if page.count(f"\n| `{rule}` |") != 1] == []
    assert f"a place in the source | {len(protocol.IDS)} |" in (INSIDE / "reliability.md").read_text()


def test_rules_are_sentences_with_sources():
    for rules in RULES.values():
        for identifier, (source, sentence) in rules.items():
            assert sentence.endswith("."), identifier
            assert source, identifier
            assert "|" not in sentence + source, identifier
