"""Functions that generated kernels call, where one expression will not do.

A module gets the helpers that its kernels use. Triton's interpreter handles bf16 as raw bits, so the
two conversions have a form of their own there; both forms round to nearest, ties to even.
"""

from __future__ import annotations

IN_LAUNCH = frozenset({"pick", "rounded"})  # those that kgen/runtime/_launch.py has
HELPERS: dict[str, str] = {
    "floor_div": '''\
@triton.jit
def floor_div(x, y):
    """x // y rounded down, as in Python and torch; Triton's own `//` rounds to 0."""
    quotient = x // y
    remainder = x - quotient * y
    return quotient - ((remainder != 0) & ((remainder < 0) != (y < 0))).to(quotient.dtype)
''',
    "floor_mod": '''\
@triton.jit
def floor_mod(x, y):
    """x % y with the sign of y, as in Python and torch; Triton's own `%` has the sign of x."""
    remainder = x % y
    return remainder + tl.where((remainder != 0) & ((remainder < 0) != (y < 0)), y, 0)
''',
    "both": '''\
@triton.jit
def both(mask, flag):
    """mask & flag, a block and a scalar: their `&` is a number in the interpreter of Triton 3.9."""
    return tl.where(flag, mask, False)
''',
    "either": '''\
@triton.jit
def either(mask, flag):
    """mask | flag, a block and a scalar: their `|` is a number in the interpreter of Triton 3.9."""
    return tl.where(flag, True, mask)
''',
    "flag": '''\
@triton.jit
def flag(holds):
    """A scalar comparison, to be broadcast: in the interpreter of Triton 3.9 it has its operands' type."""
    return tl.where(holds, True, False)
''',
    "multiply": '''\
@triton.jit
def multiply(a, b):
    """The product, for tl.reduce."""
    return a * b
''',
    "bf16_to_f32": '''\
if interpreted():

    @triton.jit
    def bf16_to_f32(x):
        """Exact; the interpreter's own conversion loses subnormals."""
        bits = x.to(tl.int16, bitcast=True).to(tl.int32) << 16
        return bits.to(tl.float32, bitcast=True)

else:

    @triton.jit
    def bf16_to_f32(x):
        """Exact."""
        return x.to(tl.float32)
''',
    "f32_to_bf16": '''\
if interpreted():

    @triton.jit
    def f32_to_bf16(x):
        """To nearest, ties to even; the interpreter's own conversion cuts the low bits off."""
        bits = x.to(tl.int32, bitcast=True)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        high = tl.where(x == x, rounded, (bits >> 16) | 0x40)
        return high.to(tl.int16).to(tl.bfloat16, bitcast=True)

else:

    @triton.jit
    def f32_to_bf16(x):
        """To nearest, ties to even."""
        return x.to(tl.bfloat16)
''',
    "smaller": '''\
@triton.jit
def smaller(a, b):
    """a if a < b or a is NaN, else b: one answer for zeros and NaN on every backend."""
    return tl.where(a < b, a, tl.where(a != a, a, b))
''',
    "larger": '''\
@triton.jit
def larger(a, b):
    """a if a > b or a is NaN, else b: one answer for zeros and NaN on every backend."""
    return tl.where(a > b, a, tl.where(a != a, a, b))
''',
    "exp": '''\
@triton.jit
def exp(x):
    """e**x in f32 from +, - and * alone, so that it is the same to the bit everywhere.

    Within 1 unit in the last place: x = n ln 2 + r, e**r by a polynomial of degree 7 (Cephes, expf).
    """
    clamped = tl.where(x < 89.0, tl.where(x > -104.0, x, -104.0), 89.0)
    n = (clamped * 1.44269504088896341 + 12582912.0) - 12582912.0
    r = (clamped - n * 0.693359375) - n * -2.12194440e-4
    p = r * 1.9875691500e-4 + 1.3981999507e-3
    p = p * r + 8.3334519073e-3
    p = p * r + 4.1665795894e-2
    p = p * r + 1.6666665459e-1
    p = p * r + 5.0000001201e-1
    y = (p * (r * r) + r) + 1.0
    half = n.to(tl.int32) >> 1
    rest = n.to(tl.int32) - half
    y = y * ((half + 127) << 23).to(tl.float32, bitcast=True)
    y = y * ((rest + 127) << 23).to(tl.float32, bitcast=True)
    return tl.where(x == x, y, x)
''',
    "tree_sum": '''\
if interpreted():

    @triton.jit
    def tree_sum(x, N: tl.constexpr):
        """Likewise; the interpreter's tl.sum begins with 0.0, which loses the sign of -0.0."""
        for step in tl.static_range(16):
            if (N >> (step + 1)) > 0:
                halves = tl.permute(tl.reshape(x, (2, N >> (step + 1))), (1, 0))
                a, b = tl.split(halves)
                x = a + b
        return tl.reshape(x, ())

else:

    @triton.jit
    def tree_sum(x, N: tl.constexpr):
        """The sum of x[N], always in one order: v[: n / 2] + v[n / 2 :] until one number is left."""
        for step in tl.static_range(16):
            if (N >> (step + 1)) > 0:
                x = tl.sum(tl.reshape(x, (2, N >> (step + 1))), axis=0)
        return tl.sum(x, axis=0)
''',
    "tree_sum_rows": '''\
if interpreted():

    @triton.jit
    def tree_sum_rows(x, ROWS: tl.constexpr, N: tl.constexpr):
        """Likewise; the interpreter's tl.sum begins with 0.0, which loses the sign of -0.0."""
        for step in tl.static_range(16):
            if (N >> (step + 1)) > 0:
                halves = tl.permute(tl.reshape(x, (ROWS, 2, N >> (step + 1))), (0, 2, 1))
                a, b = tl.split(halves)
                x = a + b
        return tl.reshape(x, (ROWS,))

else:

    @triton.jit
    def tree_sum_rows(x, ROWS: tl.constexpr, N: tl.constexpr):
        """The sum of each row of x[ROWS, N]: v[: n / 2] + v[n / 2 :] until one number is left."""
        for step in tl.static_range(16):
            if (N >> (step + 1)) > 0:
                x = tl.sum(tl.reshape(x, (ROWS, 2, N >> (step + 1))), axis=1)
        return tl.reshape(x, (ROWS,))
''',
}


def helper(name: str) -> str:
    """The text of a helper; `_note_3` notes a point of a check and three details."""
    if not name.startswith("_note_"):
        return HELPERS[name]
    details = [f"detail_{at}" for at in range(int(name.removeprefix("_note_")))]
    lines = [
        "@triton.jit",
        f"def {name}(row, failed, point, {', '.join(details)}):",
        '    """Note the first point that failed; the details of the point that is asked for."""',
        "    tl.atomic_min(row + point * 0, point, mask=failed)",
        "    wanted = failed & (point == tl.load(row + 1))",
        *(
            f"    tl.store(row + {at + 2} + point * 0, {detail}, mask=wanted)"
            for at, detail in enumerate(details)
        ),
    ]
    return "\n".join(lines) + "\n"
