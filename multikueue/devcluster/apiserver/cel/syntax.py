# SPDX-License-Identifier: Apache-2.0
"""Text of an expression to its tree.

Owns the lexer and a precedence-climbing parser. Macros (`has`, `all`, `exists`, `exists_one`, `map`, `filter`) are
ordinary calls here and get their meaning in `compile`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeAlias


class CelError(Exception):
    """An expression that cannot be read or evaluated; the message says why."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    value: object


@dataclass(frozen=True, slots=True)
class Name:
    """A variable."""

    name: str


@dataclass(frozen=True, slots=True)
class Field:
    """`operand.name`, or `operand.?name`."""

    operand: Tree
    name: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    """`operand[index]`, or `operand[?index]`."""

    operand: Tree
    index: Tree
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A function, a method when there is a target, or an operator by its symbol."""

    function: str
    target: Tree | None
    arguments: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class ListOf:
    """`[a, b]`."""

    items: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class MapOf:
    """`{a: b}`."""

    items: tuple[tuple[Tree, Tree], ...]


Tree: TypeAlias = "Literal | Name | Field | Index | Call | ListOf | MapOf"

_TOKEN: Final = re.compile(
    r"\s+|//[^\n]*"
    r"|(?P<float>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+)"
    r"|(?P<hex>0[xX][0-9a-fA-F]+)[uU]?"
    r"|(?P<int>\d+)[uU]?"
    r"|(?P<string>[bB]?[rR]?(?:'''(?:[^\\]|\\.)*?'''|\"\"\"(?:[^\\]|\\.)*?\"\"\"|'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"))"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<symbol>&&|\|\||[<>=!]=|[-+*/%<>!?:.,()\[\]{}])",
    re.DOTALL,
)
_LEVELS: Final = (
    ("||",),
    ("&&",),
    ("==", "!=", "<", "<=", ">", ">=", "in"),
    ("+", "-"),
    ("*", "/", "%"),
)
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def parse(text: str) -> Tree:
    """The tree of an expression. Raises `CelError`."""
    parser = _Parser(text)
    tree = parser.ternary()
    parser.end()
    return tree


def _tokens(text: str) -> list[tuple[str, str]]:
    found = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise CelError(f"Syntax error: token recognition error at: '{text[position]}'")
        position = match.end()
        kind = match.lastgroup
        if kind is not None:
            found.append((kind, match[kind]))
    return found


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._position = 0

    def end(self) -> None:
        if self._position < len(self._tokens):
            raise CelError(f"Syntax error: extraneous input '{self._tokens[self._position][1]}'")

    def ternary(self) -> Tree:
        condition = self._binary(0)
        if not self._take("?"):
            return condition
        yes = self._binary(0)
        self._need(":")
        return Call("?:", None, (condition, yes, self.ternary()))

    def _binary(self, level: int) -> Tree:
        if level == len(_LEVELS):
            return self._unary()
        left = self._binary(level + 1)
        while (operator := self._peek()) in _LEVELS[level] and self._kind() in ("symbol", "name"):
            self._position += 1
            left = Call(operator, None, (left, self._binary(level + 1)))
        return left

    def _unary(self) -> Tree:
        if self._take("!"):
            return Call("!", None, (self._unary(),))
        if self._take("-"):
            inner = self._unary()
            if isinstance(inner, Literal) and isinstance(inner.value, int | float):
                return Literal(-inner.value)
            return Call("neg", None, (inner,))
        return self._postfix(self._primary())

    def _postfix(self, tree: Tree) -> Tree:
        while True:
            if self._take("."):
                optional = self._take("?")
                name = self._name()
                tree = Call(name, tree, self._arguments(")")) if self._take("(") else Field(tree, name, optional)
            elif self._take("["):
                optional = self._take("?")
                index = self.ternary()
                self._need("]")
                tree = Index(tree, index, optional)
            else:
                return tree

    def _primary(self) -> Tree:
        if self._position >= len(self._tokens):
            raise CelError("Syntax error: mismatched input '<EOF>'")
        kind, text = self._tokens[self._position]
        self._position += 1
        match kind:
            case "int":
                return Literal(int(text))
            case "hex":
                return Literal(int(text, 16))
            case "float":
                return Literal(float(text))
            case "string":
                return Literal(_string(text))
            case "name":
                if text in _CONSTANTS:
                    return Literal(_CONSTANTS[text])
                if self._take("("):
                    return Call(text, None, self._arguments(")"))
                return Name(text)
        if text == "(":
            tree = self.ternary()
            self._need(")")
            return tree
        if text == "[":
            return ListOf(self._arguments("]"))
        if text == "{":
            return MapOf(self._entries())
        raise CelError(f"Syntax error: mismatched input '{text}'")

    def _arguments(self, close: str) -> tuple[Tree, ...]:
        found: list[Tree] = []
        while not self._take(close):
            if found:
                self._need(",")
                if self._take(close):
                    break
            found.append(self.ternary())
        return tuple(found)

    def _entries(self) -> tuple[tuple[Tree, Tree], ...]:
        found: list[tuple[Tree, Tree]] = []
        while not self._take("}"):
            if found:
                self._need(",")
            key = self.ternary()
            self._need(":")
            found.append((key, self.ternary()))
        return tuple(found)

    def _peek(self) -> str:
        return self._tokens[self._position][1] if self._position < len(self._tokens) else ""

    def _kind(self) -> str:
        return self._tokens[self._position][0] if self._position < len(self._tokens) else ""

    def _take(self, symbol: str) -> bool:
        if self._kind() == "symbol" and self._peek() == symbol:
            self._position += 1
            return True
        return False

    def _need(self, symbol: str) -> None:
        if not self._take(symbol):
            raise CelError(f"Syntax error: missing '{symbol}' at '{self._peek() or '<EOF>'}'")

    def _name(self) -> str:
        if self._kind() != "name":
            raise CelError(f"Syntax error: no viable alternative at input '.{self._peek()}'")
        self._position += 1
        return self._tokens[self._position - 1][1]


def _string(text: str) -> str:
    raw = False
    while text[0] in "bBrR":
        raw = raw or text[0] in "rR"
        text = text[1:]
    quote = 3 if text[:3] in ("'''", '"""') else 1
    body = text[quote:-quote]
    if raw:
        return body
    return re.sub(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|.)", _escape, body, flags=re.DOTALL)


def _escape(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] in "xuU" and len(code) > 1:
        return chr(int(code[1:], 16))
    if code[0] in "01234567" and len(code) == 3:
        return chr(int(code, 8))
    return _ESCAPES.get(code, code)
