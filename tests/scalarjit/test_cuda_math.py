"""Mathematical functions for GPUs, computed on the CPU, against NumPy's in extended precision."""

import ctypes

import numpy as np
import pytest

from scalarjit.cuda import METADATA
from scalarjit.cuda_math import OWN, WIDER, function_text
from scalarjit.functions import TWO_ARGUMENTS
from scalarjit.ir import REGISTER
from scalarjit.module import Functions, functions_of

llvm = pytest.importorskip("llvmlite.binding")

# Largest errors in units in the last place, in float32 and float64, with those of the reference.
BOUNDS = {
    **dict.fromkeys(
        (
            "sin",
            "cos",
            "exp",
            "log",
            "pow",
            "exp2",
            "log2",
            "cbrt",
        ),
        (1, 1),
    ),
    **dict.fromkeys(
        (
            "atan",
            "atan2",
            "expm1",
        ),
        (1.5, 1.5),
    ),
    **dict.fromkeys(
        (
            "tan",
            "sinh",
            "cosh",
            "acosh",
            "asinh",
            "atanh",
            "log1p",
        ),
        (1, 2.5),
    ),
    **dict.fromkeys(
        (
            "tanh",
            "asin",
            "acos",
        ),
        (2.5, 2.5),
    ),
    **dict.fromkeys(("fmod",), (0, 0)),
}
FLOATS = {"f32": np.float32, "f64": np.float64}


def compiled(kind):
    """All functions of a type as functions of arrays."""
    module = Functions()
    names = [*OWN, *WIDER]
    T = REGISTER[kind]
    texts = []
    for name in names:
        own = module.function(name, kind, 0)
        x = ["%a", "%b"] if name in TWO_ARGUMENTS else ["%a"]
        loads = []
        for k, y in enumerate(x):
            loads += [
                f"  {y}p = getelementptr {T}, ptr %x{k}, i64 %i",
                f"  {y} = load {T}, ptr {y}p",
            ]
        texts.append(f"""
define void @many_{name}(ptr %x0, ptr %x1, ptr %out, i64 %n) {{
entry:
  br label %one
one:
  %i = phi i64 [0, %entry], [%next, %one]
{chr(10).join(loads)}
  %y = call {T} {own}({", ".join(f"{T} {y}" for y in x)})
  %yp = getelementptr {T}, ptr %out, i64 %i
  store {T} %y, ptr %yp
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %one, label %done
done:
  ret void
}}""")
    functions = functions_of(module, function_text)
    text = "\n".join([*module.globals, *module.declared, *functions, *texts, *METADATA])
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    parsed = llvm.parse_assembly(text)
    parsed.triple = llvm.get_process_triple()
    machine = llvm.Target.from_triple(parsed.triple).create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), jit=True
    )
    engine = llvm.create_mcjit_compiler(parsed, machine)
    engine.finalize_object()
    P = ctypes.c_void_p

    def of(name, *x):
        fn = ctypes.CFUNCTYPE(None, P, P, P, ctypes.c_int64)(
            engine.get_function_address(f"many_{name}")
        )
        given = [np.ascontiguousarray(y, FLOATS[kind]) for y in np.broadcast_arrays(*x)]
        out = np.empty_like(given[0])
        fn(given[0].ctypes.data, given[-1].ctypes.data, out.ctypes.data, out.size)
        return out

    return of


@pytest.fixture(scope="module", params=["f32", "f64"])
def computed(request):
    return request.param, compiled(request.param)


def arguments(name, kind, rng):
    """Numbers over wide ranges of the function's domain."""
    n = 20_000
    tiny, largest = (-37, 38) if kind == "f32" else (-300, 308)
    signs = rng.choice([-1.0, 1.0], n)
    wide = signs * 10.0 ** rng.uniform(tiny, largest, n)
    usual = rng.uniform(-10.0, 10.0, n)
    near = signs * 10.0 ** rng.uniform(-12, 0, n)
    top = 88.0 if kind == "f32" else 709.0
    if name in ("sin", "cos", "tan"):
        return (np.concatenate([usual, wide, near, rng.uniform(-1e6, 1e6, n)]),)
    if name in ("exp", "sinh", "cosh", "expm1", "tanh"):
        return (np.concatenate([usual, near, rng.uniform(-top, top, n)]),)
    if name == "exp2":
        return (np.concatenate([usual, near, rng.uniform(-1.4 * top, 1.4 * top, n)]),)
    if name in ("log", "log2"):
        return (np.abs(np.concatenate([wide, 1.0 + 0.3 * near])),)
    if name == "log1p":
        return (np.concatenate([np.abs(wide), -0.999 * np.abs(near), near]),)
    if name == "acosh":
        return (1.0 + np.abs(np.concatenate([wide, near])),)
    if name in ("asin", "acos", "atanh"):
        return (np.concatenate([0.9999 * near, rng.uniform(-0.999, 0.999, n)]),)
    if name == "pow":
        x = np.concatenate([np.abs(usual), 1.0 + 0.1 * near, -rng.integers(1, 9, n)])
        y = np.concatenate([usual, 100.0 * usual, rng.integers(-5, 6, n)])
        return x, y
    if name == "fmod":
        return np.concatenate([usual, wide]), np.concatenate([near, np.abs(usual)])
    if name == "atan2":
        x = np.concatenate([usual, wide])
        return x, rng.permutation(x)
    return (np.concatenate([wide, usual, near]),)


def reference(name, *x):
    given = [y.astype(np.longdouble) for y in x]
    names = {"atan2": "arctan2", "atan": "arctan", "asin": "arcsin", "acos": "arccos"}
    names |= {"asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "pow": "power"}
    return getattr(np, names.get(name, name))(*given)


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="long double is not longer")
def test_errors(computed, name):
    kind, of = computed
    x = arguments(name, kind, np.random.default_rng(1))
    x = [y.astype(FLOATS[kind]) for y in np.broadcast_arrays(*x)]
    with np.errstate(all="ignore"):
        found, wanted = of(name, *x), reference(name, *x)
        finite = np.abs(wanted) <= np.finfo(FLOATS[kind]).max
        assert np.mean(finite) > 0.5
        unit = np.spacing(np.abs(wanted[finite]).astype(FLOATS[kind])).astype(np.longdouble)
        off = np.abs(found[finite].astype(np.longdouble) - wanted[finite]) / unit
    assert np.max(off) <= BOUNDS[name][kind == "f64"]


SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.0, 3.0, -3.0, 1e30, -1e30, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("name", BOUNDS)
def test_special_values(computed, name):
    """Infinities, zeros with signs, and what is not a number, as NumPy has them."""
    kind, of = computed
    x = np.array(SPECIAL, FLOATS[kind])
    x = [y.ravel() for y in np.meshgrid(x, x)] if name in TWO_ARGUMENTS else [x]
    with np.errstate(all="ignore"):
        found, wanted = of(name, *x), reference(name, *x).astype(FLOATS[kind])
    np.testing.assert_allclose(found, wanted, rtol=1e-5 if kind == "f32" else 1e-13, atol=1e-12)
    known = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found[known]), np.signbit(wanted[known]))
