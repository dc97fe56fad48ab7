"""Mathematical functions on vectors, in LLVM's intermediate representation.

sin, cos, exp, log and tanh reduce their argument to a small interval, and evaluate a polynomial
there. The polynomials interpolate at Chebyshev nodes; computed with 75 digits their errors are
below a fifth of the rounding of a result. Errors are below 2 units in the last place. Functions of
single precision are computed in double precision. Other functions call the mathematical library of
C for each lane, pow for exponents other than 0, 1/2, 1, 3/2 and 2.

Steps that split a number into a sum of two are not contracted.
"""

from collections.abc import Callable, Sequence

from .elementwise import LIBRARY
from .ir import Module, Writer, number, suffix

# π/2 as a sum of four numbers. Products of the first three with integers below 2²⁰ are exact.
HALF_PI = [
    float.fromhex(x)
    for x in (
        *("0x1.921fb54400000p+0", "0x1.0b4611a600000p-34"),
        *("0x1.3198a2e000000p-69", "0x1.b839a252049c1p-104"),
    )
]
TWO_BY_PI = 0.6366197723675814
# Largest argument of sin and cos that is reduced here.
REDUCED = 1.0e6

# log 2 as a sum of two numbers. Products of the first one with exponents are exact.
LOG_2 = [float.fromhex(x) for x in ("0x1.62e42fee00000p-1", "0x1.a39ef35793c76p-33")]
ONE_BY_LOG_2 = 1.4426950408889634

# A sum with this number has an integer in its last bits.
ROUNDER = 6755399441055744.0

# (sin x / x - 1) / x², (cos x - 1 + x²/2) / x⁴ in powers of x², up to π/4.
SIN = (
    *(-0.16666666666666666, 0.008333333333330925, -0.00019841269836722437),
    *(2.755731608382574e-06, -2.505112794596564e-08, 1.591784866512194e-10),
)
COS = (
    *(0.041666666666666664, -0.0013888888888887382, 2.480158729874308e-05),
    *(-2.755731726001471e-07, 2.0876143829213935e-09, -1.1382456865840483e-11),
)
# (exp x - 1 - x) / x², up to log(2)/2.
EXP = (
    *(0.5, 0.1666666666666667, 0.04166666666666667, 0.008333333333326084),
    *(0.0013888888888883711, 0.0001984126987500228, 2.480158732567746e-05),
    *(2.755725517000089e-06, 2.755727347871858e-07, 2.5105312729622103e-08),
    2.09147553258932e-09,
)
# (log((1 + s) / (1 - s)) / s - 2) / s² in powers of s².
LOG = (
    *(0.6666666666666666, 0.40000000000000885, 0.28571428570799784, 0.22222222392581262),
    *(0.18181795547497948, 0.15386244738881708, 0.13268638335555463, 0.1308803520312611),
)
# (tanh x / x - 1) / x² in powers of x², up to 0.55.
TANH = (
    *(-0.3333333333333333, 0.13333333333332714, -0.053968253967434016, 0.021869488493666944),
    *(-0.008863234397814355, 0.003592110378689024, -0.001455661830100716),
    *(0.0005889360520074057, -0.0002346347410887237, 8.511313685577672e-05),
    -2.060276537636634e-05,
)


class Double(Writer):
    """Instructions on vectors of double precision."""

    @property
    def T(self) -> str:
        return self.type("f64")

    def c(self, x: float) -> str:
        return self.constant("f64", x)

    def op(self, name: str, a: str, b: str) -> str:
        """Write an arithmetic operation, which LLVM must not contract with another one."""
        return self.put(f"{name} {self.T} {a}, {b}")

    def fma(self, a: str, b: str, c: str) -> str:
        """a b + c, rounded once or twice."""
        return self.call("f64", "fmuladd", a, b, c)

    def where(self, which: str, yes: str, no: str) -> str:
        return self.put(f"select {self.type('i1')} {which}, {self.T} {yes}, {self.T} {no}")

    def test(self, how: str, a: str, b: str) -> str:
        return self.put(f"fcmp {how} {self.T} {a}, {b}")

    def polynomial(self, coefficients: Sequence[float], x: str) -> str:
        """Σ cₖ xᵏ."""
        total = self.c(coefficients[-1])
        for c in coefficients[-2::-1]:
            total = self.fma(total, x, self.c(c))
        return total

    def bits(self, x: str) -> str:
        return self.put(f"bitcast {self.T} {x} to {self.type('i64')}")

    def of_bits(self, x: str) -> str:
        return self.put(f"bitcast {self.type('i64')} {x} to {self.T}")

    def integer(self, op: str, a: str, b: str | int) -> str:
        b = self.constant("i64", b) if isinstance(b, int) else b
        return self.put(f"{op} {self.type('i64')} {a}, {b}")

    def is_zero(self, x: str) -> str:
        return self.put(f"icmp eq {self.type('i64')} {x}, {self.constant('i64', 0)}")

    def negated_where(self, bit: str, x: str) -> str:
        """-x where the lowest bit is set, otherwise x."""
        sign = self.integer("shl", bit, 63)
        return self.of_bits(self.integer("xor", self.bits(x), sign))


def _circular(w: Double, x: str, quarter_turns: int) -> str:
    """sin(x + quarter_turns π/2)."""
    turned = w.op("fadd", w.op("fmul", x, w.c(TWO_BY_PI)), w.c(ROUNDER))
    quadrant, k = w.bits(turned), w.op("fsub", turned, w.c(ROUNDER))
    a = w.op("fsub", x, w.op("fmul", k, w.c(HALF_PI[0])))
    b_part = w.op("fmul", k, w.c(HALF_PI[1]))
    b, e = _difference(w, a, b_part)
    low = w.op("fsub", e, w.op("fmul", k, w.c(HALF_PI[2])))
    r = w.op("fadd", b, low)
    low = w.op("fadd", w.op("fsub", b, r), low)
    low = w.op("fsub", low, w.op("fmul", k, w.c(HALF_PI[3])))
    z = w.op("fmul", r, r)
    half = w.op("fmul", w.c(0.5), z)
    # sin(r + low) = r + low (1 - r²/2) + r³ S(r²); low is a rounding of r.
    cubic = w.op("fmul", w.op("fmul", r, z), w.polynomial(SIN, z))
    correction = w.fma(w.put(f"fneg {w.T} {half}"), low, low)
    sine = w.op("fadd", r, w.op("fadd", cubic, correction))
    # cos(r + low) = 1 - r²/2 + r⁴ C(r²) - r low
    w1 = w.op("fsub", w.c(1.0), half)
    rest = w.op("fsub", w.op("fsub", w.c(1.0), w1), half)
    quartic = w.op("fmul", w.op("fmul", z, z), w.polynomial(COS, z))
    rest = w.op("fadd", rest, w.op("fsub", quartic, w.op("fmul", r, low)))
    cosine = w.op("fadd", w1, rest)
    if quarter_turns:
        quadrant = w.integer("add", quadrant, quarter_turns)
    even = w.is_zero(w.integer("and", quadrant, 1))
    found = w.where(even, sine, cosine)
    return w.negated_where(w.integer("lshr", quadrant, 1), found)


def _difference(w: Double, a: str, b: str) -> tuple[str, str]:
    """a - b, and the error of its rounding."""
    total = w.op("fsub", a, b)
    part = w.op("fsub", total, a)
    first = w.op("fsub", a, w.op("fsub", total, part))
    return total, w.op("fsub", first, w.op("fadd", b, part))


def _sin(w: Double, x: str) -> str:
    found = _circular(w, x, 0)
    found = w.where(w.test("oeq", x, w.c(0.0)), x, found)  # Zeros keep their sign.
    return _large_by_library(w, "sin", x, found)


def _cos(w: Double, x: str) -> str:
    return _large_by_library(w, "cos", x, _circular(w, x, 1))


def _large_by_library(w: Double, name: str, x: str, found: str) -> str:
    """Lanes with large arguments by the library of C."""
    small = w.test("ole", w.call("f64", "fabs", x), w.c(REDUCED))
    return _others_by_library(w, name, [w.where(small, w.c(0.0), x)], small, found)


def _others_by_library(w: Double, name: str, x: list[str], known: str, found: str) -> str:
    """Lanes that are not `known` by the library of C."""
    every = known
    if w.lanes:
        reduce = f"@llvm.vector.reduce.and.v{w.lanes}i1"
        w.module.declare(f"declare i1 {reduce}({w.type('i1')})")
        every = w.put(f"call i1 {reduce}({w.type('i1')} {known})")
    w.do(f"br i1 {every}, label %end, label %others")
    w.begin("others")
    slow = w.where(known, found, _by_lane(w, name, x))
    w.do("br label %end")
    w.begin("end")
    return w.put(f"phi {w.T} [{found}, %entry], [{slow}, %others]")


def _exp(w: Double, x: str) -> str:
    x = w.where(w.test("ogt", x, w.c(710.0)), w.c(710.0), x)
    x = w.where(w.test("olt", x, w.c(-746.0)), w.c(-746.0), x)
    scaled = w.op("fadd", w.op("fmul", x, w.c(ONE_BY_LOG_2)), w.c(ROUNDER))
    k = w.op("fsub", scaled, w.c(ROUNDER))
    high = w.op("fsub", x, w.op("fmul", k, w.c(LOG_2[0])))
    low = w.op("fmul", k, w.c(LOG_2[1]))
    r = w.op("fsub", high, low)
    low = w.op("fsub", w.op("fsub", high, r), low)
    square = w.op("fmul", r, r)
    tail = w.fma(w.polynomial(EXP, r), square, low)
    y = w.op("fadd", w.c(1.0), w.op("fadd", r, tail))
    # 2ᵏ as a product of two powers, both of which are normal numbers.
    n = w.integer("sub", w.bits(scaled), w.constant("i64", _integer_bits(ROUNDER)))
    half = w.integer("ashr", n, 1)
    for part in (half, w.integer("sub", n, half)):
        power = w.of_bits(w.integer("shl", w.integer("add", part, 1023), 52))
        y = w.op("fmul", y, power)
    return y


def _integer_bits(x: float) -> int:
    return int(number("f64", x), 16)


def _log(w: Double, x: str) -> str:
    tiny = w.test("olt", x, w.c(2.0**-1022))
    y = w.where(tiny, w.op("fmul", x, w.c(2.0**54)), x)
    # y = 2ᵏ m with m from √½ to √2: subtract the bits of √½ to round the exponent.
    shifted = w.integer("sub", w.bits(y), _integer_bits(0.7071067811865476))
    n = w.integer("ashr", shifted, 52)
    m = w.of_bits(w.integer("sub", w.bits(y), w.integer("shl", n, 52)))
    k = w.put(f"sitofp {w.type('i64')} {n} to {w.T}")
    k = w.op("fsub", k, w.where(tiny, w.c(54.0), w.c(0.0)))
    f = w.op("fsub", m, w.c(1.0))
    s = w.op("fdiv", f, w.op("fadd", f, w.c(2.0)))
    z = w.op("fmul", s, s)
    # log(1 + f) = f - (f²/2 - s (f²/2 + z P(z)))
    half = w.op("fmul", w.op("fmul", w.c(0.5), f), f)
    inner = w.op("fadd", half, w.op("fmul", z, w.polynomial(LOG, z)))
    small = w.fma(s, inner, w.op("fmul", k, w.c(LOG_2[1])))
    rest = w.op("fsub", w.op("fsub", half, small), f)
    found = w.op("fsub", w.op("fmul", k, w.c(LOG_2[0])), rest)
    infinity = w.c(float("inf"))
    found = w.where(w.test("oeq", x, infinity), infinity, found)
    found = w.where(w.test("oeq", x, w.c(0.0)), w.c(-float("inf")), found)
    return w.where(w.test("ult", x, w.c(0.0)), w.c(float("nan")), found)


def _tanh(w: Double, x: str) -> str:
    size = w.call("f64", "fabs", x)
    z = w.op("fmul", x, x)
    inner = w.fma(w.op("fmul", z, w.polynomial(TANH, z)), x, x)
    e = _exp(w, w.op("fmul", w.c(2.0), size))
    outer = w.op("fsub", w.c(1.0), w.op("fdiv", w.c(2.0), w.op("fadd", e, w.c(1.0))))
    outer = w.call("f64", "copysign", outer, x)
    found = w.where(w.test("olt", size, w.c(0.55)), inner, outer)
    return w.where(w.test("oeq", x, w.c(0.0)), x, found)


def _pow(w: Double, x: str, y: str) -> str:
    """Products and square roots for positive x and y = 0, 1/2, 1, 3/2, 2."""
    one, twice = w.c(1.0), w.op("fadd", y, y)
    tests = [
        w.test("oeq", twice, w.call("f64", "rint", twice)),
        *(w.test("oge", y, w.c(0.0)), w.test("ole", y, w.c(2.0))),
        *(w.test("ogt", x, w.c(0.0)), w.test("olt", x, w.c(float("inf")))),
    ]
    known = tests[0]
    for test in tests[1:]:
        known = w.put(f"and {w.type('i1')} {known}, {test}")
    whole = w.where(w.test("oge", y, one), x, one)
    whole = w.where(w.test("oeq", y, w.c(2.0)), w.op("fmul", x, x), whole)
    is_whole = w.test("oeq", y, w.call("f64", "rint", y))
    root = w.where(is_whole, one, w.call("f64", "sqrt", w.where(known, x, one)))
    return _others_by_library(w, "pow", [x, y], known, w.op("fmul", whole, root))


VECTORS: dict[str, Callable[[Double, str], str]] = {
    "sin": _sin,
    "cos": _cos,
    "exp": _exp,
    "log": _log,
    "tanh": _tanh,
}
TWO_ARGUMENTS = frozenset({"atan2", "pow", "fmod"})


def _by_lane(w: Double, name: str, x: list[str]) -> str:
    """Call a function of the C library, for vectors once for each lane."""
    given = ", ".join(["double"] * len(x))
    symbol = LIBRARY.get(name, name)
    w.module.declare(f"declare double @{symbol}({given})")
    if not w.lanes:
        return w.put(f"call double @{symbol}({', '.join(f'double {y}' for y in x)})")
    found = "poison"
    for k in range(w.lanes):
        own = [w.put(f"extractelement {w.T} {y}, i64 {k}") for y in x]
        one = w.put(f"call double @{symbol}({', '.join(f'double {y}' for y in own)})")
        found = w.put(f"insertelement {w.T} {found}, double {one}, i64 {k}")
    return found


def function_text(module: Module, name: str, kind: str, lanes: int) -> str:
    """Definition of a function of numbers of this type, on vectors if `lanes` is not 0."""
    w = Double(lanes, module)
    x = ["%a", "%b"] if name in TWO_ARGUMENTS else ["%a"]
    T = w.type(kind)
    if kind == "f32":
        wider = [w.put(f"fpext {T} {y} to {w.T}") for y in x]
        inner = module.function(name, "f64", lanes)
        given = ", ".join(f"{w.T} {y}" for y in wider)
        found = w.put(f"call {w.T} {inner}({given})")
        found = w.put(f"fptrunc {w.T} {found} to {T}")
    elif name in VECTORS:
        found = VECTORS[name](w, x[0])
    elif name == "pow":
        found = _pow(w, *x)
    else:
        found = _by_lane(w, name, x)
    head = f"define internal {T} @{name}.{suffix(kind, lanes)}({', '.join(f'{T} {y}' for y in x)})"
    return "\n".join([f"{head} {{", "entry:", *w.lines, f"  ret {T} {found}", "}"])


LIBRARY_SYMBOLS = (*sorted(LIBRARY), "cos", "sin")
