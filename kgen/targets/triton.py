"""A kernel as Triton text.

In: a `Kernel` and its group's declarations. Out: the text of one decorated function, and what a launch
passes. Prints; decides nothing about what is computed, and proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kgen.kernel import ir
from kgen.kernel.ir import (
    Arg,
    Axes,
    Barrier,
    Bind,
    Branch,
    Cast,
    Check,
    Chosen,
    Expr,
    Kernel,
    Lane,
    Load,
    Loop,
    Num,
    Op,
    Program,
    Reduce,
    Role,
    Scan,
    Select,
    Spread,
    Stmt,
    Store,
    Var,
    every,
)
from kgen.lang.code import ATOM, Code, call, folded, infix, method, number
from kgen.lang.dtypes import FLOATS, LIMITS, LITERALS, NARROW_FLOATS, DType, own_type, triton_type
from kgen.lang.names import fresh
from kgen.lang.operators import OPERATORS, compile_time
from kgen.lang.typed import Group, Tensor
from kgen.targets.helpers import HELPERS, IN_LAUNCH
from kgen.targets.layout import docstring, wrap


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel, in order.

    `kind`: pointer, addresses, stride, strides (of a list), size, scalar, given, static, block or switch.
    """

    name: str
    kind: str
    type: str


@dataclass(frozen=True, slots=True)
class Printed:
    """The text of a kernel and what its launch passes. `helpers`: the functions that it calls."""

    name: str
    text: str
    parameters: tuple[Parameter, ...]
    helpers: frozenset[str]


def reserved(group: Group) -> frozenset[str]:
    """Names that a kernel's variables may not have."""
    tensors = [name for t in group.tensors.values() for name in _tensor_names(t)]
    numbers = [*group.sizes, *group.scalars]
    blocks = [
        f"{kind}_{index}" for index in group.extents for kind in ("LANES", "LOOP", "ONCE", "TILE")
    ]
    given = [f"HAS_{name}" for name in group.tensors]
    ends = [f"end_{at}" for at in range(len(group.stores))]
    own = (*IN_LAUNCH, "PDL", "follow", "kernel", "pid", "tl", "triton")
    return frozenset((*tensors, *numbers, *blocks, *given, *ends, *HELPERS, *own))


def _tensor_names(tensor: Tensor) -> list[str]:
    strides = [f"{tensor.name}_stride_{dim}" for dim in range(len(tensor.dims))]
    return [f"{tensor.name}_ptr", tensor.name, *strides]


def emit(kernel: Kernel, group: Group) -> Printed:
    """The text of a kernel."""
    params = parameters(kernel, group)
    used = _Used(kernel)
    printer = _Printer(group, used, {*reserved(group), *used.names}, fitted=_fitted(kernel))
    lines = ["@kernel", f"def {kernel.name}("]
    lines += [f"    {p.name}{_annotation(p)}," for p in params]
    lines += ["):", f"    {docstring(kernel.summary)}"]
    lines += ["    if PDL:", "        follow()"]
    if len(kernel.roles) == 1:
        lines += [f"    {line}" for line in printer.body(kernel.roles[0], None)]
    else:
        lines.append("    pid = tl.program_id(0)")
        names, ends = {*used.names, *(each.name for each in params)}, ["0"]
        for at, role in enumerate(kernel.roles[:-1]):
            count = printer.code(role.programs)
            total = Code(count.text, count.binds) if at == 0 else infix("+", Code(ends[at]), count)
            ends.append(fresh(f"end_{at}", names))
            lines.append(f"    {ends[-1]} = {total}")
        for at, role in enumerate(kernel.roles):
            first, last = at == 0, at == len(kernel.roles) - 1
            lines.append(
                "    else:" if last else f"    {'if' if first else 'elif'} pid < {ends[at + 1]}:"
            )
            body = printer.body(role, ends[at]) or [
                "pass"
            ]  # a check may have nothing to check there
            lines += [f"        {line}" for line in body]
    text = wrap("\n".join(line.rstrip() for line in lines)) + "\n"
    return Printed(kernel.name, text, params, frozenset(printer.helpers))


def _annotation(param: Parameter) -> str:
    if param.type == "constexpr":
        return ": tl.constexpr"
    if param.kind in ("pointer", "addresses", "strides"):
        return ""
    return f": {triton_type(param.type)}"


def parameters(kernel: Kernel, group: Group) -> tuple[Parameter, ...]:
    """The kernel's parameters: pointers, strides, sizes, scalars, then compile-time ones."""
    used = _Used(kernel)
    tensors = [tensor for tensor in group.tensors.values() if tensor.name in used.tensors]
    found: list[Parameter] = []
    for tensor in tensors:
        if tensor.length is None:
            found.append(Parameter(f"{tensor.name}_ptr", "pointer", tensor.dtype))
        else:
            found.append(Parameter(tensor.name, "addresses", "i64"))
    for tensor in tensors:
        kind = "stride" if tensor.length is None else "strides"
        for dim in sorted(used.strides(tensor)):
            found.append(Parameter(f"{tensor.name}_stride_{dim}", kind, "i64"))
    for name, size in group.sizes.items():
        if name in used.args and not size.static:
            found.append(Parameter(name, "size", used.args[name]))
    for name, scalar in group.scalars.items():
        if name in used.args and not scalar.static:
            found.append(Parameter(name, "scalar", scalar.dtype))
    for name in group.tensors:
        if f"HAS_{name}" in used.args:
            found.append(Parameter(f"HAS_{name}", "given", "constexpr"))
    found += [
        Parameter(name, "static", "constexpr") for name in group.static_names if name in used.args
    ]
    blocks = {
        axis.width.name
        for role in kernel.roles
        for axis in role.axes
        if isinstance(axis.width, Arg) and axis.width.name in used.args
    }
    blocks |= {f"ONCE_{index}" for index in _fitted(kernel)}
    found += [Parameter(name, "block", "constexpr") for name in sorted(blocks)]
    return (*found, Parameter("PDL", "switch", "constexpr"))


def _fitted(kernel: Kernel) -> set[str]:
    """The indices of loops that may have one turn, which is known at the launch then."""
    return {
        stmt.axis
        for role in kernel.roles
        for stmt in every(role.body)
        for axis in role.axes
        if isinstance(stmt, Loop) and axis.index == stmt.axis and axis.least is not None
    }


class _Used:
    """The tensors, dimensions and numbers that a kernel uses."""

    def __init__(self, kernel: Kernel) -> None:
        self.places: dict[str, list[tuple[Expr, ...]]] = {}
        self.args: dict[str, DType] = {}
        stmts = [stmt for role in kernel.roles for stmt in ir.every(role.body)]
        self.names = {var.name for stmt in stmts for var in ir.bound(stmt)}
        for at, role in enumerate(kernel.roles):
            widths = {a.index: a.width for a in role.axes}
            exprs = [e for stmt in ir.every(role.body) for e in ir.used(stmt)]
            exprs += [role.programs] if at < len(kernel.roles) - 1 else []
            for stmt in ir.every(role.body):
                match stmt:
                    case Store(tensor, _, items):
                        self.places.setdefault(tensor, []).append(items)
                    case Check():
                        self.places.setdefault("_report", [])
            todo = exprs
            while todo:
                each = todo.pop()
                match each:
                    case Arg(name, dtype):
                        self.args[name] = dtype
                    case Load(tensor, _, items):
                        self.places.setdefault(tensor, []).append(items)
                    case Lane(axis):
                        width = widths[axis]
                        assert width is not None
                        todo.append(width)
                    case Spread():
                        todo += [w for a in each.axes if (w := widths[a]) is not None]
                    case Reduce("tree", axis):
                        todo += [w for a in (axis, *each.axes) if (w := widths[a]) is not None]
                    case _:
                        pass
                todo += ir.operands(each)

    @property
    def tensors(self) -> set[str]:
        """The tensors that are loaded from or stored to."""
        return set(self.places)

    def strides(self, tensor: Tensor) -> set[int]:
        """The dimensions whose stride an address needs: the caller's to choose, and not always at 0."""
        found = {
            dim
            for items in self.places[tensor.name]
            for dim, item in enumerate(items)
            if not _is_zero(item)
        }
        return {dim for dim in found if _strided(tensor, dim)}


def _is_zero(item: Expr) -> bool:
    return isinstance(item, Num) and item.value == 0


def _strided(tensor: Tensor, dim: int) -> bool:
    """Whether a dimension's stride is the caller's to choose."""
    return tensor.layout == "any" or dim < len(tensor.dims) - 1


@dataclass(slots=True)
class _Printer:
    group: Group
    used: _Used
    names: set[str]
    helpers: set[str] = field(default_factory=set)
    fitted: set[str] = field(default_factory=set)
    widths: dict[str, Code] = field(default_factory=dict)
    order: Axes = ()
    program: Code = field(default_factory=lambda: Code("tl.program_id(0)"))
    strides: dict[tuple[str, int], Var] = field(default_factory=dict)
    counters: set[Expr] = field(default_factory=set)

    def body(self, role: Role, start: str | None) -> list[str]:
        """The lines of a role; `start`: the number of its first program, among all of the launch."""
        self.widths = {a.index: self.code(a.width) for a in role.axes if a.width is not None}
        self.order = role.lanes
        if start is not None:
            self.program = Code("pid") if start == "0" else infix("-", Code("pid"), Code(start))
        return self.lines(role.body)

    def lines(self, body: tuple[Stmt, ...]) -> list[str]:
        """The lines of some statements."""
        return [line for stmt in body for line in self._statement(stmt)]

    def _statement(self, stmt: Stmt) -> list[str]:
        match stmt:
            case Bind(var, Chosen() as value):
                return self._chosen(var, value)
            case Bind(var, value, note):
                return [*_comment(note), f"{var.name} = {self._bound(value)}"]
            case Store():
                args = [self._pointer(stmt.tensor, stmt.chosen, stmt.items, stmt.axes).text]
                args.append(self._at(stmt.value, stmt.axes).text)
                if stmt.mask:
                    args.append(f"mask={self._conditions(stmt.mask, stmt.axes)}")
                return [*_comment(stmt.note), f"tl.store({', '.join(args)})"]
            case Loop():
                return self._loop(stmt)
            case Branch():
                return self._branch(stmt)
            case Barrier(tensors):
                names = ", ".join(tensors)
                return [
                    f"# {names}: no thread may store before every thread has loaded.",
                    "tl.debug_barrier()",
                ]
            case Check():
                return [self._check(stmt)]

    def _loop(self, loop: Loop) -> list[str]:
        taken = {*self.used.names, *self.used.args, *self.used.tensors}
        turns = "tl.range" if "range" in taken else "range"
        extent, step = self.code(loop.extent), self.code(loop.step)
        end = f"{step} if ONCE_{loop.axis} else {extent}" if loop.axis in self.fitted else extent
        ends = f"0, {end}, {step}"
        head = f"for {loop.start.name} in {turns}({ends}):"
        self.counters.add(loop.start)
        lines = [f"{c.var.name} = {self.code(c.start)}" for c in loop.carried]
        inner = self.lines(loop.body)
        thens = [self.code(each.then).text for each in loop.carried]
        names = [each.var.name for each in loop.carried]
        if any(_uses(each.then, {*names} - {each.var.name}) for each in loop.carried):
            inner.append(f"{', '.join(names)} = {', '.join(thens)}")  # all of them at once
        else:
            inner += [f"{name} = {then}" for name, then in zip(names, thens, strict=True)]
        return [*lines, head, *_indent(inner)]

    def _branch(self, branch: Branch) -> list[str]:
        then = self.lines(branch.then)
        other = self.lines(branch.other)
        then += [f"{m.var.name} = {self.typed(m.then)}" for m in branch.merged]
        other += [f"{m.var.name} = {self.typed(m.other)}" for m in branch.merged]
        lines = [
            *_comment(branch.note),
            f"if {self.code(branch.cond)}:",
            *_indent(then or ["pass"]),
        ]
        return [*lines, "else:", *_indent(other)] if other else lines

    def _check(self, check: Check) -> str:
        name = f"_note_{len(check.details)}"
        self.helpers.add(name)
        row = f"_report_ptr + {check.number * 16}" if check.number else "_report_ptr"
        args = [row, self._conditions(check.failed, check.axes).text]
        args.append(self._full(check.point, check.axes).text)
        args += [self._at(each, check.axes).text for each in check.details]
        return f"{name}({', '.join(args)})"

    # Memory.

    def _chosen(self, var: Var, chosen: Chosen) -> list[str]:
        """The address and the strides of one tensor of a list."""
        tensor, at = self.group.tensors[chosen.tensor], self.code(chosen.at)
        self.helpers.add("pick")
        pointer = f"tl.pointer_type({triton_type(tensor.dtype)})"
        address = method(call("pick", at, chosen.tensor), "to", pointer)
        lines = [f"{var.name} = {address}"]
        for dim in sorted(self.used.strides(tensor)):
            name = fresh(f"{var.name}_stride_{dim}", self.names)
            self.strides[var.name, dim] = Var(name, "i64", chosen.axes)
            lines.append(f"{name} = {call('pick', at, f'{tensor.name}_stride_{dim}')}")
        return lines

    def _pointer(
        self, tensor: str, chosen: Expr | None, items: tuple[Expr, ...], axes: Axes
    ) -> Code:
        """The address of an element; a block of them has all of `axes`."""
        declared = self.group.tensors.get(tensor)
        base, spans = Code(f"{tensor}_ptr"), set[str]()
        if isinstance(chosen, Var):
            base, spans = self._at(chosen, axes), set(chosen.axes)
        for dim, item in enumerate(items):
            if _is_zero(item):
                continue
            spans |= set(item.axes)
            offset = self._at(_narrow(item), axes)
            if declared is not None and _strided(declared, dim):
                stride = Code(f"{tensor}_stride_{dim}")
                if isinstance(chosen, Var):
                    stride = self._at(self.strides[chosen.name, dim], axes)
                offset = stride if item == Num(1, "int") else infix("*", offset, stride)
            base = infix("+", base, offset)
        if spans >= set(axes):
            return base
        return infix("+", base, call("tl.zeros", self._shape(axes), "tl.int32"))

    def _load(self, load: Load) -> Code:
        args = [self._pointer(load.tensor, load.chosen, load.items, load.axes).text]
        if load.mask:
            other = "0.0" if load.dtype in FLOATS else "0"
            args += [f"mask={self._conditions(load.mask, load.axes)}", f"other={other}"]
        return Code(f"tl.load({', '.join(args)})")

    def _conditions(self, conditions: tuple[Expr, ...], axes: Axes) -> Code:
        """All of some conditions together, as one with `axes`."""
        blocks = [each for each in conditions if each.axes]
        flags = [each for each in conditions if not each.axes]
        both = [[self._at(each, axes) for each in blocks], [self.code(each) for each in flags]]
        codes = [folded("&", each) for each in both if each]
        return self._help("both", *codes) if len(codes) == 2 else codes[0]

    # Values.

    def _bound(self, value: Expr) -> Code:
        match value:
            case Load():
                return self._load(value)
            case Reduce():
                return self._reduced(value)
            case Scan():
                each = self._masked(value.arg, value.mask, _neutral(value.kind, "i64"), value.axes)
                return call(f"tl.{value.kind}", each, f"axis={value.axes.index(value.axis)}")
        return self.typed(value)

    def typed(self, expr: Expr) -> Code:
        """An expression as a run-time value of its type, a number among them.

        An f32 argument is one too, which is a number of Python's in Triton's interpreter.
        """
        if isinstance(expr, Num) or (
            isinstance(expr, Arg) and (_static(expr) or expr.dtype == "f32")
        ):
            return self._constant(self.code(expr), own_type(expr.dtype))
        if expr.dtype == "bool" and _static(expr):
            return call("tl.full", "()", self.code(expr), "tl.int1")
        return self.code(expr)

    def code(self, expr: Expr) -> Code:
        """The text of an expression, with its own axes."""
        match expr:
            case Num(value, dtype):
                return Code(str(bool(value))) if dtype == "bool" else number(value)
            case Arg(name):
                return Code(name)
            case Program():
                return self.program
            case Lane(axis):
                return call("tl.arange", "0", self.widths[axis])
            case Var(name):
                return Code(name)
            case Cast(arg, dtype):
                if _static(arg) and arg.dtype in LITERALS:
                    return self._constant(self.code(arg), dtype)
                code = self.code(arg)
                if _static(arg):
                    code = self._constant(code, own_type(arg.dtype))
                return self._convert(code, arg.dtype, dtype)
            case Select(cond, then, other):
                axes = expr.axes
                # The interpreter of Triton 3.6 makes no bf16 of a number but 0.
                plain = [
                    isinstance(each, Num) and (expr.dtype != "bf16" or each.value == 0)
                    for each in (then, other)
                ]
                arms = [
                    self._at(each, axes)
                    if any(plain) and not all(plain)
                    else self._at(each, axes, typed=True)
                    for each in (then, other)
                ]
                if expr.dtype == "bool" and axes:
                    arms = [
                        self._flag(arm) if isinstance(each, Op) and not each.axes else arm
                        for arm, each in zip(arms, (then, other), strict=True)
                    ]
                return call("tl.where", self._at(cond, axes), *arms)
            case Spread():
                return self._spread(expr)
            case Op():
                return self._operated(expr)
        raise AssertionError(f"{expr} is bound by itself")

    def _at(self, expr: Expr, axes: Axes, *, typed: bool = False) -> Code:
        """An expression that broadcasts over `axes`, of which its own are some."""
        return _shaped(self.typed(expr) if typed else self.code(expr), expr.axes, axes)

    def _flag(self, code: Code) -> Code:
        """What holds for all lanes, beside what holds for each."""
        return self._help("flag", code)

    def _help(self, name: str, *args: Code) -> Code:
        """A call of a helper."""
        self.helpers.add(name)
        return call(name, *args)

    def _shape(self, axes: Axes) -> Code:
        names = [self.widths[axis].text for axis in axes]
        return Code(f"({', '.join(names)}{',' if len(names) == 1 else ''})")

    def _full(self, expr: Expr, axes: Axes) -> Code:
        """An expression as a block with all of `axes`."""
        code = self._at(expr, axes, typed=True)
        if set(expr.axes) == set(axes):
            return code
        if expr.dtype == "bool" and isinstance(expr, Op) and not expr.axes:
            code = self._flag(code)
        return call("tl.broadcast_to", code, self._shape(axes))

    def _spread(self, expr: Spread) -> Code:
        if not expr.axes:
            return self.typed(expr.arg)
        if isinstance(expr.arg, Num) and expr.dtype not in NARROW_FLOATS:
            value = self.code(expr.arg)
            return call("tl.full", self._shape(expr.axes), value, triton_type(expr.dtype))
        return self._full(expr.arg, expr.axes)

    def _constant(self, literal: Code, dtype: DType) -> Code:
        """A compile-time number as a run-time value of its type."""
        if dtype in FLOATS:
            rounded = literal.text.startswith("rounded(")  # an f32 already
            wide = literal if rounded else call("tl.full", "()", literal, "tl.float32")
            return self._convert(wide, "f32", dtype)
        return call("tl.full", "()", literal, triton_type(dtype))

    def _convert(self, code: Code, source: DType, target: DType) -> Code:
        """A conversion between run-time types, as torch makes it; bf16 by way of f32."""
        if source == target:
            return code
        if source == "bf16":
            return self._convert(self._help("bf16_to_f32", code), "f32", target)
        if target == "bf16":
            return self._help("f32_to_bf16", self._convert(code, source, "f32"))
        return method(code, "to", triton_type(target))

    def _operated(self, expr: Op) -> Code:
        op, args, axes = expr.op, expr.args, expr.axes
        if _static(expr):
            code = compile_time(op, [self.code(arg) for arg in args])
            if expr.dtype != "float" or (
                isinstance(args[0], Num) and args[0].value and op == "neg"
            ):
                return code
            return self._help("rounded", code)
        row = OPERATORS[op]
        dtype = next((arg.dtype for arg in args if arg.dtype not in LITERALS), "i64")
        if dtype in FLOATS:
            wide = [
                self._at(arg, axes)
                if _static(arg)
                else _shaped(self._convert(self.code(arg), arg.dtype, "f32"), arg.axes, axes)
                for arg in args
            ]
            if row.takes == "quotient" or all(map(_static, args)):
                wide = [
                    call("tl.full", "()", code, "tl.float32") if _static(arg) else code
                    for arg, code in zip(args, wide, strict=True)
                ]
            code = row.triton_floats(*wide)
            self._note_helper(code)
            return self._convert(code, "f32", "f32" if row.compares else dtype)
        if op in ("and", "or") and {bool(arg.axes) for arg in args} == {True, False}:
            block, flag = sorted(args, key=lambda each: not each.axes)
            name = "both" if op == "and" else "either"
            return self._help(name, self._at(block, axes), self.code(flag))
        given = [self._at(each, axes) for each in self._widened(args)]
        if all(map(_static, args)):
            given[0] = self._constant(given[0], dtype)
        unsigned = LIMITS.get(dtype, (-1,))[0] == 0
        if op in ("min", "max") and unsigned:  # Triton 3.7 takes a number beside one for an i32
            given = [
                self._constant(code, dtype) if _static(arg) else code
                for code, arg in zip(given, args, strict=True)
            ]
        if expr.rounds == "zero":
            return infix("//" if op == "floordiv" else "%", *given)
        code = row.triton(*given)
        self._note_helper(code)
        return code

    def _note_helper(self, code: Code) -> None:
        name = code.text.partition("(")[0]
        if name in HELPERS:
            self.helpers.add(name)

    def _widened(self, args: tuple[Expr, ...]) -> list[Expr]:
        """Operands without conversions to 64 bits that Triton makes by itself beside one that has them."""
        # A loop's counter is a number of Python's in Triton's interpreter.
        known = {
            arg for arg in args if isinstance(arg, Cast) or _static(arg) or arg in self.counters
        }
        wide = [arg.dtype == "i64" and arg not in known for arg in args]
        return [
            arg.arg
            if isinstance(arg, Cast) and (arg.arg.dtype, arg.dtype) == ("i32", "i64") and any(wide)
            else arg
            for arg in args
        ]

    # Reductions.

    def _masked(self, arg: Expr, mask: tuple[Expr, ...], neutral: Code, axes: Axes) -> Code:
        """What is combined, neutral where the mask does not hold."""
        code = self._at(arg, axes)
        if not mask:
            return code
        return call("tl.where", self._conditions(mask, axes), code, neutral)

    def _reduced(self, value: Reduce) -> Code:
        kind, axis = value.kind, value.axis
        axes = tuple(a for a in self.order if a in (*value.axes, axis))
        at = axes.index(axis)
        if kind == "tree":
            return self._tree_sum(
                self._masked(value.arg, value.mask, number(0.0), axes), axes, axis
            )
        each = self._masked(value.arg, value.mask, _neutral(kind, value.arg.dtype), axes)
        if kind in ("any", "all"):
            name = "max" if kind == "any" else "min"
            bits = call(f"tl.{name}", method(each, "to", "tl.int32"), f"axis={at}")
            return infix("!=", bits, number(0))
        if kind == "product":
            self.helpers.add("multiply")
            return call("tl.reduce", each, str(at), "multiply")
        return call(f"tl.{kind}", each, f"axis={at}")

    def _tree_sum(self, each: Code, axes: Axes, axis: str) -> Code:
        """The float sum of one order: the axis last, the others as rows."""
        block, left = self.widths[axis], tuple(a for a in axes if a != axis)
        if not left:
            return self._help("tree_sum", each, block)
        if axes[-1] != axis:
            order = [axes.index(a) for a in (*left, axis)]
            each = call("tl.permute", each, f"({', '.join(map(str, order))})")
        rows = Code(" * ".join(self.widths[a].text for a in left))
        if len(left) == 1:
            return self._help("tree_sum_rows", each, rows, block)
        flat = call("tl.reshape", each, f"({rows}, {block})")
        summed = self._help("tree_sum_rows", flat, rows, block)
        return call("tl.reshape", summed, self._shape(left))


def _uses(expr: Expr, names: set[str]) -> bool:
    return any(isinstance(each, Var) and each.name in names for each in ir.walk(expr))


def _static(expr: Expr) -> bool:
    """Whether an expression is known when the kernel is compiled."""
    match expr:
        case Num():
            return True
        case Arg(_, dtype):
            return dtype in (*LITERALS, "bool")
        case Op(
            op, args, dtype
        ):  # what is rounded or wraps around does so at run time, as elsewhere
            exact = dtype in (*LITERALS, "bool") or not (dtype in FLOATS or OPERATORS[op].leaves)
            return exact and all(map(_static, args))
    return False


def _narrow(item: Expr) -> Expr:
    """An index as it is before it is made 64 bits wide, which the address does by itself."""
    match item:
        case Cast(Var(_, "i32") as var, "i64"):
            return var
    return item


def _neutral(kind: str, dtype: DType) -> Code:
    if kind in ("any", "all"):
        return Code(str(kind == "all"))
    low, high = LIMITS.get(dtype, (0, 0))
    values = {"sum": 0, "cumsum": 0, "product": 1, "cumprod": 1, "min": high, "max": low}
    return number(values[kind])


def _shaped(code: Code, own: Axes, axes: Axes) -> Code:
    """`code`, whose axes are `own`, indexed so that it broadcasts over `axes`."""
    if not own or own == axes:
        return code
    at = ", ".join(":" if axis in own else "None" for axis in axes)
    return Code(f"{code.at(ATOM)}[{at}]")


def _comment(note: str) -> list[str]:
    return [f"# {note}"] if note else []


def _indent(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]
