"""Everything wrong with a spec, as data: code, place, message, help; and its text and JSON forms.

In: facts found by a phase. Out: `Diagnostic` values and their rendering. Does not decide what is wrong.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import click


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A place in a file; lines and columns count from 1, the end column is exclusive."""

    file: str
    line: int
    column: int
    end_column: int

    def within(self, start: int, end: int) -> Span:
        """The part of this one-line span from character `start` to `end`, counted from its beginning."""
        return Span(self.file, self.line, self.column + start, self.column + max(end, start + 1))

    def json(self) -> dict[str, object]:
        """The place as JSON-ready data."""
        return {
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "end_column": self.end_column,
        }


# Code -> why it matters. The one catalogue: a diagnostic with another code cannot be made, and
# tests/specs_bad/ holds one broken spec and its whole rendered text for each code.
CATALOGUE: Mapping[str, str] = {
    # Files and YAML.
    "unreadable-file": "A spec is a UTF-8 text file that kgen can open.",
    "bad-yaml": "The file must be YAML before it can be a spec.",
    "empty-file": "A spec names at least a group, its tensors and its stores.",
    "duplicate-key": "YAML would silently keep only the last one.",
    "unknown-key": "A misspelt key would otherwise be ignored, and with it what it asks for.",
    "missing-key": "Without it the group is not defined.",
    "wrong-shape": "Each key holds one kind of YAML value.",
    "bad-choice": "The key takes one of a few fixed words.",
    "bad-name": "Names become Python identifiers in the generated code.",
    "duplicate-name": "Sizes, scalars, tensors, indices, lets and masks share one name space.",
    "duplicate-group": "Groups of one package become functions of one module.",
    "no-specs": "kgen builds packages: folders that hold spec files.",
    "bad-eager": "The eager function is what the tests and benchmarks compare the kernel with.",
    # Expressions.
    "bad-syntax": "Expressions are Python's: names, numbers, operators, calls and indexing.",
    "unsupported-syntax": "Only what has the same meaning in Triton and in torch is in the language.",
    "unknown-name": "Every name is a size, a scalar, a tensor, an index, a let or a mask.",
    "unknown-function": "Only functions with one meaning on every backend are in the language.",
    "wrong-arguments": "Each function has a fixed number of arguments.",
    "bad-type": "A type is bool, u8, i32, i64, f16, bf16 or f32, a tensor's with its sizes in brackets.",
    "not-a-value": "A tensor is read at an index; it is not a number by itself.",
    "wrong-rank": "A tensor takes as many indices as it has dimensions.",
    "wrong-type": "kgen converts nothing by itself except where no value can change.",
    "narrowing": "Storing into a smaller type may lose bits, so it is never done silently.",
    "cyclic-let": "A name stands for what it is made of; it cannot be part of itself.",
    "not-an-index": "Reductions and scans run over an index of the group.",
    "float-sum": "A float sum has one order, the tree, so that it has the same bits everywhere.",
    "data-dependent": "Sizes, ranges and launch conditions are known before the launch.",
    "bad-range": "A range is written `low .. high`, both ends included.",
    "empty-range": "No value would be legal.",
    "bad-default": "A call that leaves the scalar out would be refused, whatever its sizes.",
    "division-by-zero": "It raises in torch on the CPU and is undefined on a GPU.",
    # What a group must be.
    "unbound-size": "A size is read off a tensor's shape at the call.",
    "unused": "A declared name that nothing uses is usually a misspelt one.",
    "not-stored": "An `out` tensor that nothing writes would come back with yesterday's contents.",
    "partly-stored": "The rest of an `out` tensor would come back with yesterday's contents.",
    "store-to-input": "An `in` tensor belongs to the caller.",
    "read-of-out": "What an `out` tensor holds before the group is undefined.",
    "ungiven": "An optional tensor that the caller left out has no elements.",
    "free-index": "A stored value must be the same for every point that stores to one place.",
    "collision": "Two index points that store to one place leave the winner to chance.",
    "out-of-bounds": "On a GPU it is no crash: it is another request's memory, read or overwritten.",
    "overflow": "It would wrap around silently, and an index made of it would be another one.",
    "negative-extent": "A count below 0 is a case that nobody thought of: say what happens there.",
    "race": "Programs of one launch run in no order, so one may see what another has written.",
    "scan-in-loop": "A running sum is carried from turn to turn of the innermost loop.",
    # Steps.
    "cannot-fuse": "Two groups as one must do to the bit what they do one after the other.",
    "unknown-in-step": "A step names groups, their tensors and numbers, and what stands under `engine`.",
    "bad-stage": "A step runs its stages in order; each must know what it works on.",
    "step-race": "Two streams run in no order, so one stage may see what the other has written.",
    # Schedules.
    "bad-schedule": "A schedule says how to run a group; it can't change what it computes.",
}


_FEW = 6  # elements that an example's text shows


@dataclass(frozen=True, slots=True)
class Example:
    """A legal call at which a spec goes wrong, as small as kgen could make it.

    `params` has every integer size and scalar, of which `shown` matter; `elements` are those that are
    read, `point` the indices. `fault` says what happens there.
    """

    params: tuple[tuple[str, int], ...]
    given: tuple[tuple[str, bool], ...]
    point: tuple[tuple[str, int], ...]
    elements: tuple[tuple[str, tuple[int, ...], int], ...]
    shown: tuple[str, ...]
    fault: str

    @property
    def text(self) -> str:
        """The example on one line."""
        parts = [f"{name} = {number}" for name, number in self.params if name in self.shown]
        parts += [f"{name} = {number}" for name, number in self.point]
        for name, place, number in self.elements[:_FEW]:
            parts.append(f"{name}[{', '.join(map(str, place))}] = {number}")
        if len(self.elements) > _FEW:
            parts.append(f"{len(self.elements) - _FEW} elements more")
        return f"{', '.join(parts)}: {self.fault}" if parts else self.fault


@dataclass(frozen=True, slots=True, order=True)
class Diagnostic:
    """One mistake in a spec: `span` marks it, `message` says what, `help` how to mend it.

    `also` are other places that it takes to see the mistake, each with what is there. `example` is a
    call at which it shows, where there is one.
    """

    span: Span
    code: str
    message: str
    help: str = ""
    also: tuple[tuple[Span, str], ...] = ()
    example: Example | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.code not in CATALOGUE:
            raise ValueError(f"diagnostic code {self.code!r} is not in the catalogue")

    def json(self) -> dict[str, object]:
        """The fields of this diagnostic as JSON-ready data."""
        return {
            "code": self.code,
            **self.span.json(),
            "message": self.message,
            "why": CATALOGUE[self.code],
            "help": self.help,
            "also": [{**span.json(), "message": what} for span, what in self.also],
            **({"example": self.example.text} if self.example is not None else {}),
        }


@dataclass(slots=True)
class Report:
    """Collects the diagnostics of a run, and the sources they point into."""

    sources: dict[str, str] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def add(
        self,
        code: str,
        span: Span,
        message: str,
        help: str = "",
        also: tuple[tuple[Span, str], ...] = (),
        example: Example | None = None,
    ) -> None:
        """Record one mistake; the same one twice counts once."""
        found = Diagnostic(span, code, message, help, also, example)
        if found not in self.diagnostics:
            self.diagnostics.append(found)

    def ordered(self) -> list[Diagnostic]:
        """All diagnostics by file, line and column."""
        return sorted(self.diagnostics)

    def render(self, colour: bool = False) -> str:
        """All diagnostics as text for a person."""
        return "\n".join(render(found, self.sources, colour) for found in self.ordered())


class SpecError(Exception):
    """The specs are wrong; `report` says where and how to mend them."""

    def __init__(self, report: Report) -> None:
        super().__init__(report.render())
        self.report = report


def counted(number: int, noun: str) -> str:
    """`1 group`, `2 groups`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def listed(names: Iterable[str]) -> str:
    """Names in their order in the alphabet, each in code marks."""
    return ", ".join(f"`{name}`" for name in sorted(names))


def nearest(name: str, known: Iterable[str]) -> str:
    """The help line that names what `name` may have meant, or lists what there is."""
    names = sorted(set(known))
    small = {each.lower(): each for each in reversed(names)}
    close = difflib.get_close_matches(name.lower(), small, n=1, cutoff=0.6)
    if close:
        return f"did you mean `{small[close[0]]}`?"
    if not names:
        return ""
    return f"there is {listed(names[:20])}" + (", ..." if len(names) > 20 else "")


def render(found: Diagnostic, sources: Mapping[str, str], colour: bool = False) -> str:
    """One diagnostic like a compiler's: place, the line with a caret, why, help."""

    def paint(text: str, **style: object) -> str:
        return click.style(text, **style) if colour else text  # type: ignore[arg-type]

    head = paint(f"error[{found.code}]", fg="red", bold=True)
    lines = [head + paint(f": {found.message}", bold=True)]
    for span, what in ((found.span, ""), *found.also):
        lines.append(f"  --> {span.file}:{span.line}:{span.column}{what and f': {what}'}")
        text = sources.get(span.file, "").splitlines()
        if 0 < span.line <= len(text):
            line = "".join(char if char.isprintable() else " " for char in text[span.line - 1])
            number = str(span.line)
            margin = " " * len(number)
            width = max(1, min(span.end_column, len(line) + 1) - span.column)
            mark = paint("^" * width, fg="red", bold=True)
            lines += [f"{margin} |", f"{number} | {line}"]
            lines.append(f"{margin} | {' ' * (span.column - 1)}{mark}")
    if found.example is not None:
        lines.append(f"  = for example: {found.example.text}")
    lines.append(f"  = why: {CATALOGUE[found.code]}")
    if found.help:
        lines.append(f"  = help: {found.help}")
    return "\n".join(lines) + "\n"
