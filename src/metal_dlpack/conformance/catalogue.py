"""All rules, in the order in which they are tried and shown."""

from __future__ import annotations

from . import consumer_cases, consumer_types, copy_cases, exchange_cases, lifetime_cases, producer_cases, producer_types
from .rules import Rule, Side

__all__ = ["RULES", "rules_of"]

RULES: tuple[Rule, ...] = (
    *producer_cases.RULES,
    *producer_types.RULES,
    *copy_cases.RULES,
    *exchange_cases.RULES,
    *consumer_cases.RULES,
    *consumer_types.RULES,
    *lifetime_cases.RULES,
)


def rules_of(side: Side) -> list[Rule]:
    return [rule for rule in RULES if rule.side == side]
