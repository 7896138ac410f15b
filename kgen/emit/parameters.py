"""What a kernel is given: its parameters, and size expressions over them.

In: a `Plan`. Out: the parameters in order, and text for sizes and numbers of programs that reads the
same in a kernel and on the host (but for `tl.cdiv`).
"""

from __future__ import annotations

from dataclasses import dataclass

from kgen.analysis.ranges import Ranges
from kgen.lang.code import Code, call, infix, number, ternary
from kgen.lang.dtypes import DType
from kgen.lang.operators import compile_time
from kgen.lang.typed import Cast, Const, Given, Group, Load, Op, Param, Select, Tensor, Value, walk
from kgen.plan.plan import Plan, Role

TL_TYPES: dict[DType, str] = {
    "f16": "tl.float16",
    "bf16": "tl.bfloat16",
    "f32": "tl.float32",
    "int": "tl.int64",
    "float": "tl.float32",
    "bool": "tl.int1",
    "u8": "tl.uint8",
    "i32": "tl.int32",
    "i64": "tl.int64",
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel, in order.

    `kind`: pointer, address, stride, size, scalar, given, static or block; of a check also limit and
    buffer. `element` is the place in
    a list.
    """

    name: str
    kind: str
    type: str
    source: str
    dim: int = 0
    element: int | None = None


def parameters(plan: Plan) -> tuple[Parameter, ...]:
    """The kernel's parameters: pointers, strides, sizes, scalars, then compile-time ones."""
    group = plan.group
    used = {name for role in plan.roles for name in role.reads | role.writes}
    tensors = [tensor for tensor in group.tensors.values() if tensor.name in used]
    found: list[Parameter] = []
    for tensor in tensors:
        if tensor.length is None:
            found.append(Parameter(f"{tensor.name}_ptr", "pointer", tensor.dtype, tensor.name))
        for at in range(list_limit(group, tensor)):
            found.append(
                Parameter(f"{tensor.name}_{at}", "address", "i64", tensor.name, element=at)
            )
    for tensor in tensors:
        for dim in indexed(plan, tensor):
            name = f"{tensor.name}_stride_{dim}"
            if tensor.length is None:
                found.append(Parameter(name, "stride", "i64", tensor.name, dim))
            for at in range(list_limit(group, tensor)):
                found.append(Parameter(f"{name}_{at}", "stride", "i64", tensor.name, dim, at))
    found += [Parameter(name, "size", "i32", name) for name in plan.size_names]
    found += [
        Parameter(name, "scalar", group.scalars[name].dtype, name) for name in plan.scalar_names
    ]
    found += [Parameter(f"HAS_{name}", "given", "constexpr", name) for name in plan.given]
    found += [Parameter(name, "static", "constexpr", name) for name in plan.static_names]
    found += [
        Parameter(name, "block", "constexpr", axis.index) for name, axis in plan.blocks.items()
    ]
    return tuple(found)


def list_limit(group: Group, tensor: Tensor) -> int:
    """How many tensors a list may have: a kernel has an address for each; 0 if it is no list."""
    return int(Ranges(group).of(tensor.length)[1]) if tensor.length is not None else 0


def indexed(plan: Plan, tensor: Tensor) -> list[int]:
    """The dimensions whose stride an address needs: the caller's to choose, and not always at 0."""
    skip = 0 if tensor.length is None else 1
    needed: set[int] = set()
    for role in plan.roles:
        for store in (*role.stores, *role.once):
            places = [store.items] if store.tensor == tensor.name else []
            roots = (*store.items, store.value, *((store.when,) if store.when is not None else ()))
            for root in roots:
                for each in walk(root, plan.lets):
                    if isinstance(each, Load) and each.tensor == tensor.name:
                        places.append(each.items)
            for items in places:
                needed |= {dim for dim, item in enumerate(items[skip:]) if not is_zero(item)}
    return sorted(dim for dim in needed if strided(tensor, dim))


def is_zero(item: Value) -> bool:
    """Whether an index is the number 0."""
    return isinstance(item, Const) and item.value == 0


def strided(tensor: Tensor, dim: int) -> bool:
    """Whether a dimension's stride is the caller's to choose."""
    return tensor.layout == "any" or dim < len(tensor.dims) - 1


def programs_of(group: Group, role: Role, *, host: bool = False) -> Code:
    """How many programs a role has: text for the kernel or, with `tl.cdiv` read as cdiv, the host."""
    total: Code | None = None
    for axis in role.program:
        count = plain(group.extents[axis.index], host=host)
        if axis.kind == "tile":
            count = call("tl.cdiv", count, axis.block)
        total = count if total is None else infix("*", total, count)
    return total if total is not None else number(1)


def plain(value: Value, *, host: bool = False) -> Code:
    """A size expression on kernel arguments or compile-time numbers; `host`: in Python's own integers."""
    match value:
        case Const(literal):
            return number(literal)
        case Param(name):
            return Code(name)
        case Given(tensor):
            return Code(f"HAS_{tensor}")
        case Cast(arg):
            return plain(arg, host=host)
        case Select(cond, then, other):
            return ternary(*(plain(each, host=host) for each in (cond, then, other)))
        case Op(op, args):
            codes = [plain(arg, host=host) for arg in args]
            if op in ("floordiv", "mod") and value.dtype != "int" and not host:
                return call("floor_div" if op == "floordiv" else "floor_mod", *codes)
            return compile_time({"truncdiv": "floordiv", "truncmod": "mod"}.get(op, op), codes)
    raise AssertionError(f"{value} is not a size expression")
