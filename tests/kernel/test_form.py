"""Kernels that are not of the form: what is wrong is found before anything runs."""

from __future__ import annotations

import kernels as k
import pytest
from kernels import (
    INSIDE,
    LANE,
    ROW,
    R,
    bind,
    cast,
    counted,
    lane,
    load,
    num,
    op,
    reduce,
    scan,
    spread,
    store,
    var,
)

from kgen.kernel import ir
from kgen.kernel.form import FormError, check_form
from kgen.kernel.ir import Arg, Branch, Carried, Check, Chosen, Loop, Merged, Program, Var
from kgen.kernel.run import Runner

BLOCK = var("b", "i64", "k")
BOUND = bind("b", cast(LANE, "i64"))
CHOSEN = bind("t", Chosen("x", num(0), ()))
TENSOR = Var("t", "tensor", ())
GIVEN = Arg("c", "bool")
WITHIN = var("inner", "i32")
# What a variable cannot be bound to.
VALUES = {
    "300 is not a number of u8": num(300, "u8"),
    "a num is complex": num(1, "complex"),
    "the number of a program is i64, not i32": Program("i64"),
    r"a lane has axes \(c\), not \(k\)": ir.Lane("k", ("c",)),
    r"a lane has axes \(r\), not \(\)": lane("r"),
    r"add has axes \(k\), not \(c, k\)": ir.Op("add", (LANE, lane("c")), "i32", ("k",)),
    r"add has axes \(k, c\), not \(c, k\)": ir.Op("add", (LANE, lane("c")), "i32", ("k", "c")),
    "an operand of add is i32, not i64": op("add", cast(LANE, "i64"), LANE),
    "add of i32 gives i32, not i64": ir.Op("add", (LANE, num(1)), "i64", ("k",)),
    "lt of i32 gives bool, not i32": ir.Op("lt", (LANE, LANE), "i32", ("k",)),
    "there is no add of bool": op("add", INSIDE, INSIDE),
    "there is no and of i32": ir.Op("and", (LANE, LANE), "i32", ("k",)),
    "an operand of eq is the int 1, not bool": op("eq", INSIDE, num(1)),
    "an operand of add is the float 0.5, not i32": op("add", LANE, num(0.5, "float")),
    "an operand of add is the int 4294967296, not i32": op("add", LANE, num(2**32)),
    "there is no floordiv of f32": op("floordiv", num(1, "f32"), num(2, "f32")),
    "there is no sqrt of i32": op("sqrt", LANE),
    "there is no truediv of int": op("truediv", num(1), num(2)),
    "there is no operator add of 1 operands": op("add", LANE),
    "there is no operator shift": ir.Op("shift", (LANE, LANE), "i32", ("k",)),
    r"a cast has axes \(\), not \(k\)": ir.Cast(LANE, "i64", ()),
    "f32 is cast to i32": cast(num(1, "f32"), "i32"),
    "i32 is cast to int": cast(ROW, "int"),
    r"a select has axes \(\)": ir.Select(INSIDE, num(1, "i32"), num(2, "i32"), "i32", ()),
    "one side of a choice is i32, not i64": ir.Select(INSIDE, LANE, num(2, "i64"), "i64", ("k",)),
    "the condition of a choice is i32": ir.Select(LANE, LANE, LANE, "i32", ("k",)),
    r"a spread has axes \(c\), not \(c, k\)": spread(LANE, "c"),
    "what is repeated is i32, not i64": ir.Spread(LANE, "i64", ("c", "k")),
    r"a compile-time number has axes \(k\)": spread(num(1), "k"),
    "there is a load inside an expression": op("add", load("x", LANE), num(1)),
    "there is a reduce inside an expression": op("add", reduce("sum", "k", LANE), num(1)),
    "a condition of a mask is i32, not bool": load("x", LANE, mask=[LANE]),
    r"a load has axes \(k\), not": ir.Load("x", None, (LANE, lane("c")), (), "i64", ("k",)),
    "an index of x is bool": load("x", INSIDE),
    "an element of x is not int": load("x", LANE, dtype="int"),
    "what chooses from x is not a variable": load("x", LANE, chosen=Chosen("x", num(0), ())),
    "the number of a tensor in a list is the bool True": Chosen("x", num(True, "bool"), ()),
    "a sum along c of what has no such axis": reduce("sum", "c", LANE),
    r"a reduce has axes \(k\), not \(\)": ir.Reduce("sum", "k", LANE, (), "i32", ("k",)),
    "what sum is of is i32, not i64": reduce("sum", "k", LANE, dtype="i64"),
    "there is no reduce sum of f32": reduce("sum", "k", cast(LANE, "f32")),
    "there is no reduce min of bool": reduce("min", "k", INSIDE),
    "there is no reduce any of i32": reduce("any", "k", LANE),
    "there is no reduce tree of i32": reduce("tree", "k", LANE),
    "there is no reduce cumsum": reduce("cumsum", "k", LANE),
    "there is no scan sum": scan("sum", "k", LANE),
    "there is no scan tree": scan("tree", "k", cast(LANE, "f32")),
}
BODIES = {
    r"b is not bound here as i64 of \(k\)": [store("out", [LANE], BLOCK)],
    "b is bound twice": [BOUND, BOUND],
    r"b is not bound here as i32 of \(k\)": [BOUND, bind("a", var("b", "i32", "k"))],
    r"b is i32 of \(k\), but its value i64": [ir.Bind(var("b", "i32", "k"), cast(LANE, "i64"))],
    "x has 1 dimensions of i32 here, 1 dimensions of i64 before": [
        bind("a", load("x", LANE)),
        store("x", [LANE], LANE),
    ],
    "x has 2 dimensions of i64 here, 1 dimensions": [
        bind("a", load("x", LANE)),
        bind("c", load("x", LANE, LANE)),
    ],
    "x has 1 dimensions of i64 in a list here, 1 dimensions of i64 before": [
        bind("a", load("x", LANE)),
        CHOSEN,
        bind("c", load("x", LANE, chosen=TENSOR)),
    ],
    r"a value has axes \(k\), not only \(\)": [store("x", [num(0)], LANE, axes=())],
    r"a value has axes \(k\), not only \(c\)": [store("x", [LANE], num(0, "i64"), axes=("c",))],
    r"axes \(k\), not only \(\).*x": [store("x", [num(0)], num(0, "i64"), [INSIDE], axes=())],
    "what chooses from y is not a variable that is one of its tensors": [
        CHOSEN,
        bind("a", load("y", LANE, chosen=TENSOR)),
    ],
    "a var is tensor": [CHOSEN, bind("a", TENSOR)],
    "a var is tensor.*in `check 1`": [CHOSEN, Check(1, (), ROW, (TENSOR,), ())],
    "the condition of a branch is i32": [Branch(ROW, (), ())],
    r"the condition of a branch has axes \(k\)": [Branch(INSIDE, (), ())],
    "u is i64 of .*, but its value i32": [
        Branch(GIVEN, (), (), (Merged(var("u"), num(1, "i64"), num(1, "i32")),))
    ],
    r"inner is not bound here.*`a = ...`": [
        Branch(GIVEN, (bind("inner", ROW),), ()),
        bind("a", WITHIN),
    ],
    "inner is not bound here.*`branch`": [
        Branch(GIVEN, (bind("inner", ROW),), (), (Merged(var("u", "i32"), ROW, WITHIN),))
    ],
    "z is not an axis with lanes": [Loop("z", var("at", "i32"), R, num(1), (), ())],
    "the counter of a loop is f32": [Loop("k", var("at", "f32"), R, num(1), (), ())],
    "the extent of a loop has axes": [Loop("k", var("at", "i32"), LANE, num(1), (), ())],
    "at is not bound here": [counted([]), bind("a", var("at", "i32"))],
    "inner is not bound here": [counted([bind("inner", ROW)]), bind("a", WITHIN)],
    "s is i64 of .*, but its value i32": [
        counted([], (Carried(var("s"), num(0, "i64"), num(0, "i32")),))
    ],
    "the point of a check is bool": [Check(0, (), INSIDE, (), ("k",))],
    r"axes \(k\), not only \(\).*in `check 0`": [Check(0, (INSIDE,), ROW, (), ())],
} | {message: [bind("a", value)] for message, value in VALUES.items()}


@pytest.mark.parametrize("message", BODIES)
def test_what_is_not_of_the_form(message):
    with pytest.raises(FormError, match=message):
        Runner(k.one(*BODIES[message], lanes="ck"))


def test_an_error_names_the_statement():
    with pytest.raises(FormError, match=r"\(in `y\[k\]: b`\)"):
        check_form(k.one(store("y", [LANE], BLOCK, note="y[k]: b")))
    with pytest.raises(FormError, match=r"\(in `loop over k`\)"):
        check_form(k.one(counted([BOUND], (Carried(var("s"), num(0, "i64"), BLOCK),))))


def test_roles_must_be_of_the_form():
    with pytest.raises(FormError, match="the number of programs depends on the program"):
        check_form(k.one(programs=ROW))
    with pytest.raises(FormError, match="the number of programs is the f32"):
        check_form(k.one(programs=num(1.0, "f32")))
    with pytest.raises(FormError, match="a role has an axis twice"):
        check_form(k.one(lanes="kk"))
    with pytest.raises(FormError, match="b is bound twice"):
        check_form(k.kernel(k.role(BOUND), k.role(BOUND)))
    for kind, width in (("row", R), ("tile", None)):
        axis = ir.Axis(index="r", kind=kind, width=width, tile=None, extent=R)
        with pytest.raises(FormError, match=f"r is a {kind} axis of width"):
            check_form(k.kernel(ir.Role((axis,), R, ())))


def test_tensors_have_the_types_that_are_declared():
    kernel = k.one(bind("a", load("x", LANE)), store("y", [LANE], LANE))
    check_form(kernel, {"x": "i64", "y": "i32"})
    for tensors, message in (
        ({"x": "i32", "y": "i32"}, "an element of x is not i64"),
        ({"x": "i64"}, "an element of y is not i32"),
    ):
        with pytest.raises(FormError, match=message):
            check_form(kernel, tensors)


def test_numbers_stand_where_others_are_wanted():
    n = Arg("n", "int")
    check_form(
        k.one(
            bind("a", op("add", LANE, n)),
            bind("s", ir.Select(INSIDE, LANE, num(2), "i32", ("k",))),
            bind("f", op("mul", num(1, "f32"), num(3))),
            bind("w", ir.Spread(num(1), "i64", ("k",))),
        )
    )
