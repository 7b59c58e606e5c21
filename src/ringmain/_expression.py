"""The language of `ringmain echo --filter` and of a recorder's triggers: Python's expressions, limited to what can
neither call into the program nor run for long.

The tree is walked here, and refused here: names of fields, constants, comparisons, arithmetic, `and`/`or`/`not`,
indexing and a few functions, and nothing else, so a mistake is an error and not an expression that is never true. What
an operation does is that of the subclass: on the values of one message (_cli/expression.py), or on columns of many
(recording/_record/predicate.py).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

Part = Callable[[Any], Any]
"""A part of an expression: given the fields, its value."""

MAX_CHARACTERS = 2000


class Expression:
    """A compiled expression. `names` are the fields that it uses, so that they can be checked against a schema."""

    what: ClassVar[str]
    """In errors: what has such an expression, "a filter"."""
    error: ClassVar[type[ValueError]] = ValueError
    compare: ClassVar[Mapping[type[ast.cmpop], Callable[[Any, Any], Any]]]
    arithmetic: ClassVar[Mapping[type[ast.operator], Callable[[Any, Any], Any]]]
    unary: ClassVar[Mapping[type[ast.unaryop], Callable[[Any], Any]]]
    functions: ClassVar[Mapping[str, Callable[..., Any]]]

    def __init__(self, text: str) -> None:
        if len(text) > MAX_CHARACTERS:
            raise self.error(f"{self.what} has at most {MAX_CHARACTERS} characters, this one has {len(text)}")
        self.names: set[str] = set()
        try:
            self._value = self._part(ast.parse(text.strip(), mode="eval").body)
        except self.error:
            raise
        except RecursionError:
            raise self.error("the expression is nested too deep") from None
        except (SyntaxError, ValueError, MemoryError) as error:
            reason = error.msg if isinstance(error, SyntaxError) else str(error)
            raise self.error(f"{text!r} is not an expression: {reason}") from None

    # ------------------------------------------------------------------------------------- of the subclass

    def _own(self, node: ast.expr) -> Part | None:
        """What only this kind of expression can have, or has in its own way."""
        raise NotImplementedError

    def _field(self, fields: Any, name: str) -> Any:
        raise NotImplementedError

    def _attribute(self, record: Any, name: str) -> Any:
        raise NotImplementedError

    def _decided(self, every: bool, parts: Sequence[Part]) -> Part:
        """Are all of them true, or any?"""
        raise NotImplementedError

    def _compared(self, operators: Sequence[Callable[[Any, Any], Any]], sides: Sequence[Part]) -> Part:
        raise NotImplementedError

    # ------------------------------------------------------------------------------------- the tree

    def _parts(self, nodes: Sequence[ast.expr]) -> list[Part]:
        return [self._part(node) for node in nodes]

    def _part(self, node: ast.expr) -> Part:
        """The node as a function of the fields. Collects the names of the fields in `names`."""
        own = self._own(node)
        if own is not None:
            return own
        match node:
            case ast.Name(id=name):
                self.names.add(name)
                return lambda fields: self._field(fields, name)
            case ast.Attribute(value=inner, attr=attr) if not attr.startswith("_"):
                record = self._part(inner)
                return lambda fields: self._attribute(record(fields), attr)
            case ast.BoolOp(op=op, values=inside):
                return self._decided(isinstance(op, ast.And), self._parts(inside))
            case ast.UnaryOp(op=unary, operand=inner) if type(unary) in self.unary:
                apply, operand = self.unary[type(unary)], self._part(inner)
                return lambda fields: apply(operand(fields))
            case ast.BinOp(left=left, op=binary, right=right) if type(binary) in self.arithmetic:
                calculate, (one, other) = self.arithmetic[type(binary)], self._parts([left, right])
                return lambda fields: calculate(one(fields), other(fields))
            case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in self.compare for op in ops):
                return self._compared([self.compare[type(op)] for op in ops], self._parts([left, *others]))
            case ast.Call(func=ast.Name(id=name), args=inside, keywords=[]) if name in self.functions:
                function, arguments = self.functions[name], self._parts(inside)
                return lambda fields: function(*(argument(fields) for argument in arguments))
            case ast.Call():
                allowed = ", ".join(self.functions)
                raise self.error(f"{ast.unparse(node)!r} cannot be called: {self.what} may use {allowed}")
        raise self.error(f"{self.what} cannot contain {ast.unparse(node)!r}: only fields, comparisons, arithmetic")
