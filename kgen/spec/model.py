"""A spec as frozen data: each part with its place, each expression still text.

In: a located tree whose shape the schema accepts. Out: `GroupSpec`. Does not read expressions.
"""

from __future__ import annotations

import hashlib
import keyword
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kgen.diagnostics import Report, Span, nearest
from kgen.spec import schema
from kgen.spec.located import Block, Items, Node, Text, parse, plain


@dataclass(frozen=True, slots=True)
class ScalarSpec:
    """A number of the caller: `type` is i32, i64 or static."""

    name: Text
    type: Text
    values: Text | None
    default: Text | None
    doc: str


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor of the caller."""

    name: Text
    type: Text
    mode: str
    values: Text | None
    expected: Text | None
    distinct: Text | None
    layout: str
    list: Text | None
    optional: bool
    doc: str


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """`target` is the place as written (`out[r, k]`), `value` what it gets where `when` holds."""

    target: Text
    value: Text
    when: Text | None
    collide: Text | None
    trusted: str


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """One spec file. `fuse`: the groups that it is made of; it has no declarations of its own then."""

    name: Text
    summary: str
    fuse: tuple[Text, ...]
    through: tuple[Text, ...]
    without: tuple[Text, ...]
    eager: Text | None
    eager_ulps: Text | None
    when: Text | None
    sizes: tuple[tuple[Text, Text], ...]
    scalars: tuple[ScalarSpec, ...]
    tensors: tuple[TensorSpec, ...]
    indices: tuple[tuple[Text, Text], ...]
    lets: tuple[tuple[Text, Text], ...]
    masks: tuple[tuple[Text, Text], ...]
    stores: tuple[StoreSpec, ...]
    trusted: tuple[tuple[Text, Text], ...]
    program: tuple[Text, ...] | None
    tile: tuple[tuple[Text, Text], ...]
    warps: Text | None
    file: str
    sha256: str


def read_text(path: Path, shown: str, report: Report) -> str | None:
    """The text of a file; None after reporting why it can't be read."""
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
    except UnicodeDecodeError as error:
        reason = f"byte {error.start} is not UTF-8"
    else:
        report.sources[shown] = text
        return text
    report.add("unreadable-file", Span(shown, 1, 1, 2), f"can't read {shown}: {reason}")
    return None


def read_group(path: Path, shown: str, report: Report) -> GroupSpec | None:
    """The spec in a file; None after reporting what is wrong with its shape."""
    text = read_text(path, shown, report)
    if text is None:
        return None
    before = len(report.diagnostics)
    root = parse(text, shown, report)
    if root is None:
        return None
    fused = root.get("fuse") is not None
    model, keys = (schema.Fused, schema.fused_keys) if fused else (schema.Group, schema.keys)
    for where, kind, context in schema.errors(plain(root), model):
        shape_error(root, where, kind, context, report, keys)
    if len(report.diagnostics) > before:
        return None
    for key in ("tensors", "store"):
        part = root.get(key)
        if isinstance(part, Block) and not part.entries:
            report.add("missing-key", part.span, f"`{key}` is empty: a group has at least one")
            return None
    for key in ("group", "summary"):
        words = root.get(key)
        if isinstance(words, Text) and not words.value.strip():
            report.add("missing-key", words.span, f"`{key}` is empty")
            return None
    group = _group(root, shown, hashlib.sha256(text.encode()).hexdigest())
    _check_names(group, report)
    return group


def shape_error(
    root: Block,
    path: tuple[str, ...],
    kind: str,
    context: dict[str, object],
    report: Report,
    keys: Callable[[tuple[str, ...]], list[str]] = schema.keys,
) -> None:
    """Report one of the schema's complaints at its place; `keys` are those to choose from at a path."""
    node: Node = root
    key: Text | None = None
    for step in path:
        if isinstance(node, Items) and step.isdigit() and int(step) < len(node.items):
            node = node.items[int(step)]
            if isinstance(node, Block) and node.entries:
                key = node.entries[0][0]
            continue
        if not isinstance(node, Block):
            break
        found = next(((k, v) for k, v in node.entries if k.value == step), None)
        if found is None:
            break
        key, node = found
    span = key.span if key is not None else Span(root.span.file, 1, 1, 2)
    shown = ".".join(path)
    match kind:
        case "extra_forbidden":
            cut = any(char in path[-1] for char in "()[]") or node == Text("", node.span)
            help = nearest(path[-1], keys(path[:-1]))
            if len(path) > 1 and cut:
                help = "inside {} a comma ends a value; put quotes around the one before this"
            report.add("unknown-key", span, f"unknown key `{path[-1]}`", help)
        case "missing":
            report.add("missing-key", span, f"`{shown}` is missing", f"add `{path[-1]}: ...` here")
        case "literal_error":
            report.add(
                "bad-choice",
                node.span,
                f"`{plain(node)}` is not a value of `{path[-1]}`",
                f"write {context.get('expected')}".replace("'", "`"),
            )
        case _:
            wanted, help = _WANTED.get(
                kind, ("a mapping of keys", "write `NAME: VALUE` under it, a line each")
            )
            if isinstance(node, Text) and not node.value:
                message = f"`{shown}` is empty; it must be {wanted}"
            else:
                message = f"`{shown}` must be {wanted}"
            report.add("wrong-shape", span, message, help)


_WANTED = {
    "string_type": ("text", "write it in one line, in quotes if it has brackets or commas"),
    "list_type": ("a list", "write [r, k]"),
}


def text_of(block: Block, key: str) -> Text | None:
    """The text of a key, on one line."""
    value = block.get(key)
    return flat(value) if isinstance(value, Text) else None


def flat(text: Text) -> Text:
    """A block or folded scalar as one line, since generated code quotes it."""
    if len(text.value.splitlines()) < 2:
        return text
    return Text(" ".join(text.value.split()), text.span, exact=False)


def line_of(block: Block, key: str) -> str:
    """Prose as one line."""
    text = text_of(block, key)
    return " ".join(text.value.split()) if text is not None else ""


def need(block: Block, key: str) -> Text:
    """The text of a key that the schema requires."""
    value = text_of(block, key)
    if value is None:
        raise AssertionError(f"the schema requires `{key}`")
    return value


def pairs_of(block: Block, key: str) -> tuple[tuple[Text, Text], ...]:
    """The entries of a mapping of texts."""
    value = block.get(key)
    entries = value.entries if isinstance(value, Block) else ()
    return tuple((name, flat(text)) for name, text in entries if isinstance(text, Text))


def names_of(block: Block, key: str) -> tuple[Text, ...] | None:
    """The items of a list of texts."""
    value = block.get(key)
    if not isinstance(value, Items):
        return None
    return tuple(item for item in value.items if isinstance(item, Text))


def blocks_of(block: Block, key: str, short: str) -> tuple[tuple[Text, Block], ...]:
    """The entries of `key`, a bare string written out as `{short: string}`."""
    value = block.get(key)
    entries = value.entries if isinstance(value, Block) else ()
    found = []
    for name, node in entries:
        if isinstance(node, Text):
            found.append((name, Block(((Text(short, node.span), node),), node.span)))
        elif isinstance(node, Block):
            found.append((name, node))
    return tuple(found)


def _group(root: Block, file: str, sha256: str) -> GroupSpec:
    schedule = root.get("schedule")
    schedule = schedule if isinstance(schedule, Block) else Block((), root.span)
    return GroupSpec(
        name=need(root, "group"),
        summary=line_of(root, "summary"),
        fuse=names_of(root, "fuse") or (),
        through=names_of(root, "through") or (),
        without=names_of(root, "without") or (),
        eager=text_of(root, "eager"),
        eager_ulps=text_of(root, "eager_ulps"),
        when=text_of(root, "when"),
        sizes=pairs_of(root, "sizes"),
        scalars=tuple(
            ScalarSpec(
                name,
                need(block, "type"),
                text_of(block, "values"),
                text_of(block, "default"),
                line_of(block, "doc"),
            )
            for name, block in blocks_of(root, "scalars", "type")
        ),
        tensors=tuple(
            TensorSpec(
                name,
                need(block, "type"),
                need(block, "mode").value if block.get("mode") else "in",
                text_of(block, "values"),
                text_of(block, "expected"),
                text_of(block, "distinct"),
                need(block, "layout").value if block.get("layout") else "rows",
                text_of(block, "list"),
                line_of(block, "optional") == "true",
                line_of(block, "doc"),
            )
            for name, block in blocks_of(root, "tensors", "type")
        ),
        indices=pairs_of(root, "index"),
        lets=pairs_of(root, "let"),
        masks=pairs_of(root, "masks"),
        stores=tuple(
            StoreSpec(
                target,
                need(block, "value"),
                text_of(block, "when"),
                text_of(block, "collide"),
                line_of(block, "trusted"),
            )
            for target, block in blocks_of(root, "store", "value")
        ),
        trusted=pairs_of(root, "trusted"),
        program=names_of(schedule, "program"),
        tile=pairs_of(schedule, "tile"),
        warps=text_of(schedule, "warps"),
        file=file,
        sha256=sha256,
    )


def _check_names(group: GroupSpec, report: Report) -> None:
    seen: dict[str, Text] = {}
    declared = (
        *(name for name, _ in group.sizes),
        *(scalar.name for scalar in group.scalars),
        *(tensor.name for tensor in group.tensors),
        *(name for table in (group.indices, group.lets, group.masks) for name, _ in table),
    )
    for name in (group.name, *declared):
        if not is_name(name.value):
            taken = name.value in _RESERVED or keyword.iskeyword(name.value)
            reason = (
                "is taken by Python, the language or generated code" if taken else "can't be a name"
            )
            report.add(
                "bad-name",
                name.span,
                f"`{name.value}` {reason}",
                f"write another: {name.value}_"
                if taken
                else "use ASCII letters, digits and underscores, and start with a letter",
            )
    for name in declared:
        if name.value in seen:
            first = seen[name.value].span.line
            report.add(
                "duplicate-name", name.span, f"`{name.value}` is declared in line {first} too"
            )
        seen.setdefault(name.value, name)
    # A kernel's variables get other names where these are taken, its parameters keep them.
    own: list[tuple[Text, list[str]]] = [
        *(
            (index, [f"{kind}_{index.value}" for kind in ("LANES", "LOOP", "ONCE", "TILE")])
            for index, _ in group.indices
        )
    ]
    for tensor in group.tensors:
        its = tensor.name.value
        memory = its if tensor.list is not None else f"{its}_ptr"
        strides = [f"{its}_stride_{dim}" for dim in range(tensor.type.value.count(",") + 1)]
        own.append((tensor.name, [memory, f"HAS_{its}", *strides]))
    own += [(name, [name.value]) for name, _ in group.sizes]
    own += [(scalar.name, [scalar.name.value]) for scalar in group.scalars]
    parameters: dict[str, Text] = {}
    for each, names in own:
        for parameter in names:
            other = parameters.setdefault(parameter, each)
            if other.value != each.value:
                report.add(
                    "bad-name",
                    each.span,
                    f"`{parameter}` is a parameter that the kernel has for `{other.value}`",
                    f"write another: {each.value}_",
                )


# Words with a meaning in the language, and names that the generated modules use themselves.
_RESERVED = frozenset(
    "bool u8 i32 i64 bf16 f16 f32 min max abs clamp sum count any all first cumsum cumprod prefix "
    "wrap_u8 wrap_i32 wrap_i64 "
    "sqrt rsqrt exp given static true false self cls device programs program pid ops pick follow PDL "
    "tl triton torch kernels reference launch testing package grid kernel eager calls register "
    "runs_kernels configure no_jit warm define NAMESPACE CASE warmup num_warps num_stages "
    "num_ctas maxnreg launch_pdl enable_fp_fusion debug floor_div floor_mod multiply smaller larger "
    "tree_sum tree_sum_rows bf16_to_f32 f32_to_bf16 Tensor KgenCallError Operator Signature TensorArg "
    "KgenDeviceCheckError GROUPS Check Checks Trusted".split()
)


def is_name(name: str) -> bool:
    """Whether `name` can be used in a spec and in generated code."""
    ascii_name = name.isascii() and name.isidentifier() and not name.startswith("_")
    return ascii_name and not keyword.iskeyword(name) and name not in _RESERVED
