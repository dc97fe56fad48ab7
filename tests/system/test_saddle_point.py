"""Constraints in one system that are independent and others that are not."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints
from jaxmbd.system import constraints
from jaxmbd.system.projection import dependent, project_velocities
from jaxmbd.system.saddle_point import saddle_point
from tests import models
from tests.marks import thorough_but
from tests.system import linkages


def straight_chain(n, beside=True):
    """Links along x with hinges about y, pulled along the hinges: nothing can move.

    Beside it stands a four-bar of hinges, whose constraints are redundant.
    """
    rod = mbd.inertia.shifted(mbd.inertia.rod(mass=1.0, length=1.0, radius=0.02), [0.5, 0, 0])
    bodies = {f"link{k:03}": rod for k in range(n)}
    names = ["ground", *bodies]
    hinges = {
        f"hinge{k:03}": joints.Revolute(
            Frame(names[k], [1.0 if k else 0.0, 0, 0]), names[k + 1], [0, 1, 0]
        )
        for k in range(n)
    }
    if beside:
        other = linkages.hinged(**linkages.four_bar(at=0.5))
        bodies |= other.bodies
        hinges |= other.joints
    return mbd.Model(bodies, hinges, {"gravity": forces.Gravity([0, 9.81, 0])})


@eqx.filter_jit
def tip_acceleration(system, state):
    vdot, _ = mbd.accelerations(system, 0.0, state)
    return jnp.max(jnp.abs(vdot))


CHAINS = [(12, "float32"), (100, "float64"), (200, "float64")]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("n", "dtype"),
    [CHAINS[0], *(pytest.param(*chain, marks=pytest.mark.thorough) for chain in CHAINS[1:])],
)
def test_a_loop_elsewhere_leaves_a_chain_its_constraints(n, dtype):
    model = jax.tree.map(lambda x: x.astype(dtype), straight_chain(n))
    system = mbd.formulate(model, mbd.MaximalCoordinates())
    state = linkages.drawn(system)
    assert state.q.dtype == dtype
    # Turning all links by the same small amount each bends the chain by n² of them.
    assert float(tip_acceleration(system, state)) < 9.81 * 10 * n**2 * np.finfo(dtype).eps


def swinging(model, formulation, guess, rates):
    """A system and a state in motion."""
    system = mbd.formulate(model, formulation)
    return system, mbd.assemble(system, guess, rates)


FORMULATIONS = (
    mbd.JointCoordinates(),
    mbd.MaximalCoordinates(),
    mbd.NaturalCoordinates(rigid=True),
)


@pytest.mark.long
@pytest.mark.parametrize(
    "formulation", thorough_but(FORMULATIONS[:1], FORMULATIONS), ids=models.name_of
)
def test_derivatives_by_a_force_alone(formulation):
    """G and M do not depend on the parameter, and the constraints' right-hand side does not."""
    model = linkages.hinged(**linkages.four_bar(), forces={"gravity": forces.Gravity()})
    system, state = swinging(model, formulation, {}, {"left": 2.0})

    def tip(g):
        pulled = eqx.tree_at(lambda s: s.mechanism.elements[0].element.g, system, g[None])
        vdot, lam = mbd.accelerations(pulled, 0.0, state)
        return jnp.concatenate([vdot, lam])

    g, along = jnp.array([0.3, 0.0, -9.81]), jnp.array([1.0, 0.0, 2.0])
    look = jax.jit(lambda g: jax.jvp(tip, (g,), (along,)))
    found, h = look(g)[1], 1e-3  # Linear in gravity.
    expected = (look(g + h * along)[0] - look(g - h * along)[0]) / (2 * h)
    np.testing.assert_allclose(found, expected, atol=1e-8 * float(jnp.max(jnp.abs(expected))))


def crank(drivers):
    rod = mbd.inertia.shifted(mbd.inertia.rod(mass=1.0, length=1.0, radius=0.02), [0.5, 0, 0])
    other = mbd.joints.Revolute(Frame("ground", [0, 0, 0]), "rod", [0, 1, 0])
    return mbd.Model(
        {"rod": rod},
        {"hinge": joints.Revolute("ground", "rod", [0, 1, 0]), "twin": other},
        drivers=drivers,
    )


@pytest.mark.thorough
@pytest.mark.parametrize("formulation", FORMULATIONS[:2], ids=models.name_of)
def test_drivers_that_contradict_each_other_give_no_number(formulation):
    """Two hinges in one place, one at constant speed and one with an acceleration of 0.5 rad/s²."""

    def accelerated(rate):
        drivers = {
            "one": joints.Driver("hinge", lambda t: 0.2 + 0.1 * t + 0.25 * t**2),
            "two": joints.Driver("twin", lambda t: 0.2 + 0.1 * t + 0.5 * rate * t**2),
        }
        system = mbd.formulate(crank(drivers), formulation)
        return mbd.accelerations(system, 0.0, mbd.assemble(system))

    assert all(np.all(np.isfinite(x)) for x in accelerated(0.5))
    assert all(np.all(np.isnan(x)) for x in accelerated(0.0))


@pytest.mark.long
@pytest.mark.parametrize("dtype", thorough_but(["float64"], ["float64", "float32"]))
@pytest.mark.parametrize("formulation", FORMULATIONS[:2], ids=models.name_of)
def test_velocities_off_redundant_constraints_have_accelerations(formulation, dtype):
    """Those of the nearest velocities that satisfy the constraints, up to the difference."""
    system = mbd.formulate(linkages.bennett(), formulation, dtype=dtype)
    start, t = linkages.drawn(system), jnp.zeros((), dtype)
    noise = jnp.asarray(np.random.default_rng(0).normal(size=system.nv), dtype)

    @eqx.filter_jit
    @jax.vmap
    def look(v):
        state = mbd.State(start.q, v)
        nearest = mbd.State(start.q, project_velocities(system, t, state))
        pairs = zip(
            mbd.accelerations(system, t, state),
            mbd.accelerations(system, t, nearest),
            strict=True,
        )
        return jnp.stack([jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(b)) for a, b in pairs])

    consistent = project_velocities(system, t, mbd.State(start.q, noise[::-1]))
    sizes = np.array([0.0, 1e-12, 1e-9, 1e-7, 1e-6, 1e-5, 1e-3])
    steps = jnp.asarray(np.outer(sizes, noise), dtype)
    off = np.asarray(look(consistent[None] + steps))
    assert (off <= 30 * (sizes + 30 * jnp.finfo(dtype).eps)[:, None]).all()
    # Without any motion along the constraints, all of γ is the error.
    assert np.isfinite(np.asarray(look(steps[1:]))).all()


@pytest.mark.long
@pytest.mark.parametrize("formulation", FORMULATIONS[:2], ids=models.name_of)
def test_explicit_methods_pass_through_velocities_off_redundant_constraints(formulation):
    """A Bennett linkage without loads, whose stages violate the constraints; energy is constant."""
    system = mbd.formulate(linkages.bennett(), formulation)
    state = mbd.assemble(system, {}, {"h0": 3.0}, hold=["h0"])
    before = float(mbd.energy(system, 0.0, state).total)
    end = jax.tree.map(lambda x: x[-1], mbd.rollout(system, state, 5e-3, 20, mbd.ExplicitRK()))
    assert float(mbd.energy(system, 0.0, end).total) == pytest.approx(before, rel=1e-8)


@pytest.mark.thorough
@pytest.mark.parametrize("formulation", FORMULATIONS[:2], ids=models.name_of)
def test_drivers_of_unlike_speeds_give_no_number(formulation):
    """Two hinges in one place with speeds of 0.1 and 0.3 rad/s, and velocities near either."""

    def driven(other):
        drivers = {
            "one": joints.Driver("hinge", lambda t: 0.2 + 0.1 * t),
            "two": joints.Driver("twin", lambda t: 0.2 + other * t),
        }
        return mbd.formulate(crank(drivers), formulation)

    (agreeing, opposed), off = map(driven, (0.1, 0.3)), 1e-3
    state = mbd.assemble(agreeing)
    for factor in (1.0, 1.0 + off, 2.0, 3.0, 3.0 + off):
        moving = mbd.State(state.q, factor * state.v)
        assert np.isfinite(mbd.accelerations(agreeing, 0.0, moving)[0]).all()
        assert np.isnan(mbd.accelerations(opposed, 0.0, moving)[0]).all()


@pytest.mark.thorough
@pytest.mark.parametrize("formulation", FORMULATIONS[:2], ids=models.name_of)
def test_a_door_on_two_hinges_swings(formulation):
    """All constraints of the second hinge are redundant, its rows nothing but rounding."""
    axis = np.array([0.3, 0.2, 0.9])

    def swing(heights):
        hinges = {
            f"hinge at {z}": joints.Revolute(
                Frame("ground", z * axis), Frame("door", z * axis), axis
            )
            for z in heights
        }
        door = mbd.inertia.shifted(mbd.inertia.box(20.0, [0.8, 0.04, 2.0]), [0.4, 0.1, 0.7])
        model = mbd.Model({"door": door}, hinges, {"gravity": forces.Gravity()})
        system = mbd.formulate(model, formulation)
        return system, mbd.assemble(system, {"hinge at 0.1": 0.4}, {"hinge at 0.1": 2.0})

    (one, state), (two, assembled) = swing([0.1]), swing([0.1, 1.7])
    speed = mbd.joint_states(two, 0.0, assembled)["hinge at 0.1"].v
    np.testing.assert_allclose(speed, 2.0, rtol=1e-12)
    expected, found = (mbd.accelerations(system, 0.0, state)[0] for system in (one, two))
    np.testing.assert_allclose(found, expected, atol=1e-11 * float(jnp.max(jnp.abs(expected))))


@pytest.mark.thorough
@pytest.mark.parametrize("formulation", FORMULATIONS[:2], ids=models.name_of)
def test_an_overconstrained_linkage_that_is_a_little_open_does_not_lock(formulation):
    """Bennett's linkage, moved off its constraints by 1e-9: its one freedom stays free."""
    system = mbd.formulate(linkages.bennett(), formulation)
    state = linkages.drawn(system)
    push = jnp.asarray(np.random.default_rng(0).normal(size=system.nv))

    @jax.jit
    def accelerations(size):
        q = system.retract(state.q, size * push)
        c = system.configuration(jnp.zeros(()), q)
        equations = saddle_point(system, c, constraints.residual(system, c))
        return equations.solve(push, jnp.zeros(constraints.n_constraints(system)))[0]

    exact = accelerations(0.0)
    size = float(jnp.linalg.norm(exact))
    assert size > 0.01
    np.testing.assert_allclose(accelerations(1e-9), exact, atol=1e-6 * size)


@pytest.mark.long
@pytest.mark.parametrize(("dtype", "heavy"), [("float32", 1e3), ("float64", 1e6)])
def test_partitioning_finds_a_coordinate_for_each_independent_constraint(dtype, heavy):
    """Heavy and light links in turn, five constraints each, beside a four-bar that has 17."""
    model = straight_chain(12)
    weights = {name: heavy if k % 2 else 1 / heavy for k, name in enumerate(model.bodies)}
    bodies = {
        name: eqx.tree_at(
            lambda b: (b.mass, b.inertia), body, (weights[name], weights[name] * body.inertia)
        )
        for name, body in model.bodies.items()
    }
    heavy_and_light = mbd.Model(bodies, model.joints, model.forces)
    system = mbd.formulate(heavy_and_light, mbd.MaximalCoordinates(), dtype=dtype)
    q = linkages.drawn(system).q
    chosen = jax.jit(lambda q: dependent(system, jnp.zeros((), q.dtype), q))(q)
    assert int(jnp.sum(chosen)) == 12 * 5 + 17


@pytest.mark.long
@pytest.mark.parametrize("formulation", FORMULATIONS[:2], ids=models.name_of)
def test_a_door_on_two_hinges_stays_at_its_guess(formulation):
    """Rows of the second hinge are rounding errors and correct no position."""
    axis = np.array([0.3, 0.2, 0.9])
    hinges = {
        name: joints.Revolute(Frame("ground", z * axis), Frame("door", z * axis), axis)
        for name, z in {"lower": 0.1, "upper": 1.7}.items()
    }
    door = mbd.inertia.shifted(mbd.inertia.box(20.0, [0.8, 0.04, 2.0]), [0.4, 0.1, 0.7])
    system = mbd.formulate(mbd.Model({"door": door}, hinges), formulation)
    motion = mbd.joint_states(system, 0.0, mbd.assemble(system, {"lower": 0.4}))
    for name in hinges:
        np.testing.assert_allclose(float(motion[name].q), 0.4, rtol=0, atol=1e-10)


@pytest.mark.thorough
def test_a_four_bar_closes_alike_at_all_sizes():
    """Lengths of millimetres, metres and kilometres."""

    def angles(size):
        system = mbd.formulate(linkages.hinged(**linkages.four_bar(size=size)))
        motion = mbd.joint_states(system, 0.0, mbd.assemble(system, {"left": 0.7}))
        return [float(joint.q) for joint in motion.values()]

    for size in (1e-3, 1e3):
        np.testing.assert_allclose(angles(size), angles(1.0), rtol=0, atol=1e-10)


@pytest.mark.long
def test_motions_that_fade_stay_finite():
    """Terms that underflow have rounding errors larger than any part of them."""
    model = models.four_bar()
    model = mbd.Model(model.bodies, model.joints)
    system = mbd.formulate(model, mbd.MaximalCoordinates(), dtype=jnp.float32)
    state = mbd.assemble(system, {"left": 1.0}, {"left": 1.0})
    scales = 10.0 ** -np.arange(0, 26)

    @jax.vmap
    def at(v):
        return mbd.accelerations(system, 0.0, mbd.State(state.q, v, state.z))[0]

    found = np.asarray(at(jnp.asarray(scales[:, None] * np.asarray(state.v), jnp.float32)))
    assert np.isfinite(found).all()
    of_one = found[:15] / scales[:15, None] ** 2
    np.testing.assert_allclose(of_one, of_one[:1].repeat(15, 0), rtol=0, atol=1e-5)
