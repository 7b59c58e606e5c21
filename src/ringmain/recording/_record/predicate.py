"""An expression of a trigger, over columns: the language of `ringmain echo --filter` (ringmain/_expression.py) for a
batch at once.

The invariant owned here: no Python object is made for a message. What a column cannot do, such as slices, is refused
when the expression is compiled, so a mistake is an error and not a trigger that never fires.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ringmain._expression import Expression, Part

Columns: TypeAlias = Mapping[str, pa.Array]


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


class Predicate(Expression):
    """A compiled expression of a trigger. A part's value is an array or a scalar."""

    what = "a trigger"
    compare, arithmetic, unary, functions = _COMPARE, _ARITHMETIC, _UNARY, _FUNCTIONS

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

    def _own(self, node: ast.expr) -> Part | None:
        match node:
            case ast.Constant(value=constant) if constant is not None:
                return lambda columns: pa.scalar(constant)
            case ast.Subscript(value=inner, slice=ast.Constant(value=int() as at)) if at >= 0:
                whole = self._part(inner)
                return lambda columns: _item(whole(columns), at)
            case ast.Compare(
                left=left, ops=[ast.In() | ast.NotIn() as op], comparators=[ast.Tuple() | ast.List() as set_]
            ):
                try:
                    wanted = pa.array([ast.literal_eval(item) for item in set_.elts])
                except (ValueError, pa.ArrowException):
                    raise ValueError(f"{ast.unparse(set_)!r} must be constants of one type") from None
                value = self._part(left)
                found = pc.is_in if isinstance(op, ast.In) else (lambda a, value_set: pc.invert(pc.is_in(a, value_set)))
                return lambda columns: found(value(columns), value_set=wanted)
        return None

    def _field(self, fields: Columns, name: str) -> Any:
        return fields[name]

    def _attribute(self, record: Any, name: str) -> Any:
        return pc.struct_field(record, [name])

    def _decided(self, every: bool, parts: Sequence[Part]) -> Part:
        join = pc.and_kleene if every else pc.or_kleene
        return lambda columns: _joined(join, [_truth(part(columns)) for part in parts])

    def _compared(self, operators: Sequence[Callable[[Any, Any], Any]], sides: Sequence[Part]) -> Part:
        def holds(columns: Columns) -> Any:
            pairs = pairwise(side(columns) for side in sides)
            return _joined(pc.and_kleene, [op(a, b) for op, (a, b) in zip(operators, pairs, strict=True)])

        return holds


def _truth(value: Any) -> Any:
    return value if pa.types.is_boolean(value.type) else pc.not_equal(value, pa.scalar(0, value.type))


def _joined(join: Callable[[Any, Any], Any], values: list[Any]) -> Any:
    whole = values[0]
    for value in values[1:]:
        whole = join(whole, value)
    return whole


def _item(whole: Any, at: int) -> Any:
    if pa.types.is_struct(whole.type):  # a tuple: its items are fields
        return pc.struct_field(whole, [at])
    long_enough = pc.greater(pc.list_value_length(whole), at)
    return pc.list_element(pc.if_else(long_enough, whole, pa.scalar([None] * (at + 1), whole.type)), at)
