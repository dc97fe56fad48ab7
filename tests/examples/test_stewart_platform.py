"""The Stewart platform: it goes where it is wanted, at the expense of what its drives give."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from tests import models
from tests.examples import comparing

EXAMPLE = comparing.example("stewart_platform")
MODEL, WANTED = EXAMPLE["model"], EXAMPLE["wanted"]
TIMES = jnp.array([0.2, 0.7, 1.5])


@functools.cache
def motion():
    system = mbd.formulate(MODEL(), mbd.JointCoordinates())
    return system, mbd.kinematics(system, jnp.linspace(0.0, 1.5, 31))


def at(t):
    system, found = motion()
    k = int(np.argmin(np.abs(found.ts - t)))
    return system, found.ts[k], jax.tree.map(lambda x: x[k], found.states), found.vdot[k]


@pytest.mark.thorough
def test_the_platform_goes_where_it_is_wanted():
    _, found = motion()
    goal = jax.vmap(WANTED)(found.ts)
    np.testing.assert_allclose(found.frames["platform"].p, goal.p, atol=1e-12)
    np.testing.assert_allclose(found.frames["platform"].R, goal.R, atol=1e-12)


# The heads of the legs lie in one plane: a particle of the platform is placed above them.
RAISED = {"platform": ("head1", "head3", "head5", (0.0, 0.0, 0.3))}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "formulation",
    [
        mbd.MaximalCoordinates(),
        mbd.PointCoordinates(particles=RAISED),
    ],
    ids=models.name_of,
)
def test_formulations_agree(formulation):
    """Nothing is constrained twice: all reactions are unique."""
    other = mbd.formulate(MODEL(), formulation)
    for time in TIMES[:2]:
        system, t, state, _ = at(time)
        expected = comparing.look(system, t, state)
        seen = comparing.look(other, t, comparing.carried_over(state, system, other))
        for gaps in (seen.pop("gaps"), expected["gaps"]):
            np.testing.assert_allclose(jnp.concatenate(gaps), 0.0, atol=1e-10)
        models.near(seen, {name: expected[name] for name in seen}, 1e-9)


@pytest.mark.thorough
def test_particles_of_a_flat_platform_are_placed_by_hand():
    with pytest.raises(mbd.ModelError, match="'platform': its particles lie in one plane"):
        mbd.formulate(MODEL(), mbd.PointCoordinates())


@pytest.mark.thorough
def test_the_drives_give_what_the_motion_takes():
    """Their power is the change of energy, and without the drivers they reproduce the motion."""
    system, t, state, vdot = at(TIMES[1])
    force = mbd.driving_forces(system, t, state)
    speeds = mbd.joint_states(system, t, state)
    power = sum(force[f"drive{k}"] * speeds[f"slide{k}"].v for k in range(1, 7))

    def energy(s):
        q = system.retract(state.q, s * state.v + 0.5 * s * s * vdot)
        return mbd.energy(system, t, mbd.State(q, state.v + s * vdot)).total

    assert float(power) == pytest.approx(float(jax.grad(energy)(0.0)), rel=1e-9)
    model = MODEL(driven=False)
    push = {
        f"push{k}": mbd.forces.JointTorque(f"slide{k}", force[f"drive{k}"]) for k in range(1, 7)
    }
    free = mbd.formulate(
        mbd.Model(model.bodies, model.joints, model.forces | push), mbd.JointCoordinates()
    )
    again, _ = mbd.accelerations(free, t, state)
    np.testing.assert_allclose(again, vdot, atol=1e-9 * np.abs(vdot).max())


@pytest.mark.thorough
def test_slopes_of_forces():
    """Derivatives of a leg's force by radius of the base, load and amplitude of the motion."""
    inputs = {"base": jnp.asarray(0.9), "load": jnp.asarray(120.0), "heave": jnp.asarray(0.12)}

    def outputs(inputs):
        system = mbd.formulate(MODEL(**inputs), mbd.JointCoordinates())
        state = mbd.assemble(system, t=0.1)
        return mbd.driving_forces(system, 0.1, state)["drive2"][None]

    comparing.check_slopes(outputs, inputs)


@pytest.mark.thorough
def test_the_script_says_what_it_found(capsys, tmp_path):
    EXAMPLE["main"](png=tmp_path / "plot.png")
    said = capsys.readouterr().out
    assert (tmp_path / "plot.png").stat().st_size > 10_000
    off = re.search(r"position: (\S+) m and rad", said)
    assert off
    assert float(off[1]) < 1e-10
    work = re.search(r"differs from it by (\S+) J", said)
    assert work
    assert float(work[1]) < 0.1
