"""sin and cos for GPUs: reduction of the argument by multiples of π/2, and polynomials."""

from itertools import pairwise

from .cuda_real import HALF_PI, REDUCED, ROUNDER, Real
from .ir import Module


def _reduced(w: Real, x: str) -> tuple[str, str, str]:
    """x = k π/2 + r + low: r, low, and an integer with the lowest bits of k."""
    high, middle, rest = map(w.c, HALF_PI[w.kind])
    turned = w.fma(x, w.c(0.6366197723675814), w.c(ROUNDER[w.kind]))
    k = w.sub(turned, w.c(ROUNDER[w.kind]))
    a = w.less(k, high, x)
    r = w.less(k, middle, a)
    low = w.less(k, rest, w.less(k, middle, w.sub(a, r)))
    return r, low, w.as_bits(turned)


def _sine_and_cosine(w: Real, r: str, low: str) -> tuple[str, str]:
    """sin and cos of r + low, where low is a rounding of r."""
    z = w.mul(r, r)
    sine = w.fma(w.mul(r, z), w.polynomial("sin", z), low)
    sine = w.add(r, sine)
    half = w.mul(w.c(0.5), z)
    first = w.sub(w.c(1.0), half)
    rest = w.sub(w.sub(w.c(1.0), first), half)
    quartic = w.mul(z, z)
    rest = w.fma(quartic, w.polynomial("cos", z), w.less(r, low, rest))
    return sine, w.add(first, rest)


def _turned(w: Real, sine: str, cosine: str, quadrant: str) -> str:
    """sin of an angle in a quadrant."""
    odd = w.put(f"trunc {w.I} {quadrant} to i1")
    found = w.where(odd, cosine, sine)
    sign = w.integer("shl", w.integer("lshr", quadrant, 1), 31 if w.kind == "f32" else 63)
    return w.of_bits(w.integer("xor", w.as_bits(found), sign))


def circular(w: Real, x: str, turns: int) -> str:
    """sin(x + turns π/2)."""
    r, low, quadrant = _reduced(w, x)
    found = _turned(w, *_sine_and_cosine(w, r, low), w.integer("add", quadrant, turns))
    if not turns:
        found = w.where(w.test("oeq", x, w.c(0.0)), x, found)  # Zeros keep their sign.
    is_large = w.test("ugt", w.of("fabs", x), w.c(REDUCED[w.kind]))
    return w.rarely(is_large, found, lambda: _of_large(w, x, turns))


def _of_large(w: Real, x: str, turns: int) -> str:
    name = w.module.function("circular", "f64", 0)
    if w.kind == "f64":
        return w.put(f"call double {name}(double {x}, i64 {turns})")
    x = w.put(f"fpext float {x} to double")
    found = w.put(f"call double {name}(double {x}, i64 {turns})")
    return w.put(f"fptrunc double {found} to float")


# Bits of 2/π after the point, with 64 zeros before them.
TWO_BY_PI = (
    *(0, 0xA2F9836E4E441529, 0xFC2757D1F534DDC0, 0xDB6295993C439041, 0xFE5163ABDEBBC561),
    *(0xB7246E3A424DD2E0, 0x06492EEA09D1921C, 0xFE1DEB1CB129A73E, 0xE88235F52EBB4484),
    *(0xE99C7026B45F7E41, 0x3991D639835339F4, 0x9C845F8BBDF9283B, 0x1FF897FFDE05980F),
    *(0xEF2F118B5A0A6D1F, 0x6D367ECF27CB09B7, 0x4F463F669E5FEA2D, 0x7527BAC7EBE5F17B),
    *(0x3D0739F78A5292EA, 0x6BFB5FB11F8D5D08, 0x56033046FC7B6BAB, 0xF0CFBC209AF4361D),
)


def _product_with_two_by_pi(w: Real, bits: str) -> tuple[str, str]:
    """The product of |x|, given by its bits, with 2/π, without multiples of 4 and the last bits.

    **Returns** two words: the quadrant in the two highest bits, and a fraction.
    """
    # x = m 2ᵉ; bits of 2/π from e - 2 on have a product below 4.
    m = w.integer("or", w.integer("and", bits, 2**52 - 1), 2**52)
    first = w.integer("sub", w.integer("lshr", bits, 52), 1023 + 52 - 64 + 2)
    word, shift = w.integer("lshr", first, 6), w.integer("and", first, 63)
    words = []
    for k in range(4):
        at = w.integer("add", word, k)
        at = w.put(f"getelementptr i64, ptr @two_by_pi, i64 {at}")
        words.append(w.put(f"load i64, ptr {at}"))
    digits = [
        w.put(f"call i64 @llvm.fshl.i64(i64 {a}, i64 {b}, i64 {shift})") for a, b in pairwise(words)
    ]
    # The product with 192 bits, without multiples of 4 and the last 64 bits.
    wide = lambda x: w.put(f"zext i64 {x} to i128")  # noqa: E731
    long = wide(m)
    below = w.put(f"lshr i128 {w.put(f'mul i128 {long}, {wide(digits[2])}')}, 64")
    middle = w.put(f"add i128 {w.put(f'mul i128 {long}, {wide(digits[1])}')}, {below}")
    above = w.put(f"trunc i128 {w.put(f'lshr i128 {middle}, 64')} to i64")
    middle = w.put(f"trunc i128 {middle} to i64")
    above = w.integer("add", w.integer("mul", m, digits[0]), above)
    return above, middle


def circular_of_any(module: Module) -> str:
    """sin(x + turns π/2) for |x| > 1, by the bits of 2/π that matter (Payne and Hanek 1983)."""
    w = Real("f64", module)
    entries = ", ".join(f"i64 {_signed(x)}" for x in TWO_BY_PI)
    module.globals.append(
        f"@two_by_pi = private unnamed_addr constant [{len(TWO_BY_PI)} x i64] [{entries}]"
    )
    module.declare("declare i64 @llvm.fshl.i64(i64, i64, i64)")
    module.declare("declare i64 @llvm.ctlz.i64(i64, i1)")
    x = w.of("fabs", "%a")
    is_number = w.test("olt", x, w.c(float("inf")))
    bits = w.as_bits(w.where(is_number, x, w.c(1.0)))
    above, middle = _product_with_two_by_pi(w, bits)
    # Two bits are the quadrant, the others a fraction, shifted to -½ … ½.
    quadrant = w.integer("lshr", above, 62)
    high = w.put(f"call i64 @llvm.fshl.i64(i64 {above}, i64 {middle}, i64 2)")
    low = w.integer("shl", middle, 2)
    below_zero = w.integer("lshr", high, 63)
    quadrant = w.integer("add", quadrant, below_zero)
    mask = w.put(f"sub i64 0, {below_zero}")
    high, low = w.integer("xor", high, mask), w.integer("xor", low, mask)
    zeros = w.put(f"call i64 @llvm.ctlz.i64(i64 {high}, i1 false)")
    high = w.put(f"call i64 @llvm.fshl.i64(i64 {high}, i64 {low}, i64 {zeros})")
    large = w.put(f"uitofp i64 {w.integer('and', high, -2048)} to double")
    small = w.put(f"uitofp i64 {w.integer('and', high, 2047)} to double")
    first_part, second, _ = map(w.c, HALF_PI["f64"])
    r = w.mul(large, first_part)
    rest = w.fma(large, first_part, w.neg(r))
    rest = w.fma(large, second, w.fma(small, first_part, rest))
    scale = w.power_of_two(w.put(f"sub i64 -64, {zeros}"))
    signed = w.of_bits(w.integer("or", w.as_bits(scale), w.integer("shl", below_zero, 63)))
    r, rest = w.mul(r, signed), w.mul(rest, signed)
    total = w.add(r, rest)
    rest = w.add(w.sub(r, total), rest)
    # sin(-x + turns π/2): -sin x, cos x.
    below_zero = w.integer("lshr", w.as_bits("%a"), 63)
    odd = w.put("trunc i64 %turns to i1")
    found = _turned(w, *_sine_and_cosine(w, total, rest), w.integer("add", quadrant, "%turns"))
    negative = w.where(odd, found, w.neg(found))
    changed = w.put(f"trunc i64 {below_zero} to i1")
    found = w.where(changed, negative, found)
    found = w.where(is_number, found, w.c(float("nan")))
    head = "define internal double @circular.f64(double %a, i64 %turns) noinline {"
    return "\n".join([head, "entry:", *w.lines, f"  ret double {found}", "}"])


def _signed(x: int) -> int:
    return x - 2**64 if x >= 2**63 else x
