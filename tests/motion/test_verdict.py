"""`simulate` is successful if all numbers are finite and constraints are satisfied."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import forces, joints

RESULTS = mbd.RESULTS


def damped(coefficient):
    model = mbd.Model(
        {"rod": mbd.inertia.shifted(mbd.inertia.rod(1.0, 1.0), [0, 0, -0.5])},
        {"hinge": joints.Revolute(mbd.ground, "rod", axis=[0, 1, 0])},
        {"gravity": forces.Gravity(), "damper": forces.ViscousFriction("hinge", coefficient)},
    )
    return mbd.formulate(model, mbd.JointCoordinates())


def moved(coefficient, throw=False, **options):
    system = damped(coefficient)
    state = mbd.assemble(system, {"hinge": 0.5}, {"hinge": 1.0})
    return mbd.simulate(system, state, t1=1.0, throw=throw, **options)


@pytest.mark.thorough
def test_a_motion_that_leaves_the_numbers_is_no_success():
    lost = moved(1e6, dt=0.01)
    assert lost.raw.result == diffrax.RESULTS.successful  # diffrax sees nothing in fixed steps.
    assert lost.result == RESULTS.not_finite
    first = float(lost.ts[np.argmax(~np.isfinite(np.asarray(lost.states.v[:, 0])))])
    np.testing.assert_array_equal(lost.finite().ts, lost.ts[lost.ts < first])
    with pytest.raises(mbd.SimulationError, match="smaller one or, for stiff springs and") as said:
        moved(1e6, True, dt=0.01)
    assert f"finite at t = {first} s in 'hinge'" in str(said.value)
    assert moved(1e6, dt=0.01, integrator=mbd.BDF()).result == RESULTS.successful


EVERY = {"dt": 0.01, "saveat": np.linspace(0.0, 1.0, 101)}


@pytest.mark.long
def test_members_of_a_batch_are_judged_one_by_one():
    found = jax.jit(jax.vmap(lambda c: moved(c, **EVERY).result))(jnp.array([0.1, 1e6, 1.0]))
    assert (found == RESULTS.not_finite).tolist() == [False, True, False]
    assert (found == RESULTS.successful).tolist() == [True, False, True]
    with pytest.raises(Exception, match="The motion is no longer finite"):
        jax.block_until_ready(jax.jit(lambda c: moved(c, True, **EVERY).states.q)(1e6))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "saveat",
    [
        diffrax.SaveAt(dense=True),
        diffrax.SaveAt(t1=True),
        diffrax.SaveAt(t0=True, ts=jnp.array([0.2, 0.9]), fn=lambda t, y, args: {"v": y.v}),
    ],
    ids=["dense", "end", "function"],
)
def test_whatever_is_saved_is_judged(saveat):
    system = damped(1e6)
    state = mbd.assemble(system, {"hinge": 0.5}, {"hinge": 1.0})
    shared = {"t1": 1.0, "dt": 0.01, "saveat": saveat}

    def result(integrator):
        return mbd.simulate(system, state, integrator=integrator, throw=False, **shared).result

    assert result(None) == RESULTS.not_finite
    assert result(mbd.BDF()) == RESULTS.successful


@pytest.mark.thorough
@pytest.mark.parametrize("start", [0.5, 0.0])
def test_adaptive_steps_end_where_nothing_finite_follows(start):
    """From t = 0.5 s on there is no force; with a start there steps collapse at once."""
    push = forces.JointTorque("hinge", lambda t: jnp.where(t < 0.5, 0.0, jnp.nan))
    model = mbd.Model(
        {"disc": mbd.RigidBody(1.0, [0.1, 0.1, 0.1])},
        {"hinge": joints.Revolute(mbd.ground, "disc")},
        {"push": push},
    )
    system = mbd.formulate(model, mbd.JointCoordinates())
    state = mbd.assemble(system, rates={"hinge": 1.0})
    ended = mbd.simulate(system, state, t0=start, t1=1.0, throw=False)
    assert ended.result == RESULTS.not_finite
    assert ended.raw.stats["num_steps"] < 200
    assert ended.raw.controller_state is None
    kept = ended.finite()
    assert jnp.all(jnp.isfinite(kept.states.q))
    with pytest.raises(mbd.SimulationError, match="no longer finite right after t = "):
        mbd.simulate(system, state, t0=start, t1=1.0)


def pair(formulation):
    """Two rods in a row."""
    model = mbd.Model(
        {name: mbd.inertia.shifted(mbd.inertia.rod(1.0, 1.0), [0, 0, -0.5]) for name in "ab"},
        {
            "first": joints.Revolute(mbd.ground, "a", axis=[0, 1, 0]),
            "second": joints.Revolute(mbd.Frame("a", [0, 0, -1.0]), "b", axis=[0, 1, 0]),
        },
        {"gravity": forces.Gravity()},
    )
    system = mbd.formulate(model, formulation)
    return system, mbd.assemble(system, {"first": 0.7}, {"first": 3.0})


GENTLE = mbd.ExplicitRK(diffrax.Heun(), mbd.Baumgarte(0.0, 0.0))


@pytest.mark.long
def test_constraints_that_come_apart_are_no_success():
    system, state = pair(mbd.MaximalCoordinates())
    shared = {"t1": 3.0, "dt": 0.05, "integrator": GENTLE}
    loose = mbd.simulate(system, state, throw=False, **shared)
    assert loose.result == RESULTS.constraints_violated
    frames = loose.frames
    gap = frames["second.predecessor"].p - frames["second.successor"].p
    assert jnp.max(jnp.linalg.norm(gap, axis=1)) > 0.01
    with pytest.raises(mbd.SimulationError, match=r"is violated by .* times the tolerance at t = "):
        mbd.simulate(system, state, **shared)
    # Short steps, in the same program.
    good = mbd.simulate(system, state, **shared | {"t1": 0.06, "dt": 0.001})
    assert good.result == RESULTS.successful


@pytest.mark.thorough
def test_a_start_off_the_constraints_is_no_success():
    """The start alone is off, by 1 mm; steps of this accuracy allow 1e-6 m."""
    system, state = pair(mbd.MaximalCoordinates())
    off = mbd.State(state.q.at[9].add(1e-3), state.v)
    fine = diffrax.PIDController(rtol=1e-12, atol=1e-12)
    shared = {"t1": 0.1, "controller": fine, "throw": False}
    assert mbd.simulate(system, off, **shared).result == RESULTS.constraints_violated
    assert mbd.simulate(system, state, **shared).result == RESULTS.successful


@pytest.mark.long
@pytest.mark.parametrize("formulation", [mbd.JointCoordinates(), mbd.MaximalCoordinates()])
def test_a_driver_of_a_length_is_judged_by_the_size_of_the_mechanism(formulation):
    """A slide of a mechanism of 1 mm may be 1 µm off its driver, and not 0.1 mm."""
    size = 1e-3
    box = mbd.inertia.box(1e-6, [size] * 3)
    model = mbd.Model(
        {"box": box},
        {"slide": joints.Prismatic(mbd.ground, "box", axis=[1, 0, 0])},
        drivers={"motor": joints.Driver("slide", mbd.signals.Constant(0.0))},
    )
    free = mbd.Model(model.bodies, model.joints)
    system = mbd.formulate(model, formulation)

    def result(off):
        state = mbd.assemble(mbd.formulate(free, formulation), {"slide": off})
        method = mbd.ExplicitRK(stabilization=mbd.Baumgarte(0.0, 0.0))
        return mbd.simulate(system, state, t1=1e-3, dt=1e-3, integrator=method, throw=False).result

    assert result(1e-6) == RESULTS.successful
    assert result(1e-4) == RESULTS.constraints_violated
