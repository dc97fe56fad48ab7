"""Mathematical functions for GPUs, in LLVM's intermediate representation, without a library.

sin, cos, exp, log, tanh and the arcs are computed in the type of their argument; other functions of
single precision are computed in double precision. Arguments are reduced with fused products and
sums, and polynomials that interpolate at Chebyshev nodes follow. Largest errors measured, in units
in the last place of a result in float32 and float64 (tests/scalarjit/test_cuda_math.py):
sin, cos 1, 1 for all arguments; exp, log 1, 1; pow 1, 1; atan, atan2, expm1 1.5, 1.5; tan 1, 2.5;
tanh 2.5, 2.5; asin, acos 2.5, 2.5; exp2, log2, cbrt 1, 1; sinh, cosh, acosh, asinh, atanh, log1p
1, 2.5; fmod 0.
"""

from collections.abc import Callable

from .cuda_real import HALF_PI, LIMITS, LOG_2, ROUNDER, TABLES, Real
from .cuda_trigonometry import circular, circular_of_any
from .functions import TWO_ARGUMENTS
from .ir import Module, suffix
from .structure import NotCovered

# sin, cos, tan ------------------------------------------------------------------------------------


def _sin(w: Real, x: str) -> str:
    return circular(w, x, 0)


def _cos(w: Real, x: str) -> str:
    return circular(w, x, 1)


def _tan(w: Real, x: str) -> str:
    return w.div(w.own("sin", x), w.own("cos", x))


# exp, log and functions of them -------------------------------------------------------------------


def _split_power(w: Real, x: str) -> tuple[str, str, str]:
    """x = k log 2 + r + low: r, low and the integer k."""
    high, rest = map(w.c, LOG_2[w.kind])
    rounder = w.c(ROUNDER[w.kind])
    scaled = w.fma(x, w.c(1.4426950408889634), rounder)
    k = w.sub(scaled, rounder)
    a = w.less(k, high, x)
    r = w.less(k, rest, a)
    low = w.less(k, rest, w.sub(a, r))
    return r, low, w.integer("sub", w.as_bits(scaled), w.as_bits(rounder))


def _within(w: Real, x: str) -> str:
    low, high = LIMITS[w.kind]
    x = w.where(w.test("ogt", x, w.c(high)), w.c(high), x)
    return w.where(w.test("olt", x, w.c(low)), w.c(low), x)


def _scaled(w: Real, y: str, n: str) -> str:
    """y 2ⁿ by two powers, both of which are normal numbers."""
    half = w.integer("ashr", n, 1)
    for part in (half, w.integer("sub", n, half)):
        y = w.mul(y, w.power_of_two(part))
    return y


def _exp(w: Real, x: str, more: str | None = None) -> str:
    """exp(x + more), where `more` is small."""
    r, low, n = _split_power(w, _within(w, x))
    tail = w.fma(w.polynomial("exp", r), w.mul(r, r), low)
    if more is None:
        return _scaled(w, w.add(w.c(1.0), w.add(r, tail)), n)
    tail = w.fma(w.fma(r, w.c(0.5), w.c(1.0)), w.mul(r, more), w.add(tail, more))
    return _scaled(w, w.add(w.c(1.0), w.add(r, tail)), n)


def _expm1(w: Real, x: str) -> str:
    r, low, n = _split_power(w, _within(w, x))
    p = w.add(r, w.fma(w.polynomial("exp", r), w.mul(r, r), low))
    # 2ⁿ p + 2ⁿ - 1 by half of 2ⁿ, which is finite.
    n = w.integer("sub", n, 1)
    small = w.put(f"icmp slt {w.I} {n}, {-w.bits - 10}")
    n = w.put(f"select i1 {small}, {w.I} {-w.bits - 10}, {w.I} {n}")
    half = w.power_of_two(n)
    found = w.fma(half, p, w.sub(half, w.c(0.5)))
    found = w.add(found, found)
    found = w.where(w.test("ogt", x, w.c(LIMITS[w.kind][1])), w.c(float("inf")), found)
    return w.where(w.test("oeq", x, w.c(0.0)), x, found)


def _log_parts(w: Real, x: str) -> tuple[str, str, str]:
    """log x = k log 2 + log(1 + f): k, f, and the exponent k as an integer."""
    tiny = w.test("olt", x, w.power_of_two(w.put(f"add {w.I} {1 - w.offset}, 0")))
    y = w.where(tiny, w.mul(x, w.c(2.0**54)), x)
    # y = 2ᵏ m with m from √½ to √2: subtract the bits of √½ to round the exponent.
    root = w.as_bits(w.c(0.7071067811865476))
    n = w.integer("ashr", w.integer("sub", w.as_bits(y), root), w.bits)
    m = w.of_bits(w.integer("sub", w.as_bits(y), w.integer("shl", n, w.bits)))
    k = w.put(f"sitofp {w.I} {n} to {w.T}")
    k = w.sub(k, w.where(tiny, w.c(54.0), w.c(0.0)))
    return k, w.sub(m, w.c(1.0)), n


def _of_log(w: Real, x: str, found: str) -> str:
    """log x with its values at 0, infinity and below 0."""
    infinity = w.c(float("inf"))
    found = w.where(w.test("oeq", x, infinity), infinity, found)
    found = w.where(w.test("oeq", x, w.c(0.0)), w.c(-float("inf")), found)
    return w.where(w.test("ult", x, w.c(0.0)), w.c(float("nan")), found)


def _log(w: Real, x: str) -> str:
    k, f, _ = _log_parts(w, x)
    s = w.div(f, w.add(f, w.c(2.0)))
    z = w.mul(s, s)
    # log(1 + f) = f - (f²/2 - s (f²/2 + z P(z)))
    half = w.mul(w.mul(w.c(0.5), f), f)
    inner = w.fma(z, w.polynomial("log", z), half)
    high, rest = map(w.c, LOG_2[w.kind])
    small = w.fma(s, inner, w.mul(k, rest))
    found = w.fma(k, high, w.sub(f, w.sub(half, small)))
    return _of_log(w, x, found)


def _log_as_sum(w: Real, x: str) -> tuple[str, str]:
    """log x as a sum of two numbers, whose error is 2⁻⁶⁷ of it, for positive x."""
    k, f, _ = _log_parts(w, x)
    below = w.add(f, w.c(2.0))
    below_low = w.sub(f, w.sub(below, w.c(2.0)))
    s = w.div(f, below)
    s_low = w.div(w.less(s, below_low, w.less(s, below, f)), below)
    z = w.mul(s, s)
    # 2 s + (2/3) s³ + s⁵ Q(z), the first two terms as sums of two numbers.
    cube = w.mul(z, s)
    cube_low = w.fma(z, s, w.neg(cube))
    cube_low = w.fma(w.fma(s, s, w.neg(z)), s, cube_low)
    third = w.c(2.0 / 3.0)
    second = w.mul(cube, third)
    second_low = w.fma(cube, third, w.neg(second))
    second_low = w.fma(cube, w.c(2.0 / 3.0 * 2.0**-54), w.fma(cube_low, third, second_low))
    table = TABLES["log"][w.kind]
    tail = w.c(table[-1])
    for c in table[-2:0:-1]:
        tail = w.fma(tail, z, w.c(c))
    tail = w.mul(w.mul(cube, z), tail)
    twice = w.add(s, s)
    total, error = _sum(w, twice, second)
    low = w.add(w.add(error, second_low), w.fma(w.c(2.0), s_low, tail))
    high, rest = map(w.c, LOG_2[w.kind])
    product = w.mul(k, high)
    product_low = w.fma(k, rest, w.fma(k, high, w.neg(product)))
    whole, error = _sum(w, product, total)
    low = w.add(w.add(error, product_low), low)
    found = w.add(whole, low)
    return found, w.add(w.sub(whole, found), low)


def _sum(w: Real, a: str, b: str) -> tuple[str, str]:
    """a + b, and the error of its rounding."""
    total = w.add(a, b)
    part = w.sub(total, a)
    return total, w.add(w.sub(a, w.sub(total, part)), w.sub(b, part))


def _tanh(w: Real, x: str) -> str:
    limit = w.c(10.0 if w.kind == "f32" else 20.0)
    size = w.of("fabs", x)
    size = w.where(w.test("ogt", size, limit), limit, size)
    e = w.own("expm1", w.add(size, size))
    found = w.div(e, w.add(e, w.c(2.0)))
    return w.where(w.test("oeq", x, w.c(0.0)), x, w.of("copysign", found, x))


def _sinh(w: Real, x: str) -> str:
    size = w.of("fabs", x)
    e = w.own("expm1", size)
    small = w.mul(w.c(0.5), w.add(e, w.div(e, w.add(e, w.c(1.0)))))
    half = w.own("exp", w.mul(w.c(0.5), size))
    large = w.mul(w.mul(w.c(0.5), half), half)
    return w.of("copysign", w.where(w.test("ogt", size, w.c(30.0)), large, small), x)


def _cosh(w: Real, x: str) -> str:
    size = w.of("fabs", x)
    e = w.own("exp", size)
    small = w.mul(w.c(0.5), w.add(e, w.div(w.c(1.0), e)))
    half = w.own("exp", w.mul(w.c(0.5), size))
    large = w.mul(w.mul(w.c(0.5), half), half)
    return w.where(w.test("ogt", size, w.c(30.0)), large, small)


def _log1p(w: Real, x: str) -> str:
    u = w.add(w.c(1.0), x)
    lost = w.where(
        w.test("ogt", u, w.c(2.0)), w.sub(w.c(1.0), w.sub(u, x)), w.sub(x, w.sub(u, w.c(1.0)))
    )
    found = w.add(w.own("log", u), w.div(lost, u))
    found = w.where(w.test("oeq", u, w.c(1.0)), x, found)
    edge = w.logic("or", w.test("ole", u, w.c(0.0)), w.test("oeq", u, w.c(float("inf"))))
    return w.where(edge, w.own("log", u), found)


def _asinh(w: Real, x: str) -> str:
    size = w.of("fabs", x)
    square = w.mul(size, size)
    root = w.of("sqrt", w.add(square, w.c(1.0)))
    small = w.own("log1p", w.add(size, w.div(square, w.add(w.c(1.0), root))))
    large = w.add(w.own("log", size), w.c(0.6931471805599453))
    return w.of("copysign", w.where(w.test("ogt", size, w.c(1e8)), large, small), x)


def _acosh(w: Real, x: str) -> str:
    t = w.sub(x, w.c(1.0))
    small = w.own("log1p", w.add(t, w.of("sqrt", w.fma(t, t, w.add(t, t)))))
    large = w.add(w.own("log", x), w.c(0.6931471805599453))
    found = w.where(w.test("ogt", x, w.c(1e8)), large, small)
    return w.where(w.test("ult", x, w.c(1.0)), w.c(float("nan")), found)


def _atanh(w: Real, x: str) -> str:
    size = w.of("fabs", x)
    twice = w.add(size, size)
    found = w.mul(w.c(0.5), w.own("log1p", w.div(twice, w.sub(w.c(1.0), size))))
    return w.of("copysign", found, x)


def _exp2(w: Real, x: str) -> str:
    x = w.where(w.test("ogt", x, w.c(1025.0)), w.c(1025.0), x)
    x = w.where(w.test("olt", x, w.c(-1080.0)), w.c(-1080.0), x)
    k = w.of("rint", x)
    part = w.sub(x, k)
    high, rest = map(w.c, LOG_2[w.kind])
    r = w.mul(part, high)
    low = w.fma(part, rest, w.fma(part, high, w.neg(r)))
    n = w.put(f"fptosi {w.T} {w.where(w.test('uno', k, k), w.c(0.0), k)} to {w.I}")
    tail = w.fma(w.polynomial("exp", r), w.mul(r, r), low)
    return _scaled(w, w.add(w.c(1.0), w.add(r, tail)), n)


def _log2(w: Real, x: str) -> str:
    high, low = _log_as_sum(w, x)
    inverse, rest = w.c(1.4426950408889634), w.c(2.0355273740931033e-17)
    found = w.mul(high, inverse)
    error = w.fma(high, rest, w.fma(high, inverse, w.neg(found)))
    return _of_log(w, x, w.add(found, w.fma(low, inverse, error)))


def _cbrt(w: Real, x: str) -> str:
    size = w.of("fabs", x)
    edge = w.logic("or", w.test("oeq", size, w.c(0.0)), w.test("ueq", size, w.c(float("inf"))))
    given = w.where(edge, w.c(1.0), size)
    high, _ = _log_as_sum(w, given)
    y = _exp(w, w.mul(high, w.c(1.0 / 3.0)))
    # A step of Newton's method: y - (y³ - x) / (3 y²), in fractions of y.
    square = w.mul(y, y)
    cube = w.mul(square, y)
    error = w.fma(square, y, w.neg(cube))
    error = w.fma(w.fma(y, y, w.neg(square)), y, error)
    off = w.add(w.sub(cube, given), error)
    y = w.sub(y, w.div(off, w.mul(w.c(3.0), square)))
    return w.where(edge, x, w.of("copysign", y, x))


# Arcs ---------------------------------------------------------------------------------------------


def _atan2(w: Real, y: str, x: str) -> str:
    across, along = w.of("fabs", y), w.of("fabs", x)
    steep = w.test("ogt", across, along)
    large, small = w.where(steep, across, along), w.where(steep, along, across)
    ratio = w.div(small, large)
    ratio = w.where(w.test("oeq", large, w.c(0.0)), w.c(0.0), ratio)
    ratio = w.where(w.test("oeq", small, w.c(float("inf"))), w.c(1.0), ratio)
    z = w.mul(ratio, ratio)
    arc = w.fma(w.mul(ratio, z), w.polynomial("atan", z), ratio)
    high, low, _ = map(w.c, HALF_PI[w.kind])
    arc = w.where(steep, w.add(high, w.sub(low, arc)), arc)
    backward = w.put(f"icmp slt {w.I} {w.as_bits(x)}, 0")
    twice, twice_low = w.add(high, high), w.add(low, low)
    arc = w.where(backward, w.add(twice, w.sub(twice_low, arc)), arc)
    found = w.of("copysign", arc, y)
    return w.where(w.test("uno", x, y), w.add(x, y), found)


def _atan(w: Real, x: str) -> str:
    return w.own("atan2", x, w.c(1.0))


def _asin(w: Real, x: str) -> str:
    rest = w.mul(w.sub(w.c(1.0), x), w.add(w.c(1.0), x))
    return w.own("atan2", x, w.of("sqrt", rest))


def _acos(w: Real, x: str) -> str:
    less, more = w.sub(w.c(1.0), x), w.add(w.c(1.0), x)
    half = w.own("atan2", w.of("sqrt", less), w.of("sqrt", more))
    return w.add(half, half)


# Powers and remainders ----------------------------------------------------------------------------


def _pow(w: Real, x: str, y: str) -> str:
    """Products and square roots for positive x and y = 0, 1/2, 1, 3/2, 2."""
    one, twice = w.c(1.0), w.add(y, y)
    tests = [
        w.test("oeq", twice, w.of("rint", twice)),
        *(w.test("oge", y, w.c(0.0)), w.test("ole", y, w.c(2.0))),
        *(w.test("ogt", x, w.c(0.0)), w.test("olt", x, w.c(float("inf")))),
    ]
    known = tests[0]
    for test in tests[1:]:
        known = w.logic("and", known, test)
    whole = w.where(w.test("oge", y, one), x, one)
    whole = w.where(w.test("oeq", y, w.c(2.0)), w.mul(x, x), whole)
    is_whole = w.test("oeq", y, w.of("rint", y))
    root = w.where(is_whole, one, w.of("sqrt", w.where(known, x, one)))
    other = w.put(f"xor i1 {known}, true")
    return w.rarely(other, w.mul(whole, root), lambda: _any_power(w, x, y))


def _any_power(w: Real, x: str, y: str) -> str:
    name = w.module.function("power", "f64", 0)
    given = x, y
    if w.kind == "f32":
        given = [w.put(f"fpext float {a} to double") for a in given]
    found = w.put(f"call double {name}(double {given[0]}, double {given[1]})")
    return found if w.kind == "f64" else w.put(f"fptrunc double {found} to float")


def _power_of_any(module: Module) -> str:
    """x to the power y, by exp(y log x) with the logarithm as a sum of two numbers."""
    w = Real("f64", module)
    x, y = "%a", "%b"
    size = w.of("fabs", x)
    infinity, one, zero = w.c(float("inf")), w.c(1.0), w.c(0.0)
    normal = w.logic("and", w.test("ogt", size, zero), w.test("olt", size, infinity))
    high, low = _log_as_sum(w, w.where(normal, size, one))
    at_end = w.where(w.test("oeq", size, zero), w.neg(infinity), infinity)
    product = w.mul(y, high)
    more = w.fma(y, low, w.fma(y, high, w.neg(product)))
    known = w.logic("and", normal, w.test("olt", w.of("fabs", product), w.c(1e4)))
    product = w.where(normal, product, w.mul(y, at_end))
    more = w.where(known, more, zero)
    found = _exp(w, product, more)
    sure = w.logic("or", w.test("oeq", size, one), w.test("oeq", y, zero))
    found = w.where(sure, one, found)
    # Negative numbers: the sign of odd powers; none for a y that is not an integer.
    half = w.mul(y, w.c(0.5))
    is_integer = w.test("oeq", y, w.of("rint", y))
    is_even = w.test("oeq", half, w.of("rint", half))
    below = w.put(f"icmp slt i64 {w.as_bits(x)}, 0")
    odd = w.logic("and", is_integer, w.put(f"xor i1 {is_even}, true"))
    found = w.where(w.logic("and", below, odd), w.neg(found), found)
    none = w.logic("and", w.test("olt", x, zero), w.put(f"xor i1 {is_integer}, true"))
    none = w.logic("and", none, normal)
    found = w.where(none, w.c(float("nan")), found)
    # 1 to any power, and any number to the power 0, are 1; otherwise what is no number stays none.
    unknown = w.test("uno", x, y)
    sure = w.logic("or", w.test("oeq", x, one), w.test("oeq", y, zero))
    found = w.where(unknown, w.add(x, y), found)
    found = w.where(sure, one, found)
    head = "define internal double @power.f64(double %a, double %b) noinline {"
    return "\n".join([head, "entry:", *w.lines, f"  ret double {found}", "}"])


def _fmod(w: Real, x: str, y: str) -> str:
    """The remainder of x / y by long division, which is exact."""
    size, divisor = w.of("fabs", x), w.of("fabs", y)
    infinity = w.c(float("inf"))
    valid = w.logic("and", w.test("olt", size, infinity), w.test("ogt", divisor, w.c(0.0)))
    divides = w.logic("and", valid, w.test("olt", divisor, infinity))
    limit = w.mul(size, w.c(0.5))
    before = w.block
    w.do("br label %double")
    w.begin("double")
    s, larger = "%doubled", "%larger"
    w.lines.append(f"  {s} = phi {w.T} [{divisor}, %{before}], [{larger}, %double]")
    w.lines.append(f"  {larger} = fadd {w.T} {s}, {s}")
    more = w.logic("and", divides, w.test("ole", s, limit))
    w.do(f"br i1 {more}, label %double, label %halve")
    w.begin("halve")
    t, rest, smaller, left = "%halved", "%rest", "%smaller", "%left"
    w.lines.append(f"  {t} = phi {w.T} [{s}, %double], [{smaller}, %halve]")
    w.lines.append(f"  {rest} = phi {w.T} [{size}, %double], [{left}, %halve]")
    fits = w.test("oge", rest, t)
    w.lines.append(f"  {left} = select i1 {fits}, {w.T} {w.sub(rest, t)}, {w.T} {rest}")
    w.lines.append(f"  {smaller} = fmul {w.T} {t}, {w.c(0.5)}")
    more = w.logic("and", divides, w.test("oge", smaller, divisor))
    w.do(f"br i1 {more}, label %halve, label %end")
    w.begin("end")
    found = w.where(w.test("oeq", divisor, infinity), size, left)
    found = w.where(valid, found, w.c(float("nan")))
    found = w.of("copysign", found, x)
    return w.where(w.test("uno", x, y), w.add(x, y), found)


OWN: dict[str, Callable[..., str]] = {
    x.__name__[1:]: x
    for x in (_sin, _cos, _exp, _log, _tanh, _expm1, _atan2, _atan, _asin, _acos, _pow)
}
# Of single precision in double precision.
WIDER: dict[str, Callable[..., str]] = {
    x.__name__[1:]: x
    for x in (
        *(_tan, _sinh, _cosh, _log1p, _asinh, _acosh, _atanh, _exp2, _log2, _cbrt),
        _fmod,
    )
}
WHOLE: dict[str, Callable[[Module], str]] = {"circular": circular_of_any, "power": _power_of_any}


def function_text(module: Module, name: str, kind: str, lanes: int) -> str:
    """Definition of a function of numbers of this type.

    **Raises** `NotCovered` for a function that is not among these.
    """
    assert lanes == 0
    if name in WHOLE:
        return WHOLE[name](module)
    w = Real(kind, module)
    x = ["%a", "%b"] if name in TWO_ARGUMENTS else ["%a"]
    if name in OWN:
        found = OWN[name](w, *x)
    elif name not in WIDER:
        raise NotCovered(f"{name} on a GPU")
    elif kind == "f64":
        found = WIDER[name](w, *x)
    else:
        wider = [w.put(f"fpext float {y} to double") for y in x]
        given = ", ".join(f"double {y}" for y in wider)
        found = w.put(f"call double {module.function(name, 'f64', 0)}({given})")
        found = w.put(f"fptrunc double {found} to float")
    inlined = "noinline" if name == "fmod" else "alwaysinline"
    head = f"define internal {w.T} @{name}.{suffix(kind, 0)}({', '.join(f'{w.T} {y}' for y in x)})"
    return "\n".join([f"{head} {inlined} {{", "entry:", *w.lines, f"  ret {w.T} {found}", "}"])
