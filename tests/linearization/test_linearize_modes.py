"""Modes of linearizations, their motions and their figures."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import ModelError, forces, sensors
from tests.linearization import linearized_models as models
from tests.marks import thorough_but
from tests.models import name_of
from tests.system.test_tangent_space import hanging_rods, squares_of_hanging_rods


@pytest.fixture(scope="module")
def rods() -> mbd.Linearization:
    system = mbd.formulate(hanging_rods())
    tip = {"angle": sensors.JointPosition("hinge2")}
    return mbd.linearize(system, 0.0, mbd.assemble(system), outputs=tip)


@pytest.mark.long
def test_modes_of_hanging_rods(rods):
    modes = rods.modes()
    expected = np.sqrt(squares_of_hanging_rods())
    np.testing.assert_allclose(2 * np.pi * modes.frequencies, expected, rtol=1e-12)
    np.testing.assert_allclose(2 * np.pi * modes.damped_frequencies, expected, rtol=1e-12)
    np.testing.assert_allclose(modes.damping_ratios, 0.0, atol=1e-12)
    assert not modes.repeated.any()
    for shares in (modes.participation, modes.energies):
        np.testing.assert_allclose(sum(shares.values()), 1.0, rtol=1e-12)
    assert set(modes.participation) == {f"hinge{k}" for k in range(3)}
    assert set(modes.energies) == {f"rod{k}" for k in range(3)}
    np.testing.assert_allclose(modes.joints["hinge1"][:, 0], modes.shapes[1], rtol=1e-12)
    # In the slowest mode all rods turn to one side, in the fastest neighbours to opposite ones.
    relative = (modes.shapes[:3] / modes.shapes[0]).real
    assert np.all(relative[:, 0] > 0)
    assert relative[1, 2] < 0 < relative[2, 2]
    assert len(str(modes).splitlines()) == 4


@pytest.mark.parametrize("formulation", thorough_but((), models.FORMULATIONS[1:]), ids=name_of)
def test_formulations_agree(formulation, rods):
    system = mbd.formulate(hanging_rods(), formulation)
    linear = mbd.linearize(system, 0.0, mbd.assemble(system))
    np.testing.assert_allclose(linear.A, rods.A, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        linear.modes().energies["rod2"], rods.modes().energies["rod2"], rtol=1e-9
    )


@pytest.mark.long
def test_motion_of_a_mode(rods):
    """The motion is a small vibration at the frequency of the mode, in its shape."""
    modes = rods.modes()
    motion = modes.motion(1, amplitude=1e-3, n_periods=1)
    np.testing.assert_allclose(motion.ts[-1], 1 / modes.frequencies[1], rtol=1e-12)
    q, v = (np.asarray(x) for x in (motion.states.q, motion.states.v))
    np.testing.assert_allclose(q[0], 1e-3 * modes.shapes[:3, 1].real, rtol=1e-9, atol=1e-12)
    omega = 2 * np.pi * modes.frequencies[1]
    np.testing.assert_allclose(v[24], omega * q[0], rtol=1e-9, atol=1e-12)
    largest = np.abs(modes.motion(0).twists["rod2"]).max()
    assert 0.0 < largest < 10.0
    with pytest.raises(ModelError, match="there is no mode 3; there are 3"):
        modes.motion(3)


@pytest.mark.long
def test_displaced_state(rods):
    x = jnp.array([1e-6, 0.0, 0.0, 0.0, 2e-6, 0.0])
    moved = rods.displaced(x)
    np.testing.assert_allclose(moved.q, x[:3], atol=1e-15)
    np.testing.assert_allclose(moved.v, x[3:], atol=1e-15)


def test_numbers_of_modes_do_not_cover_one_another():
    """Only the first of 34 equal eigenvalues is numbered, and the distant ones."""
    pytest.importorskip("matplotlib")
    from jaxmbd.viz.linearization_figures import _with_labels

    others = np.array([-1.0 + 3.0j, -0.99 + 3.0j, -5.0 + 8.0j])
    eigenvalues = np.concatenate([np.zeros(34), others])
    assert _with_labels(eigenvalues, 4.0) == [0, 34, 36]


@pytest.mark.thorough
def test_figures(rods, tmp_path):
    system = rods.system
    modes = rods.modes()
    figure = modes.plot()
    assert [axis.get_title() for axis in figure.axes] == ["", "participation", "kinetic energy"]
    modes.animate(0, tmp_path / "mode.html")
    assert (tmp_path / "mode.html").stat().st_size > 1e5
    locus = mbd.root_locus(
        lambda angle: mbd.linearize(
            system,
            0.0,
            mbd.State(rods.state.q + 0.0 * angle, rods.state.v),
            coordinates=rods.coordinates,
        ),
        [0.0, 1.0],
    )
    assert len(locus.plot().axes) == 2
    np.testing.assert_allclose(locus.eigenvalues[0], locus.eigenvalues[1], atol=1e-12)
    with pytest.raises(ModelError, match="give inputs= to linearize"):
        rods.frequency_response([1.0])


@pytest.mark.thorough
def test_eigenvalues_are_differentiable_and_all_modes_are_not(rods):
    def slowest(scale):
        system = mbd.formulate(hanging_rods(0.8 * scale))
        state = mbd.assemble(system)
        linear = mbd.linearize(system, 0.0, state, coordinates=rods.coordinates)
        return jnp.abs(linear.eigen().values[0])

    # ω is proportional to the square root of 1/L.
    value, slope = jax.jit(jax.value_and_grad(slowest))(1.0)
    np.testing.assert_allclose(slope, -0.5 * value, rtol=1e-10)
    with pytest.raises(ModelError, match="give their number"):
        jax.jit(lambda A: eqx.tree_at(lambda x: x.A, rods, A).modes().shapes)(rods.A)


@pytest.mark.thorough
def test_modes_of_a_given_number_are_differentiable(rods):
    """Frequencies, damping, shapes and shares of damped rods by a length and a damping, in jit."""

    def numbers(x):
        length, damping = x
        model = hanging_rods(length)
        damper = forces.TorsionalSpringDamper("hinge1", 0.5, damping=damping)
        system = mbd.formulate(mbd.Model(model.bodies, model.joints, model.forces | {"d": damper}))
        linear = mbd.linearize(system, 0.0, mbd.assemble(system), coordinates=rods.coordinates)
        modes = linear.modes(2)
        shares = [modes.participation["hinge0"], modes.energies["rod2"]]
        parts = modes.frequencies, modes.damping_ratios, modes.shapes.real, modes.joints["hinge1"]
        return jnp.concatenate([jnp.ravel(jnp.real(part)) for part in (*parts, *shares)])

    x = jnp.array([0.8, 0.3])
    J = jax.jit(jax.jacfwd(numbers))(x)
    value = jax.jit(numbers)
    h = 1e-5
    for k in range(2):
        dx = h * jnp.eye(2)[k]
        np.testing.assert_allclose(J[:, k], (value(x + dx) - value(x - dx)) / (2 * h), atol=1e-7)
    weights = jnp.cos(jnp.arange(J.shape[0]))
    np.testing.assert_allclose(
        jax.jit(jax.grad(lambda x: weights @ numbers(x)))(x), weights @ J, rtol=1e-9
    )


@pytest.mark.long
def test_modes_of_a_given_number_are_the_slowest(rods):
    two = rods.modes(2)
    np.testing.assert_allclose(two.frequencies, rods.modes().frequencies[:2], rtol=1e-12)
    assert isinstance(two.shapes, jax.Array)
    with pytest.raises(ModelError, match="fewer than n = 4"):
        rods.modes(4)
    with pytest.raises(ModelError, match="modes: n must be a whole number"):
        rods.modes(0)
