"""Linear systems by blocks: the pattern of the equations, elimination, and what Newton finds."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, ModelError, forces, joints
from jaxmbd.formulations.maximal import MaximalSystem
from jaxmbd.integrators.generalized_alpha import AlphaMemory
from jaxmbd.mechanism.lowering import lower
from jaxmbd.nonlinear import Automatic, Blocks, BlockSparse, Dense, Newton
from jaxmbd.nonlinear.factorization import Residual
from jaxmbd.nonlinear.plan import eliminate, neighbours, plan_of
from jaxmbd.system.constraints import n_constraints
from jaxmbd.system.sparsity import SparsityPattern
from tests.models import JOINT_KINDS, chain, random_body, random_frame, random_joint, random_tree

Y = (0.0, 1.0, 0.0)
LINK = mbd.inertia.shifted(mbd.inertia.rod(1.0, 1.0, radius=0.05), (0.5, 0.0, 0.0))


def without_code(fn: Callable[[jax.Array], jax.Array]) -> Residual:
    """A function of x as equations that JAX evaluates."""
    return Residual(lambda x, _: fn(x), jnp.zeros(1), None, as_code=False)


def closed_tree(kinds: Sequence[type[joints.AbstractJoint]]) -> mbd.Model:
    """A tree of these joints and of all forces, with loops, closures, a coupling and drivers."""
    model, rng = random_tree(3, kinds=kinds), np.random.default_rng(0)
    names = {type(joint).__name__: name for name, joint in model.joints.items()}
    first, *_, last = bodies = sorted(model.bodies)
    ends = [random_frame(rng, bodies[k % len(bodies)]) for k in (1, 2, 3, 0, 2)]
    closing = {
        "loop": random_joint(rng, joints.Revolute, first, last),
        "rod": joints.Distance(ends[0], ends[1], 1.0),
        "disc": joints.RollingDisc(mbd.ground, bodies[1], radius=0.3),
        "blade": joints.KnifeEdge(mbd.ground, ends[2]),
    }
    cable = forces.Cable(ends[3], ends[4], 10.0, 0.3, transition=0.1, damping=1.0)
    return mbd.Model(
        model.bodies,
        model.joints | closing,
        model.forces | {"cable": cable},
        couplings={"belt": joints.Coupling(names["Prismatic"], names["Revolute"], 2.0)},
        drivers={
            "motor": joints.Driver(names["Cylindrical"], 0.1),
            "wheel": joints.Driver("loop", 0.2),
        },
    )


def ladder(n: int, pin: Any = joints.Revolute) -> mbd.Model:
    """n four-bars, one beside the other, of parallel hinges and of pins."""
    bodies, found = {}, {}
    options = {"axis": Y} if pin is joints.Revolute else {}
    for k in range(n):
        low = Frame(f"low{k - 1}", (1.0, 0, 0)) if k else mbd.ground
        high = Frame(f"high{k - 1}", (1.0, 0, 0)) if k else Frame("ground", (0, 0, 1.0))
        bodies |= {f"low{k}": LINK, f"high{k}": LINK, f"rung{k}": LINK}
        foot, head = Frame(f"low{k}", (1.0, 0, 0)), Frame(f"rung{k}", (1.0, 0, 0))
        found |= {
            f"a{k}": joints.Revolute(low, f"low{k}", Y),
            f"b{k}": joints.Revolute(high, f"high{k}", Y),
            f"c{k}": pin(foot, f"rung{k}", **options),
            f"d{k}": pin(head, Frame(f"high{k}", (1.0, 0, 0)), **options),
        }
    return mbd.Model(bodies, found)


def webbed(n: int, *closing: joints.AbstractJoint) -> mbd.Model:
    """A chain with springs between links that are not neighbours, and further joints."""
    model = chain(n)
    names = sorted(model.bodies)
    springs = {
        f"spring{k}": forces.SpringDamper(names[k], names[k + 3], 50.0, 1.0, 0.3)
        for k in range(0, n - 3, 2)
    }
    loops = {f"loop{k}": joint for k, joint in enumerate(closing)}
    return mbd.Model(model.bodies, model.joints | loops, model.forces | springs)


def spatial_loop(n: int = 8) -> mbd.Model:
    """A ring of hinges whose axes point anywhere."""
    rng = np.random.default_rng(1)
    names = ["ground", *(f"b{k}" for k in range(n)), "ground"]
    ends = enumerate(pairwise(names))
    found = {f"j{k}": random_joint(rng, joints.Revolute, *pair) for k, pair in ends}
    return mbd.Model({name: random_body(rng) for name in names[1:-1]}, found)


def star(n: int) -> mbd.Model:
    """A floating hub with legs on ball joints."""
    legs = {f"leg{k}": LINK for k in range(n)}
    return mbd.Model({"hub": LINK} | legs, {f"j{k}": joints.Spherical("hub", k) for k in legs})


def twin_rods() -> mbd.Model:
    """Two bodies, held together by the same rod twice."""
    ends = Frame("a", (0, 0, 1.0)), Frame("b", (0, 0, 1.0))
    links: dict[str, joints.AbstractJoint] = {
        name: joints.Distance(*ends, 1.0) for name in ("one", "two")
    }
    links |= {name: joints.Revolute(mbd.ground, name, Y) for name in "ab"}
    return mbd.Model({"a": LINK, "b": LINK}, links)


def owners(pattern: SparsityPattern) -> np.ndarray:
    """Node of each unknown, velocities first."""
    return np.asarray([*pattern.velocities, *pattern.constraints])


def allowed(pattern: SparsityPattern) -> np.ndarray:
    """For each equation, as a row, and each unknown whether the pattern lets it depend on it."""
    near, owner = neighbours(pattern), owners(pattern)
    graph = np.zeros((len(near), len(near)), dtype=bool)
    for node, others in enumerate(near):
        graph[node, list(others)] = True
    return graph[owner][:, owner]


def random_matrix(pattern: SparsityPattern) -> np.ndarray:
    """[[H, B], [G, 0]] of a pattern, not symmetric, its rows of sizes far apart."""
    rng, nv = np.random.default_rng(0), len(pattern.velocities)
    J = np.where(allowed(pattern), rng.uniform(-1.0, 1.0, (len(owners(pattern)),) * 2), 0.0)
    J[nv:, nv:] = 0.0
    J[:nv, nv:] += J[nv:, :nv].T
    J[:nv, :nv] += 8.0 * np.eye(nv)
    return J * 10.0 ** rng.uniform(-3, 3, len(J))[:, None]


def solutions(way, J: np.ndarray, blocks: Blocks, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Solutions of J y = b and of Jᵀ y = b."""

    @jax.jit
    def solve(x):
        _, factors = way.factor(without_code(lambda x: jnp.asarray(J) @ x), x, blocks)
        return way.solve(factors, x), way.solve_transposed(factors, x)

    return jax.device_get(solve(jnp.asarray(b)))


MODELS = {
    "chain": lambda: chain(13),
    "springs": lambda: webbed(9),
    "ladder": lambda: ladder(4, joints.Spherical),
    "ring": spatial_loop,
    "star": lambda: star(9),
}


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        *("chain", "ladder"),
        *(pytest.param(name, marks=pytest.mark.thorough) for name in ("springs", "ring", "star")),
    ],
)
def test_solutions(name):
    """Solutions of random equations, with J and with its transpose."""
    pattern = MaximalSystem(lower(MODELS[name]())).sparsity_pattern()
    J = random_matrix(pattern)
    nv = len(pattern.velocities)
    blocks = Blocks((nv, len(J) - nv), (jnp.array(1.0),) * 2, pattern=pattern)
    b = np.random.default_rng(1).normal(size=len(J))
    found = solutions(BlockSparse(), J, blocks, b)
    for y, matrix in zip(found, (J, J.T), strict=True):
        expected = np.linalg.solve(matrix, b)
        np.testing.assert_allclose(y, expected, atol=1e-10 * np.abs(expected).max())


@pytest.mark.long
def test_batches_of_factors():
    pattern = MaximalSystem(lower(chain(6))).sparsity_pattern()
    J = jnp.asarray(random_matrix(pattern))
    nv = len(pattern.velocities)
    blocks = Blocks((nv, len(J) - nv), (jnp.array(1.0),) * 2, pattern=pattern)
    b = jnp.asarray(np.random.default_rng(1).normal(size=len(J)))
    scales = jnp.array([1.0, 2.0, -0.5])

    @jax.vmap
    def solve(scale):
        way = BlockSparse()
        _, factors = way.factor(without_code(lambda x: scale * (J @ x)), b, blocks)
        return way.solve(factors, b), way.solve_transposed(factors, b)

    for found, matrix in zip(jax.jit(solve)(scales), (J, J.T), strict=True):
        expected = np.linalg.solve(matrix, b)[None] / np.asarray(scales)[:, None]
        np.testing.assert_allclose(found, expected, atol=1e-10 * np.abs(expected).max())


def test_unknowns_of_several_stages():
    """Two unknowns for each velocity and each constraint."""
    pattern = MaximalSystem(lower(chain(6))).sparsity_pattern()
    nv, n = len(pattern.velocities), len(owners(pattern))
    order = np.concatenate([np.tile(np.arange(nv), 2), np.tile(np.arange(nv, n), 2)])
    J = random_matrix(pattern)[order][:, order] * np.random.default_rng(0).normal(size=(2 * n,) * 2)
    blocks = Blocks((2 * nv, 2 * (n - nv)), (jnp.array(1.0),) * 2, pattern=pattern)
    b = np.random.default_rng(1).normal(size=2 * n)
    expected = np.linalg.solve(J, b)
    found, _ = solutions(BlockSparse(), J, blocks, b)
    np.testing.assert_allclose(found, expected, atol=1e-9 * np.abs(expected).max())


@pytest.mark.long
def test_dependent_constraints_give_way_as_in_the_dense_matrix():
    pattern = MaximalSystem(lower(twin_rods())).sparsity_pattern()
    J, nv = random_matrix(pattern), len(pattern.velocities)
    J[-1], J[:, -1] = J[-2], J[:, -2]
    redundant = (True,) * (len(J) - nv)
    blocks = Blocks((nv, len(J) - nv), (jnp.array(1.0),) * 2, redundant, pattern)
    b = J @ np.random.default_rng(1).normal(size=len(J))
    one, other = (solutions(way, J, blocks, b)[0] for way in (BlockSparse(), Dense()))
    assert np.all(np.isfinite(one))
    np.testing.assert_allclose(one[:nv], other[:nv], atol=1e-6 * np.abs(other).max())
    np.testing.assert_allclose(J @ one, b, rtol=1e-5, atol=1e-5 * np.abs(b).max())


@pytest.mark.long
@pytest.mark.parametrize("way", [BlockSparse(), Dense()])
def test_units_do_not_change_factors_of_dependent_constraints(way):
    """Units of length and mass multiply unknowns and equations by powers of two.

    One row consists of rounding errors, relative to the size of its residual.
    """
    pattern = MaximalSystem(lower(twin_rods())).sparsity_pattern()
    rng, nv = np.random.default_rng(0), len(pattern.velocities)
    n = len(owners(pattern))
    J = np.where(allowed(pattern), rng.uniform(-1.0, 1.0, (n, n)), 0.0)
    J[:nv, :nv] += 8.0 * np.eye(nv)
    J[nv:, nv:] = 0.0
    J[-1], J[nv] = J[-2], 1e-16 * J[nv]
    J[:nv, nv:] = -J[nv:, :nv].T
    b = J @ rng.normal(size=n)
    is_length = rng.random(n) < 0.5

    @jax.jit
    def solved(J, b, large, residuals):
        counts, typical = (nv, n - nv), (jnp.array(1.0),) * 2
        blocks = Blocks(counts, typical, (True,) * (n - nv), pattern, 0, large, residuals)
        _, factors = way.factor(without_code(lambda x: J @ x), b, blocks)
        y = way.solve(factors, b)
        return y, factors.missed(y), blocks.size(y, 2 * y)

    def found(length, mass):
        size, energy = np.where(is_length, length, 1.0), mass * length**2
        rows = np.concatenate([energy / size[:nv], size[nv:]])
        unit = np.concatenate([size[:nv], energy / size[nv:]])
        y, *rest = solved(rows[:, None] * J / unit, rows * b, size[:nv], size[nv:])
        return np.asarray(y) / unit, *rest

    y, missed, change = found(1.0, 1.0)
    assert 0 < missed < 1e-6
    np.testing.assert_allclose((J @ y)[nv:], b[nv:], atol=1e-6)
    for length, mass in ((2.0**-20, 1.0), (2.0**-20, 2.0**-60), (2.0**10, 2.0**-10)):
        other, *rest = found(length, mass)
        np.testing.assert_allclose(other[:nv], y[:nv], atol=1e-7 * np.abs(y[:nv]).max())
        np.testing.assert_allclose(rest, (missed, change), rtol=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "model",
    [
        lambda: webbed(5, joints.Revolute(mbd.ground, "link0003", Y)),
        pytest.param(lambda: closed_tree(JOINT_KINDS), marks=pytest.mark.thorough),
    ],
    ids=["hinges and springs", "all kinds"],
)
def test_equations_depend_on_what_the_pattern_says(model):
    """An equation does not change, not by a bit, with unknowns that the pattern keeps from it."""
    system = mbd.formulate(model(), mbd.MaximalCoordinates())
    residual, guess, pattern = problem(system)
    owner = owners(pattern)
    shift = 1e-2 * np.random.default_rng(1).normal(size=guess.size)
    moved = np.where(owner[None] == np.arange(owner.max() + 1)[:, None], shift[None], 0.0)
    residual = jax.jit(residual)
    still = np.asarray(residual(guess))
    rows = np.stack([residual(guess + jnp.asarray(step)) for step in moved])
    changed = (rows != still[None]).T[:, owner]
    assert not np.any(changed & ~allowed(pattern))
    # And the pattern is not much wider: all but multipliers among themselves are used.
    used = [np.any(changed[owner == node]) for node in range(owner.max() + 1)]
    assert np.all(used)


def problem(system: Any) -> tuple[Any, Any, SparsityPattern]:
    """Residual, guess and pattern of a step of generalized-α from anywhere."""
    rng, nv, ng = np.random.default_rng(0), system.nv, n_constraints(system)
    values = tuple(
        jax.vmap(lambda joint: joint.zero())(group.joint)
        + 0.3 * jnp.asarray(rng.normal(size=(len(group), group.joint.sizes()[0])))
        for group in system.mechanism.joints
    )
    state = mbd.State(system.from_tree(values), jnp.asarray(rng.normal(size=nv)))
    rates = [jnp.asarray(rng.normal(size=nv)) for _ in range(3)]
    lam = jnp.asarray(rng.normal(size=ng))
    t, h = jnp.array(0.1), jnp.array(1e-2)
    own = AlphaMemory(rates[0], lam, rates[1], rates[2], lam, rates[0], lam, h)
    method = mbd.GeneralizedAlpha(0.8)
    guess, step, blocks = method._problem(system, t, h, state, own)
    assert blocks.pattern is not None
    return lambda x: method._equations(x, step), guess, blocks.pattern


def test_a_chain_is_gone_after_the_logarithm_of_its_length():
    pattern = MaximalSystem(lower(chain(100))).sparsity_pattern()
    sizes = np.bincount(owners(pattern)).tolist()
    stages = eliminate(pattern, sizes)
    assert len(stages) <= 8
    gone = [node for fronts in stages for front in fronts for node in front.own]
    assert sorted(gone) == list(range(len(sizes)))


@pytest.mark.long
def test_the_program_does_not_grow():
    """Tables of indices do, instructions do not."""

    def lines(n: int) -> int:
        pattern = MaximalSystem(lower(chain(n))).sparsity_pattern()
        blocks = Blocks((6 * n, 5 * n), (jnp.array(1.0),) * 2, pattern=pattern)

        def solve(x):
            _, factors = BlockSparse().factor(without_code(jnp.sin), x, blocks)
            return BlockSparse().solve(factors, x)

        return jax.jit(solve).lower(jnp.zeros(11 * n)).as_text().count("\n")

    assert lines(100) <= 1.02 * lines(12)
    pattern = MaximalSystem(lower(chain(100))).sparsity_pattern()
    assert plan_of(pattern, (600, 500)).direction.max() < 28


def test_small_systems_and_unknown_patterns_are_dense():
    pattern = MaximalSystem(lower(chain(20))).sparsity_pattern()
    size = (jnp.array(1.0),) * 2
    small = MaximalSystem(lower(chain(2))).sparsity_pattern()
    assert isinstance(Automatic().select(Blocks((120, 100), size, pattern=pattern)), BlockSparse)
    assert isinstance(Automatic().select(Blocks((12, 10), size, pattern=small)), Dense)
    assert isinstance(Automatic().select(Blocks((120, 100), size)), Dense)
    assert isinstance(Dense().select(Blocks((120, 100), size, pattern=pattern)), Dense)
    with pytest.raises(ModelError, match="BlockSparse"):
        BlockSparse().factor(without_code(jnp.sin), jnp.zeros(220), Blocks((120, 100), size))


@pytest.mark.long
def test_root_of_a_step():
    """The chord method, whose factors the next step goes on with."""
    system = mbd.formulate(webbed(4), mbd.MaximalCoordinates())
    state = mbd.assemble(system, {"jlink0000": 0.4}, {"jlink0002": 1.0})
    t, h, rest = jnp.array(0.0), jnp.array(1e-3), jnp.zeros(system.nv)
    newton = Newton(chord=True, linearization=BlockSparse())
    method = mbd.GeneralizedAlpha(0.8, newton=newton)

    @eqx.filter_jit
    def solve(kept):
        none = jnp.zeros(n_constraints(system))
        own = AlphaMemory(rest, none, rest, rest, none, rest, none, h)
        equations = method._equations
        guess, step, blocks = method._problem(system, t, h, state, own)
        if kept is None:
            kept = newton.empty_cache(blocks, guess.dtype)
        root = newton(equations, guess, step, blocks, kept)
        return root, equations(root.x, step), equations(guess, step)

    root, found, before = solve(None)
    assert root.converged
    assert jnp.max(jnp.abs(found)) <= 1e-11 * jnp.max(jnp.abs(before))
    assert root.cache is not None
    assert root.cache.usable
    again, _, _ = solve(root.cache)
    assert again.converged
    assert again.steps <= root.steps
    np.testing.assert_allclose(again.x, root.x, atol=1e-12 * np.abs(root.x).max())


STEPPERS = {
    "alpha": mbd.GeneralizedAlpha,
    "energy": mbd.EnergyMomentum,
    "decaying": mbd.EnergyDecaying,
    "bdf": lambda newton: mbd.BDF(2, index=3, newton=newton),
}


def end_of(model: mbd.Model, stepper, newton: Newton):
    """The end of three steps as a function of a mass, and its derivatives in both modes."""
    first = min(model.bodies)

    def end(mass):
        heavier = eqx.tree_at(lambda m: m.bodies[first].mass, model, mass)
        system = mbd.formulate(heavier, mbd.MaximalCoordinates())
        state = mbd.assemble(system, {max(model.joints): 0.3})
        q = mbd.rollout(system, state, 1e-2, 3, stepper(newton=newton)).q[-1]
        return q, q

    @jax.jit
    def both(mass):
        slope, q = jax.jacfwd(end, has_aux=True)(mass)
        return q, slope, jax.grad(lambda mass: jnp.sum(end(mass)[0] ** 2))(mass)

    return both


@pytest.mark.thorough
@pytest.mark.parametrize("name", STEPPERS)
def test_steps_and_gradients_of_every_integrator(name):
    """Also of redundant loops, where the integrator moves them."""
    model = webbed(4) if name in ("energy", "decaying") else ladder(2)
    ends = [
        end_of(model, STEPPERS[name], Newton(linearization=w)) for w in (BlockSparse(), Dense())
    ]
    for one, other in zip(*(end(jnp.array(2.0)) for end in ends), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9 * np.abs(other).max())
