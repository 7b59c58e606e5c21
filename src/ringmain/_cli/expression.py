"""`--filter`: an expression over a message's fields, evaluated without `eval`.

The expression is Python's syntax, cut down to what can neither call into the program nor run for long: names of
fields, constants, comparisons, arithmetic, `and`/`or`/`not`, indexing and a few functions. Anything else is refused
when the filter is made, by name, so that a mistake shows at once and not as silence.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

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
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
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
MAX_CHARACTERS = 2000


class FilterError(ValueError):
    """The expression is not one; the text says what is wrong with it."""


class Filter:
    """A compiled expression. `names` are the fields it looks at, for whoever wants to check them against a schema."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_CHARACTERS:
            raise FilterError(f"a filter has at most {MAX_CHARACTERS} characters, this one has {len(text)}")
        try:
            self._root = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = error.msg if isinstance(error, SyntaxError) else str(error)
            raise FilterError(f"{text!r} is not an expression: {reason}") from None
        self.text = text
        self.names: set[str] = set()
        try:
            _check(self._root, self.names)
        except RecursionError:
            raise FilterError("the expression is nested too deep") from None

    def matches(self, fields: Mapping[str, Any]) -> bool:
        """Is it true of these fields? Whatever goes wrong (a missing field, `None < 3`) is raised as `FilterError`."""
        try:
            return bool(_value(self._root, fields))
        except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
            raise FilterError(f"{type(error).__name__}: {error}") from error


def _check(node: ast.expr, names: set[str]) -> None:
    """Refuses what is not on the list; collects the fields' names."""
    inside: Sequence[ast.expr]
    match node:
        case ast.Constant():
            inside = ()
        case ast.Name(id=name):
            names.add(name)
            inside = ()
        case ast.Attribute(value=value, attr=attr) if not attr.startswith("_"):
            inside = (value,)
        case ast.Subscript(value=value, slice=ast.Slice(lower=low, upper=high, step=None)):
            inside = (value, *(part for part in (low, high) if part))
        case ast.Subscript(value=value, slice=index):
            inside = (value, index)
        case ast.BoolOp(values=inside) | ast.Tuple(elts=inside) | ast.List(elts=inside):
            pass
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            inside = (operand,)
        case ast.BinOp(left=left, op=arithmetic, right=right) if type(arithmetic) in _ARITHMETIC:
            inside = (left, right)
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _COMPARE for op in ops):
            inside = (left, *others)
        case ast.Call(func=ast.Name(id=name), args=inside, keywords=[]) if name in _FUNCTIONS:
            pass
        case ast.Call():
            raise FilterError(f"{ast.unparse(node)!r} cannot be called: a filter may use {', '.join(_FUNCTIONS)}")
        case _:
            raise FilterError(f"a filter cannot contain {ast.unparse(node)!r}: only fields, comparisons, arithmetic")
    for part in inside:
        _check(part, names)


def _value(node: ast.expr, fields: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return _field(fields, name)
        case ast.Attribute(value=value, attr=attr):
            return _field(_value(value, fields), attr)
        case ast.Subscript(value=value, slice=ast.Slice(lower=low, upper=high)):
            span = slice(low and _value(low, fields), high and _value(high, fields))
            return _value(value, fields)[span]
        case ast.Subscript(value=value, slice=index):
            return _value(value, fields)[_value(index, fields)]
        case ast.BoolOp(op=ast.And(), values=values):
            return all(_value(value, fields) for value in values)
        case ast.BoolOp(values=values):
            return any(_value(value, fields) for value in values)
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return [_value(element, fields) for element in elements]
        case ast.UnaryOp(op=op, operand=operand):
            return _UNARY[type(op)](_value(operand, fields))
        case ast.BinOp(left=left, op=arithmetic, right=right):
            return _calculate(arithmetic, _value(left, fields), _value(right, fields))
        case ast.Compare():
            return _compare(node, fields)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _FUNCTIONS[name](*(_value(argument, fields) for argument in arguments))
    raise AssertionError(f"not checked: {ast.dump(node)}")


def _calculate(op: ast.operator, left: Any, right: Any) -> Any:
    # 'x' * 10**9 and '%999999999d' % 1 would be a gigabyte each: these two are for numbers.
    if isinstance(op, ast.Mult | ast.Mod) and not all(isinstance(side, int | float) for side in (left, right)):
        raise TypeError("* and % are for numbers")
    return _ARITHMETIC[type(op)](left, right)


def _compare(node: ast.Compare, fields: Mapping[str, Any]) -> bool:
    left = _value(node.left, fields)
    for op, other in zip(node.ops, node.comparators, strict=True):
        right = _value(other, fields)
        if not _COMPARE[type(op)](left, right):
            return False
        left = right
    return True


def _field(record: Any, name: str) -> Any:
    if not isinstance(record, Mapping):
        raise TypeError(f"{type(record).__name__} has no field {name!r}")
    if name not in record:
        raise LookupError(f"no field {name!r} (there are {', '.join(map(str, record)) or 'none'})")
    return record[name]
