"""`--filter`: an expression over a message's fields, evaluated without `eval`. What it may contain is that of the
language (ringmain/_expression.py), and besides slices, any index, and `in` any text or list.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from ringmain._expression import Expression, Part

Fields = Mapping[str, Any]


def _numbers(left: Any, right: Any) -> tuple[Any, Any]:
    """'x' * 10**9 and '%999999999d' % 1 would be a gigabyte each: * and % take numbers only."""
    if not (isinstance(left, int | float) and isinstance(right, int | float)):
        raise TypeError("* and % are for numbers")
    return left, right


_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: lambda a, b: operator.mul(*_numbers(a, b)),
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: lambda a, b: operator.mod(*_numbers(a, b)),
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "len": len,
    "min": min,
    "max": max,
    "sum": sum,
    "round": round,
    "lower": lambda text: text.lower(),
    "upper": lambda text: text.upper(),
    "startswith": lambda text, start: text.startswith(start),
    "endswith": lambda text, end: text.endswith(end),
}


class FilterError(ValueError):
    """The text is not a valid filter, or the filter does not apply to a message. The error says why."""


class Filter(Expression):
    """A compiled filter."""

    what = "a filter"
    error: ClassVar[type[ValueError]] = FilterError
    compare, arithmetic, unary, functions = _COMPARE, _ARITHMETIC, _UNARY, _FUNCTIONS

    def matches(self, fields: Fields) -> bool:
        """Is it true of these fields? Any error (a missing field, `None < 3`) is raised as `FilterError`."""
        try:
            return bool(self._value(fields))
        except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
            raise FilterError(f"{type(error).__name__}: {error}") from error

    def _own(self, node: ast.expr) -> Part | None:
        match node:
            case ast.Constant(value=constant):
                return lambda fields: constant
            case ast.Subscript(value=inner, slice=ast.Slice(lower=lower, upper=upper, step=None)):
                none = ast.Constant(None)
                whole, low, high = self._parts([inner, lower or none, upper or none])
                return lambda fields: whole(fields)[low(fields) : high(fields)]
            case ast.Subscript(value=inner, slice=index) if not isinstance(index, ast.Slice):
                whole, at = self._parts([inner, index])
                return lambda fields: whole(fields)[at(fields)]
            case ast.Tuple(elts=inside) | ast.List(elts=inside):
                items = self._parts(inside)
                return lambda fields: [item(fields) for item in items]
        return None

    def _field(self, fields: Fields, name: str) -> Any:
        return _field(fields, name)

    def _attribute(self, record: Any, name: str) -> Any:
        return _field(record, name)

    def _decided(self, every: bool, parts: Sequence[Part]) -> Part:
        decide = all if every else any
        return lambda fields: decide(part(fields) for part in parts)

    def _compared(self, operators: Sequence[Callable[[Any, Any], Any]], sides: Sequence[Part]) -> Part:
        return lambda fields: _chain(operators, sides, fields)


def _chain(operators: Sequence[Callable[[Any, Any], Any]], sides: Sequence[Part], fields: Fields) -> bool:
    left = sides[0](fields)
    for holds, side in zip(operators, sides[1:], strict=True):
        right = side(fields)
        if not holds(left, right):
            return False
        left = right
    return True


def _field(record: Any, name: str) -> Any:
    if not isinstance(record, Mapping):
        raise TypeError(f"{type(record).__name__} has no field {name!r}")
    if name not in record:
        raise LookupError(f"no field {name!r} (there are {', '.join(map(str, record)) or 'none'})")
    return record[name]
