"""What the templates show of one group, as text.

In: a group and its kernels. Out: `Emitted`, all that a package takes of a plan, and `View`, whose
properties the templates print.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kgen.kernel.debug import Note
from kgen.kernel.ir import Axes
from kgen.kernel.make import Made
from kgen.lang.dtypes import FLOATS
from kgen.lang.typed import Const, Group, Load, Param, Ref, Scalar, Select, Tensor, Value, walk
from kgen.package.page import Page
from kgen.plan.words import Words, words
from kgen.targets import host, reference, triton
from kgen.targets.layout import Tree, call, docstring, filled, literal, table, texts


@dataclass(frozen=True, slots=True)
class Emitted:
    """What is printed of one group's plan, and what its launch passes.

    `notes`, `distinct`, `trusted`: as in `Watch`. `tiles`: the indices that are gone through in tiles.
    """

    kernel: triton.Printed
    check: triton.Printed
    notes: tuple[Note, ...]
    distinct: tuple[str, ...]
    trusted: dict[str, tuple[Axes, ...]]
    reference: str
    programs: str
    blocks: dict[str, str | int]
    tiles: dict[str, int]
    warps: int | None
    lanes: str
    combined: str
    words: Words


def emit(made: Made) -> Emitted:
    """The text of a group."""
    plan, check = made.plan, made.watch
    return Emitted(
        kernel=triton.emit(made.kernel, plan.group),
        check=triton.emit(check.kernel, check.group),
        notes=check.notes,
        distinct=check.distinct,
        trusted=check.trusted,
        reference=reference.emit(plan.group).text,
        programs=host.programs_text(plan),
        blocks=host.blocks_of(plan),
        tiles={
            axis.index: axis.tile
            for axis in plan.blocks.values()
            if axis.tile is not None and not plan.group.static_extent(axis.index)
        },
        warps=plan.group.schedule.warps,
        lanes=host.lanes_of(plan),
        combined=host.combined_of(plan),
        words=words(plan),
    )


@dataclass(frozen=True, slots=True)
class View:
    """What the templates show of one group."""

    group: Group
    emitted: Emitted

    @property
    def kernel(self) -> triton.Printed:
        """The kernel."""
        return self.emitted.kernel

    @property
    def check(self) -> triton.Printed:
        """The check of debug mode."""
        return self.emitted.check

    @property
    def checked(self) -> bool:
        """Whether there is anything that debug mode has to look at."""
        return bool(self.emitted.notes or self.emitted.distinct or self.emitted.trusted)

    @property
    def reference(self) -> str:
        """The torch reference."""
        return self.emitted.reference

    @property
    def name(self) -> str:
        """The group's name."""
        return self.group.name

    @property
    def page(self) -> Page:
        """What the group's page says."""
        return Page(self.group, self.emitted.words)

    @property
    def operator(self) -> str:
        """The group's `Operator`."""
        blocks = {
            name: literal(block) if isinstance(block, str) else str(block)
            for name, block in self.emitted.blocks.items()
        }
        made = call(
            "Operator",
            signature(self.group),
            f"kernels.{self.kernel.name}",
            f"reference.{self.name}",
            programs=literal(self.emitted.programs),
            blocks=table(blocks) if blocks else None,
            lanes=self._lanes(self.emitted.lanes),
            combined=self._lanes(self.emitted.combined),
            warps=str(self.emitted.warps) if self.emitted.warps is not None else None,
        )
        return "\n".join(made.lines(f"{self.name} = "))

    def _lanes(self, text: str) -> str | None:
        return literal(text) if text and self.emitted.warps is None else None

    @property
    def function(self) -> str:
        """The public function: what it takes and what it is."""
        tensors, scalars = self.group.tensors.values(), self.group.scalars.values()
        every: list[Tensor | Scalar] = [*tensors, *scalars]
        every.sort(key=_spare)
        head = f"def {self.name}(*, {', '.join(map(_parameter, every))}) -> None:"
        doc = [self.group.summary, "", "Args:"]
        doc += [_tensor_doc(tensor) for tensor in tensors]
        doc += [f"    {s.name}: {s.text}.{_sentence(s.doc)}" for s in scalars]
        doc += ["", "Raises:", "    KgenCallError: an argument does not fit; nothing was written."]
        text = docstring("\n".join(filled(line, 92) for line in doc), "    ")
        return f"{_signature(head)}\n    {text}"

    # Debug mode.

    @property
    def checks(self) -> str:
        """The group's `Checks`."""
        emitted, group = self.emitted, self.group
        stored = dict.fromkeys(
            tuple(i for i in group.extents if i in store.axes) for store in group.stores
        )
        twins = {
            index: literal(
                max((n for n in group.extent_texts if index.startswith(f"{n}_")), key=len)
            )
            for index in group.extents
            if index not in group.extent_texts
        }
        every = [
            call("Check", literal(each.tensor), literal(each.what), texts(each.axes))
            for each in emitted.notes
        ]
        trusted = {
            name: call("Trusted", literal(self._apart[name]), _list(map(texts, stores)))
            for name, stores in emitted.trusted.items()
        }
        made = call(
            "Checks",
            emitted.check.name,
            extents=table({i: literal(host.host_text(e)) for i, e in group.extents.items()}),
            stores=_list(map(texts, stored)),
            checks=_list(every) if every else None,
            twins=table(twins) if twins else None,
            distinct=texts(emitted.distinct) if emitted.distinct else None,
            trusted=table(trusted) if trusted else None,
        )
        return "\n".join(made.lines(f"{self.name} = "))

    # Tests.

    @property
    def chain_text(self) -> str:
        """The functions of eager.py that this group replaces."""
        names = [f"`eager.{each.name}`" for each in self.group.eager]
        return f"the chain {names[0]}" if len(names) == 1 else f"the chains {', '.join(names)}"

    @property
    def chain_import(self) -> str:
        """The import of what joins several eager chains, if this group replaces several."""
        return chain_import("..", [self.group])

    @property
    def case(self) -> str:
        """The group's test case."""
        edges: dict[str, Tree | str] = {}
        for index, tile in self.emitted.tiles.items():
            for each in walk(self.group.extents[index], {}):
                if isinstance(each, Param):
                    edges[each.name] = f"({tile}, {tile + 1})"
        trusted = {each.text: literal(each.reason) for each in self.group.trusted}
        trusted |= {name: literal(reason) for name, reason in self._apart.items()}
        made = call(
            "testing.Case",
            f"ops.{self.name}",
            eager=chain(self.group),
            eager_ulps=str(self.group.eager_ulps) if self.group.eager_ulps else None,
            moved=texts(self._moved) if self._moved else None,
            trusted=table(trusted) if trusted else None,
            edges=table(edges) if edges else None,
        )
        return "\n".join(made.lines("CASE = "))

    @property
    def test_doc(self) -> str:
        """What the group's tests show, and what they can't without a GPU."""
        chain = " = eager chain" if self.group.eager else ""
        text = f"{self.name}: kernel = torch reference{chain}, to the bit. Generated by kgen; do not edit."
        if any(tensor.dtype in FLOATS for tensor in self.group.tensors.values()):
            text += (
                "\n\nIn Triton's interpreter, whose own bf16 is raw bits, conversions are bit arithmetic "
                "of the module\n(`bf16_to_f32`, `f32_to_bf16`): index math, masks and the place of every "
                "rounding are shown there,\nthe GPU's own conversions, rsqrt and division only on a GPU."
            )
        return docstring(text)

    @property
    def _apart(self) -> dict[str, str]:
        """Tensors whose places a store trusts to be distinct, and why."""
        stores = [store for store in self.group.stores if store.trusted]
        return {store.tensor: store.trusted for store in reversed(stores)}

    @property
    def _moved(self) -> tuple[str, ...]:
        """Tensors that only take over elements of others: NaN keeps its payload there."""
        tensors = self.group.tensors
        floats = {n for n, tensor in tensors.items() if tensor.written and tensor.dtype in FLOATS}
        computed = {s.tensor for s in self.group.stores if not _is_moved(s.value, self.group)}
        return tuple(name for name in tensors if name in floats - computed)


def chain(group: Group) -> Tree | str | None:
    """What a group replaces: a function of eager.py, or several as one."""
    functions: list[Tree | str] = [
        call("without", f"eager.{each.name}", *map(literal, each.without))
        if each.without
        else f"eager.{each.name}"
        for each in group.eager
    ]
    return call("chained", *functions) if len(functions) > 1 else next(iter(functions), None)


def chain_import(parent: str, groups: Iterable[Group]) -> str:
    """The line that imports what the eager chains of some groups are joined with; or nothing."""
    every = [group.eager for group in groups]
    used = {
        "chained": any(len(chains) > 1 for chains in every),
        "without": any(each.without for chains in every for each in chains),
    }
    names = [name for name, needed in used.items() if needed]
    return f"\nfrom {parent}_runtime import {', '.join(names)}" if names else ""


def signature(group: Group) -> Tree:
    """The `Signature` of a group."""
    scalars = {name: literal(each.text) for name, each in group.scalars.items()}
    defaults = {
        name: literal(host.host_text(each.default))
        for name, each in group.scalars.items()
        if each.default is not None
    }
    return call(
        "Signature",
        literal(group.name),
        sizes=table({name: literal(size.text) for name, size in group.sizes.items()}),
        scalars=table(scalars) if scalars else None,
        tensors=table({name: _argument(tensor) for name, tensor in group.tensors.items()}),
        defaults=table(defaults) if defaults else None,
        when=literal(host.host_text(group.when)) if group.when is not None else None,
    )


def _is_moved(value: Value, group: Group) -> bool:
    """Whether a value's bits are those of some element, whatever they are."""
    match value:
        case Load() | Const():
            return True
        case Select(_, then, other):
            return _is_moved(then, group) and _is_moved(other, group)
        case Ref(name):
            return _is_moved(group.lets[name].value, group)
    return False


def _spare(each: Tensor | Scalar) -> bool:
    """Whether a caller may leave an argument out."""
    return each.optional if isinstance(each, Tensor) else each.default is not None


def _parameter(each: Tensor | Scalar) -> str:
    if isinstance(each, Tensor):
        kind = "list[Tensor]" if each.length is not None else "Tensor"
    else:
        kind = "float" if each.dtype in FLOATS else "int"
    return f"{each.name}: {kind}{' | None = None' if _spare(each) else ''}"


def _signature(head: str) -> str:
    """The head of a function on as few lines as fit."""
    if len(head) <= 100:
        return head
    name, _, rest = head.partition("(")
    inner = rest.removesuffix(") -> None:")
    if len(inner) <= 96:
        return f"{name}(\n    {inner}\n) -> None:"
    parts = "\n".join(f"    {part}," for part in inner.split(", "))
    return f"{name}(\n{parts}\n) -> None:"


def _tensor_doc(tensor: Tensor) -> str:
    facts = [tensor.text, tensor.mode + (", may be left out" if tensor.optional else "")]
    facts += [f"values {tensor.values_text}"] if tensor.values_text else []
    facts += [f"expected {tensor.expected_text}"] if tensor.expected_text else []
    facts += [f"layout {tensor.layout}"] if tensor.layout != "rows" else []
    return f"    {tensor.name}: {', '.join(facts)}.{_sentence(tensor.doc)}"


def _argument(tensor: Tensor) -> Tree:
    """A tensor's declaration."""
    distinct = "true" if tensor.distinct else ""
    if tensor.repeats is not None:
        distinct = f"except {host.host_text(tensor.repeats)}"
    said = {
        "mode": tensor.mode if tensor.written else "",
        "values": tensor.values_text,
        "expected": tensor.expected_text,
        "distinct": distinct,
        "layout": tensor.layout if tensor.layout != "rows" else "",
        "length": host.host_text(tensor.length) if tensor.length is not None else "",
    }
    named = {name: literal(text) for name, text in said.items() if text}
    named |= {"optional": "True"} if tensor.optional else {}
    return call("TensorArg", literal(tensor.type_text), **named)


def _list(items: Iterable[Tree]) -> Tree:
    return Tree("[", tuple(("", item) for item in items), "]")


def _sentence(doc: str) -> str:
    return f" {doc[0].upper()}{doc[1:].removesuffix('.')}." if doc else ""
