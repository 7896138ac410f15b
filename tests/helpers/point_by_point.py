"""A typed group read point by point on Python's own numbers: what each element must hold after a call.

In: a typed group, the sizes and scalars of a call, the elements of its tensors. Out: what is stored where.
Of kgen it uses the classes of the typed tree and nothing else: types, rounding, reductions, guards and winners
are written again here. Raises `Fault` where a spec that was accepted does what no sound spec does.

A group becomes the text of a Python function, since a tree that is walked at each point is slow.
"""

from __future__ import annotations

import copy
import itertools
import math
import re
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from kgen.lang.typed import (
    Cast,
    Const,
    Given,
    Group,
    Index,
    Load,
    Op,
    Param,
    Reduce,
    Ref,
    Scan,
    Select,
    Store,
    Value,
)

LIMITS = {
    "bool": (0, 1),
    "u8": (0, 255),
    "i32": (-(2**31), 2**31 - 1),
    "i64": (-(2**63), 2**63 - 1),
}
FLOATS = ("f16", "bf16", "f32", "float")


class Fault(Exception):
    """What an accepted spec must not do. `kind` is a word or two, the message says where."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(f"{kind}: {what}")
        self.kind = kind


class Payload(float):
    """A NaN as it was loaded: where it is only moved its bits are kept."""

    __slots__ = ("bits",)

    def __new__(cls, bits: int) -> Payload:  # noqa: PYI034 - Python 3.10 has no Self
        made = super().__new__(cls, math.nan)
        made.bits = bits
        return made


# Rounding. Sums, products, quotients and roots in double precision, rounded once more, are those of f32.


def f32(number: float) -> float:
    """The nearest number of single precision, ties to even."""
    try:
        return struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)


def f16(number: float) -> float:
    """The nearest number of half precision, by way of f32."""
    number = f32(number)
    try:
        return struct.unpack("<e", struct.pack("<e", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)


def bf16(number: float) -> float:
    """The nearest number with eight bits, by way of f32."""
    number = f32(number)
    if math.isnan(number):
        return math.nan
    (bits,) = struct.unpack("<I", struct.pack("<f", number))
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def whole(number: int) -> float:
    """An integer as f32, rounded once."""
    size = abs(number)
    excess = size.bit_length() - 24
    if excess > 0:
        low = size & ((1 << excess) - 1)
        size >>= excess
        half = 1 << (excess - 1)
        size += low > half or (low == half and size & 1)
        size <<= excess
    return math.copysign(float(size), number) if number else 0.0


ROUND: dict[str, Callable[[float], float]] = {"f16": f16, "bf16": bf16, "f32": f32, "float": f32}


def divide(a: float, b: float) -> float:
    """The quotient of floats, in double precision."""
    if b == 0:
        if a == 0 or math.isnan(a):
            return math.nan
        return math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


def root(a: float) -> float:
    """The square root of a float, in double precision."""
    return math.sqrt(a) if a >= 0 else math.nan


def exp(a: float) -> float:
    """The formula of the language in f32 (Cephes, expf)."""
    if math.isnan(a):
        return math.nan
    x = min(max(a, -104.0), 89.0)
    n = f32(f32(f32(x * f32(1.44269504088896341)) + 12582912.0) - 12582912.0)
    r = f32(f32(x - f32(n * f32(0.693359375))) - f32(n * f32(-2.12194440e-4)))
    p = f32(r * f32(1.9875691500e-4))
    coefficients = (
        1.3981999507e-3,
        8.3334519073e-3,
        4.1665795894e-2,
        1.6666665459e-1,
        5.0000001201e-1,
    )
    for coefficient in coefficients[:-1]:
        p = f32(f32(p + f32(coefficient)) * r)
    p = f32(p + f32(coefficients[-1]))
    y = f32(f32(f32(p * f32(r * r)) + r) + 1.0)
    half = int(n) >> 1
    for part in (half, int(n) - half):
        y = f32(y * math.ldexp(1.0, part))
    return y


def smaller(a: float, b: float) -> float:
    """The smaller float, a NaN if there is one, the second of two zeros."""
    return math.nan if math.isnan(a) or math.isnan(b) else min(b, a)


def larger(a: float, b: float) -> float:
    """The larger float, likewise."""
    return math.nan if math.isnan(a) or math.isnan(b) else max(b, a)


# Whole numbers.


def wrap(number: int, dtype: str) -> int:
    """The low bits of a number."""
    low, high = LIMITS[dtype]
    return (number - low) % (high - low + 1) + low


def fit(number: int, dtype: str, place: str) -> int:
    """A number that must be one of its type."""
    low, high = LIMITS[dtype]
    if not low <= number <= high:
        raise Fault("overflow", f"{number} is not a number of {dtype} ({place})")
    return number


def quotient(a: int, b: int, place: str) -> int:
    """The quotient rounded down."""
    if b == 0:
        raise Fault("division by zero", place)
    return a // b


def remainder(a: int, b: int, place: str) -> int:
    """The remainder with the sign of the divisor."""
    if b == 0:
        raise Fault("division by zero", place)
    return a % b


# Reductions and scans, of lists.


def tree(values: list[float]) -> float:
    """The sum of floats in the one order of the language."""
    width = 1
    while width < len(values):
        width *= 2
    values = [*values, *[0.0] * (width - len(values))]
    while width > 1:
        width //= 2
        values = [f32(values[at] + values[at + width]) for at in range(width)]
    return values[0] if values else 0.0


def first(found: list[bool], none: int) -> int:
    """The first place where a condition holds."""
    return found.index(True) if True in found else none


def cumprod(values: Iterable[int]) -> list[int]:
    """Running products, which wrap around."""
    return list(itertools.accumulate(values, lambda a, b: wrap(a * b, "i64")))


class Poisoned(Exception):
    """What the spec calls undefined was read."""


POISON = object()


def defined(reader: Callable[..., Any]) -> Callable[..., Any]:
    """A reader that raises `Poisoned` for undefined elements."""

    def read(*items: int) -> Any:
        found = reader(*items)
        if found is POISON:
            raise Poisoned
        return found

    return read


@dataclass
class Array:
    """The elements of a tensor in row-major order."""

    shape: tuple[int, ...]
    data: list[Any]


@dataclass
class Call:
    """What a group is called with.

    Attributes:
        numbers: sizes and scalars, all that are not derived.
        tensors: the tensors of each argument, one for a plain one; None if it is optional and left out.
    """

    numbers: dict[str, Any]
    tensors: dict[str, list[Array] | None]


Written = dict[tuple[str, int], dict[int, Any]]  # tensor and its number in a list -> place -> value


@dataclass
class Outcome:
    """What a group stores, and the places whose contents it leaves undefined."""

    written: Written = field(default_factory=dict)
    undefined: dict[tuple[str, int], set[int]] = field(default_factory=dict)


@dataclass
class _Run:
    """One evaluation: what generated functions call."""

    group: Group
    call: Call
    poisoned: bool = False  # some elements are undefined
    host: Host = field(init=False)
    written: Written = field(default_factory=dict)
    owners: dict[tuple[str, int], dict[int, list[tuple[int, tuple[int, ...]]]]] = field(
        default_factory=dict
    )
    undefined: dict[tuple[str, int], set[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.host = Host(self.group, self.call)

    def load(self, name: str) -> Callable[..., Any]:
        """What reads an element of a tensor."""
        arrays = self.call.tensors[name]
        listed = self.group.tensors[name].length is not None

        def absent(*_: int) -> Any:
            raise Fault("ungiven", f"{name} is read, but the caller left it out")

        def outside(items: tuple[int, ...], shape: tuple[int, ...]) -> Fault:
            return Fault("out of bounds", f"{name}{list(items)} of {list(shape)} is read")

        if arrays is None:
            return absent
        if listed:
            each = [self._reader(array, outside) for array in arrays]

            def of_list(number: int, *items: int) -> Any:
                if not 0 <= number < len(each):
                    raise outside((number, *items), (len(each),))
                return each[number](*items)

            return of_list if not self.poisoned else defined(of_list)
        reader = self._reader(arrays[0], outside)
        return reader if not self.poisoned else defined(reader)

    @staticmethod
    def _reader(array: Array, outside: Callable[..., Fault]) -> Callable[..., Any]:
        shape, data = array.shape, array.data
        if len(shape) == 1:

            def one(at: int) -> Any:
                if not 0 <= at < shape[0]:
                    raise outside((at,), shape)
                return data[at]

            return one

        def several(*items: int) -> Any:
            place = 0
            for at, size in zip(items, shape, strict=True):
                if not 0 <= at < size:
                    raise outside(items, shape)
                place = place * size + at
            return data[place]

        return several

    def store(
        self, number: int, items: tuple[int, ...], value: Any, point: tuple[int, ...]
    ) -> None:
        """Note what a point of a store leaves."""
        key, place = self.place(number, items)
        self.owners.setdefault(key, {}).setdefault(place, []).append((number, point))
        self.written.setdefault(key, {})[place] = value

    def poison(self, number: int, items: tuple[int, ...] | None) -> None:
        """Note a point whose value is undefined; without items its place is, too."""
        if items is not None:
            key, place = self.place(number, items)
            self.undefined.setdefault(key, set()).add(place)
            return
        name = self.group.stores[number].tensor
        for member, array in enumerate(self.call.tensors[name] or ()):
            every = range(math.prod(array.shape))
            self.undefined.setdefault((name, member), set()).update(every)

    def place(self, number: int, items: tuple[int, ...]) -> tuple[tuple[str, int], int]:
        """The tensor and the flat place that the items of a store mean."""
        store = self.group.stores[number]
        arrays = self.call.tensors[store.tensor]
        assert arrays is not None
        member = 0
        if self.group.tensors[store.tensor].length is not None:
            member, items = items[0], items[1:]
            if not 0 <= member < len(arrays):
                raise Fault("out of bounds", f"{store.target_text} stores to tensor {member}")
        place = 0
        for at, size in zip(items, arrays[member].shape, strict=True):
            if not 0 <= at < size:
                where = f"{list(items)} of {list(arrays[member].shape)}"
                raise Fault("out of bounds", f"{store.target_text} stores to {where}")
            place = place * size + at
        return (store.tensor, member), place


@dataclass
class PointByPoint:
    """The reading of one group."""

    group: Group
    functions: dict[str, str] = field(default_factory=dict)
    numbered: itertools.count = field(default_factory=itertools.count)
    constants: dict[str, Any] = field(default_factory=dict)
    run: Callable[[_Run], Any] = field(init=False)

    def __post_init__(self) -> None:
        self.text = self._text()
        space: dict[str, Any] = dict(globals()) | self.constants
        exec(compile(self.text, f"<{self.group.name} point by point>", "exec"), space)
        self.run = space["run"]

    def outcome(self, call: Call) -> Outcome:
        """What a call leaves; raises `Fault` if the spec is not sound at it."""
        run = _Run(self.group, call)
        self._check_shapes(call)
        if not self.run(run):
            return Outcome()
        outcome = Outcome(run.written)
        shared = self._shared(run)
        if shared:
            self._undefined(call, shared, outcome)
        self._check_filled(call, run)
        return outcome

    def _check_shapes(self, call: Call) -> None:
        """The package's own idea of dimensions and derived sizes against the typed tree's."""
        sizes = Host(self.group, call)
        for name, tensor in self.group.tensors.items():
            arrays = call.tensors[name]
            if arrays is None:
                continue
            wanted = tuple(sizes.of(dim) for dim in tensor.dims)
            count = sizes.of(tensor.length) if tensor.length is not None else 1
            if len(arrays) != count or any(array.shape != wanted for array in arrays):
                shown = [array.shape for array in arrays]
                raise Fault(
                    "shape",
                    f"{name} is {shown}, but declared {count} of {wanted} at {call.numbers}",
                )
        for name, size in self.group.sizes.items():
            if size.derived is not None and call.numbers.get(name) != sizes.of(size.derived):
                raise Fault(
                    "shape", f"{name} is {call.numbers.get(name)}, not {sizes.of(size.derived)}"
                )

    def _shared(self, run: _Run) -> dict[tuple[str, int], set[int]]:
        """The places that several points own: undefined where `distinct: except` or `trusted` says so."""
        found: dict[tuple[str, int], set[int]] = {}
        for key, places in run.owners.items():
            for place, owners in places.items():
                if len(owners) > 1:
                    trusted = all(self.group.stores[number].trusted for number, _ in owners)
                    if not trusted and not self._repeats(run.call):
                        texts = [self.group.stores[number].target_text for number, _ in owners[:2]]
                        points = [point for _, point in owners[:2]]
                        raise Fault("collision", f"{texts} store to one place at {points}")
                    found.setdefault(key, set()).add(place)
        return found

    def _repeats(self, call: Call) -> bool:
        """Whether a tensor that is distinct but for one value holds that value twice."""
        for name, tensor in self.group.tensors.items():
            for array in call.tensors[name] or ():
                if tensor.distinct and len(set(array.data)) < len(array.data):
                    return tensor.repeats is not None
        return False

    def _undefined(
        self, call: Call, shared: dict[tuple[str, int], set[int]], outcome: Outcome
    ) -> None:
        """Add the shared places, and all that is made of what is read there."""
        tensors = dict(call.tensors)
        for (name, member), places in shared.items():
            outcome.undefined.setdefault((name, member), set()).update(places)
            arrays = list(tensors[name] or ())
            data = copy.copy(arrays[member].data)
            for place in places:
                data[place] = POISON
            arrays[member] = Array(arrays[member].shape, data)
            tensors[name] = arrays
        again = _Run(self.group, Call(call.numbers, tensors), poisoned=True)
        self.run(again)
        for key, places in again.undefined.items():
            outcome.undefined.setdefault(key, set()).update(places)

    def _check_filled(self, call: Call, run: _Run) -> None:
        for name, tensor in self.group.tensors.items():
            if tensor.mode != "out":
                continue
            for member, array in enumerate(call.tensors[name] or ()):
                stored = run.written.get((name, member), {})
                if len(stored) != math.prod(array.shape):
                    raise Fault(
                        "partly stored",
                        f"{len(stored)} of {math.prod(array.shape)} elements of {name}",
                    )

    # The text of the reading.

    def _text(self) -> str:
        group = self.group
        self.functions.clear()
        stores = [self._store(number, store) for number, store in enumerate(group.stores)]
        head = ["def run(run):"]
        head += [f"    p_{name} = run.host.number({name!r})" for name in group.sizes]
        head += [f"    p_{name} = run.host.number({name!r})" for name in group.scalars]
        head += [
            f"    g_{name} = run.call.tensors[{name!r}] is not None"
            for name, tensor in group.tensors.items()
            if tensor.optional
        ]
        if group.when is not None:
            head += ["    if not run.host.of(run.group.when):", "        return False"]
        for name, tensor in group.tensors.items():
            if tensor.mode != "out":
                head.append(f"    ld_{name} = run.load({name!r})")
        for index in group.extents:
            head.append(f"    n_{index} = run.host.extent({index!r})")
        functions = "".join(self.functions.values())
        return "\n".join(head) + "\n" + functions + "".join(stores) + "    return True\n"

    def _store(self, number: int, store: Store) -> str:
        lines, pad = [], "    "
        names = [name for name in self.group.extents if name in store.axes]
        for name in names:
            lines.append(f"{pad}for i_{name} in range(n_{name}):")
            pad += "    "
        point = f"({''.join(f'i_{name}, ' for name in names)})"
        lines += [f"{pad}place = None", f"{pad}try:"]
        inner = f"{pad}    "
        if store.decided:
            lines += self._decided(number, store, inner)
        if store.when is not None:
            lines.append(f"{inner}if {self.expr(store.when)}:")
            inner += "    "
        items = "".join(f"{self.expr(item)}, " for item in store.items)
        value = self.operand(store.value, self.group.tensors[store.tensor].dtype)
        lines += [
            f"{inner}place = ({items})",
            f"{inner}run.store({number}, place, {value}, {point})",
        ]
        lines += [f"{pad}except Poisoned:", f"{pad}    run.poison({number}, place)"]
        text = "\n".join(lines) + "\n"
        if store.decided:
            text = f"    rivals_{number} = {{}}\n{text}    winners(rivals_{number}, {store.target_text!r})\n"
        return text

    def _decided(self, number: int, store: Store, pad: str) -> list[str]:
        """Lines that note for each place who stores there, by the rule and by the typed condition."""
        keep, index = re.fullmatch(r".*collide (first|last) (\w+)", store.value_text).groups()  # type: ignore[union-attr]
        given = " when " in store.value_text.replace("\n", " ")
        assert store.when is not None
        own = store.when.args[0] if given and isinstance(store.when, Op) else None
        inside = f"{pad}if {self.expr(own)}:\n{pad}    " if own is not None else pad
        place = "".join(f"{self.expr(item)}, " for item in store.items)
        place += "".join(f"i_{other}, " for other in sorted(store.axes - {index}))
        rank = f"i_{index}" if keep == "first" else f"-i_{index}"
        won = self.expr(store.when)
        return [
            f"{inside}rivals_{number}.setdefault(({place}), []).append(({rank}, {won}))",
        ]

    def expr(self, value: Value) -> str:
        """The text of a value, of its own type."""
        match value:
            case Const(number, dtype):
                return self._literal(number, dtype)
            case Param(name, dtype):
                return f"f32(p_{name})" if dtype == "f32" else f"p_{name}"
            case Given(tensor):
                return f"g_{tensor}"
            case Index(name):
                return f"i_{name}"
            case Ref(name):
                return self._let(name)
            case Load(tensor, items):
                return f"ld_{tensor}({', '.join(map(self.expr, items))})"
            case Select(cond, then, other, dtype):
                arms = self.operand(then, dtype), self.operand(other, dtype)
                return f"({arms[0]} if {self.expr(cond)} else {arms[1]})"
            case Cast():
                return self._cast(value)
            case Reduce():
                return self._reduce(value)
            case Scan():
                return self._scan(value)
            case Op():
                return self._operate(value)
        raise AssertionError(value)

    def operand(self, value: Value, dtype: str) -> str:
        """The text of a value as a number of a type: a compile-time number takes it."""
        if value.dtype == dtype or dtype in ("int", "float", "bool"):
            return self.expr(value)
        if isinstance(value, Const):
            return self._literal(value.value, dtype)
        text = self.expr(value)
        if value.dtype == "int" and dtype in FLOATS:
            return f"{dtype}(whole({text}))"
        if value.dtype == "float":
            return f"{dtype}({text})"
        if value.dtype == "int":
            return f"fit({text}, {dtype!r}, {self._place(value)!r})"
        raise AssertionError(f"{value.dtype} is no operand of {dtype}")

    @staticmethod
    def _place(value: Value) -> str:
        span = getattr(value, "span", None)
        return f"line {span.line}, column {span.column}" if span is not None else ""

    @staticmethod
    def _literal(number: float, dtype: str) -> str:
        if dtype in FLOATS:
            rounded = (
                ROUND[dtype](whole(number)) if isinstance(number, int) else ROUND[dtype](number)
            )
            return f"({rounded!r})" if math.isfinite(rounded) else f"float('{rounded!r}')"
        return f"({bool(number)!r})" if dtype == "bool" else f"({int(number)!r})"

    def _function(self, axes: Iterable[str], name: str, body: str) -> str:
        """A call of a function of some indices that remembers what it has computed."""
        known = [each for each in self.group.extents if each in axes]
        names = ", ".join(f"i_{each}" for each in known)
        if name not in self.functions:
            self.functions[name] = ""  # in its place before what it is made of
            if known:
                key = f"({names},)"
                text = (
                    f"    known_{name} = {{}}\n    def {name}({names}):\n        key = {key}\n"
                    f"        if key not in known_{name}:\n            known_{name}[key] = {body}\n"
                    f"        return known_{name}[key]\n"
                )
            else:
                text = (
                    f"    known_{name} = []\n    def {name}():\n        if not known_{name}:\n"
                    f"            known_{name}.append({body})\n        return known_{name}[0]\n"
                )
            self.functions[name] = text
        return f"{name}({names})"

    def _let(self, name: str) -> str:
        let = self.group.lets[name].value
        if f"let_{name}" in self.functions:
            return self._function(let.axes, f"let_{name}", "")
        return self._function(let.axes, f"let_{name}", self.operand(let, let.dtype))

    def _cast(self, cast: Cast) -> str:
        source, target, text = cast.arg.dtype, cast.dtype, self.expr(cast.arg)
        if target in FLOATS:
            if source in FLOATS:
                return f"{target}({text})"
            return f"{target}(whole(int({text})))"
        if target == "bool":
            return f"({text} != 0)"
        if cast.wraps:
            return f"wrap({text}, {target!r})"
        if source == "bool":
            return f"int({text})"
        low, high = LIMITS.get(source, (-math.inf, math.inf))
        if LIMITS[target][0] <= low and high <= LIMITS[target][1]:
            return text
        return f"fit({text}, {target!r}, {self._place(cast)!r})"

    def _operate(self, value: Op) -> str:
        op, dtypes = value.op, {arg.dtype for arg in value.args}
        operand = next((d for d in dtypes if d not in ("int", "float")), None)
        if operand is None:
            operand = "float" if "float" in dtypes else "int"
        args = [self.operand(arg, operand) for arg in value.args]
        compare = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
        if op in compare:
            return f"({args[0]} {compare[op]} {args[1]})"
        if op in ("and", "or"):  # both sides are evaluated
            return f"({args[0]} {'&' if op == 'and' else '|'} {args[1]})"
        if op == "not":
            return f"(not {args[0]})"
        if operand in FLOATS:
            return self._floats(op, operand, args)
        return self._integers(value, args, self._place(value))

    @staticmethod
    def _floats(op: str, dtype: str, args: list[str]) -> str:
        infix = {"add": "+", "sub": "-", "mul": "*"}
        if op in infix:
            return f"{dtype}({args[0]} {infix[op]} {args[1]})"
        if op == "rsqrt":
            return f"{dtype}(divide(1.0, f32(root({args[0]}))))"
        if op in ("truediv", "sqrt", "exp"):
            called = {"truediv": "divide", "sqrt": "root", "exp": "exp"}[op]
            return f"{dtype}({called}({', '.join(args)}))"
        called = {"neg": "-", "abs": "abs", "min": "smaller", "max": "larger"}[op]
        return f"{called}({', '.join(args)})"

    def _integers(self, value: Op, args: list[str], place: str) -> str:
        match value.op:
            case "add" | "sub" | "mul":
                symbol = {"add": "+", "sub": "-", "mul": "*"}[value.op]
                text = f"({args[0]} {symbol} {args[1]})"
            case "neg":
                text = f"(-{args[0]})"
            case "abs":
                text = f"abs({args[0]})"
            case "floordiv" | "mod":
                called = {"floordiv": "quotient", "mod": "remainder"}[value.op]
                text = f"{called}({args[0]}, {args[1]}, {place!r})"
            case "min" | "max":
                return f"{value.op}({args[0]}, {args[1]})"
            case op:
                raise AssertionError(op)
        if value.dtype == "int" or value.op == "mod":
            return text
        if value.wraps or (value.dtype == "i64" and any(map(self.wild, value.args))):
            return f"wrap({text}, {value.dtype!r})"
        return f"fit({text}, {value.dtype!r}, {place!r})"

    def wild(self, value: Value) -> bool:
        """Whether a number is made of what may be any i64, so that arithmetic on it may wrap around."""
        group = self.group
        match value:
            case Load(tensor, _, dtype):
                declared = group.tensors[tensor]
                return dtype == "i64" and (declared.low is None or declared.high is None)
            case Param(name) if name in group.scalars:
                scalar = group.scalars[name]
                return scalar.dtype == "i64" and (scalar.low is None or scalar.high is None)
            case Const() | Param() | Given() | Index():
                return False
            case Ref(name):
                return self.wild(group.lets[name].value)
            case Cast(arg, _, _, wraps):
                return wraps or self.wild(arg)
            case Select(_, then, other):
                return self.wild(then) or self.wild(other)
            case Reduce(kind, _, arg, none):
                # Over nothing `min` and `max` are an end of the type.
                return (
                    kind in ("min", "max")
                    or self.wild(arg)
                    or (none is not None and self.wild(none))
                )
            case Scan(kind, _, arg):
                return kind == "cumprod" or self.wild(arg)
            case Op(_, args, _, _, wraps):
                return wraps or any(map(self.wild, args))
        raise AssertionError(value)

    def _reduce(self, value: Reduce) -> str:
        kind, index, arg = value.kind, value.index, value.arg
        each = f"[{self.operand(arg, arg.dtype)} for i_{index} in range(n_{index})]"
        if kind == "first":
            assert value.none is not None
            return f"first({each}, {self.operand(value.none, 'i64')})"
        if kind in ("any", "all"):
            return f"{kind}({each})"
        if kind in ("min", "max"):
            empty = LIMITS[value.dtype][kind == "min"]
            return f"{kind}({each}, default={empty})"
        if value.dtype == "f32":
            return f"tree({each})"
        if self.wild(arg):
            return f"wrap(sum({each}), 'i64')"
        return f"fit(sum({each}), 'i64', {self._place(value)!r})"

    def _scan(self, value: Scan) -> str:
        index, arg = value.index, value.arg
        each = f"[{self.operand(arg, 'i64')} for i_{index} in range(n_{index})]"
        if value.kind == "cumprod":
            body = f"cumprod({each})"
        elif self.wild(arg):
            body = f"[wrap(each, 'i64') for each in itertools.accumulate({each})]"
        else:
            place = self._place(value)
            body = f"[fit(each, 'i64', {place!r}) for each in itertools.accumulate({each})]"
        name = f"scan_{next(self.numbered)}"
        return f"{self._function(value.axes - {index}, name, body)}[i_{index}]"

    # How much there is to do.

    def work(self, call: Call) -> int:
        """About how many values an evaluation computes."""
        sizes = Host(self.group, call)
        extents = {name: sizes.extent(name) for name in self.group.extents}
        known: dict[str, int] = {}

        def of(value: Value) -> int:
            match value:
                case Ref(name):
                    if name not in known:
                        known[name] = 0
                        let = self.group.lets[name].value
                        lets.append(of(let) * math.prod(extents[axis] for axis in let.axes))
                    return 1
                case Reduce(_, index, arg, none):
                    return of(arg) * extents[index] + (of(none) if none is not None else 0)
                case Scan(_, index, arg):
                    return of(arg) * max(extents[index], 1)
            parts = getattr(value, "args", None) or getattr(value, "items", None)
            if isinstance(value, Select):
                parts = (value.cond, value.then, value.other)
            if isinstance(value, Cast):
                parts = (value.arg,)
            return 1 + sum(map(of, parts or ()))

        lets: list[int] = []
        total = 0
        for store in self.group.stores:
            each = sum(of(item) for item in (*store.items, store.value))
            each += of(store.when) if store.when is not None else 0
            total += each * math.prod(extents[axis] for axis in store.axes)
        return total + sum(lets)


def winners(rivals: dict[tuple[int, ...], list[tuple[int, bool]]], target: str) -> None:
    """Check that of the points that share a place the one that the rule names stores, and no other."""
    for place, each in rivals.items():
        best = min(rank for rank, _ in each)
        wrong = [rank for rank, won in each if won != (rank == best)]
        if wrong:
            raise Fault("winner", f"{target} at {place}: {each}")


@dataclass
class Host:
    """Sizes and scalars before a launch, in whole numbers of any length."""

    group: Group
    call: Call

    def number(self, name: str) -> float:
        """A size or a scalar."""
        size = self.group.sizes.get(name)
        if size is not None and size.derived is not None:
            return self.of(size.derived)
        return self.call.numbers[name]

    def extent(self, index: str) -> int:
        """How many values an index takes."""
        count = self.of(self.group.extents[index])
        if count < 0:
            raise Fault("negative extent", f"{index} takes {count} values")
        return count

    def of(self, value: Value) -> int:
        match value:
            case Const(number):
                return int(number)
            case Param(name):
                return int(self.number(name))
            case Cast(arg):
                return self.of(arg)
            case Select(cond, then, other):
                return self.of(then if self.of(cond) else other)
            case Op(op, args):
                a, *rest = (self.of(arg) for arg in args)
                b = rest[0] if rest else 0
                return HOST[op](a, b)
        raise AssertionError(value)


HOST: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: quotient(a, b, "a size"),
    "mod": lambda a, b: remainder(a, b, "a size"),
    "neg": lambda a, _: -a,
    "abs": lambda a, _: abs(a),
    "min": min,
    "max": max,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "and": lambda a, b: bool(a) & bool(b),
    "or": lambda a, b: bool(a) | bool(b),
    "not": lambda a, _: not a,
}
