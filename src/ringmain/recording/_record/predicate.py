"""An expression of a trigger, over columns: `ringmain echo --filter`'s language, evaluated for a batch at once.

The invariant owned here: no Python object is made for a message. What a column cannot do, such as slices, is refused
when the expression is compiled, so a mistake is an error and not a trigger that never fires.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

Columns: TypeAlias = Mapping[str, pa.Array]
Part: TypeAlias = Callable[[Columns], Any]
"""A part of an expression: given the columns of a batch, an array or a scalar."""

MAX_CHARACTERS = 2000


def _float(value: Any) -> Any:
    return pc.cast(value, pa.float64())


_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: pc.equal,
    ast.NotEq: pc.not_equal,
    ast.Lt: pc.less,
    ast.LtE: pc.less_equal,
    ast.Gt: pc.greater,
    ast.GtE: pc.greater_equal,
}
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: pc.add,
    ast.Sub: pc.subtract,
    ast.Mult: pc.multiply,
    ast.Div: lambda a, b: pc.divide(_float(a), _float(b)),  # by zero: infinite or NaN, as no message stops a batch
    ast.FloorDiv: lambda a, b: pc.floor(pc.divide(_float(a), _float(b))),
    ast.Mod: lambda a, b: pc.subtract(_float(a), pc.multiply(pc.floor(pc.divide(_float(a), _float(b))), _float(b))),
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: lambda a: pc.invert(_truth(a)),
    ast.USub: pc.negate,
    ast.UAdd: lambda a: a,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": pc.abs,
    "len": lambda a: pc.list_value_length(a) if pa.types.is_list(a.type) else pc.utf8_length(a),
    "min": lambda *a: pc.min_element_wise(*a),
    "max": lambda *a: pc.max_element_wise(*a),
    "round": lambda a: pc.round(a),
    "lower": pc.utf8_lower,
    "upper": pc.utf8_upper,
    "startswith": lambda a, start: pc.starts_with(a, start.as_py()),
    "endswith": lambda a, end: pc.ends_with(a, end.as_py()),
}


class Predicate:
    """A compiled expression. `names` are the fields that it uses."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_CHARACTERS:
            raise ValueError(f"an expression has at most {MAX_CHARACTERS} characters, this one has {len(text)}")
        self.names: set[str] = set()
        try:
            self._value = _compile(ast.parse(text.strip(), mode="eval").body, self.names)
        except RecursionError:
            raise ValueError("the expression is nested too deep") from None
        except (SyntaxError, MemoryError) as error:
            reason = error.msg if isinstance(error, SyntaxError) else str(error)
            raise ValueError(f"{text!r} is not an expression: {reason}") from None

    def of(self, columns: Columns, rows: int) -> pa.BooleanArray:
        """For each row whether it is true; false where a field is missing. Raises ValueError, TypeError or an
        ArrowException where it does not apply to the columns."""
        missing = sorted(self.names - columns.keys())
        if missing:
            raise ValueError(f"no field {missing[0]!r} (there are {', '.join(columns) or 'none'})")
        value = _truth(self._value(columns))
        if isinstance(value, pa.Scalar):
            value = pa.repeat(value, rows)
        return pc.fill_null(value, False)


def _truth(value: Any) -> Any:
    return value if pa.types.is_boolean(value.type) else pc.not_equal(value, pa.scalar(0, value.type))


def _compile(node: ast.expr, names: set[str]) -> Part:
    def parts(nodes: list[ast.expr]) -> list[Part]:
        return [_compile(part, names) for part in nodes]

    match node:
        case ast.Constant(value=None):
            pass
        case ast.Constant(value=constant):
            return lambda columns: pa.scalar(constant)
        case ast.Name(id=name):
            names.add(name)
            return lambda columns: columns[name]
        case ast.Attribute(value=inner, attr=attr) if not attr.startswith("_"):
            (record,) = parts([inner])
            return lambda columns: pc.struct_field(record(columns), [attr])
        case ast.Subscript(value=inner, slice=ast.Constant(value=int() as at)) if at >= 0:
            (whole,) = parts([inner])
            return lambda columns: _item(whole(columns), at)
        case ast.BoolOp(op=op, values=inside):
            truths, join = parts(inside), pc.and_kleene if isinstance(op, ast.And) else pc.or_kleene
            return lambda columns: _joined(join, [_truth(truth(columns)) for truth in truths])
        case ast.UnaryOp(op=unary, operand=inner) if type(unary) in _UNARY:
            apply, (operand,) = _UNARY[type(unary)], parts([inner])
            return lambda columns: apply(operand(columns))
        case ast.BinOp(left=left, op=binary, right=right) if type(binary) in _ARITHMETIC:
            calculate, (one, other) = _ARITHMETIC[type(binary)], parts([left, right])
            return lambda columns: calculate(one(columns), other(columns))
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn() as op], comparators=[ast.Tuple() | ast.List() as set_]):
            try:
                wanted = pa.array([ast.literal_eval(item) for item in set_.elts])
            except (ValueError, pa.ArrowException):
                raise ValueError(f"{ast.unparse(set_)!r} must be constants of one type") from None
            (value,) = parts([left])
            found = pc.is_in if isinstance(op, ast.In) else (lambda a, value_set: pc.invert(pc.is_in(a, value_set)))
            return lambda columns: found(value(columns), value_set=wanted)
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _COMPARE for op in ops):
            compare, sides = [_COMPARE[type(op)] for op in ops], parts([left, *others])
            return lambda columns: _compared(compare, [side(columns) for side in sides])
        case ast.Call(func=ast.Name(id=name), args=inside, keywords=[]) if name in _FUNCTIONS:
            function, arguments = _FUNCTIONS[name], parts(inside)
            return lambda columns: function(*(argument(columns) for argument in arguments))
        case ast.Call():
            raise ValueError(f"{ast.unparse(node)!r} cannot be called: a trigger may use {', '.join(_FUNCTIONS)}")
    raise ValueError(f"a trigger cannot contain {ast.unparse(node)!r}: only fields, comparisons, arithmetic")


def _joined(join: Callable[[Any, Any], Any], values: list[Any]) -> Any:
    whole = values[0]
    for value in values[1:]:
        whole = join(whole, value)
    return whole


def _compared(operators: list[Callable[[Any, Any], Any]], sides: list[Any]) -> Any:
    pairs = zip(operators, sides, sides[1:], strict=False)
    return _joined(pc.and_kleene, [holds(left, right) for holds, left, right in pairs])


def _item(whole: Any, at: int) -> Any:
    if pa.types.is_struct(whole.type):  # a tuple: its items are fields
        return pc.struct_field(whole, [at])
    long_enough = pc.greater(pc.list_value_length(whole), at)
    return pc.list_element(pc.if_else(long_enough, whole, pa.scalar([None] * (at + 1), whole.type)), at)
