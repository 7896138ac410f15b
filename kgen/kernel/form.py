"""Whether a kernel is one at all: every variable bound once and before its use, types and axes that agree.

In: a `Kernel`, and the element types of its tensors if they are known. Out: nothing, or `FormError`. What a
kernel does is for the judge and the runner, who ask this first and then trust it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from kgen.kernel import ir
from kgen.kernel.faults import called
from kgen.kernel.ir import Axes, Expr, Role, Stmt, Var
from kgen.lang.dtypes import ELEMENT_TYPES, FLOATS, INTEGERS, LIMITS, LITERALS, DType
from kgen.lang.operators import OPERATORS

_WHOLE = INTEGERS | {"int"}
_NUMBERS = {*ELEMENT_TYPES, *LITERALS}
# What an operator takes -> the types that its operands may have.
_TAKES: dict[str, Collection[DType]] = {
    "numbers": _WHOLE | FLOATS,
    "integers": _WHOLE,
    "floats": FLOATS - {"float"},
    "quotient": FLOATS - {"float"},
    "conditions": ("bool",),
    "anything": _NUMBERS,
}
# A reduction or a scan -> the types that it is of.
_COMBINES: dict[str, Collection[DType]] = {
    **dict.fromkeys(("sum", "product", "min", "max", "cumsum", "cumprod"), INTEGERS),
    **dict.fromkeys(("any", "all"), ("bool",)),
    "tree": ("f32",),
}


class FormError(Exception):
    """A kernel that no printer and no interpreter could make sense of."""


def check_form(kernel: ir.Kernel, tensors: Mapping[str, DType] | None = None) -> None:
    """Raise `FormError` if a kernel is not well formed.

    `tensors`: the element type of each; if left out, all accesses of a tensor only have to agree.
    """
    form = _Form(tensors)
    for role in kernel.roles:
        form.role(role)


def operand_type(args: Iterable[Expr]) -> DType:
    """The type that an operator computes in: compile-time numbers take that of the others."""
    found = [arg.dtype for arg in args]
    typed = [dtype for dtype in found if dtype not in LITERALS]
    return typed[0] if typed else "float" if "float" in found else "int"


def has(dtype: DType, value: float) -> bool:
    """Whether a type has a number."""
    if dtype in FLOATS:
        return True
    low, high = LIMITS[dtype]
    return value == int(value) and (dtype == "int" or low <= value <= high)


@dataclass(slots=True)
class _Form:
    """A kernel as far as it is checked.

    `names`: all that are bound; `accessed`: what each tensor is; `bound`: the variables that may be used
    here, with the list of which they are a tensor, if any; `stmt`: the statement that is checked.
    """

    tensors: Mapping[str, DType] | None
    names: set[str] = field(default_factory=set)
    accessed: dict[str, str] = field(default_factory=dict)
    bound: dict[Expr, str] = field(default_factory=dict)
    order: Axes = ()
    stmt: Stmt | None = None

    def fail(self, what: str) -> FormError:
        """What is wrong with the statement."""
        return FormError(f"{what} (in `{called(self.stmt)}`)" if self.stmt is not None else what)

    def role(self, role: Role) -> None:
        """Check a role."""
        self.order, indices = role.lanes, [axis.index for axis in role.axes]
        if len(set(indices)) < len(indices):
            raise self.fail(f"a role has an axis twice: {', '.join(indices)}")
        self._launched("the number of programs", role.programs)
        for axis in role.axes:
            self._launched(f"the extent of {axis.index}", axis.extent)
            if axis.width is not None:
                self._launched(f"the width of {axis.index}", axis.width)
            if (axis.width is None) != (axis.kind == "row"):
                raise self.fail(f"{axis.index} is a {axis.kind} axis of width {axis.width}")
        self._body(role.body)

    def _launched(self, what: str, value: Expr) -> None:
        """That a value is a whole number that the launch knows."""
        self._scalar(what, value, _WHOLE)
        if any(isinstance(each, ir.Program) for each in ir.walk(value)):
            raise self.fail(f"{what} depends on the program")

    # Statements.

    def _body(
        self, body: tuple[Stmt, ...], ends: Iterable[tuple[Var, Expr]] = (), *inner: Var
    ) -> None:
        """Check a body in a scope of its own, and the values that variables get at its end."""
        bound, stmt = self.bound, self.stmt
        self.bound = dict(bound)
        self._bind(*inner)
        for each in body:
            self.stmt = each
            self._stmt(each)
        self.stmt = stmt
        for var, value in ends:
            self._equal(var, value)
        self.bound = bound

    def _stmt(self, stmt: Stmt) -> None:
        match stmt:
            case ir.Bind(var, value):
                self._equal(var, value, whole=True)
                self._bind(var)
                if isinstance(value, ir.Chosen):
                    self.bound[var] = value.tensor
            case ir.Store():
                self._parts(stmt, stmt.axes, stmt.chosen)
                self._access(stmt, stmt.value.dtype)
            case ir.Loop():
                self._loop(stmt)
            case ir.Branch(cond, then, other, merged):
                self._scalar("the condition of a branch", cond, ("bool",))
                self._body(then, [(each.var, each.then) for each in merged])
                self._body(other, [(each.var, each.other) for each in merged])
                self._bind(*(each.var for each in merged))
            case ir.Check(_, failed, point, _, axes):
                self._parts(stmt, axes)
                self._typed("the point of a check", point, _WHOLE)
                self._conditions(failed)

    def _parts(self, stmt: Stmt, axes: Axes, chosen: Expr | None = None) -> None:
        """Check the expressions of a statement that is done at all lanes of some axes."""
        self._spans("a statement", axes, axes)
        for each in ir.used(stmt):
            if each is not chosen:
                self._value(each)
            if set(each.axes) - set(axes):
                raise self.fail(f"a value has axes {_shown(each.axes)}, not only {_shown(axes)}")

    def _loop(self, loop: ir.Loop) -> None:
        if loop.axis not in self.order:
            raise self.fail(f"{loop.axis} is not an axis with lanes")
        self._typed("the counter of a loop", loop.start, INTEGERS)
        self._spans("the counter of a loop", loop.start.axes, ())
        self._scalar("the extent of a loop", loop.extent, _WHOLE)
        self._scalar("the step of a loop", loop.step, _WHOLE)
        for each in loop.carried:
            self._equal(each.var, each.start)
        self._bind(*(each.var for each in loop.carried))
        self._body(loop.body, [(each.var, each.then) for each in loop.carried], loop.start)

    def _bind(self, *variables: Var) -> None:
        for var in variables:
            if var.name in self.names:
                raise self.fail(f"{var.name} is bound twice")
            self.names.add(var.name)
            self.bound[var] = ""

    def _equal(self, var: Var, value: Expr, *, whole: bool = False) -> None:
        """That a variable may have a value."""
        self._value(value, whole=whole)
        if (var.dtype, var.axes) != (value.dtype, value.axes):
            own, other = (f"{each.dtype} of {_shown(each.axes)}" for each in (var, value))
            raise self.fail(f"{var.name} is {own}, but its value {other}")

    def _access(self, of: ir.Load | ir.Store, dtype: DType) -> None:
        """That a load or store, whose other parts have been checked, is one of an element of its tensor."""
        tensor, chosen = of.tensor, of.chosen
        known = dtype if self.tensors is None else self.tensors.get(tensor)
        if dtype not in ELEMENT_TYPES or dtype != known:
            raise self.fail(f"an element of {tensor} is not {dtype}")
        now = f"{len(of.items)} dimensions of {dtype}{' in a list' if chosen is not None else ''}"
        before = self.accessed.setdefault(tensor, now)
        if now != before:
            raise self.fail(f"{tensor} has {now} here, {before} before")
        if chosen is not None and self.bound.get(chosen) != tensor:
            raise self.fail(
                f"what chooses from {tensor} is not a variable that is one of its tensors"
            )
        for each in of.items:
            self._typed(f"an index of {tensor}", each, _WHOLE)
        self._conditions(of.mask)

    def _conditions(self, mask: tuple[Expr, ...]) -> None:
        for each in mask:
            self._typed("a condition of a mask", each, ("bool",))

    def _scalar(self, what: str, value: Expr, types: Collection[DType]) -> None:
        self._value(value)
        self._typed(what, value, types)
        self._spans(what, value.axes, ())

    # Values.

    def _value(self, expr: Expr, *, whole: bool = False) -> None:
        """Check an expression; `whole`: it is all that a variable is bound to."""
        parts, what = ir.operands(expr), type(expr).__name__.lower()
        for each in parts:
            if not isinstance(expr, ir.Load) or each is not expr.chosen:
                self._value(each)
        if not whole and isinstance(expr, ir.Load | ir.Reduce | ir.Scan | ir.Chosen):
            raise self.fail(f"there is a {what} inside an expression")
        if expr.dtype not in (("tensor",) if isinstance(expr, ir.Chosen) else _NUMBERS):
            raise self.fail(f"a {what} is {expr.dtype}")
        spanned = {axis for each in parts for axis in each.axes}
        match expr:
            case ir.Num(value, dtype):
                if not has(dtype, value):
                    raise self.fail(f"{value} is not a number of {dtype}")
            case ir.Program():
                self._typed("the number of a program", expr, ("i32",))
            case ir.Lane(axis):
                self._typed("a lane", expr, INTEGERS)
                spanned = {axis}
            case ir.Var(name, dtype, axes):
                if expr not in self.bound:
                    raise self.fail(f"{name} is not bound here as {dtype} of {_shown(axes)}")
                spanned = {*axes}
            case ir.Op():
                self._operator(expr)
            case ir.Cast(arg, dtype):
                cuts = arg.dtype in FLOATS and dtype in INTEGERS
                if arg.dtype != dtype and (cuts or dtype in LITERALS):
                    raise self.fail(f"{arg.dtype} is cast to {dtype}")
            case ir.Select(cond, then, other, dtype):
                self._typed("the condition of a choice", cond, ("bool",))
                self._typed("one side of a choice", then, (dtype,))
                self._typed("one side of a choice", other, (dtype,))
            case ir.Spread(arg, dtype, axes):
                self._typed("what is repeated", arg, (dtype,))
                spanned |= {*axes}
            case ir.Chosen(_, at):
                self._typed("the number of a tensor in a list", at, _WHOLE)
            case ir.Load():
                self._access(expr, expr.dtype)
            case ir.Reduce(kind, axis, arg, mask) | ir.Scan(kind, axis, arg, mask):
                scans = kind.startswith("cum")
                if scans != isinstance(expr, ir.Scan) or expr.dtype not in _COMBINES.get(kind, ()):
                    raise self.fail(f"there is no {what} {kind} of {expr.dtype}")
                if axis not in spanned:
                    raise self.fail(f"a {kind} along {axis} of what has no such axis")
                self._typed(f"what {kind} is of", arg, (expr.dtype,))
                self._conditions(mask)
                spanned -= set() if scans else {axis}
        self._spans(expr.op if isinstance(expr, ir.Op) else f"a {what}", expr.axes, spanned)
        if expr.axes and expr.dtype in LITERALS:
            raise self.fail(f"a compile-time number has axes {_shown(expr.axes)}")

    def _operator(self, expr: ir.Op) -> None:
        row, count = OPERATORS.get(expr.op), len(expr.args)
        if row is None or (count != row.arity and not (row.variadic and count)):
            raise self.fail(f"there is no operator {expr.op} of {count} operands")
        own = operand_type(expr.args)
        if own not in _TAKES[row.takes]:
            raise self.fail(f"there is no {expr.op} of {own}")
        for each in expr.args:
            self._typed(f"an operand of {expr.op}", each, (own,))
        gives = "bool" if row.compares else own
        if expr.dtype != gives:
            raise self.fail(f"{expr.op} of {own} gives {gives}, not {expr.dtype}")

    def _typed(self, what: str, expr: Expr, types: Collection[DType]) -> None:
        """That a value has one of some types, or may stand for one: a compile-time number may."""
        if not any(_stands(expr, dtype) for dtype in types):
            shown = expr.dtype if not isinstance(expr, ir.Num) else f"the {expr.dtype} {expr.value}"
            raise self.fail(f"{what} is {shown}, not {' or '.join(sorted(types))}")

    def _spans(self, what: str, axes: Axes, wanted: Collection[str]) -> None:
        """That axes are those wanted, in the order of the role."""
        ordered = tuple(axis for axis in self.order if axis in wanted)
        if axes != ordered:
            raise self.fail(f"{what} has axes {_shown(axes)}, not {_shown(ordered)}")


def _stands(expr: Expr, dtype: DType) -> bool:
    """Whether a value may stand where one of some type is wanted."""
    if expr.dtype == dtype or (expr.dtype in LITERALS and dtype in FLOATS):
        return True
    fits = not isinstance(expr, ir.Num) or has(dtype, expr.value)
    return expr.dtype == "int" and dtype in INTEGERS and fits


def _shown(axes: Axes) -> str:
    return f"({', '.join(axes)})"
