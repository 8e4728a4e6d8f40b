"""The rules of the exchange: each has a test and a place in the source, and a row of the page that is made of them."""

import protocol
from places import INSIDE, SUPPORT


def test_every_rule_has_a_test_a_place_and_a_row():
    places, tests = protocol.places(), protocol.tests()
    assert set(tests) == protocol.IDS, "a rule has no test, or a test names no rule"
    assert [rule for rule in protocol.IDS if not places[rule]] == []
    page = protocol.document(places, tests)
    assert [rule for rule in protocol.IDS if page.count(f"\n| `{rule}` |") != 1] == []
    assert f"a place in the source | {len(protocol.IDS)} |" in (INSIDE / "reliability.md").read_text()


def test_every_row_of_the_table_is_a_rule_whose_sentence_ends():
    table = (SUPPORT / "protocol_rules.md").read_text()
    assert table.count("\n| `") == len(protocol.IDS) > 70
    assert [rule for rules in protocol.RULES.values() for rule, row in rules.items() if not row[0].endswith(".")] == []
