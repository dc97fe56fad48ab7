"""Programs of JAX on disk, so that a second process does not trace them.

A program is found by a name that says all that it was traced from. Programs that follow from it,
such as its derivatives, have names that follow from its name.
"""

import io
import pickle
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache, partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray, Tracer
from jax.extend import core
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Primitive, Var
from jax.interpreters import ad

from . import cache
from .digest import Digests, Unknown, digest_of, digests, settings
from .machine_code import target

T = TypeVar("T")

ENDING = ".jaxpr"

_names: WeakKeyDictionary[ClosedJaxpr, str] = WeakKeyDictionary()


def kept(name: str, make: Callable[[], T]) -> T:
    """Look up a result of earlier processes by its name, or make and keep it.

    Programs of the result get names. Files are those of the generator and of its limits.
    """
    if cache.folder() is None:
        return make()
    file = cache.name_of(f"{settings()} {name}", target()) + ENDING
    contents = cache.held(file)
    if contents is not None:
        return pickle.loads(zlib.decompress(contents))
    found = make()
    for number, x in enumerate(jax.tree.leaves(found, is_leaf=_is_program)):
        if isinstance(x, ClosedJaxpr):
            _names.setdefault(x, f"{name} {number}")
    data = _pickled(found)
    if data is not None:
        cache.keep(file, zlib.compress(data, 1))
    return found


P = ParamSpec("P")


def keeps(fn: Callable[Concatenate[ClosedJaxpr, P], T]) -> Callable[Concatenate[ClosedJaxpr, P], T]:
    """fn, which makes programs from one, with results that are kept."""

    @lru_cache(maxsize=256)
    @wraps(fn)
    def found(program: ClosedJaxpr, *args: P.args, **kwargs: P.kwargs) -> T:
        assert not kwargs
        name = None if cache.folder() is None else _name_of(program)
        if name is None:
            return fn(program, *args, **kwargs)
        own = f"{fn.__qualname__} {name} {args!r}"
        return kept(own, lambda: fn(program, *args, **kwargs))

    return cast(Any, found)


def _name_of(program: ClosedJaxpr) -> str | None:
    """Name of a program: that of what it was traced from, or of all that it contains."""
    if program not in _names:
        try:
            _names[program] = _Whole().of_closed(program)
        except Unknown:
            return None
    return _names[program]


class _Whole(Digests):
    """Digests of programs whose derivatives follow from their operations.

    Functions that are rules of derivatives have none: their source may change under their name.
    """

    def of_closed(self, program: ClosedJaxpr) -> str:
        return _names.get(program) or super().of_closed(program)

    def _parameters(self, equation: Any) -> Iterator[str]:
        if equation.primitive.name in ("custom_jvp_call", "custom_vjp_call", "with_slope"):
            raise Unknown
        yield from super()._parameters(equation)


def _is_program(x: Any) -> bool:
    return isinstance(x, ClosedJaxpr)


def _pickled(x: Any) -> bytes | None:
    """Bytes of an object that may hold programs; None if a part of it cannot be stored."""
    file = io.BytesIO()
    try:
        _Pickler(file, protocol=5).dump(x)
    except Exception:  # Objects of all kinds may refuse in all ways.
        return None
    return file.getvalue()


class _Pickler(pickle.Pickler):
    def reducer_override(self, x: Any) -> Any:
        of = _REDUCERS.get(type(x))
        if of is not None:
            return of(x)
        if isinstance(x, Tracer):
            raise pickle.PicklingError("a traced value")
        if isinstance(x, Primitive):
            return _primitive, (_known(x),)
        if isinstance(x, jax.Array | np.ndarray) and type(x) is not np.ndarray:
            if getattr(x, "weak_type", False):
                raise pickle.PicklingError("an array of a weak type")
            return np.array, (np.asarray(x),)
        if type(x) is type(_plain_jit()["ctx_mesh"]) and x == _plain_jit()["ctx_mesh"]:
            return _parameter, ("ctx_mesh",)
        if x is _unspecified():
            return _unspecified, ()
        return NotImplemented


def _known(x: Primitive) -> str:
    if _primitives().get(x.name) is not x:
        raise pickle.PicklingError(f"an unknown primitive {x.name}")
    return x.name


def _primitive(name: str) -> Primitive:
    return _primitives()[name]


@lru_cache
def _primitives() -> dict[str, Primitive]:
    public = [x for x in vars(core.primitives).values() if isinstance(x, Primitive)]
    on_cpu = partial(jax.lax.platform_dependent, cpu=jnp.negative, default=jnp.positive)
    others = [x.primitive for x in jax.make_jaxpr(on_cpu)(0.0).eqns]
    return {x.name: x for x in (*ad.primitive_jvps, *public, *others)}


@lru_cache
def _plain_jit() -> dict[str, Any]:
    """Parameters of a call of a compiled function without any options."""
    return jax.make_jaxpr(jax.jit(jnp.negative))(0.0).eqns[0].params


def _parameter(name: str) -> Any:
    return _plain_jit()[name]


@lru_cache
def _unspecified() -> Any:
    return _plain_jit()["in_shardings"][0]


def _of_aval(x: Any) -> tuple[Any, ...]:
    if type(x) is not ShapedArray or x != _aval(*(own := (x.shape, x.dtype, x.weak_type))):
        raise pickle.PicklingError(f"a value of the kind {x}")
    return own


@lru_cache(maxsize=4096)
def _aval(shape: tuple[int, ...], dtype: Any, weak_type: bool) -> ShapedArray:
    return ShapedArray(shape, dtype, weak_type=weak_type)


def _variable(*aval: Any) -> Var:
    return Var(_aval(*aval))


def _literal(value: Any, *aval: Any) -> Literal:
    return Literal(value, _aval(*aval))


def _equation(given: Any, made: Any, primitive: Primitive, params: dict[str, Any]) -> JaxprEqn:
    return core.new_jaxpr_eqn(given, made, primitive, params, set())


def _jaxpr(constants: Any, given: Any, results: Any, equations: Any) -> Jaxpr:
    return Jaxpr(constants, given, results, equations, debug_info=_no_names())


@lru_cache
def _no_names() -> Any:
    """JAX's debugging information for a function whose arguments have no names."""
    return jax.make_jaxpr(lambda: ())().jaxpr.debug_info.with_unknown_names()


def _closed(jaxpr: Jaxpr, consts: Any, name: str | None, digest: str | None) -> ClosedJaxpr:
    found = ClosedJaxpr(jaxpr, consts)
    if name is not None:
        _names[found] = name
        digests[found] = digest
    return found


def _digest(program: ClosedJaxpr) -> str | None:
    """Digest of a program of its own, which records of its code need."""
    return digest_of(program) if program in _names else None


def _of_jaxpr(x: Jaxpr) -> Any:
    if x.effects:
        raise pickle.PicklingError(f"effects {x.effects}")
    return _jaxpr, (x.constvars, x.invars, x.outvars, x.eqns)


_REDUCERS: dict[type, Any] = {
    ShapedArray: lambda x: (_aval, _of_aval(x)),
    Var: lambda x: (_variable, _of_aval(x.aval)),
    Literal: lambda x: (_literal, (x.val, *_of_aval(x.aval))),
    JaxprEqn: lambda x: (_equation, (x.invars, x.outvars, x.primitive, x.params)),
    Jaxpr: _of_jaxpr,
    ClosedJaxpr: lambda x: (_closed, (x.jaxpr, x.consts, _names.get(x), _digest(x))),
}
