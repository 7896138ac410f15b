"""A spec as frozen data: each part with its place, each expression still text.

In: a located tree whose shape the schema accepts. Out: `GroupSpec`. Does not read expressions.
"""

from __future__ import annotations

import hashlib
import keyword
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
    """One spec file."""

    name: Text
    summary: str
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


@dataclass(frozen=True, slots=True)
class Package:
    """A folder of spec files; `eager` is the text of its eager.py."""

    name: str
    folder: Path
    groups: tuple[GroupSpec, ...]
    eager: str | None


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
    for where, kind, context in schema.errors(plain(root)):
        _shape_error(root, where, kind, context, report)
    if len(report.diagnostics) > before:
        return None
    for key in ("tensors", "store"):
        part = root.get(key)
        if isinstance(part, Block) and not part.entries:
            report.add("missing-key", part.span, f"`{key}` is empty: a group has at least one")
            return None
    group = _group(root, shown, hashlib.sha256(text.encode()).hexdigest())
    _check_names(group, report)
    return group


def _shape_error(
    root: Block, path: tuple[str, ...], kind: str, context: dict[str, object], report: Report
) -> None:
    node: Node = root
    key: Text | None = None
    for step in path:
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
            report.add(
                "unknown-key",
                span,
                f"unknown key `{path[-1]}`",
                nearest(path[-1], schema.keys(path[:-1])),
            )
        case "missing":
            report.add("missing-key", span, f"`{shown}` is missing", f"add `{path[-1]}: ...` here")
        case "literal_error":
            report.add(
                "bad-choice",
                node.span,
                f"`{plain(node)}` is not a `{path[-1]}`",
                f"write {context.get('expected')}".replace("'", "`"),
            )
        case _:
            wanted = {"string_type": "text", "list_type": "a list"}.get(kind, "a mapping of keys")
            report.add("wrong-shape", span, f"`{shown}` must be {wanted}")


def _text(block: Block, key: str) -> Text | None:
    value = block.get(key)
    return _flat(value) if isinstance(value, Text) else None


def _flat(text: Text) -> Text:
    """A block or folded scalar as one line, since generated code quotes it."""
    if len(text.value.splitlines()) < 2:
        return text
    return Text(" ".join(text.value.split()), text.span, exact=False)


def _line(block: Block, key: str) -> str:
    """Prose as one line."""
    text = _text(block, key)
    words = " ".join(text.value.split()) if text is not None else ""
    # It stands in docstrings.
    return words.replace(chr(92), "/").replace('"""', "'")


def _need(block: Block, key: str) -> Text:
    value = _text(block, key)
    if value is None:
        raise AssertionError(f"the schema requires `{key}`")
    return value


def _pairs(block: Block, key: str) -> tuple[tuple[Text, Text], ...]:
    value = block.get(key)
    entries = value.entries if isinstance(value, Block) else ()
    return tuple((name, _flat(text)) for name, text in entries if isinstance(text, Text))


def _names(block: Block, key: str) -> tuple[Text, ...] | None:
    value = block.get(key)
    if not isinstance(value, Items):
        return None
    return tuple(item for item in value.items if isinstance(item, Text))


def _blocks(block: Block, key: str, short: str) -> tuple[tuple[Text, Block], ...]:
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
        name=_need(root, "group"),
        summary=_line(root, "summary"),
        eager=_text(root, "eager"),
        eager_ulps=_text(root, "eager_ulps"),
        when=_text(root, "when"),
        sizes=_pairs(root, "sizes"),
        scalars=tuple(
            ScalarSpec(
                name,
                _need(block, "type"),
                _text(block, "values"),
                _text(block, "default"),
                _line(block, "doc"),
            )
            for name, block in _blocks(root, "scalars", "type")
        ),
        tensors=tuple(
            TensorSpec(
                name,
                _need(block, "type"),
                _need(block, "mode").value if block.get("mode") else "in",
                _text(block, "values"),
                _text(block, "distinct"),
                _need(block, "layout").value if block.get("layout") else "rows",
                _text(block, "list"),
                _line(block, "optional") == "true",
                _line(block, "doc"),
            )
            for name, block in _blocks(root, "tensors", "type")
        ),
        indices=_pairs(root, "index"),
        lets=_pairs(root, "let"),
        masks=_pairs(root, "masks"),
        stores=tuple(
            StoreSpec(
                target,
                _need(block, "value"),
                _text(block, "when"),
                _text(block, "collide"),
                _line(block, "trusted"),
            )
            for target, block in _blocks(root, "store", "value")
        ),
        trusted=_pairs(root, "trusted"),
        program=_names(schedule, "program"),
        tile=_pairs(schedule, "tile"),
        warps=_text(schedule, "warps"),
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
            report.add(
                "bad-name",
                name.span,
                f"`{name.value}` can't be a name",
                "use letters, digits and underscores, start with a letter, and avoid Python's and "
                "the language's own words",
            )
    for name in declared:
        if name.value in seen:
            first = seen[name.value].span.line
            report.add(
                "duplicate-name", name.span, f"`{name.value}` is declared in line {first} too"
            )
        seen.setdefault(name.value, name)


# Words with a meaning in the language, and names that the generated modules use themselves.
_RESERVED = frozenset(
    "bool u8 i32 i64 bf16 f16 f32 min max abs clamp sum count any all first cumsum cumprod prefix "
    "wrap_u8 wrap_i32 wrap_i64 "
    "sqrt rsqrt exp given static true false self cls v device programs program pid op ops args rt "
    "tl triton torch kernels reference launch testing package grid kernel "
    "runs_kernels define NAMESPACE CASE warmup num_warps num_stages "
    "num_ctas maxnreg launch_pdl enable_fp_fusion debug floor_div floor_mod multiply smaller larger "
    "tree_sum tree_sum_rows bf16_to_f32 f32_to_bf16 Tensor KgenCallError".split()
)


def is_name(name: str) -> bool:
    """Whether `name` can be used in a spec and in generated code."""
    ascii_name = name.isascii() and name.isidentifier() and not name.startswith("_")
    return ascii_name and not keyword.iskeyword(name) and name not in _RESERVED


def read_packages(root: Path, report: Report) -> tuple[Package, ...]:
    """The packages in `root`: itself if it holds spec files, else its folders that do."""
    if not root.is_dir():
        report.add(
            "no-specs",
            Span(str(root), 1, 1, 2),
            f"{root} is not a folder",
            "give the folder that holds the packages, or one package: kgen build specs/",
        )
        return ()
    folders = [root] if _spec_files(root) else sorted(p for p in root.iterdir() if p.is_dir())
    packages = tuple(_read_package(folder, report) for folder in folders if _spec_files(folder))
    if not packages:
        report.add(
            "no-specs",
            Span(str(root), 1, 1, 2),
            f"no spec files (*.yaml) in {root} or in the folders under it",
            "a package is a folder of spec files: specs/PACKAGE/GROUP.yaml",
        )
    return packages


def _spec_files(folder: Path) -> list[Path]:
    files = [*folder.glob("*.yaml"), *folder.glob("*.yml")]
    return sorted(file for file in files if file.is_file())


def _read_package(folder: Path, report: Report) -> Package:
    groups: dict[str, GroupSpec] = {}
    if not is_name(folder.resolve().name):
        report.add(
            "bad-name",
            Span(str(folder), 1, 1, 2),
            f"the folder name `{folder.resolve().name}` can't be a package name",
            "use letters, digits and underscores",
        )
    for file in _spec_files(folder):
        group = read_group(file, file.as_posix(), report)
        if group is None:
            continue
        if group.name.value in groups:
            other = groups[group.name.value].file
            report.add(
                "duplicate-group",
                group.name.span,
                f"`{group.name.value}` is a group in {other} too",
            )
        groups.setdefault(group.name.value, group)
    eager_file = folder / "eager.py"
    eager = None
    if eager_file.is_file():
        eager = read_text(eager_file, eager_file.as_posix(), report)
    return Package(folder.resolve().name, folder, tuple(groups.values()), eager)
