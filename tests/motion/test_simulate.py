"""Motion over time: order, drift, agreement, what is kept, and how it ends."""

from functools import partial

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest

import jaxmbd as mbd
from jaxmbd.programs import progress
from jaxmbd.system import constraints
from tests.marks import thorough_but
from tests.models import FORMULATIONS, chain, four_bar, name_of

START = ({"jlink0000": 0.7, "jlink0001": -0.3}, {"jlink0000": 0.5})


@pytest.fixture(scope="module", params=thorough_but(FORMULATIONS[:1], FORMULATIONS), ids=name_of)
def pendulum(request):
    system = mbd.formulate(chain(2), request.param)
    return system, mbd.assemble(system, *START)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("solver", "order", "dt"),
    [(diffrax.Heun(), 2, 0.01), (diffrax.Bosh3(), 3, 0.02), (diffrax.Tsit5(), 5, 0.05)],
    ids=["Heun", "Bosh3", "Tsit5"],
)
def test_energy_drift_falls_with_the_order(pendulum, solver, order, dt):
    system, state = pendulum
    gentle = mbd.ExplicitRK(solver, mbd.Baumgarte(1.0, 1.0))

    def drift(h):
        end = mbd.rollout(system, state, h, round(1.0 / h), gentle)
        last = jax.tree.map(lambda x: x[-1], end)
        energies = [mbd.energy(system, 0.0, s).total for s in (state, last)]
        return abs(float(energies[1] - energies[0]))

    observed = np.log2(drift(dt) / drift(dt / 2))
    assert observed > order - 0.9


@pytest.mark.thorough
def test_formulations_move_alike():
    ends = []
    for formulation in FORMULATIONS:
        system = mbd.formulate(chain(2), formulation)
        motion = mbd.simulate(
            system, mbd.assemble(system, *START), t1=2.0, dt=0.005, integrator=diffrax.Dopri8()
        )
        ends.append(motion.frames["link0001"].p)
    assert ends[0].shape == (401, 3)
    assert jnp.max(jnp.abs(ends[0] - ends[1])) < 1e-9


@pytest.mark.thorough
def test_constraints_stay_closed_for_a_hundred_seconds():
    """Measured: |g| under 3e-5 with Tsitouras' method at 10 ms."""
    system = mbd.formulate(chain(2), mbd.MaximalCoordinates())
    motion = mbd.simulate(system, mbd.assemble(system, *START), t1=100.0, dt=0.01, saveat=1.0)

    @jax.jit
    @jax.vmap
    def gap(q):
        c = system.configuration(jnp.zeros(()), q)
        return jnp.max(jnp.abs(constraints.residual(system, c)))

    gaps = gap(motion.states.q)
    assert jnp.max(gaps) < 1e-4
    assert jnp.max(gaps[50:]) < 10 * jnp.max(gaps[1:50])  # It does not grow.


@pytest.mark.long
@pytest.mark.smoke
@pytest.mark.parametrize("formulation", thorough_but(FORMULATIONS[:1], FORMULATIONS), ids=name_of)
def test_what_is_kept(formulation):
    """Every 201st of the time by default, given times, and what diffrax's `SaveAt` says."""
    system = mbd.formulate(chain(2), formulation)
    state = mbd.assemble(system, *START)
    default = mbd.simulate(system, state, t1=0.5)
    np.testing.assert_allclose(default.ts, np.linspace(0, 0.5, 201), atol=1e-15)
    chosen = mbd.simulate(system, state, t1=0.5, saveat=np.array([0.1, 0.25]))
    np.testing.assert_array_equal(chosen.ts, [0.1, 0.25])
    assert jnp.max(jnp.abs(chosen.states.q - default.states.q[jnp.array([40, 100])])) < 1e-7
    own = mbd.simulate(system, state, t1=0.5, saveat=diffrax.SaveAt(t1=True, dense=True))
    dense = own.raw.evaluate(jnp.asarray(0.25)).q
    assert jnp.max(jnp.abs(dense - default.states.q[100])) < 1e-7
    assert jnp.max(jnp.abs(own.states.q[0] - default.states.q[-1])) < 1e-7


@pytest.mark.long
def test_an_event_ends_the_motion(pendulum):
    system, state = pendulum

    def falls_below(t, y, args, **_):
        return args.frames(t, y.q)["link0001"].p[2] + 0.45

    event = diffrax.Event(falls_below, optx.Newton(1e-10, 1e-10))
    motion = mbd.simulate(system, state, t1=5.0, event=event, saveat=0.01).finite()
    assert motion.result == mbd.RESULTS.event_occurred
    assert 0 < motion.ts[-1] < 5.0
    assert abs(motion.raw.ts[jnp.isfinite(motion.raw.ts)][-1] - motion.ts[-1]) < 1e-12
    heights = motion.frames["link0001"].p[:, 2]
    assert (heights > -0.451).all()


@pytest.mark.thorough
def test_progress_is_told_by_batches_of_derivatives(pendulum, monkeypatch):
    system, state = pendulum
    steps = []
    monkeypatch.setattr(progress, "say", steps.append)

    def last(q):
        start = mbd.State(q, state.v)
        return mbd.simulate(system, start, t1=0.1, dt=0.01, progress=True).states.q[-1]

    jax.jit(jax.vmap(jax.jacrev(last)))(jnp.stack([state.q, state.q]))
    jax.effects_barrier()
    assert {"20 %", "50 %"} <= set(steps)


@pytest.mark.thorough
@pytest.mark.parametrize("formulation", thorough_but(FORMULATIONS[:1], FORMULATIONS), ids=name_of)
def test_loops_stay_closed(formulation):
    system = mbd.formulate(four_bar(), formulation)
    state = mbd.assemble(system, {"left": -1.0, "crank pin": [0.43, 0.0], "right": -1.6})
    motion = mbd.simulate(system, state, t1=0.5, dt=0.005)
    frames = motion.frames
    gap = frames["rocker pin.predecessor"].p - frames["rocker pin.successor"].p
    assert jnp.max(jnp.abs(gap)) < 1e-6
    energy = motion.energy.total
    assert jnp.max(jnp.abs(energy - energy[0])) < 1e-5


@pytest.mark.thorough
def test_signals_see_the_time_of_the_step():
    """A torque c t on a free hinge of inertia J turns it by c t³ / 6 J."""
    body = mbd.RigidBody(1.0, [0.5, 0.5, 0.5])
    model = mbd.Model(
        {"disc": body},
        {"hinge": mbd.joints.Revolute(mbd.ground, "disc")},
        {"drive": mbd.forces.JointTorque("hinge", mbd.signals.Polynomial([0.0, 3.0]))},
    )
    system = mbd.formulate(model, mbd.JointCoordinates())
    motion = mbd.simulate(system, mbd.assemble(system), t0=0.0, t1=2.0, dt=0.1)
    np.testing.assert_allclose(motion.joints["hinge"].q, motion.ts**3, atol=1e-12)
    rolled = mbd.rollout(system, mbd.assemble(system), 0.1, 20)
    np.testing.assert_allclose(rolled.q[-1], [8.0], atol=1e-12)


@pytest.fixture(scope="module")
def double():
    system = mbd.formulate(chain(2), mbd.JointCoordinates())
    return system, mbd.assemble(system, *START)


@pytest.mark.thorough
def test_checkpoints_change_neither_the_states_nor_the_gradient(double):
    """23 steps: five blocks of four, and three more."""
    system, state = double

    @partial(jax.jit, static_argnums=1)
    def look(v, checkpoint):
        def end(v):
            start = mbd.State(state.q, v)
            q = mbd.rollout(system, start, dt=0.01, n_steps=23, checkpoint=checkpoint).q
            return jnp.sum(q[-1]) + jnp.sum(q[7]), q

        (_, q), slope = jax.value_and_grad(end, has_aux=True)(v)
        return q, slope

    for plain, checkpointed in zip(look(state.v, False), look(state.v, True), strict=True):
        np.testing.assert_allclose(checkpointed, plain, rtol=1e-13)


@pytest.mark.parametrize(
    "solver",
    [pytest.param(diffrax.Kvaerno3(), marks=pytest.mark.thorough), diffrax.ImplicitEuler()],
)
@pytest.mark.thorough
def test_implicit_methods_of_diffrax_need_no_tolerances(double, solver):
    system, state = double
    exact = mbd.simulate(system, state, t1=0.2, dt=1e-3).states.q[-1]
    fixed = mbd.simulate(system, state, t1=0.2, dt=1e-3, integrator=solver).states.q[-1]
    rolled = mbd.rollout(system, state, 1e-3, 200, solver).q[-1]
    bound = 1e-8 if isinstance(solver, diffrax.Kvaerno3) else 1e-2
    assert jnp.max(jnp.abs(fixed - exact)) < bound
    assert jnp.max(jnp.abs(rolled - fixed)) < 1e-12


@pytest.mark.thorough
@pytest.mark.parametrize("adjoint", [diffrax.ForwardMode(), diffrax.DirectAdjoint()])
def test_forward_mode(double, adjoint):
    system, state = double

    def end(v, adjoint):
        moved = mbd.simulate(system, mbd.State(state.q, v), t1=0.2, dt=0.01, adjoint=adjoint)
        return moved.states.q[-1]

    forward = jax.jacfwd(lambda v: end(v, adjoint))(state.v)
    reverse = jax.jacrev(lambda v: end(v, None))(state.v)
    assert jnp.max(jnp.abs(forward - reverse)) < 1e-12
