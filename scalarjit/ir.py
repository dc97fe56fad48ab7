"""Text of LLVM's intermediate representation."""

import struct
from typing import Any

import numpy as np

# Types of scalars in registers, and in memory.
REGISTER = {
    "f64": "double",
    "f32": "float",
    "i1": "i1",
    **{f"{sign}{n}": f"i{n}" for sign in "iu" for n in (8, 16, 32, 64)},
}
MEMORY = {**REGISTER, "i1": "i8"}
SIZES = {kind: 1 if kind == "i1" else int(kind[1:]) // 8 for kind in REGISTER}


class Writer:
    """Instructions of a function, on scalars if `lanes` is 0, otherwise on vectors.

    - `declared`: declarations of intrinsics and of functions that the module needs.
    - `functions`: mathematical functions that the module needs, by name, type and lanes.
    """

    def __init__(self, lanes: int, shared: "Module"):
        self.lanes, self.module = lanes, shared
        self.lines: list[str] = []
        self.count = 0
        self.late = ""  # Begins names of instructions before others: numbers have to increase.
        self.block = "entry"
        self._products: dict[str, tuple[str, str, int | None]] = {}
        self._intrinsics: dict[tuple[str, str], str] = {}

    def name(self) -> str:
        """The next name: a number, which LLVM reads sooner than a word."""
        self.count += 1
        return f"%{self.late}{self.count}"

    def put(self, text: str) -> str:
        """An instruction with a result; the name of the result."""
        made = self.name()
        self.lines.append(f"  {made} = {text}")
        return made

    def do(self, text: str) -> None:
        """An instruction without a result."""
        self.lines.append(f"  {text}")

    def begin(self, label: str) -> None:
        """Begin a block."""
        self.lines.append(f"{label}:")
        self.block = label
        self._products.clear()

    def type(self, kind: str) -> str:
        return wide(REGISTER[kind], self.lanes)

    def constant(self, kind: str, value: Any) -> str:
        text = number(kind, value)
        return f"splat ({REGISTER[kind]} {text})" if self.lanes else text

    def broadcast(self, kind: str, scalar: str) -> str:
        """A scalar in all lanes."""
        if not self.lanes:
            return scalar
        T, own = self.type(kind), REGISTER[kind]
        first = self.put(f"insertelement {T} poison, {own} {scalar}, i64 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        return self.put(f"shufflevector {T} {first}, {T} poison, {zeros}")

    # Sums of a product and a number are fused here and nowhere else, so that code has the same
    # results at all of LLVM's levels of optimization. A product that is not used otherwise then
    # takes no time.

    def product(self, kind: str, a: str, b: str, once: bool = True, only: bool = False) -> str:
        """a b; with `once`, it may become a part of the sum that uses it.

        `only`: whether nothing else uses it, so that the sum takes its place.
        """
        made = self.put(f"fmul {self.type(kind)} {a}, {b}")
        if once:
            self._products[made] = a, b, len(self.lines) - 1 if only else None
        return made

    def _fused(self, product: str) -> tuple[str, str]:
        """Factors of a product that becomes a part of a sum."""
        a, b, line = self._products[product]
        if line is not None:
            self.lines[line] = ""
        return a, b

    def sum_of(self, kind: str, a: str, b: str) -> str:
        """a + b, rounded once if one of them is a product that may be fused."""
        for x, other in ((a, b), (b, a)):
            if x in self._products:
                return self.call(kind, "fmuladd", *self._fused(x), other)
        return self.put(f"fadd {self.type(kind)} {a}, {b}")

    def difference_of(self, kind: str, a: str, b: str) -> str:
        """a - b, rounded once if one of them is a product that may be fused."""
        T = self.type(kind)
        if a in self._products:
            return self.call(kind, "fmuladd", *self._fused(a), self.put(f"fneg {T} {b}"))
        if b in self._products:
            x, y = self._fused(b)
            return self.call(kind, "fmuladd", self.put(f"fneg {T} {x}"), y, a)
        return self.put(f"fsub {T} {a}, {b}")

    def call(self, kind: str, intrinsic: str, *operands: str, flags: str = "") -> str:
        """A call of an intrinsic whose operands have the type of its result."""
        T = self.type(kind)
        name = self._intrinsics.get((intrinsic, T))
        if name is None:
            name = f"@llvm.{intrinsic}.{suffix(kind, self.lanes)}"
            self._intrinsics[intrinsic, T] = name
            self.module.declare(f"declare {T} {name}({', '.join([T] * len(operands))})")
        given = f", {T} ".join(operands)
        return self.put(f"call {flags}{T} {name}({T} {given})")


class Module:
    """Declarations, helper functions and constants that the functions of a module need."""

    def __init__(self) -> None:
        self.declared: dict[str, None] = {}
        self.functions: dict[tuple[str, str, int], None] = {}
        self.routines: dict[tuple[Any, str, int], None] = {}
        self.callees: dict[tuple[Any, int], Any] = {}
        self.globals: list[str] = []

    def declare(self, text: str) -> None:
        self.declared[text] = None

    def function(self, name: str, kind: str, lanes: int) -> str:
        """Name of a mathematical function of this type."""
        self.functions[name, kind, lanes] = None
        return f"@{name}.{suffix(kind, lanes)}"

    def routine(self, routine: Any, kind: str, lanes: int) -> str:
        """Name of a routine on numbers of this type."""
        self.routines[routine, kind, lanes] = None
        return f"@{routine.name}.{suffix(kind, lanes)}"


def wide(text: str, lanes: int) -> str:
    """A type, or a vector of it."""
    return f"<{lanes} x {text}>" if lanes else text


def suffix(kind: str, lanes: int) -> str:
    """How names of functions for a type end."""
    own = kind if kind.startswith("f") else REGISTER[kind]
    return f"v{lanes}{own}" if lanes else own


def number(kind: str, value: Any) -> str:
    """A number as LLVM reads it: floats by their bits."""
    if kind == "i1":
        return "true" if value else "false"
    if kind.startswith("f"):
        bits = struct.unpack("<Q", struct.pack("<d", float(value)))[0]
        return f"0x{bits:016X}"
    return str(int(np.asarray(value)))
