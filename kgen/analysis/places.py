"""Which places of a tensor a group stores to: each once, all of them, and read by nobody else.

In: a typed group. Out: diagnostics (`collision`, `partly-stored`, `race`), and for each store the
places whose contents are undefined because their owner may repeat. Index expressions are compared as
polynomials over sizes, indices and opaque parts; what that cannot show is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kgen.analysis import clashes
from kgen.analysis.ranges import Ranges
from kgen.diagnostics import Report, listed
from kgen.lang.dtypes import DType
from kgen.lang.text import spec_text
from kgen.lang.typed import (
    Axes,
    Cast,
    Const,
    Group,
    Index,
    Load,
    Op,
    Param,
    Ref,
    Store,
    Tensor,
    Value,
    children,
    walk,
)

# A monomial is a sorted tuple of atoms' texts; a polynomial maps monomials to coefficients.
Monomial = tuple[str, ...]
Poly = dict[Monomial, int]


@dataclass(frozen=True, slots=True)
class Undefined:
    """The place `value` in dimension `dim` of `tensor`: several rows may own it."""

    tensor: str
    dim: int
    value: Value


@dataclass(slots=True)
class Algebra:
    """Index expressions of a group as polynomials; `atoms` says what each name in them stands for.

    `strict`: i64 arithmetic that may wrap around is an atom too, so that each polynomial is the value.
    Otherwise it is the value but for multiples of 2**64, which still tells two places apart.
    """

    group: Group
    ranges: Ranges
    strict: bool = False
    atoms: dict[str, Value] = field(default_factory=dict)

    def poly(self, value: Value) -> Poly:
        """An integer expression as a polynomial; what is not one becomes an atom."""
        match value:
            case Const(number):
                return {(): int(number)} if number else {}
            case Ref(name):
                return self.poly(self.group.lets[name].value)
            case Param(name) if name in self.group.sizes and self.group.sizes[name].derived:
                derived = self.group.sizes[name].derived
                return self.poly(derived) if derived is not None else {}
            case Cast(arg) if arg.dtype != "bool" and self.ranges.fits(arg, value.dtype):
                return self.poly(arg)
            case Op(_, _, dtype) if self._may_wrap(value, dtype):
                pass
            case Op("add" | "sub" | "mul" | "neg"):
                exact = self.exact(value)
                if exact is not None:
                    return exact
        atom = spec_text(value).text
        self.atoms[atom] = value
        return {(atom,): 1}

    def exact(self, value: Value) -> Poly | None:
        """What a sum, a difference, a product or a conversion is before it is cut to its type."""
        match value:
            case Op("add", (a, b)):
                return add(self.poly(a), self.poly(b), 1)
            case Op("sub", (a, b)):
                return add(self.poly(a), self.poly(b), -1)
            case Op("mul", (a, b)):
                return multiply(self.poly(a), self.poly(b))
            case Op("neg", (a,)):
                return add({}, self.poly(a), -1)
            case Cast(arg) if arg.dtype != "bool":
                return self.poly(arg)
        return None

    def _may_wrap(self, value: Value, dtype: DType) -> bool:
        narrow = dtype in ("u8", "i32") or (self.strict and dtype == "i64")
        return narrow and not self.ranges.fits(value, dtype)

    def axes(self, monomial: Monomial) -> Axes:
        """The indices that a monomial varies with."""
        return frozenset().union(*(self.atoms[atom].axes for atom in monomial))

    def poly_axes(self, poly: Poly) -> Axes:
        """The indices that a polynomial varies with."""
        return frozenset().union(*(self.axes(monomial) for monomial in poly))

    def extent(self, index: str) -> Poly:
        """How many values an index takes."""
        return self.poly(self.group.extents[index])

    def least(self, poly: Poly) -> float:
        """A lower bound, each index at the end of its range that makes the polynomial smallest."""
        bound: Poly = {}
        for monomial, coefficient in poly.items():
            index = self.atoms[monomial[0]] if len(monomial) == 1 else None
            if not isinstance(index, Index):
                bound = add(bound, {monomial: coefficient}, 1)
            elif coefficient < 0:
                last = add(self.extent(index.name), {(): 1}, -1)
                bound = add(bound, multiply(last, {(): coefficient}), 1)
        total: float = 0
        for monomial, coefficient in bound.items():
            low = high = 1.0
            for atom in monomial:
                a, b = self.ranges.of(self.atoms[atom])
                ends = (low * a, low * b, high * a, high * b)
                low, high = min(ends), max(ends)
            total += coefficient * (low if coefficient > 0 else high)
        return total

    # One store.

    def determined(self, items: tuple[Value, ...]) -> tuple[Axes, tuple[tuple[int, Value], ...]]:
        """The indices that a place gives away, and the item values that several points may share."""
        known: Axes = frozenset()
        polys = [self.poly(item) for item in items]
        repeats: dict[int, Value] = {}
        grown = True
        while grown:
            grown = False
            for dim, poly in enumerate(polys):
                new, repeat = self._solve(poly, known)
                if new:
                    known, grown = known | new, True
                    if repeat is not None:
                        repeats[dim] = repeat
        return known, tuple(sorted(repeats.items(), key=lambda each: each[0]))

    def _solve(self, poly: Poly, known: Axes) -> tuple[Axes, Value | None]:
        open_terms = [m for m in poly if self.axes(m) - known]
        if not open_terms:
            return frozenset(), None
        if len(open_terms) == 1 and len(open_terms[0]) == 1:
            atom = self.atoms[open_terms[0][0]]
            if isinstance(atom, Index):
                return atom.axes, None
            if isinstance(atom, Load) and self.group.tensors[atom.tensor].distinct:
                new, repeats = self.determined(atom.items)
                if atom.axes - known <= new and not repeats:
                    return atom.axes, self.group.tensors[atom.tensor].repeats
        radix = self._radix(poly, known)
        return (radix[0], None) if radix else (frozenset(), None)

    def _radix(self, poly: Poly, known: Axes) -> tuple[Axes, Poly] | None:
        """Indices in mixed radix, `r * Q + j` with j < Q; and how many places they fill."""
        factors: dict[str, Poly] = {}
        for monomial, coefficient in poly.items():
            open_atoms = [a for a in monomial if self.atoms[a].axes - known]
            if not open_atoms:
                continue
            rest = list(monomial)
            rest.remove(open_atoms[0])
            if len(open_atoms) != 1 or not isinstance(self.atoms[open_atoms[0]], Index):
                return None
            if self.poly_axes({tuple(rest): 1}):
                return None
            factor = factors.setdefault(open_atoms[0], {})
            factors[open_atoms[0]] = add(factor, {tuple(rest): coefficient}, 1)
        width: Poly = {(): 1}
        left = dict(factors)
        while left:
            name = next((name for name, factor in left.items() if factor == width), None)
            if name is None:
                return None
            del left[name]
            index = self.atoms[name]
            assert isinstance(index, Index)
            width = multiply(width, self.extent(index.name))
        return frozenset().union(*(self.atoms[name].axes for name in factors)), width

    def covers(self, store: Store) -> list[tuple[Poly, Poly]] | None:
        """For each dimension the half-open range of places that an unconditional store fills."""
        if store.when is not None:
            return None
        used: Axes = frozenset()
        spans: list[tuple[Poly, Poly]] = []
        for item in store.items:
            poly = self.poly(item)
            axes = self.poly_axes(poly)
            if axes & used:
                return None
            used |= axes
            if not axes:
                spans.append((poly, add(poly, {(): 1}, 1)))
                continue
            radix = self._radix(poly, frozenset())
            if radix is None:
                return None
            start = {m: c for m, c in poly.items() if not self.axes(m)}
            spans.append((start, add(start, radix[1], 1)))
        return spans

    def apart(self, a: Store, b: Store) -> bool:
        """Whether no place of one store is a place of the other."""
        for x, y in zip(a.items, b.items, strict=True):
            one, two = self.poly(x), self.poly(y)
            # The indices of one store are not those of the other, whatever their names.
            for low, high in ((one, two), (two, one)):
                gap = add(self.extreme(high, upper=False), self.extreme(low, upper=True), -1)
                if self.least(gap) > 0:
                    return True
        return False

    def extreme(self, poly: Poly, *, upper: bool) -> Poly:
        """A bound on a polynomial that varies with no index."""
        total: Poly = {}
        for monomial, coefficient in poly.items():
            value = self.atoms[monomial[0]] if len(monomial) == 1 else None
            if not self.axes(monomial):
                total = add(total, {monomial: coefficient}, 1)
            elif isinstance(value, Index):
                if (coefficient > 0) == upper:
                    last = add(self.extent(value.name), {(): 1}, -1)
                    total = add(total, multiply(last, {(): coefficient}), 1)
            else:
                sign = -1 if upper else 1
                bound = self.least({monomial: sign * coefficient})
                total = add(total, {(): sign * int(max(min(bound, 2**64), -(2**64)))}, 1)
        return total


def check_places(group: Group, report: Report) -> tuple[Undefined, ...]:
    """Report collisions, gaps and races; return the places that several rows may own."""
    algebra = Algebra(group, Ranges(group))
    undefined: list[Undefined] = []
    for number, store in enumerate(group.stores):
        known, repeats = algebra.determined(store.items)
        missing = sorted(store.axes - known - store.decided)
        if missing and not store.trusted:
            report.add(
                "collision",
                store.span,
                f"`{store.target_text}` may be one place for several values of " + listed(missing),
                "store at an index that is theirs alone; if a tensor gives the place, declare it "
                "`distinct`; or say who wins (`collide: first k`), or why it can't happen (`trusted: "
                "reason`)",
                example=clashes.meeting(group, store, store),
            )
        undefined += [Undefined(store.tensor, dim, value) for dim, value in repeats]
        for other in group.stores[:number]:
            if store.trusted and other.trusted:
                continue
            if other.tensor == store.tensor and not algebra.apart(other, store):
                report.add(
                    "collision",
                    store.span,
                    f"`{store.target_text}` and `{other.target_text}` may be one place",
                    "one store for each place: join them with `a if condition else b`",
                    ((other.span, "the other store"),),
                    clashes.meeting(group, other, store),
                )
    for tensor in group.tensors.values():
        if tensor.mode == "out":
            _check_covered(algebra, tensor, report)
    return tuple(undefined)


def _check_covered(algebra: Algebra, tensor: Tensor, report: Report) -> None:
    stores = [store for store in algebra.group.stores if store.tensor == tensor.name]
    if not stores:
        return
    length = () if tensor.length is None else (tensor.length,)
    dims = [algebra.poly(dim) for dim in (*length, *tensor.dims)]
    filled = [spans for store in stores if (spans := algebra.covers(store)) is not None]
    left = ""
    for along in range(len(dims)):
        whole = [
            spans
            for spans in filled
            if all(spans[dim] == ({}, dims[dim]) for dim in range(len(dims)) if dim != along)
        ]
        reached: Poly = {}
        for _ in whole:
            reached = next((s[along][1] for s in whole if s[along][0] == reached), reached)
        if reached == dims[along]:
            return
        if whole:
            texts = [spec_text(dim).text for dim in (*length, *tensor.dims)]
            where = f" in dimension {along}" if len(dims) > 1 else ""
            shown = poly_text(reached)
            left = (
                f"they fill the first {shown} of {texts[along]} places{where}"
                if reached
                else f"nothing is stored at place 0{where}"
            )
    guarded = [store for store in stores if store.when is not None]
    if not left and guarded:
        left = f"`{guarded[0].target_text}` is stored only where its condition holds"
    elif not left and not filled:
        left = f"kgen can't read off which places `{stores[0].target_text}` goes through"
    report.add(
        "partly-stored",
        tensor.span,
        f"the stores to the `out` tensor `{tensor.name}` are not shown to fill it: "
        + (left or "each leaves a part of more than one dimension"),
        f"store at every index of {tensor.text}, without `when`; or declare it with mode: inout "
        "if the rest shall keep what it held",
        tuple((store.span, "a store") for store in stores),
        clashes.gap(algebra.group, tensor),
    )


def check_races(
    group: Group, store: Store, programs: Axes, stores: tuple[Store, ...], report: Report
) -> None:
    """Report a place that one program stores to and another may read: no order holds between them.

    Args:
        group: the group.
        store: what is stored.
        programs: the indices that the store's programs are laid over.
        stores: all stores of the launch, whose values read.
        report: takes the mistakes.
    """
    algebra = Algebra(group, Ranges(group))
    roots = [v for s in stores for v in (*s.items, s.value, *((s.when,) if s.when else ()))]
    loads = {each for root in roots for each in walk(root, group.lets) if isinstance(each, Load)}
    running = store.axes & programs
    places = [algebra.poly(item) for item in store.items]
    for load in sorted(loads, key=str):
        if load.tensor != store.tensor:
            continue
        reads = [algebra.poly(item) for item in load.items]
        both = zip(store.items, places, reads, strict=True)
        same = tuple(item for item, a, b in both if a == b)
        if not running <= algebra.determined(same)[0]:
            report.add(
                "race",
                store.span,
                f"`{store.tensor}` is read at another place than `{store.target_text}`: another "
                "program may store there first",
                "read it at the index that it is stored at, or store to another tensor",
                ((load.span, "the read"),),
                clashes.race(group, store, programs),
            )
            return


def loads_of(group: Group, value: Value) -> set[str]:
    """The tensors that a value reads."""
    return {each.tensor for each in walk(value, group.lets) if isinstance(each, Load)}


def bound_indices(group: Group, value: Value) -> set[str]:
    """The indices that reductions and scans in a value run over."""
    found = set()
    for each in walk(value, group.lets):
        index = getattr(each, "index", None)
        if index is not None and children(each):
            found.add(index)
    return found


def add(a: Poly, b: Poly, sign: int) -> Poly:
    """A + sign * b."""
    total = dict(a)
    for monomial, coefficient in b.items():
        total[monomial] = total.get(monomial, 0) + sign * coefficient
    return {monomial: coefficient for monomial, coefficient in total.items() if coefficient}


def poly_text(poly: Poly) -> str:
    """A polynomial in the language of the specs."""
    text = ""
    for monomial, coefficient in sorted(poly.items(), key=lambda each: (-len(each[0]), each[0])):
        factors = [str(abs(coefficient))] if abs(coefficient) != 1 or not monomial else []
        sign = (" - " if text else "-") if coefficient < 0 else (" + " if text else "")
        text += sign + " * ".join([*factors, *monomial])
    return text or "0"


def multiply(a: Poly, b: Poly) -> Poly:
    """A * b."""
    total: Poly = {}
    for x, p in a.items():
        for y, q in b.items():
            total = add(total, {tuple(sorted((*x, *y))): p * q}, 1)
    return total
