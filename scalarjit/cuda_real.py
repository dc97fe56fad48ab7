"""Instructions on numbers of one type, and constants of their formats, for `cuda_math`."""

from collections.abc import Callable, Sequence

import numpy as np

from .functions import COS, EXP, LOG, SIN
from .ir import Module, Writer, number

# Sums of numbers of the type: π/2, log 2. A sum with `rounder` has an integer in its last bits.
HALF_PI = {
    "f32": ("0x1.921fb6p+0", "-0x1.777a5cp-25", "-0x1.ee59dap-50"),
    "f64": ("0x1.921fb54442d18p+0", "0x1.1a62633145c07p-54", "-0x1.f1976b7ed8fbcp-110"),
}
LOG_2 = {
    "f32": ("0x1.62e430p-1", "-0x1.05c610p-29"),
    "f64": ("0x1.62e42fefa39efp-1", "0x1.abc9e3b39803fp-56"),
}
ROUNDER = {"f32": 1.5 * 2.0**23, "f64": 1.5 * 2.0**52}
# Largest arguments of sin and cos that these sums reduce.
REDUCED = {"f32": 4.0e4, "f64": 2.0**30}
# Bits of the significand, of the exponent's offset, and of all.
FORMAT = {"f32": (23, 127, "i32"), "f64": (52, 1023, "i64")}
# Arguments outside of which exp is 0 or infinite.
LIMITS = {"f32": (-104.0, 89.0), "f64": (-746.0, 710.0)}

# Polynomials as in `functions`; (atan x / x - 1) / x² in powers of x², up to 1.
TABLES = {
    "sin": {
        "f64": SIN,
        "f32": (-0.1666666716, 0.008333331905, -0.0001984007768, 2.724931391e-06),
    },
    "cos": {
        "f64": COS,
        "f32": (0.04166666791, -0.001388888806, 2.480059629e-05, -2.730044741e-07),
    },
    "exp": {
        "f64": EXP,
        "f32": (
            *(0.5, 0.1666666716337204, 0.041666463017463684, 0.00833331048488617),
            *(0.0013933731243014336, 0.000198910798644647),
        ),
    },
    "log": {
        "f64": LOG,
        "f32": (0.6666666865348816, 0.4000012278556824, 0.28550735116004944, 0.23332762718200684),
    },
    "atan": {
        "f32": (
            *(-0.3333333432674408, 0.19999949634075165, -0.14284004271030426),
            *(0.11088261753320694, -0.08931826800107956, 0.07031914591789246),
            *(-0.04896051436662674, 0.026305001229047775, -0.00914462935179472),
            0.001488691894337535,
        ),
        "f64": (
            *(-0.3333333333333333, 0.19999999999999554, -0.14285714285648404),
            *(0.11111111107234799, -0.09090908969557403, 0.07692305354678655),
            *(-0.06666636435777692, 0.05882074956371294, -0.05261265735709454),
            *(0.04752086773576656, -0.04308119655330471, 0.03872640214042632),
            *(-0.033750132001619734, 0.027567942297344678, -0.020238706986393514),
            *(0.012756172907694298, -0.006575683344151699, 0.002622977891906089),
            *(-0.0007518472526973822, 0.0001368724853148122, -1.1832505417555692e-05),
        ),
    },
}


class Real(Writer):
    """Instructions on numbers of one type."""

    def __init__(self, kind: str, module: Module):
        super().__init__(0, module)
        self.kind, self.T = kind, self.type(kind)
        self.bits, self.offset, self.I = FORMAT[kind]

    def c(self, x: float | str) -> str:
        return number(self.kind, float.fromhex(x) if isinstance(x, str) else _rounded(self.kind, x))

    def op(self, name: str, a: str, b: str) -> str:
        """An operation, which is rounded once."""
        return self.put(f"{name} {self.T} {a}, {b}")

    def add(self, a: str, b: str) -> str:
        return self.op("fadd", a, b)

    def sub(self, a: str, b: str) -> str:
        return self.op("fsub", a, b)

    def mul(self, a: str, b: str) -> str:
        return self.op("fmul", a, b)

    def div(self, a: str, b: str) -> str:
        return self.op("fdiv", a, b)

    def neg(self, a: str) -> str:
        return self.put(f"fneg {self.T} {a}")

    def of(self, intrinsic: str, *x: str) -> str:
        return self.call(self.kind, intrinsic, *x)

    def fma(self, a: str, b: str, c: str) -> str:
        """a b + c, rounded once."""
        return self.of("fma", a, b, c)

    def less(self, a: str, b: str, c: str) -> str:
        """c - a b, rounded once."""
        return self.fma(self.neg(a), b, c)

    def test(self, how: str, a: str, b: str) -> str:
        return self.put(f"fcmp {how} {self.T} {a}, {b}")

    def logic(self, op: str, a: str, b: str) -> str:
        return self.put(f"{op} i1 {a}, {b}")

    def where(self, which: str, yes: str, no: str) -> str:
        return self.put(f"select i1 {which}, {self.T} {yes}, {self.T} {no}")

    def polynomial(self, name: str, x: str) -> str:
        """Σ cₖ xᵏ of a table."""
        coefficients: Sequence[float] = TABLES[name][self.kind]
        total = self.c(coefficients[-1])
        for c in coefficients[-2::-1]:
            total = self.fma(total, x, self.c(c))
        return total

    def as_bits(self, x: str) -> str:
        return self.put(f"bitcast {self.T} {x} to {self.I}")

    def of_bits(self, x: str) -> str:
        return self.put(f"bitcast {self.I} {x} to {self.T}")

    def integer(self, op: str, a: str, b: str | int) -> str:
        return self.put(f"{op} {self.I} {a}, {b}")

    def power_of_two(self, n: str) -> str:
        """2ⁿ for n that gives a normal number."""
        return self.of_bits(self.integer("shl", self.integer("add", n, self.offset), self.bits))

    def own(self, name: str, *x: str) -> str:
        """Another function of this type."""
        given = ", ".join(f"{self.T} {y}" for y in x)
        return self.put(f"call {self.T} {self.module.function(name, self.kind, 0)}({given})")

    def rarely(self, which: str, usual: str, other: Callable[[], str]) -> str:
        """`usual`, or the number of `other` where `which` is true, in a block of its own."""
        self.count += 1
        before, k = self.block, self.count
        self.do(f"br i1 {which}, label %rare{k}, label %after{k}, !prof !1")
        self.begin(f"rare{k}")
        found = other()
        last = self.block
        self.do(f"br label %after{k}")
        self.begin(f"after{k}")
        return self.put(f"phi {self.T} [{usual}, %{before}], [{found}, %{last}]")


def _rounded(kind: str, x: float) -> float:
    return float(np.float32(x)) if kind == "f32" else x
