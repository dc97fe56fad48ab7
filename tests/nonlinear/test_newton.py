"""Newton's method: roots, failure, and derivatives of the implicit function."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmbd.motion.rollout import n_bytes
from jaxmbd.nonlinear import Blocks, CachedFactors, Dense, Newton, saves_roots
from tests.nonlinear.test_structured import without_code

GUESS = jnp.array([1.0, 0.0])
ARGS = jnp.array([0.5, 2.0])
BLOCKS = Blocks((2,), (jnp.array(1.0),))


def having(factors, usable=True):
    """Factors that an earlier step handed on."""
    cache = CachedFactors.nothing(factors, jnp.float64)
    return eqx.tree_at(lambda k: (k.factors, k.usable), cache, (factors, jnp.asarray(usable)))


def curves(x, a):
    return jnp.stack([x[0] ** 3 + a[0] * x[1] - 1.0, a[1] * jnp.sin(x[1]) + x[0] * x[1] - 0.3])


@eqx.filter_jit
def solve(newton, args):
    return newton(curves, GUESS, args, BLOCKS)


@pytest.fixture(params=[False, True], ids=["newton", "chord"])
def newton(request):
    return Newton(chord=request.param)


@pytest.mark.long
@pytest.mark.smoke
def test_root(newton):
    root = solve(newton, ARGS)
    assert root.converged
    np.testing.assert_allclose(curves(root.x, ARGS), 0.0, atol=2e-14)


@pytest.mark.long
def test_gradients_of_both_modes_are_those_of_the_implicit_function(newton):
    root = solve(newton, ARGS).x
    by_x, by_a = (jax.jacfwd(curves, k)(root, ARGS) for k in (0, 1))
    expected = -jnp.linalg.solve(by_x, by_a)
    for jacobian in (jax.jacfwd, jax.jacrev):
        found = jacobian(lambda a: solve(newton, a).x)(ARGS)
        np.testing.assert_allclose(found, expected, rtol=1e-11)


@pytest.mark.thorough
def test_little_is_kept_for_the_way_back(newton):
    """The root and the factors, not what happens within the equations."""

    def winding(x, a):
        for _ in range(30):
            x, a = x + 0.01 * jnp.sin(a * x), a - 0.01 * jnp.cos(a + x)
        return curves(x, a)

    def end(a):
        return jnp.exp(newton(winding, GUESS, jnp.sin(a), BLOCKS).x)

    once = jax.checkpoint(end, policy=saves_roots, prevent_cse=False)
    assert n_bytes(jax.vjp(end, ARGS)[1]) < 20 * ARGS.nbytes
    assert n_bytes(jax.vjp(once, ARGS)[1]) < 10 * ARGS.nbytes


@pytest.mark.long
def test_second_derivative(newton):
    hessian = jax.jacfwd(jax.jacrev(lambda a: solve(newton, a).x[0]))(ARGS)
    gradient = jax.jacrev(lambda a: solve(newton, a).x[0])
    h = 1e-5
    steps = jnp.eye(2) * h
    differences = [(gradient(ARGS + e) - gradient(ARGS - e)) / (2 * h) for e in steps]
    np.testing.assert_allclose(hessian, jnp.stack(differences), atol=1e-9)


@pytest.mark.thorough
def test_second_derivative_of_a_loop(newton):
    """Also of a batch; JAX loses the rules of `custom_jvp` on the way."""

    def end(a):
        def step(b, _):
            return 0.5 * b + 0.1 * newton(curves, GUESS, b, BLOCKS).x, None

        return jnp.sum(jax.lax.scan(step, a, None, length=3)[0] ** 2)

    def both(a):
        return jnp.sum(jax.vmap(end)(jnp.stack([a, a])))

    product = jax.jit(lambda fn, a, v: jax.jvp(jax.grad(fn), (a,), (v,))[1], static_argnums=0)
    gradient, h = jax.jit(jax.grad(end)), 1e-5
    for direction in jnp.eye(2):
        ahead, behind = (gradient(ARGS + k * direction) for k in (h, -h))
        expected = (ahead - behind) / (2 * h)
        np.testing.assert_allclose(product(end, ARGS, direction), expected, atol=1e-8)
        np.testing.assert_allclose(product(both, ARGS, direction), 2 * expected, atol=2e-8)


@pytest.mark.long
def test_each_lane_of_a_batch_ends_by_itself(newton):
    """x² + a = 0 has no root for a > 0; the lane beside it finds its own."""

    def parabola(x, a):
        return x * x + a

    block = Blocks((1,), (jnp.array(1.0),))
    batch = jax.vmap(lambda a: newton(parabola, jnp.array([1.0]), a, block))
    root = eqx.filter_jit(batch)(jnp.array([[1.0], [-4.0], [jnp.nan]]))
    np.testing.assert_array_equal(root.converged, [False, True, False])
    np.testing.assert_allclose(root.x[1], 2.0, rtol=1e-14)


def solve_parabola(a, slope, usable):
    """Root of x² = a from 2.1 with factors of slope * x from an earlier step."""
    factors = Dense().factor(without_code(lambda x: slope * x), jnp.ones(1), BLOCKS_OF_ONE)[1]
    cache = having(factors, usable)
    guess = jnp.where(jnp.isnan(a), a, 2.1)
    root = Newton()(lambda x, a: x * x - a, guess, a, BLOCKS_OF_ONE, cache)
    return root.x, root.steps, root.converged, root.cache


def compare(together, alone):
    jax.tree.map(
        lambda found, *each: np.testing.assert_allclose(found, np.stack(each), rtol=1e-12),
        together,
        *alone,
    )


@pytest.mark.long
def test_members_of_a_batch_renew_their_own_factors():
    """One has good factors, one those of another equation, and one has no root."""
    a = jnp.array([[4.0], [4.0], [jnp.nan]])
    slopes = jnp.array([4.0, -4.0, 4.0])
    usable = jnp.array([True, True, False])
    together = jax.jit(jax.vmap(solve_parabola))(a, slopes, usable)
    one = jax.jit(solve_parabola)
    alone = [one(*x) for x in zip(a, slopes, usable, strict=True)]
    compare(together, alone)
    np.testing.assert_array_equal(together[2], [True, True, False])
    np.testing.assert_allclose(together[0][:2], 2.0, rtol=1e-14)
    np.testing.assert_array_equal(together[3].age, [1, 0, 0])


@pytest.mark.long
def test_members_of_a_batch_renew_factors_together():
    """If one member has none, all do so; each has the root that it has alone."""
    a = jnp.array([[4.0], [4.0], [4.0]])
    slopes = jnp.array([0.0, 4.1, -4.0])
    usable = jnp.array([False, True, True])
    together = jax.jit(jax.vmap(solve_parabola))(a, slopes, usable)
    one = jax.jit(solve_parabola)
    compare(together, [one(x, slope, jnp.array(False)) for x, slope in zip(a, slopes, strict=True)])
    np.testing.assert_array_equal(together[3].age, [0, 0, 0])
    kept = one(a[1], slopes[1], usable[1])
    assert kept[3].age == 1
    np.testing.assert_allclose(kept[0], together[0][1], rtol=1e-14)


@pytest.mark.long
def test_one_change_does_where_the_rate_is_known():
    """Steps for x = a with a slope that is off by 0.001: each change is 0.001 of the one before."""
    factors = Dense().factor(without_code(lambda x: 1.001 * x), jnp.ones(1), BLOCKS_OF_ONE)[1]
    newton, a = Newton(tolerance=1e-8, chord=True), jnp.array([2.0])

    @eqx.filter_jit
    def root(off, cache):
        return newton(lambda x, a: x - a, a + off, a, BLOCKS_OF_ONE, cache)

    cache, steps, rates = having(factors), [], []
    for _ in range(10):
        found = root(1.6e-6, cache)
        assert abs(found.x[0] - 2.0) < 2e-8
        cache = found.cache
        steps.append(int(found.steps))
        rates.append(float(cache.rate))
    # Until it may have grown, like the square of the age, to where one change does not do.
    assert steps == [2, 1, 1, 2, 1, 1, 1, 1, 1, 1]
    np.testing.assert_allclose(rates[:4], 1e-3 * np.array([4, 9, 16, 25 / 16]), rtol=1e-3)
    assert root(1.6e-6, cache.of_other_equations(jnp.array(True))).steps == 2
    assert root(1e-6, cache).steps == 1
    assert root(1e-4, cache).steps == 2  # Something has happened.


@pytest.mark.long
@pytest.mark.parametrize(
    ("age", "n_steps", "usable"), [(18, 3, True), (19, 2, True), (19, 3, False), (39, 3, False)]
)
def test_factors_are_given_up_where_steps_take_more_iterations(age, n_steps, usable):
    """Every 20 steps, so that members of a batch do so together."""
    cache = CachedFactors.nothing(jnp.zeros(1), jnp.float64)
    cache = eqx.tree_at(lambda k: (k.age, k.fewest), cache, (jnp.array(age), jnp.array(2)))
    one, yes, phase = jnp.ones(()), jnp.array(True), jnp.array(0)
    left = cache.after(cache.factors, yes, 0.1 * one, one, jnp.array(n_steps), phase, 0 * one)
    assert left.usable == usable
    assert left.fewest == 2


@pytest.mark.long
def test_rounding_of_two_steps_is_enough_for_the_next():
    """The equation x = a has errors of 1e-11 in each evaluation, and a slope off by 0.001."""
    factors = Dense().factor(without_code(lambda x: 1.001 * x), jnp.ones(1), BLOCKS_OF_ONE)[1]

    def equation(x, a):
        return x - a + 1e-11 * jnp.sin(1e16 * x)

    @eqx.filter_jit
    def root(newton, off, cache):
        a = jnp.array([2.0])
        return newton(equation, a + off, a, BLOCKS_OF_ONE, cache)

    steps = {}
    for tolerance in (None, 0.0):
        newton, cache, steps[tolerance] = Newton(tolerance, chord=True), having(factors), []
        for k in range(8):
            found = root(newton, 1e-3 * (1 + 0.1 * k), cache)
            assert found.converged
            assert abs(found.x[0] - 2.0) < 3e-11
            cache = found.cache
            steps[tolerance].append(int(found.steps))
    assert max(steps[None][2:]) < min(steps[None][:2])  # Without changes that only show rounding.
    assert max(steps[None][2:]) < min(steps[0.0])
    assert 0 < cache.reachable < 1e-10
    assert cache.of_other_equations(jnp.array(True)).reachable == 0


def test_rounding_of_one_step_is_forgotten():
    """A large rounding error as of an impact; errors of earlier steps fade until they recur."""
    cache = CachedFactors.nothing(jnp.zeros(1), jnp.float64)
    one, yes, old = jnp.ones(()), jnp.array(True), jnp.array(0)

    def after(cache, noise, converged=yes):
        return cache.after(cache.factors, converged, 0.1 * one, one, jnp.array(3), old, noise * one)

    once = after(cache, 1e-9)
    assert once.reachable == 0
    twice = after(after(once, 0.0), 3e-11)
    np.testing.assert_allclose(twice.reachable, 3e-11, rtol=1e-12)
    np.testing.assert_allclose(after(twice, 1e-12).reachable, 1e-12, rtol=1e-12)
    np.testing.assert_allclose(after(twice, 0.0).reachable, 0.95 * 3e-11, rtol=1e-12)
    assert after(twice, 1e-12, jnp.array(False)).reachable == 0


def test_chord_falls_back_on_newton():
    """A start so far off that the first Jacobian does not contract."""
    root = Newton(chord=True)(
        lambda x, a: jnp.arctan(x) - a, jnp.array([-1.2]), jnp.array([0.9]), BLOCKS_OF_ONE
    )
    assert root.converged
    np.testing.assert_allclose(root.x, np.tan(0.9), rtol=1e-14)


@pytest.mark.long
def test_changes_across_a_kink_are_damped(newton):
    """Of x + 100 tanh(1000 x) = 5, from where each change jumps to the other side of the kink."""

    def kinked(x, a):
        return x + 100.0 * jnp.tanh(1e3 * x) - a

    @eqx.filter_jit
    def root(guess):
        return newton(kinked, guess, jnp.array([5.0]), BLOCKS_OF_ONE)

    for guess in (1.0, -3.0, 1e-3):
        found = root(jnp.array([guess]))
        assert found.converged
        np.testing.assert_allclose(kinked(found.x, 5.0), 0.0, atol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize(("slope", "off"), [(2.5, 1e-10), (0.4, 0.0)], ids=["slow", "diverging"])
def test_derivatives_with_factors_far_from_the_jacobian(slope, off):
    """Steps for x = a, from so near that steps with the slope of another equation find it."""
    factors = Dense().factor(without_code(lambda x: slope * x), jnp.ones(1), BLOCKS_OF_ONE)[1]
    newton, cache = Newton(chord=True), having(factors)

    def root(a):
        return newton(lambda x, a: x - a, jnp.array([2.0 + off]), a, BLOCKS_OF_ONE, cache)

    a = jnp.array([2.0])
    assert root(a).converged
    for derivative in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(derivative(lambda a: root(a).x)(a), [[1.0]], rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("chord", [False, True])
def test_changes_that_rounding_keeps_large_end_the_search(chord):
    """Unknowns that a Jacobian of condition 1e9 leaves uncertain to 1e-7 of themselves."""

    @eqx.filter_jit
    @jax.vmap
    def found(A, b):
        blocks = Blocks((20,), (jnp.array(1.0),))
        newton = Newton(chord=chord)
        return newton(lambda x, Ab: Ab[0] @ (x + 0.1 * x**2) - Ab[1], b, (A, b), blocks)

    rng = np.random.default_rng(0)
    U, V = (np.linalg.qr(rng.normal(size=(50, 20, 20)))[0] for _ in range(2))
    A = (U * np.logspace(0, -9, 20)) @ V
    x = rng.uniform(0.5, 1.0, size=(50, 20))
    b = np.einsum("kij,kj->ki", A, x + 0.1 * x**2)
    root = found(jnp.asarray(A), jnp.asarray(b))
    assert jnp.all(root.converged)
    np.testing.assert_allclose(root.x, x, rtol=1e-5)


@pytest.mark.long
def test_kinds_converge_relative_to_their_own_size():
    """A multiplier of 1e-9 is found as exactly as a length of one."""

    def apart(x, a):
        return jnp.stack([x[0] ** 2 - a[0], (1e9 * x[1]) ** 3 - a[1]])

    blocks = Blocks((1, 1), (jnp.array(1.0), jnp.array(0.0)))
    root = Newton()(apart, jnp.array([1.0, 1e-9]), jnp.array([2.0, 5.0]), blocks)
    assert root.converged
    np.testing.assert_allclose(root.x, [2.0**0.5, 1e-9 * 5.0 ** (1 / 3)], rtol=1e-14)


def test_no_unknowns():
    root = Newton()(lambda x, a: x, jnp.zeros(0), ARGS, Blocks((0,), (jnp.array(1.0),)))
    assert root.converged
    assert root.x.size == 0


BLOCKS_OF_ONE = Blocks((1,), (jnp.array(1.0),))


@pytest.mark.thorough
@pytest.mark.parametrize("chord", [False, True])
def test_derivatives_can_be_differentiated(chord):
    """Derivatives of the root of x³ = a: d²x/da² = -2/9 a^(-5/3), in all orders of the modes."""
    newton = Newton(chord=chord)

    def root(a):
        return newton(lambda x, a: x**3 - a, jnp.ones(1), a, BLOCKS_OF_ONE).x[0]

    def slope(a):
        return jax.jvp(root, (a,), (jnp.ones(1),))[1]

    a = jnp.array([2.0])
    expected = [-2.0 / 9.0 * 2.0 ** (-5.0 / 3.0)]
    for twice in (jax.grad(slope), jax.jacfwd(slope), jax.hessian(root)):
        np.testing.assert_allclose(np.ravel(twice(a)), expected, rtol=1e-12)


@pytest.mark.long
def test_equations_beyond_the_constraints_do_not_loosen_them():
    """A state z that pulls at a velocity of little inertia, beside a possibly redundant constraint.

    The unknowns are two velocities, the multiplier and z.
    """
    J = jnp.array(
        [[1.0, 0.0, -1.0, 0.0], [0.0, 1e-10, 0.0, 1e6], [1.0, 0.0, 0.0, 0.0], [0.0, -1.0, 0.0, 1.0]]
    )
    blocks = Blocks((2, 1, 1), (jnp.array(1.0),) * 3, (True,), others=1)
    _, factors = Dense().factor(without_code(lambda x: J @ x), jnp.zeros(4), blocks)
    x = Dense().solve(factors, jnp.array([0.0, 0.0, 1.0, 0.0]))
    np.testing.assert_allclose(x, [1.0, 0.0, 1.0, 0.0], atol=1e-7)
    assert factors.missed(x) < 1e-7


@pytest.mark.parametrize(
    ("counts", "redundant", "others", "reuses"),
    [
        ((4, 2, 2), (True, False), 0, False),
        ((4, 2, 2), (False, False), 0, True),
        ((4, 2, 0), (True, False), 0, True),
        ((4, 2, 3), (True, False), 3, True),
    ],
    ids=["redundant, of index 2", "independent", "of index 3", "other unknowns"],
)
def test_position_shifts_of_redundant_constraints_need_new_factors(
    counts, redundant, others, reuses
):
    blocks = Blocks(counts, 3 * (jnp.array(1.0),), redundant, others=others)
    assert Newton().reuses(blocks) is reuses
    assert (Newton().empty_cache(blocks, jnp.float64) is not None) is reuses
    assert not Newton(chord=False).reuses(blocks)
