"""What an address space decides in Metal, and cannot decide here: refused, as the wrong choice would tell nobody.

- `template <class T> struct Width<device T *>`: without address spaces it is chosen for every pointer.
- `f(T x)` beside `f(device T *x)`, or `f(device float *)` beside `f(const thread float *)`: one would take what in
  Metal is the other's.
- `is_same_v<T, device float *>`: true for every pointer to a float.

Nothing is refused where the choice makes no difference: where the texts are the same but for address spaces, where each
address space has its own, or where the other choice is an empty class, which no program can use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

from metal_dlpack.language import address_spaces, attributes, declarations
from metal_dlpack.language.address_spaces import Differing
from metal_dlpack.language.declarations import CLASS, FUNCTION, OTHER, Declaration
from metal_dlpack.language.declarators import SPACES
from metal_dlpack.language.diagnostics import source_error
from metal_dlpack.language.tokens import Tokens

_SPECIALISED = (
    "this specialisation is for one address space, and the declaration in line {} does something else for the others: "
    "without a Mac there is one address space"
)
_COMPARED = "'{}' compares address spaces: without a Mac there is one"
_EACH_SPACE = {"device", "thread", "threadgroup"}  # a pointer to `constant` is one to const
_COMPARISONS = {f"{name}{end}" for name in ("is_same", "is_convertible", "is_assignable") for end in ("", "_v")}
_BUILT_IN = {"__is_same", "__is_convertible", "__is_convertible_to", "__is_assignable"}
_JOINED = {"||", "::", "value", "metal"}
_POINTERS = {"*", "&", "&&"}
#: What may make another type of the one that is written.
_NOT_PLAIN = {"<", "decltype", "("}


@dataclass(frozen=True, slots=True)
class _Parameter:
    """A parameter's type without const and address spaces, and these."""

    words: list[str]
    spaces: frozenset[str]
    is_const: bool
    free: frozenset[str]  # the words that are parameters of the template

    def is_any(self) -> bool:
        """`T`, `T &`."""
        return self.words[:1] != [] and self.words[0] in self.free and set(self.words[1:]) <= {"&", "&&"}

    def is_any_pointer(self) -> bool:
        return self.words[-1:] == ["*"] and set(self.words[:-1]) <= self.free


class Choices:
    """What the names of a source's typedefs say of address spaces, and what is refused by it.

    differing: functions that an address space chooses between, and whose calls can be told apart.
    """

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._named: dict[str, set[str]] = {}
        self.differing: list[Differing] = []
        self._forbidden: dict[int, tuple[Declaration, Declaration]] = {}
        for name, declared, one in declarations.aliases(tokens):
            self._named[name] = self._spaces(tokens.words[declared.first : one.end])

    def _spaces(self, words: Iterable[str]) -> set[str]:
        """The address spaces that the words name, by themselves or by a typedef."""
        return {space for word in words for space in ([word] if word in SPACES else self._named.get(word, ()))}

    def refuse(self, found: list[Declaration]) -> None:
        """Raise SourceError for what an address space decides."""
        if not SPACES.isdisjoint(self._tokens.words):
            self._refuse_comparisons()
            self._refuse_declarations(found)

    def answer(self, tokens: Tokens) -> None:
        """Rewrite the questions that address spaces answer: two types that name different ones are not the same.

        Functions between which an address space may choose, unless a condition does, are refused where one is called.
        """
        for one, other in self._forbidden.values():
            address_spaces.forbid(tokens, other, one)
        for at, end, _ in self._comparisons(is_answered=True):
            tokens.drop(at + 1, end)
            prefix = "" if tokens.words[at - 1] == "::" else "metal::"
            tokens.words[at] = f"{prefix}false_type{'::value' if tokens.words[at] == 'is_same_v' else ''}"

    def _refuse_comparisons(self) -> None:
        for chain in self._chains():
            asked: dict[tuple[str, ...], set[str]] = {}
            keyed = [(tuple(address_spaces.without(self._tokens.words[one[0] : one[1]])), one) for one in chain]
            for key, (_, _, sides) in keyed:
                asked.setdefault(key, set()).update(*sides)
            for key, (at, _, sides) in keyed:
                is_decided = any(sides) and not all(side == sides[0] and len(side) == 1 for side in sides)
                if is_decided and not (asked[key] >= _EACH_SPACE and "const" not in key):
                    raise source_error(self._tokens, at, _COMPARED.format(self._tokens.words[at]))

    def _chains(self) -> Iterator[list[tuple[int, int, list[set[str]]]]]:
        """The comparisons, those together that `||` joins: asked for each address space, one is true here too."""
        chain: list[tuple[int, int, list[set[str]]]] = []
        for one in self._comparisons(is_answered=False):
            if chain and not _JOINED.issuperset(self._tokens.words[chain[-1][1] + 1 : one[0]]):
                yield chain
                chain = []
            chain.append(one)
        yield chain

    def _comparisons(self, *, is_answered: bool) -> Iterator[tuple[int, int, list[set[str]]]]:
        """Where a question about two types stands and ends, and the address spaces that each type names."""
        tokens = self._tokens
        words = tokens.words
        for at in [at for at, word in enumerate(words) if word in _COMPARISONS | _BUILT_IN]:
            end = tokens.after_angle(at + 1) - 1 if words[at + 1] == "<" else tokens.partner.get(at + 1, 0)
            sides = [self._spaces(words[first:last]) for first, last in tokens.split(at + 2, end)]
            is_plain = words[at] in {"is_same", "is_same_v"} and _NOT_PLAIN.isdisjoint(words[at + 2 : end])
            if (is_plain and all(sides) and len(sides) == 2 and sides[0] != sides[1]) == is_answered:
                yield at, end, sides

    def _refuse_declarations(self, found: list[Declaration]) -> None:
        groups: dict[tuple[object, ...], list[Declaration]] = {}
        for one in found:
            if one.kind in {CLASS, FUNCTION, OTHER}:
                groups.setdefault((one.namespaces, one.kind, self._name(one)), []).append(one)
                self._refuse_declarations(one.members)
        for (_, kind, name), group in groups.items():
            if len(group) > 1 and name:
                (self._refuse_overloads if kind == FUNCTION else self._refuse_specialisations)(group)

    def _name(self, one: Declaration) -> str:
        """That of an operator has its sign, that of a class's member outside of it the class."""
        words = self._tokens.words
        name = one.name(self._tokens)
        if not name and one.parameters is not None and "operator" in words[one.first : one.parameters]:
            name = " ".join(words[words.index("operator", one.first) : one.parameters])
        at = 0 if one.parameters is None else one.parameters - 1
        at = self._tokens.before_angle(at) if words[at] == ">" else at
        while words[at - 1] == "::":
            at -= 2
            name = f"{words[at]}::{name}"
        return name

    # ---- classes, and variables that are templates ----

    def _refuse_specialisations(self, group: list[Declaration]) -> None:
        same: dict[tuple[str, ...], list[Declaration]] = {}
        for one in group:
            words = address_spaces.without(self._arguments(one))
            same.setdefault(tuple(word for word in words if word), []).append(one)
        for key, alike in same.items():
            spaces = [self._spaces(self._arguments(one)) for one in alike]
            if not any(spaces) or (set().union(*spaces) >= _EACH_SPACE and all(len(one) == 1 for one in spaces)):
                continue
            for other in [other for others in same if others != key for other in same[others]]:
                if not self._is_empty(other) and not self._is_same_text(alike[0], other):
                    why = _SPECIALISED.format(self._tokens.place(other.first)[1])
                    raise source_error(self._tokens, alike[0].first, why)

    def _arguments(self, one: Declaration) -> list[str]:
        """The words of `<device T *>` behind the name."""
        tokens = self._tokens
        at, _ = declarations.after_template(tokens, one.first)
        name = one.name(tokens)
        while at < one.head_end and not (tokens.words[at] == name and tokens.words[at + 1] == "<"):
            at += 1
        return tokens.words[at + 2 : tokens.after_angle(at + 1) - 1] if at < one.head_end else []

    def _is_empty(self, one: Declaration) -> bool:
        """A class that is not defined, or has neither members nor bases."""
        if one.kind != CLASS or one.body is None:
            return one.body is None and self._tokens.words[one.head_end] == ";"
        return self._tokens.partner[one.body] == one.body + 1 and ":" not in self._tokens.words[one.first : one.body]

    # ---- functions ----

    def _refuse_overloads(self, group: list[Declaration]) -> None:
        defined = [(one, list(self._parameters(one))) for one in group]
        for (one, its), (other, others) in combinations(defined, 2):
            pairs = list(zip(its, others, strict=False))
            is_repeated = (one.body is None) != (other.body is None)  # to declare it and to define it are no two
            if is_repeated or len(its) != len(others) or not _can_be_one_call(pairs):
                continue
            if any(_differ_in_spaces(*pair) for pair in pairs) and not self._is_same_text(one, other):
                asked = [self._condition(each) for each in (one, other)]
                if not any(asked):
                    self.differing += address_spaces.differ(self._tokens, one, other)
                    continue
                if asked[0] != asked[1] and all(asked):
                    continue  # the conditions choose
                # A condition beside a class template's own function is not meant for that class.
                for own, each, beside, taken in ((asked[0], one, other, others), (asked[1], other, one, its)):
                    if all(asked) or not own or not any("<" in parameter.words for parameter in taken):
                        self._forbidden[id(each)] = (each, beside)

    def _condition(self, one: Declaration) -> list[str]:
        """Its words, with the template's parameters called by their places."""
        places = {name: str(nth) for nth, name in enumerate(self._free(one))}
        return [places.get(word, word) for word in address_spaces.condition(self._tokens, one)]

    def _parameters(self, one: Declaration) -> Iterator[_Parameter]:
        """Yield a function's parameters, and the object that a member function is called on."""
        tokens = self._tokens
        assert one.parameters is not None
        free = frozenset(self._free(one))
        close = tokens.partner[one.parameters]
        for first, end in tokens.split(one.parameters + 1, close):
            yield self._parameter(address_spaces.type_of_parameter(tokens, first, end), free)
        if one.is_member and not one.is_constructor:
            after = attributes.left_out(tokens, close + 1, one.head_end)
            yield self._parameter([word for word in after if word in {*SPACES, "const"}] + ["this", "*"], free)

    def _parameter(self, words: list[str], free: frozenset[str]) -> _Parameter:
        left = [word for word in words if word and word not in {"const", "volatile", "typename", *SPACES}]
        return _Parameter(left, frozenset(self._spaces(words)), "const" in words or "constant" in words, free)

    def _free(self, one: Declaration) -> Iterator[str]:
        """The names of the template's parameters."""
        tokens = self._tokens
        at = one.first
        while tokens.words[at] == "template" and (after := tokens.after_angle(at + 1)) > at + 1:
            for first, end in tokens.split(at + 2, after - 1):
                words = tokens.words[first:end]
                yield from (words[: words.index("=")] if "=" in words else words)[-1:]
            at = after

    def _is_same_text(self, one: Declaration, other: Declaration) -> bool:
        """Compare what follows the head, with the bases of a class."""
        texts = []
        for each in (one, other):
            head = self._tokens.words[each.first : each.head_end]
            bases = head[head.index(":") :] if each.kind == CLASS and ":" in head else []
            texts.append([*bases, *address_spaces.rest(self._tokens, each)])
        return texts[0] == texts[1]


def _can_be_one_call(pairs: list[tuple[_Parameter, _Parameter]]) -> bool:
    """True if one call can choose between the two, once address spaces are gone.

    A template's parameter is one type in all of them: T is not both an `int3` and what another template calls U.
    """
    bound: dict[tuple[int, str], set[str]] = {}
    for a, b in pairs:
        for nth, (one, other) in enumerate([(a, b), (b, a)]):
            if one.is_any():
                bound.setdefault((nth, one.words[0]), set()).add(" ".join(other.words).rstrip("& "))
        if a.is_any() or b.is_any():
            continue
        if len(a.words) != len(b.words):
            return False
        for x, y in zip(a.words, b.words, strict=True):
            if x != y and x not in a.free and y not in b.free:
                return False
            for nth, word, free, its in ((0, x, a.free, y), (1, y, b.free, x)):
                if word in free:
                    bound.setdefault((nth, word), set()).add(its)
    return all(len(words) == 1 for words in bound.values())


def _differ_in_spaces(a: _Parameter, b: _Parameter) -> bool:
    """True if an address space chooses one of them for an argument that the other would take as well."""
    if a.spaces == b.spaces or not all(one.is_any() or _POINTERS.intersection(one.words) for one in (a, b)):
        return False
    for one, other in ((a, b), (b, a)):
        # `constant T *` is `const T *` here, and nothing else that is const is meant for the other one.
        if other.spaces == {"constant"} and not one.is_const and not one.is_any() and not one.is_any_pointer():
            return False
    return True
