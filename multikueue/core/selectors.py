# SPDX-License-Identifier: Apache-2.0
"""Label selectors and node selector terms.

Owns matching and the text form that `-l` and the list API accept. An invalid selector is rejected with `BadInput` when
it is created.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from multikueue.core.errors import BadInput
from multikueue.core.parsing import parse_signed

_SET_OPERATORS = frozenset({"In", "NotIn"})
_PRESENCE_OPERATORS = frozenset({"Exists", "DoesNotExist"})
_NUMERIC_OPERATORS = frozenset({"Gt", "Lt"})


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression on one key: In, NotIn, Exists, DoesNotExist, and for nodes Gt and Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.operator in _SET_OPERATORS:
            if not self.values:
                raise BadInput(f"{self.key}: {self.operator} needs at least one value")
        elif self.operator in _PRESENCE_OPERATORS:
            if self.values:
                raise BadInput(f"{self.key}: {self.operator} takes no values, got {', '.join(self.values)}")
        elif self.operator in _NUMERIC_OPERATORS:
            if len(self.values) != 1:
                raise BadInput(f"{self.key}: {self.operator} needs exactly one value, got {len(self.values)}")
        else:
            raise BadInput(f"{self.key}: unknown operator {self.operator!r}")

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether `labels` satisfy the expression; a missing key satisfies NotIn and DoesNotExist."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case _:
                return value is not None and self._compare(value)

    def _compare(self, value: str) -> bool:
        try:
            actual, wanted = parse_signed(value, field=self.key), parse_signed(self.values[0], field=self.key)
        except BadInput:
            return False
        return actual > wanted if self.operator == "Gt" else actual < wanted

    def __str__(self) -> str:
        match self.operator:
            case "In" if len(self.values) == 1:
                return f"{self.key}={self.values[0]}"
            case "NotIn" if len(self.values) == 1:
                return f"{self.key}!={self.values[0]}"
            case "In" | "NotIn":
                return f"{self.key} {self.operator.lower()} ({','.join(sorted(self.values))})"
            case "Exists":
                return self.key
            case "DoesNotExist":
                return f"!{self.key}"
            case _:
                return f"{self.key}{'>' if self.operator == 'Gt' else '<'}{self.values[0]}"


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All requirements must hold; an empty selector matches everything."""

    requirements: tuple[Requirement, ...] = ()

    @classmethod
    def of(cls, labels: Mapping[str, str]) -> LabelSelector:
        """The selector of `matchLabels`."""
        return cls(tuple(Requirement(key, "In", (value,)) for key, value in sorted(labels.items())))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with `labels` is selected."""
        return all(requirement.matches(labels) for requirement in self.requirements)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


_TERM = re.compile(
    r"\s*(?:!\s*(?P<absent>[^\s,=!<>()]+)"
    r"|(?P<key>[^\s,=!<>()]+)\s*(?:(?P<operator>==|=|!=|<|>)\s*(?P<value>[^\s,=!<>()]*)"
    r"|\s(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?)\s*(?:,|$)"
)
_OPERATORS = {"=": "In", "==": "In", "!=": "NotIn", "<": "Lt", ">": "Gt", "in": "In", "notin": "NotIn"}


def parse_selector(text: str) -> LabelSelector:
    """The selector written as `a=b,c in (x,y),!d`; empty text matches everything. Raises `BadInput`."""
    requirements = []
    position = 0
    while position < len(text):
        match = _TERM.match(text, position)
        if match is None or match.end() == position:
            raise BadInput(f"selector {text!r}: cannot read {text[position:]!r}")
        position = match.end()
        if match["absent"]:
            requirements.append(Requirement(match["absent"], "DoesNotExist"))
        elif match["operator"]:
            requirements.append(Requirement(match["key"], _OPERATORS[match["operator"]], (match["value"],)))
        elif match["set"]:
            values = tuple(sorted(value.strip() for value in match["values"].split(",")))
            requirements.append(Requirement(match["key"], _OPERATORS[match["set"]], values))
        else:
            requirements.append(Requirement(match["key"], "Exists"))
    return LabelSelector(tuple(requirements))


@dataclass(frozen=True, slots=True)
class NodeSelectorTerm:
    """Expressions over a node's labels and fields, all of which must hold; an empty term matches nothing."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
        """Whether a node with `labels` and `fields` (`metadata.name`) matches the term."""
        if not self.expressions and not self.fields:
            return False
        return all(r.matches(labels) for r in self.expressions) and all(r.matches(fields) for r in self.fields)
