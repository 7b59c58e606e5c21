"""`--filter`: an expression over a message's fields, evaluated without `eval`.

The syntax is Python's, limited to what can neither call into the program nor run for long: names of fields, constants,
comparisons, arithmetic, `and`/`or`/`not`, indexing and a few functions. `_compile` has the list, and refuses anything
else when the filter is made, so a mistake is an error and not a filter that matches nothing.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

Fields = Mapping[str, Any]
Part = Callable[[Fields], Any]
"""A part of an expression: given a message's fields, its value."""


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
MAX_CHARACTERS = 2000


class FilterError(ValueError):
    """The text is not a valid filter, or the filter does not apply to a message. The error says why."""


class Filter:
    """A compiled expression. `names` are the fields it uses, so that they can be checked against a schema."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_CHARACTERS:
            raise FilterError(f"a filter has at most {MAX_CHARACTERS} characters, this one has {len(text)}")
        self.names: set[str] = set()
        try:
            self._value = _compile(ast.parse(text.strip(), mode="eval").body, self.names)
        except FilterError:
            raise
        except RecursionError:
            raise FilterError("the expression is nested too deep") from None
        except (SyntaxError, ValueError, MemoryError) as error:
            reason = error.msg if isinstance(error, SyntaxError) else str(error)
            raise FilterError(f"{text!r} is not an expression: {reason}") from None

    def matches(self, fields: Fields) -> bool:
        """Is it true of these fields? Any error (a missing field, `None < 3`) is raised as `FilterError`."""
        try:
            return bool(self._value(fields))
        except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
            raise FilterError(f"{type(error).__name__}: {error}") from error


def _compile(node: ast.expr, names: set[str]) -> Part:
    """The node as a function of the fields. Collects the names of the fields in `names`."""

    def parts(nodes: list[ast.expr]) -> list[Part]:
        return [_compile(part, names) for part in nodes]

    match node:
        case ast.Constant(value=constant):
            return lambda fields: constant
        case ast.Name(id=name):
            names.add(name)
            return lambda fields: _field(fields, name)
        case ast.Attribute(value=inner, attr=attr) if not attr.startswith("_"):
            (record,) = parts([inner])
            return lambda fields: _field(record(fields), attr)
        case ast.Subscript(value=inner, slice=ast.Slice(lower=lower, upper=upper, step=None)):
            none = ast.Constant(None)
            whole, low, high = parts([inner, lower or none, upper or none])
            return lambda fields: whole(fields)[low(fields) : high(fields)]
        case ast.Subscript(value=inner, slice=index) if not isinstance(index, ast.Slice):
            whole, at = parts([inner, index])
            return lambda fields: whole(fields)[at(fields)]
        case ast.BoolOp(op=op, values=inside):
            truths, decide = parts(inside), all if isinstance(op, ast.And) else any
            return lambda fields: decide(truth(fields) for truth in truths)
        case ast.Tuple(elts=inside) | ast.List(elts=inside):
            items = parts(inside)
            return lambda fields: [item(fields) for item in items]
        case ast.UnaryOp(op=unary, operand=inner) if type(unary) in _UNARY:
            apply, (operand,) = _UNARY[type(unary)], parts([inner])
            return lambda fields: apply(operand(fields))
        case ast.BinOp(left=left, op=binary, right=right) if type(binary) in _ARITHMETIC:
            calculate, (one, other) = _ARITHMETIC[type(binary)], parts([left, right])
            return lambda fields: calculate(one(fields), other(fields))
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _COMPARE for op in ops):
            compare, sides = [_COMPARE[type(op)] for op in ops], parts([left, *others])
            return lambda fields: _compared(compare, sides, fields)
        case ast.Call(func=ast.Name(id=name), args=inside, keywords=[]) if name in _FUNCTIONS:
            function, arguments = _FUNCTIONS[name], parts(inside)
            return lambda fields: function(*(argument(fields) for argument in arguments))
        case ast.Call():
            raise FilterError(f"{ast.unparse(node)!r} cannot be called: a filter may use {', '.join(_FUNCTIONS)}")
    raise FilterError(f"a filter cannot contain {ast.unparse(node)!r}: only fields, comparisons, arithmetic")


def _compared(operators: list[Callable[[Any, Any], Any]], sides: list[Part], fields: Fields) -> bool:
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
