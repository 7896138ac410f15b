"""What is proved, trusted and refused, one case at a time; and by which means."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kgen.diagnostics import Report
from kgen.prove import prove as proving
from kgen.prove.contexts import contexts
from kgen.prove.obligations import obligations
from kgen.prove.prove import Proved, prove

SIZES = {
    "R": "0 .. 64",
    "N": "0 .. 64",
    "M": "1 .. 64",
    "T": "0 .. 64",
    "K": "static 1 .. 8",
    "C": "0 .. 64",
}
SCALARS = {
    "s": "{type: i32, values: 0 .. N}",
    "f": "f32",
    "page": "{type: static, values: 1 .. 16}",
}
TENSORS = {
    "x": "i64[N]",
    "full": "i64[M]",
    "wide": "i64[N * 4]",
    "by_page": "i64[N, page]",
    "at": "{type: 'i64[R]', values: 0 .. N - 1}",
    "wild": "i64[R]",
    "low": "{type: 'i64[R]', values: -2**63 .. 100}",
    "narrow": "i32[R]",
    "small": "{type: 'i32[R]', values: 0 .. 100}",
    "byte": "u8[R]",
    "flag": "bool[R]",
    "real": "f32[R]",
    "hit": "bool[R, K]",
    "sentinel": "{type: 'i64[R]', values: -1 .. N - 1}",
    "into": "{type: 'i64[T]', values: 0 .. N - 1}",
    "owner": "{type: 'i64[R]', values: 0 .. M - 1, distinct: 'true'}",
    "token": "{type: 'i64[R]', values: 0 .. N * page - 1}",
    "ends": "{type: 'i64[R]', values: 0 .. C}",
    "y": "{type: 'i64[R]', mode: out}",
    "b": "{type: 'bool[R]', mode: out}",
    "n": "{type: 'i32[R]', mode: out}",
    "z": "{type: 'i64[N]', mode: inout}",
    "c_of": "i64[C]",
    "n_all": "{type: 'i64[N]', mode: out}",
    "k_all": "{type: 'i64[K]', mode: out}",
    "c_all": "{type: 'i64[C]', mode: out}",
}
INDEX = {"r": "R", "k": "K", "c": "C", "m": "N"}
# A size is read off a tensor's shape, so that each has one.
ALL = {"n_all[m]": "m", "k_all[k]": "k", "c_all[c]": "c"}


def judged(front, store: dict[str, str], more: str = "") -> tuple[Proved | None, Report]:
    text = front.spec(
        sizes=SIZES, scalars=SCALARS, tensors=TENSORS, index=INDEX, store=store | ALL
    ).replace("'", '"')
    group = front.group(text + more)
    report = Report(sources={group.file: text})
    return prove(group, report), report


SHOWN = [
    # By ranges.
    ("y[r]", "x[at[r]]"),
    ("y[r]", "wide[at[r] * 4 + 3]"),
    ("y[r]", "by_page[token[r] // page, token[r] % page]"),
    ("y[r]", "full[max(min(wild[r], M - 1), 0)]"),
    ("y[r]", "full[wild[r] % M]"),
    ("y[r]", "full[M - 1 - owner[r]]"),
    ("y[r]", "x[clamp(wild[r], 0, N - 1)] if N > 0 else 0"),
    # There is an element at all, so that N is at least 1.
    ("y[r]", "x[0] + x[at[r]] if at[r] == 0 else 1"),
    ("y[r]", "x[0] if sentinel[r] >= 0 else 1"),
    ("y[r]", "sum[c](x[c]) if C <= N and 0 < C else 0"),
    ("y[r]", "x[s - 1] if s > 0 else 0"),
    # By guards, in their several forms.
    ("y[r]", "x[wild[r]] if 0 <= wild[r] < N else 0"),
    ("y[r]", "0 if wild[r] < 0 or not wild[r] < N else x[wild[r]]"),
    ("y[r]", "(x[wild[r]] if wild[r] < N else 1) if wild[r] >= 0 else 2"),
    ("y[r]", "x[wild[r]] if wild[r] == s and s < N else 0"),
    ("y[r]", "x[sentinel[r]] if sentinel[r] != -1 else 0"),
    ("y[r]", "x[wild[r] - 3] if 3 <= wild[r] < N + 3 else 0"),
    ("y[r]", "x[small[r]] if small[r] < N else 0"),
    ("y[r]", "wide[wild[r] + wild[r]] if 0 <= wild[r] < 2 * N else 0"),
    ("y[r]", "x[wild[r] // 2] if 0 <= wild[r] and wild[r] < 2 * N else 0"),
    ("y[r]", "full[at[r] - s] if s <= at[r] and at[r] < M else 0"),
    ("y[r]", "full[first[k](hit[r, k], K)] if first[k](hit[r, k], K) < M else 0"),
    ("z[sentinel[r]]", "{value: r, when: 'sentinel[r] >= 0', trusted: so}"),
    # Numbers.
    ("y[r]", "small[r] * 1000 - 7"),
    ("n[r]", "narrow[r] + 1 if narrow[r] < 2**31 - 1 else 0"),
    ("n[r]", "i32(wild[r]) if -5 <= wild[r] < 2**31 else 0"),
    ("n[r]", "i32(min(max(wild[r], 0), 10))"),
    ("n[r]", "wrap_i32(narrow[r] * narrow[r] - 1)"),
    ("n[r]", "wrap_i32(wild[r] * 3)"),
    ("n[r]", "i32(wrap_u8(wild[r]))"),
    ("n[r]", "narrow[r] // -3"),
    ("n[r]", "-7 // max(small[r], 1)"),
    ("y[r]", "wild[r] + 1"),  # of no declared range, so that it wraps around
    ("y[r]", "count[k](hit[r, k]) * 2**40"),
    ("y[r]", "min(wild[r], 7) * 2 - 1"),
    ("y[r]", "low[r] * small[r] + 1 if small[r] == 1 else 0"),
]
REFUSED = [
    ("y[r]", "x[0]", "out-of-bounds"),
    ("y[r]", "x[sentinel[r]]", "out-of-bounds"),
    ("y[r]", "x[at[r] + 1]", "out-of-bounds"),
    ("y[r]", "x[s]", "out-of-bounds"),
    ("y[r]", "x[into[0] if T > 0 else 0]", "out-of-bounds"),
    ("y[r]", "x[wild[r]] if 0 <= wild[r] <= N else 0", "out-of-bounds"),
    ("y[r]", "x[wild[r]] if wild[r] < N or wild[r] >= 0 else 0", "out-of-bounds"),
    ("y[r]", "x[wild[r]] if not (0 <= wild[r] < N) else 0", "out-of-bounds"),
    ("y[r]", "full[min(abs(wild[r]), M - 1)]", "out-of-bounds"),  # of -2**63
    ("y[r]", "x[wild[r] + 1] if wild[r] + 1 < N else 0", "out-of-bounds"),
    ("y[r]", "full[first[k](hit[r, k], -1)]", "out-of-bounds"),
    ("y[r]", "max[c](c_of[ends[r]])", "out-of-bounds"),
    ("n[r]", "narrow[r] + 1", "overflow"),
    ("n[r]", "narrow[r] + 1 if narrow[r] <= 2**31 - 1 else 0", "overflow"),
    ("n[r]", "small[r] * small[r] * small[r] * small[r] * small[r]", "overflow"),
    ("n[r]", "i32(wild[r])", "overflow"),
    ("n[r]", "i32(byte[r] + byte[r])", "overflow"),
    ("n[r]", "wrap_i32(i64(byte[r] * 2))", "overflow"),
    ("n[r]", "narrow[r] // -1", "overflow"),
    ("y[r]", "count[k](hit[r, k]) * 2**61", "overflow"),
    # Of a declared range that reaches an end of i64, and of arithmetic that a guard keeps inside.
    ("y[r]", "low[r] * 2", "overflow"),
    ("y[r]", "min(low[r], 7) * 2", "overflow"),
    ("y[r]", "(low[r] if flag[r] else 7) - 1", "overflow"),
    ("y[r]", "low[r] * small[r] - 1 if small[r] == 1 else 0", "overflow"),
]


@pytest.mark.parametrize("place, value", SHOWN)
def test_shown(front, place: str, value: str) -> None:
    proved, report = judged(front, {place: value})
    assert proved is not None, report.render()


@pytest.mark.parametrize("place, value, code", REFUSED)
def test_refused(front, place: str, value: str, code: str) -> None:
    proofs, report = judged(front, {place: value})
    assert proofs is None
    assert [each.code for each in report.diagnostics] == [code], report.render()
    assert report.diagnostics[0].example is not None


@pytest.mark.parametrize("place, value", SHOWN)
def test_the_solver_alone_finds_nothing_wrong(front, place: str, value: str, monkeypatch) -> None:
    monkeypatch.setattr(proving, "search", lambda _group, _obligation: None)
    monkeypatch.setattr(proving._Prover, "_shown", lambda _self, _obligation: None)
    _, report = judged(front, {place: value})
    assert all(each.example is None for each in report.diagnostics), report.render()


@pytest.mark.parametrize("place, value, code", REFUSED)
def test_the_solver_alone_proves_nothing_false(
    front, place: str, value: str, code: str, monkeypatch
) -> None:
    monkeypatch.setattr(proving, "search", lambda _group, _obligation: None)
    proofs, report = judged(front, {place: value})
    assert proofs is None
    assert [each.code for each in report.diagnostics] == [code], report.render()


def test_a_guard_may_be_needed_or_not(front) -> None:
    store = {"y[r]": "x[sentinel[r]] if sentinel[r] >= 0 and flag[r] else full[0]"}
    proved, _ = judged(front, store)
    assert proved is not None
    told = {proof.text: (proof.how, proof.because) for proof in proved.proofs}
    assert told["x[sentinel[r]]"] == ("guards", ("sentinel[r] >= 0",))
    assert told["full[0]"] == ("ranges", ())


def test_what_is_trusted_is_believed(front) -> None:
    store = {"y[r]": "x[wild[r]] + full[narrow[r] + 1]"}
    _, report = judged(front, store)
    assert sorted(each.code for each in report.diagnostics) == [
        "out-of-bounds",
        "out-of-bounds",
        "overflow",
    ]
    reasons = "trusted:\n  x[wild[r]]: The engine says so.\n  full[narrow[r]+1]: likewise\n"
    reasons += "  narrow[r] + 1: likewise\n"
    proved, report = judged(front, store, reasons)
    assert proved is not None, report.render()
    told = {proof.text: (proof.how, proof.because) for proof in proved.proofs}
    assert told["x[wild[r]]"] == ("trusted", ("The engine says so.",))
    assert told["full[narrow[r] + 1]"] == ("trusted", ("likewise",))
    assert told["narrow[r] + 1"] == ("trusted", ("likewise",))


def test_a_trusted_place_is_one_of_an_out_tensor_too(front) -> None:
    store = {"y[r]": "wild[r]", "z[wild[r]]": "{value: r, trusted: apart}"}
    assert judged(front, store)[0] is None
    assert judged(front, store, "trusted: {'z[wild[r]]': inside}\n")[0] is not None


def test_what_is_trusted_is_trusted_among_the_points_that_meet(front) -> None:
    """The winner of a place is found by looking at the place of each point, by an index of kgen's own."""
    store = {"z[wild[r] + k]": "{value: r, trusted: apart, collide: first k}", "y[r]": "wild[r]"}
    found = judged(front, store)[1].diagnostics
    assert [each.code for each in found] == ["out-of-bounds"]
    assert judged(front, store, "trusted: {'z[wild[r] + k]': inside}\n")[0] is not None


def test_each_obligation_stands_once(front) -> None:
    text = front.spec(
        sizes=SIZES,
        tensors=TENSORS,
        index=INDEX,
        let={"found": "x[at[r]]"},
        store={"y[r]": "found + found + x[at[r]]"},
    ).replace("'", '"')
    group = front.group(text)
    found = obligations(group, contexts(group))
    assert len(found) == len(set(found))
    # The let is looked at once, what stands beside it for itself.
    kinds = [each.kind for each in found if each.kind != "number"]
    assert kinds == ["extent", "load", "load", "store", "load", "load"]


def test_unknown_is_not_true(front) -> None:
    """Products of names are too much for the solver, and nothing is claimed of them."""
    place = "(wild[r] * wild[r] * wild[r] + s * wild[r]) % 977 // (s + 1)"
    proved, report = judged(front, {"y[r]": f"x[{place}]"})
    assert proved is None
    assert {each.code for each in report.diagnostics} == {"out-of-bounds"}


def test_the_solver_is_imported_only_where_it_is_needed(root) -> None:
    code = (
        "import sys; from pathlib import Path; from kgen.build import compile_specs;"
        "compile_specs(Path('specs')); assert 'z3' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=root, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "dim, optional, codes",
    [
        ("N - M", "false", []),
        ("N - M + 1", "false", ["negative-extent"]),
        ("N - M", "true", ["negative-extent"]),
    ],
)
def test_no_call_has_a_tensor_of_a_negative_dimension(front, dim, optional, codes) -> None:
    text = front.spec(
        sizes={"N": "0 .. 9", "M": "0 .. 9"},
        tensors={
            "x": f'{{type: "i64[{dim}]", optional: "{optional}"}}',
            "shape": "u8[N, M]",
            "y": '{type: "i64[20]", mode: inout}',
        },
        index={"q": "N - M"},
        store={"y[q]": "x[q] if given(x) else 1" if optional == "true" else "x[q]", "y[19]": "s"},
        let={"s": "i64(shape[0, 0]) if N > 0 and M > 0 else 0"},
    )
    report = Report(sources={})
    prove(front.group(text), report)
    assert [each.code for each in report.diagnostics] == codes, report.render()
