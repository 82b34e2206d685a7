# SPDX-License-Identifier: Apache-2.0
"""The parser of expressions: a lexer and precedence climbing.

Macros (`has`, `all`, `exists`, `exists_one`, `map`, `filter`) are ordinary calls here and get their meaning in
`checker` and `compile`. Every node has its position.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from devcluster.apiserver.cel.trees import (
    Call,
    Entry,
    Field,
    Index,
    ListOf,
    Literal,
    MapOf,
    MessageOf,
    Name,
    Tree,
    qualified,
)


class CelError(Exception):
    """An expression that cannot be parsed or evaluated; `at` is the position of a parse error."""

    def __init__(self, message: str, *, at: int = 0, before: tuple[CelError, ...] = ()) -> None:
        super().__init__(message)
        self.at = at
        self.before = before
        """Earlier parse errors, further to the left."""


def located(text: str, at: int, message: str) -> str:
    """An error with its position and the line, as the language shows it."""
    if at < 0:
        return f"ERROR: <input>:-1:0: {message}"
    before, line = text[:at].rpartition("\n")[2], text[:at].count("\n")
    dots = "".join("." if char.isascii() else "．" for char in before)
    return f"ERROR: <input>:{line + 1}:{len(before) + 1}: {message}\n | {text.split(chr(10))[line]}\n | {dots}^"


_TOKEN: Final = re.compile(
    r"\s+|//[^\n]*"
    r"|(?P<float>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+)"
    r"|(?P<hex>0[xX][0-9a-fA-F]+)[uU]?"
    r"|(?P<int>\d+)[uU]?"
    r"|(?P<string>[bB]?[rR]?(?:'''(?:[^\\]|\\.)*?'''|\"\"\"(?:[^\\]|\\.)*?\"\"\"|'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"))"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<escaped>`[A-Za-z0-9_.\-/ ]+`)"
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
_LEVEL_OF: Final = {symbol: level for level, symbols in enumerate(_LEVELS) for symbol in symbols}
_CONSTANTS: Final[dict[str, tuple[object, str]]] = {
    "true": (True, "bool"),
    "false": (False, "bool"),
    "null": (None, "null"),
}
_RESERVED: Final = frozenset(
    {
        *("as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package"),
        *("namespace", "return", "var", "void", "while"),
    }
)
_LONGEST: Final = 100_000
_DEEPEST: Final = 250
_TOO_DEEP: Final = f"expression recursion limit exceeded: {_DEEPEST}"
_BEGINNINGS: Final = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


@lru_cache(maxsize=512)
def parse(text: str) -> Tree:
    """The tree of an expression. Raises `CelError`."""
    if len(text) > _LONGEST:
        limits = f"size: {len(text)}, limit {_LONGEST}"
        raise CelError(f"expression code point size exceeds limit: {limits}", at=-1)
    tokens, wrong = _tokens(text)
    parser = _Parser(text, tokens)
    try:
        tree = parser.ternary()
        parser.end()
    except RecursionError:
        raise CelError(_TOO_DEEP, at=-1) from None
    except CelError as error:
        if not wrong or error.at < 0:
            raise
        raise CelError(str(error), at=error.at, before=tuple(wrong)) from error
    if wrong:
        raise CelError(str(wrong[-1]), at=wrong[-1].at, before=tuple(wrong[:-1]))
    return tree


def _tokens(text: str) -> tuple[list[_Token], list[CelError]]:
    """The tokens, and an error for each character that belongs to none."""
    found, wrong = [], []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            length = 1
            if text[position] in "=&|":
                length = 2  # a lexer that expects a second character reports both
            elif text[position] in "'\"":
                length = len(text[position:].partition("\n")[0])
            unknown = text[position : position + length]
            wrong.append(CelError(f"Syntax error: token recognition error at: '{unknown}'", at=position))
            position += length
            continue
        kind = match.lastgroup
        if kind is not None:
            found.append(_Token(kind, match[kind], position))
        position = match.end()
    return [*found, _Token("end", "<EOF>", len(text))], wrong


class _Parser:
    def __init__(self, text: str, tokens: list[_Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._position = 0
        self._depth = 0

    def end(self) -> None:
        if self._next.kind != "end":
            what = "extraneous" if self._tokens[self._position + 1].kind == "end" else "mismatched"
            raise self._wrong(f"{what} input '{self._next.text}' expecting <EOF>")

    def ternary(self) -> Tree:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise CelError(_TOO_DEEP, at=-1)
        found = self._ternary()
        self._depth -= 1
        return found

    def _ternary(self) -> Tree:
        condition = self._binary(0)
        at = self._next.at
        if not self._take("?"):
            return condition
        yes = self._binary(0)
        self._need(":")
        return Call("?:", None, (condition, yes, self.ternary()), at)

    def _binary(self, level: int) -> Tree:
        """Operators of this level and of those that bind more."""
        left = self._unary()
        count = 0
        while (token := self._next).kind in ("symbol", "name"):
            found = _LEVEL_OF.get(token.text, -1)
            if found < level:
                break
            self._position += 1
            count += found > 1
            if self._depth + count > _DEEPEST:
                raise CelError("max recursion depth exceeded", at=-1)
            left = Call(token.text, None, (left, self._binary(found + 1)), token.at)
        return left

    def _unary(self) -> Tree:
        at = self._next.at
        for symbol, function in (("!", "!"), ("-", "neg")):
            if self._take(symbol):
                odd = True
                while self._take(symbol):
                    odd = not odd
                inner = self._unary()
                if not odd:
                    return inner
                if symbol == "-" and isinstance(inner, Literal) and isinstance(inner.value, int | float):
                    return Literal(-inner.value, inner.type, at)
                return Call(function, None, (inner,), at)
        return self._postfix(self._primary())

    def _postfix(self, tree: Tree) -> Tree:
        while True:
            at = self._next.at
            if self._take("."):
                optional = self._take("?")
                name, open = self._name(), self._next.at
                if self._take("("):
                    tree = Call(name, tree, self._arguments(")"), open)
                else:
                    tree = Field(tree, name, optional, at)
            elif self._take("["):
                optional = self._take("?")
                index = self.ternary()
                self._need("]")
                tree = Index(tree, index, optional, at)
            elif (spelled := qualified(tree)) is not None and self._take("{"):
                tree = MessageOf(spelled, self._fields(), at)
            else:
                return tree

    def _primary(self) -> Tree:
        token = self._next
        text, at = token.text, token.at
        if token.kind == "end":
            raise self._wrong(f"mismatched input '<EOF>' expecting {_BEGINNINGS}")
        self._position += 1
        match token.kind:
            case "int" | "hex":
                unsigned = self._text[at + len(text) : at + len(text) + 1] in ("u", "U")
                return Literal(int(text, 0 if token.kind == "hex" else 10), "uint" if unsigned else "int", at)
            case "float":
                return Literal(float(text), "double", at)
            case "string":
                return Literal(
                    _string(text), "bytes" if "b" in text[:2].lower().partition(text[-1])[0] else "string", at
                )
            case "name":
                if text in _CONSTANTS:
                    value, type = _CONSTANTS[text]
                    return Literal(value, type, at)
                open = self._next.at
                if self._take("("):
                    return Call(text, None, self._arguments(")"), open)
                if text in _RESERVED:
                    raise CelError(f"reserved identifier: {text}", at=at)
                return Name(text, at)
        if text == "(":
            tree = self.ternary()
            self._need(")")
            return tree
        if text == "[":
            return ListOf(self._arguments("]"), at)
        if text == "{":
            return MapOf(self._entries(), at)
        self._position -= 1
        following = self._tokens[self._position + 1]
        begins = self._begins(following)
        raise self._wrong(f"{'extraneous' if begins else 'mismatched'} input '{text}' expecting {_BEGINNINGS}")

    def _arguments(self, close: str) -> tuple[Tree, ...]:
        found: list[Tree] = []
        while not self._take(close):
            if found:
                self._need_more(close)
                if self._take(close):
                    break
            found.append(self._entry())
        return tuple(found)

    def _entry(self) -> Tree:
        """An entry of a list or map, which may be optional (`?`)."""
        at = self._next.at
        return Call("?", None, (self.ternary(),), at) if self._take("?") else self.ternary()

    def _entries(self) -> tuple[tuple[Tree, Tree], ...]:
        found: list[tuple[Tree, Tree]] = []
        while not self._take("}"):
            if found:
                self._need_more("}")
                if self._take("}"):
                    break
            key = self._entry()
            self._need(":")
            found.append((key, self.ternary()))
        return tuple(found)

    def _fields(self) -> tuple[Entry, ...]:
        """The entries of a message."""
        found: list[Entry] = []
        while not self._take("}"):
            if found and self._next.text not in ("}", ","):
                raise self._wrong(f"mismatched input '{self._next.text}' expecting {{'}}', ','}}")
            if self._take(",") and self._take("}"):
                break
            optional = self._take("?")
            if self._next.kind == "escaped":
                raise CelError("unsupported syntax: '`'", at=self._next.at)
            if self._next.kind != "name" or self._next.text in (*_CONSTANTS, "in"):
                expected = "IDENTIFIER, ESC_IDENTIFIER}"
                expected = f"{{{expected}" if optional or found else f"{{'}}', ',', '?', {expected}"
                raise self._wrong(f"mismatched input '{self._next.text}' expecting {expected}")
            name, at = self._name(), self._next.at
            if self._next.text != ":" and not self._begins(self._next):
                raise self._wrong(f"mismatched input '{self._next.text}' expecting ':'")
            self._need(":")
            found.append(Entry(name, self.ternary(), optional, at))
        return tuple(found)

    def _begins(self, token: _Token) -> bool:
        """Whether an expression can begin with a token."""
        return token.kind not in ("symbol", "end") or token.text in ("[", "{", "(", ".", "-", "!")

    @property
    def _next(self) -> _Token:
        return self._tokens[self._position]

    def _wrong(self, message: str) -> CelError:
        return CelError(f"Syntax error: {message}", at=self._next.at)

    def _take(self, symbol: str) -> bool:
        if self._next.kind == "symbol" and self._next.text == symbol:
            self._position += 1
            return True
        return False

    def _need_more(self, close: str) -> None:
        """Require a comma between parts."""
        if self._next.kind == "end":
            if close == ")":
                self._need(close)
            raise self._wrong(f"mismatched input '<EOF>' expecting {{'{close}', ','}}")
        self._need(",")

    def _need(self, symbol: str) -> None:
        if not self._take(symbol):
            if symbol == ":" and self._next.kind == "end":
                raise self._wrong("mismatched input '<EOF>' expecting ':'")
            raise self._wrong(f"missing '{symbol}' at '{self._next.text}'")

    def _name(self) -> str:
        if self._next.kind == "escaped":
            raise CelError("unsupported syntax: '`'", at=self._next.at)
        if self._next.kind != "name" or self._next.text in _CONSTANTS or self._next.text == "in":
            if self._next.kind in ("symbol", "end"):
                seen = "" if self._next.kind == "end" else self._next.text
                raise self._wrong(f"no viable alternative at input '.{seen}'")
            raise self._wrong(f"mismatched input '{self._next.text}' expecting IDENTIFIER")
        self._position += 1
        return self._tokens[self._position - 1].text


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
