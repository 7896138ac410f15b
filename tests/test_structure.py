"""How kgen is put together: one-way imports, no large parts, no group known by name, guides that are true."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kgen.runtime._dtypes import ROWS

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "kgen").rglob("*.py"))
# Each phase may import those before it and its own modules.
PHASES = [
    "diagnostics",
    "spec",
    "lang",
    "prove",
    "plan",
    "cache",
    "front",
    "kernel",
    "targets",
    "package",
    "build",
    "cli",
]
# Lines beyond which a function or a class is more than one idea.
LONGEST = {ast.FunctionDef: 80, ast.ClassDef: 400}
# Generated code and measurements run where kgen's own needs are not installed.
AT_RUN_TIME = {"torch", "triton"}
# The table of element types, which is vendored too; it needs nothing itself.
TABLE = "kgen.runtime._dtypes"
GUIDES = [path for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md") if path.is_file()]
GUIDES += sorted((ROOT / "docs").rglob("*.md"))


def module_of(path: Path) -> str:
    """The dotted name of a file below the root."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def phase_of(module: str) -> str:
    """`spec` of `kgen.spec.model`; nothing of `kgen` itself."""
    return module.partition(".")[2].split(".")[0]


def imports(path: Path) -> Iterator[str]:
    """The modules that a file imports anywhere in it, with dots in front if relative."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            # `from kgen.targets import triton` imports a module of that package.
            below = ROOT / (node.module or "").replace(".", "/")
            for alias in node.names:
                is_module = not node.level and (below / f"{alias.name}.py").is_file()
                yield f"{module}.{alias.name}" if is_module else module


def test_the_rules_know_every_phase() -> None:
    found = {phase_of(module_of(path)) for path in SOURCES}
    assert found == {*PHASES, "", "__main__", "runtime", "bench"}


@pytest.mark.parametrize("path", SOURCES, ids=module_of)
def test_imports_go_one_way(path: Path) -> None:
    phase = phase_of(module_of(path))
    if phase in ("runtime", "bench"):
        allowed = {phase}
    elif phase == "__main__":
        allowed = {"cli"}
    else:
        # The root of the package holds the version alone; every phase may ask for it.
        allowed = {"", *PHASES[: PHASES.index(phase) + 1]} if phase else set()
        allowed |= {"bench"} if phase == "cli" else set()
    wrong = [
        each
        for each in imports(path)
        if each.split(".")[0] == "kgen"
        and phase_of(each) not in allowed
        and not each.startswith(TABLE)
    ]
    assert not wrong


# What says again what another part has said, and the parts that it may not know, not even through others.
INDEPENDENT = {
    "kgen.kernel.judge": (
        "kgen.plan",
        "kgen.kernel.bodies",
        "kgen.kernel.lower",
        "kgen.kernel.passes",
        "kgen.targets",
    ),
    "kgen.kernel.run": ("kgen.prove", "kgen.plan", "kgen.kernel.lower", "kgen.kernel.passes"),
    "kgen.targets.reference": ("kgen.prove", "kgen.plan", "kgen.kernel"),
    "kgen.targets.triton": ("kgen.prove", "kgen.plan", "kgen.kernel.lower", "kgen.kernel.passes"),
}


@pytest.mark.parametrize("module", INDEPENDENT)
def test_readings_share_nothing_that_they_check(module: str) -> None:
    paths = {module_of(path): path for path in SOURCES}
    known, todo = set[str](), [module]
    while todo:
        each = todo.pop()
        if each in paths and each not in known:
            known.add(each)
            todo += imports(paths[each])
    wrong = [each for each in known for banned in INDEPENDENT[module] if each.startswith(banned)]
    assert not wrong


@pytest.mark.parametrize("path", sorted((ROOT / "kgen" / "runtime").glob("_*.py")), ids=module_of)
def test_vendored_modules_need_torch_and_triton_alone(path: Path) -> None:
    for each in imports(path):
        if each.startswith("."):
            assert (path.parent / f"{each[1:]}.py").is_file(), "each other alone"
        else:
            assert each.split(".")[0] in AT_RUN_TIME | sys.stdlib_module_names, each


def test_vendored_modules_know_element_types_by_their_table() -> None:
    """So that a type is one row of it."""
    names = {name for row in ROWS for name in (row.name, row.torch)}
    names -= {
        "bool",
        "i64",
        "int64",
        "int32",
        "uint8",
        "float32",
    }  # what is counted, noted, summed in
    names -= {"i32", "f32"}  # in examples of declarations
    for path in sorted((ROOT / "kgen" / "runtime").glob("_*.py")):
        words = set(re.findall(r"\w+", path.read_text(encoding="utf-8")))
        assert path.name == "_dtypes.py" or not words & names, path.name


@pytest.mark.parametrize("path", SOURCES, ids=module_of)
def test_phases_need_neither_torch_nor_triton(path: Path) -> None:
    if phase_of(module_of(path)) in ("runtime", "bench"):
        return
    assert not [each for each in imports(path) if each.split(".")[0] in AT_RUN_TIME]


@pytest.mark.parametrize("path", SOURCES, ids=module_of)
def test_nothing_is_too_long_to_hold_in_the_head(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.end_lineno is not None:
            assert node.end_lineno - node.lineno < LONGEST[type(node)], node.name


def test_no_group_is_known_by_name() -> None:
    groups = {path.stem for path in (ROOT / "specs").glob("*/*.yaml")} - {"step", "package"}
    assert groups
    named = re.compile(rf"\b({'|'.join(sorted(groups))})\b")
    for path in [*SOURCES, *sorted((ROOT / "templates").iterdir())]:
        found = named.search(path.read_text(encoding="utf-8"))
        assert found is None, f"{path.name}: {found}"


# Docstrings.


def public(
    body: list[ast.stmt], outer: str
) -> Iterator[tuple[str, ast.FunctionDef | ast.ClassDef]]:
    """The public functions, classes and methods of a module, with their names."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield f"{outer}{node.name}", node
            if isinstance(node, ast.ClassDef):
                yield from public(node.body, f"{outer}{node.name}.")


@pytest.mark.parametrize("path", SOURCES, ids=module_of)
def test_what_is_public_says_what_it_is(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)
    assert not [name for name, node in public(tree.body, "") if not ast.get_docstring(node)]


# Guides.

# Something like `kgen/build.py` or `specs/` in code marks, or as a link's target.
BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
PATH = re.compile(r"[\w.-]+(/[\w.-]+)*/?")
ENDINGS = (".py", ".md", ".yaml", ".yml", ".toml", ".json", ".txt", ".j2", ".sh")
# What a build or a test run makes; a fresh clone has none of it.
IGNORED = set((ROOT / ".gitignore").read_text(encoding="utf-8").split())


def paths_in(text: str) -> Iterator[str]:
    """What a guide names as files and folders of this repository, examples in blocks aside."""
    text = BLOCK.sub("", text)
    for match in LINK.finditer(CODE.sub("", text)):
        if "://" not in match[1]:
            yield match[1]
    for match in CODE.finditer(text):
        for word in match[1].split():
            if not PATH.fullmatch(word) or word in IGNORED:
                continue
            inside = "/" in word and (ROOT / word.split("/")[0]).exists()
            if word.endswith(ENDINGS) or word.endswith("/") or inside:
                yield word


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.name)
def test_every_path_that_a_guide_names_exists(guide: Path) -> None:
    text = guide.read_text(encoding="utf-8")
    missing = [
        each
        for each in paths_in(text)
        if not any((base / each).exists() for base in (ROOT, guide.parent))
    ]
    assert not missing


def test_paths_are_found_in_a_guide() -> None:
    text = """See [the map](docs/map.md#top), [it](https://a.b/c.md), `kgen/build.py`, `make all`, `a // b`,
`sum[c](e)`, `.venv/`, `pytest tests/gone.py` and `folder/`.
```
cat not/here.py `or.py`
```
"""
    assert list(paths_in(text)) == ["docs/map.md", "kgen/build.py", "tests/gone.py", "folder/"]
