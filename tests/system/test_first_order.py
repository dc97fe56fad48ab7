"""First-order states of elements: a current, a bristle, an element between two frames."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints
from jaxmbd.model.frame import JointReference
from jaxmbd.system.first_order import stage_states
from jaxmbd.system.loads import element_states, rates_at, state_inputs


class Current(forces.AbstractJointElement):
    """A winding: L di/dt = u - R i - k v, torque k i."""

    joint: JointReference
    constant: Float[Array, ""]
    inductance: Float[Array, ""]

    @property
    def n_states(self) -> int:
        return 1

    def load(self, t, q, v, z):
        return self.constant * z

    def state_rates(self, t, q, v, z):
        return (12.0 - 2.0 * z - self.constant * v) / self.inductance


class Maxwell(forces.AbstractFrameElement):
    """A spring and a damper in series: z is the damper's stretch."""

    frame_a: Frame
    frame_b: Frame

    @property
    def n_states(self) -> int:
        return 1

    def load(self, t, X, V, z):
        d = X.p[1] - X.p[0]
        length = jnp.sqrt(d @ d)
        pull = 40.0 * (length - 1.0 - z[0]) * d / length
        zeros = jnp.zeros_like(pull)
        ends = [X.R[0].T @ pull, zeros], [-(X.R[1].T @ pull), zeros]
        return jnp.stack([jnp.concatenate(end) for end in ends])

    def state_rates(self, t, X, V, z):
        d = X.p[1] - X.p[0]
        return 40.0 * (jnp.sqrt(d @ d)[None] - 1.0 - z) / 3.0


ROD = mbd.inertia.shifted(mbd.inertia.rod(mass=1.0, length=1.0, radius=0.05), [0.5, 0, 0])


def model(constant=0.5, inductance=0.05) -> mbd.Model:
    """A pendulum of two links with a motor, and two series of springs and dampers."""
    numbers = (jnp.asarray(constant), jnp.asarray(inductance))
    elements = {
        "motor": Current(JointReference("elbow"), *numbers),
        "series": Maxwell(Frame("ground", [0.5, 0.5, 1.0]), Frame("upper", [0.7, 0, 0])),
        "other": Maxwell(Frame("ground", [1.0, 0.0, 1.5]), Frame("lower", [0.7, 0, 0])),
        "gravity": forces.Gravity(),
    }
    hinges = {
        "shoulder": joints.Revolute("ground", Frame("upper"), [0, 1, 0]),
        "elbow": joints.Revolute(Frame("upper", [1.0, 0, 0]), Frame("lower"), [0, 1, 0]),
    }
    return mbd.Model({"upper": ROD, "lower": ROD}, hinges, elements)


def start(system):
    return mbd.assemble(system, {"shoulder": 0.3}, {"elbow": 1.0}, states={"motor": 0.4})


@pytest.mark.long
@pytest.mark.parametrize("formulation", [mbd.JointCoordinates(), mbd.MaximalCoordinates()])
def test_explicit_steps_advance_states(formulation):
    """Motions of both formulations agree, in z as well; a reference by a tight tolerance."""
    system = mbd.formulate(model(), formulation)
    state = start(system)
    assert system.nz == 3
    np.testing.assert_allclose(element_states(system, state)["motor"], 0.4)
    end = jax.tree.map(lambda x: x[-1], mbd.rollout(system, state, 2e-3, 100))
    reference = mbd.formulate(model(), mbd.JointCoordinates())
    tight = diffrax.PIDController(rtol=1e-11, atol=1e-12)
    found = mbd.simulate(reference, start(reference), t1=0.2, controller=tight)
    np.testing.assert_allclose(end.z, found.states.z[-1], rtol=1e-7, atol=1e-8)
    named = element_states(system, end)
    np.testing.assert_allclose(
        named["series"], element_states(reference, found.states)["series"][-1], atol=1e-8
    )


@pytest.mark.thorough
def test_gradient_by_a_parameter_of_the_states():
    def current(inductance):
        system = mbd.formulate(model(inductance=inductance), mbd.JointCoordinates())
        return mbd.rollout(system, start(system), 1e-2, 20).z[-1, 0]

    x, step = jnp.asarray(0.05), 1e-6
    by_difference = (current(x + step) - current(x - step)) / (2.0 * step)
    np.testing.assert_allclose(jax.grad(current)(x), by_difference, rtol=1e-6)


def test_states_of_another_number_are_refused():
    system = mbd.formulate(model(), mbd.JointCoordinates())
    state = start(system)
    with pytest.raises(mbd.ModelError, match=r"state.z has 0 first-order states, the system has 3"):
        mbd.accelerations(system, 0.0, mbd.State(state.q, state.v))
    with pytest.raises(mbd.ModelError, match=r"states: element without such coordinates: 'engine'"):
        mbd.assemble(system, states={"engine": 1.0})


@pytest.mark.thorough
def test_stages_solve_their_equations():
    """The residual of two stages vanishes, and the derivative equals finite differences."""
    system = mbd.formulate(model(), mbd.JointCoordinates())
    state = start(system)
    W = jnp.asarray([[30.0, 5.0], [-12.0, 40.0]])
    known = jnp.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])

    @jax.jit
    def stages(v):
        def inputs(v):
            return state_inputs(system.configuration(jnp.zeros(()), state.q), v)

        both = jax.vmap(inputs)(jnp.stack([v, 2.0 * v]))
        return stage_states(system.mechanism, both, W, known, jnp.zeros((2, 3)))

    z = stages(state.v)
    for i in range(2):
        rates = rates_at(system, jnp.zeros(()), mbd.State(state.q, (i + 1.0) * state.v, z[i]))
        np.testing.assert_allclose(W[i] @ z - rates, known[i], rtol=1e-12)
    way = jnp.asarray([0.3, -0.7])
    slope = jax.jvp(stages, (state.v,), (way,))[1]
    by_difference = (stages(state.v + 1e-5 * way) - stages(state.v - 1e-5 * way)) / 2e-5
    np.testing.assert_allclose(slope, by_difference, rtol=1e-7, atol=1e-9)
    back = jax.grad(lambda v: jnp.sum(stages(v)))(state.v)
    np.testing.assert_allclose(back @ way, jnp.sum(slope), rtol=1e-10)


@pytest.mark.thorough
def test_stages_whose_states_are_far_smaller_than_the_terms_of_their_rates():
    """A motor at the speed where its voltage is that of the winding has a current near zero."""
    system = mbd.formulate(model(), mbd.JointCoordinates())
    state = start(system)
    idle = state.v.at[1].set(24.0)  # 12 V by 0.5 V s.
    W, known = jnp.asarray([[37.0]]), jnp.zeros((1, 3))

    def current(change):
        c = system.configuration(jnp.zeros(()), state.q)
        one = state_inputs(c, idle * (1.0 + change))
        both = jax.tree.map(lambda x: x[None], one)
        return stage_states(system.mechanism, both, W, known, jnp.full((1, 3), 1e-9))[0, 0]

    changes = jnp.asarray([0.0, 3e-16, -7e-15, 2e-12])
    expected = -12.0 * changes / (0.05 * 37.0 + 2.0)
    np.testing.assert_allclose(jax.vmap(current)(changes), expected, atol=4e-15)
