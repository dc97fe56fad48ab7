"""Records on disk of what earlier processes found for programs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import scalarjit
from scalarjit import cache, canonical, lengths, module, records
from scalarjit.digest import digest_of
from tests.scalarjit.new_process import forget
from tests.scalarjit.random_programs import arguments, random_function

pytest.importorskip("llvmlite")

X = jnp.linspace(0.1, 0.4, 4)


def motion(x):
    """A loop over steps."""
    return lax.scan(lambda x, _: (x + 0.1 * jnp.sin(x), x[0]), x, None, length=5)


def slope(x):
    with scalarjit.enabled(True):
        fn = scalarjit.native_of(motion, x)
        assert fn is not None
        return jax.jit(jax.grad(lambda x: jnp.sum(fn(x)[0] ** 2) + fn(x)[1][3]))(x)


def refuse(*args):
    raise AssertionError("scalars are made again")


@pytest.mark.long
def test_another_process_makes_no_scalars(folder, monkeypatch):
    found = slope(X)
    assert len(list(folder.glob("*.json"))) == len(list(folder.glob("*.o"))) > 1
    forget()
    monkeypatch.setattr(records, "reason_of", refuse)
    monkeypatch.setattr(module, "once", refuse)
    np.testing.assert_array_equal(slope(X), found)


def test_other_limits_are_other_records(folder, monkeypatch):
    slope(X)
    forget()
    monkeypatch.setattr(module, "once", refuse)
    monkeypatch.setattr(lengths, "MAX_UNROLLED", 0)
    with pytest.raises(AssertionError, match="scalars are made again"):
        slope(X)


@pytest.mark.parametrize("kind", ["json", "o"])
def test_lost_and_damaged_files_are_made_again(folder, kind):
    found = slope(X)
    whole = {path: path.read_bytes() for path in folder.iterdir()}
    lost, *damaged = folder.glob(f"*.{kind}")
    lost.unlink()
    for path in damaged:
        path.write_bytes(whole[path][:-5])
    forget()
    np.testing.assert_array_equal(slope(X), found)
    assert {path: path.read_bytes() for path in folder.iterdir()} == whole


BAD = (
    "null",
    "3",
    "{}",
    "[]",
    '"text"',
    "[null, null, 0, 0]",
    "[3, null, 0, 0]",
    '["../a", null, 0, 0]',
    f'["{"a" * 40}", "reason", 0, 0]',
    f'["{"a" * 40}", null, "0", 0]',
    f'["{"a" * 40}", null, true, -1]',
    f'["{"a" * 40}", null, 0]',
    "[" * 100_000,
    "\xff",
)


@pytest.mark.parametrize("bad", BAD, ids=range(len(BAD)))
def test_records_of_wrong_types_are_made_again(folder, bad):
    with scalarjit.enabled(True):
        fn = scalarjit.native_of(lambda x: jnp.sin(x) * 1.125, X)
    assert fn is not None
    found = fn(X)
    (path,) = folder.glob("*.json")
    whole = path.read_bytes()
    cache.keep(path.name, bad.encode("latin-1"))
    assert path.read_bytes() != whole
    forget()
    np.testing.assert_array_equal(jax.jit(lambda x: fn(x))(X), found)
    assert path.read_bytes() == whole


def test_reasons_are_recorded(folder, monkeypatch):
    coarse = lambda x: x.astype(jnp.float16) + 1.0  # noqa: E731
    with scalarjit.enabled(True):
        reason = scalarjit.native_or_reason(coarse, X)
        assert isinstance(reason, str)
        forget()
        monkeypatch.setattr(records, "reason_of", refuse)
        assert scalarjit.native_or_reason(coarse, X) == reason


def digest(fn, *args):
    return digest_of(jax.make_jaxpr(fn)(*args))


A = np.arange(12.0).reshape(3, 4)
DIFFERENT = [
    lambda a: a + 1.0,
    lambda a: a - 1.0,
    lambda a: a + 1.0000000000000002,
    lambda a: a + a,
    lambda a: 1.0 + a,
    lambda a: a + A,
    lambda a: a + np.where(A == 7.0, 7.5, A),
    lambda a: a + A.T.reshape(3, 4),
    lambda a: (a + 1.0, a),
    lambda a: (a, a + 1.0),
    lambda a: a**2,
    lambda a: a**3,
    lambda a: jnp.sum(a, axis=0),
    lambda a: jnp.sum(a, axis=1),
    lambda a: jnp.cumsum(a, axis=1),
    lambda a: lax.cumsum(a, axis=1, reverse=True),
    lambda a: lax.transpose(a, (1, 0)),
    lambda a: lax.reshape(a, (4, 3)),
    lambda a: a[1:],
    lambda a: a[:-1],
    lambda a: a[::2],
    lambda a: a[np.array([0, 2])],
    lambda a: a[np.array([2, 0])],
    lambda a: a.at[np.array([2, 0])].get(mode="clip"),
    lambda a: a.at[np.array([2, 0])].get(mode="fill"),
    lambda a: a.at[np.array([2, 0])].get(mode="fill", fill_value=0.0),
    lambda a: a @ a.T,
    lambda a: a.T @ a,
    lambda a: lax.dot(a, a.T, precision="highest"),
    lambda a: a.astype(jnp.float32),
    lambda a: a.astype(jnp.int32),
    lambda a: jax.jit(lambda x: x + 1.0)(a),
    lambda a: lax.scan(lambda c, x: (c + x, c), a[0], a),
    lambda a: lax.scan(lambda c, x: (c - x, c), a[0], a),
    lambda a: lax.scan(lambda c, x: (c + x, c), a[0], a, reverse=True),
    lambda a: lax.scan(lambda c, x: (c + a[0], c), a[0], None, length=3),
    lambda a: lax.scan(lambda c, x: (c + a[0], c), a[0], None, length=4),
    lambda a: lax.cond(a[0, 0] > 0.0, jnp.sin, jnp.cos, a),
    lambda a: lax.cond(a[0, 0] > 0.0, jnp.cos, jnp.sin, a),
    lambda a: lax.round(a, lax.RoundingMethod.TO_NEAREST_EVEN),
    lambda a: lax.round(a, lax.RoundingMethod.AWAY_FROM_ZERO),
]


def test_different_programs_have_different_digests():
    found = [digest(fn, A) for fn in DIFFERENT]
    found += [digest(DIFFERENT[0], x) for x in (A[:2], A.astype(np.float32), jnp.float64(1.0))]
    found += [digest(DIFFERENT[0], 1.0)]  # A weak type.
    assert None not in found
    assert len(set(found)) == len(found)
    assert found[: len(DIFFERENT)] == [digest(fn, A) for fn in DIFFERENT]


def test_unknown_parameters_have_no_digest():
    assert digest(lambda a: jax.pure_callback(np.sin, a, a), A) is None


@pytest.mark.long
def test_random_programs_have_the_digests_of_equal_programs():
    """Programs that `canonical` distinguishes differ; those of a second trace do not."""
    made = {}
    for seed in range(300):
        program = jax.make_jaxpr(random_function(seed))(*arguments(seed, jnp.float64))
        again = jax.make_jaxpr(random_function(seed))(*arguments(seed, jnp.float64))
        assert digest_of(program) == digest_of(again)
        if digest_of(program) is not None:
            made.setdefault(digest_of(program), set()).add(
                canonical._Reduction().closed(program)[1]
            )
    assert len(made) > 250
    assert all(len(keys) == 1 for keys in made.values())
