"""Derivatives of eigenvalues without potential, with rolling and with first-order states."""

from contextlib import nullcontext

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints
from tests.derivatives import difference
from tests.linearization.linearized_models import column, column_matrices
from tests.models import name_of
from tests.statics.test_equilibrium import pendulum, wheel

Z = np.array([0.0, 0.0, 1.0])


def following(numbers):
    """Two links bent by springs, with a load that follows the upper one."""
    load, stiffness, length = numbers
    rod = mbd.inertia.rod(1.0, length, axis=[0, 0, 1])
    link = mbd.inertia.shifted(rod, 0.5 * length * jnp.asarray(Z))
    hinges = {
        "base": joints.Revolute(mbd.ground, "lower", axis=[0, 1, 0]),
        "knee": joints.Revolute(Frame("lower", length * jnp.asarray(Z)), "upper", axis=[0, 1, 0]),
    }
    acting = {
        "base spring": forces.TorsionalSpringDamper("base", stiffness, rest=0.1),
        "knee spring": forces.TorsionalSpringDamper("knee", 4.0, rest=-0.2),
        "load": forces.AppliedForce(
            Frame("upper", length * jnp.asarray(Z)), -load * jnp.asarray(Z), follower=True
        ),
    }
    return mbd.Model({"lower": link, "upper": link}, hinges, acting)


def driven(numbers):
    """A pendulum on the stall torque of a motor."""
    voltage, resistance, mass = numbers
    motor = forces.DCMotor(
        "hinge", 0.05, gear_ratio=50.0, voltage=voltage, resistance=resistance, inductance=0.01
    )
    model = pendulum(motor=motor)
    return eqx.tree_at(lambda m: m.bodies["rod"].mass, model, mass)


def rolling(numbers):
    """A wheel that rolls to the rest of a spring, which pulls it off the vertical."""
    stiffness, radius, mass = numbers
    above = Frame("ground", (0.0, 0.0, 0.9))
    spring = forces.SpringDamper(above, "wheel", stiffness, rest_length=0.3)
    model = wheel(spring=spring)
    return eqx.tree_at(
        lambda m: (m.joints["rim"].radius, m.bodies["wheel"].mass), model, (radius, mass)
    )


CASES = {
    "following load": (following, [1.5, 5.0, 0.9], {}),
    "motor": (driven, [3.0, 1.2, 1.7], {"hinge": 0.2}),
    "rolling": (rolling, [200.0, 0.4, 2.0], {"plane": [0.1, -0.4, 0.0]}),
}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "formulation"),
    [
        ("following load", mbd.JointCoordinates()),
        ("following load", mbd.MaximalCoordinates()),
        ("motor", mbd.JointCoordinates()),
        ("rolling", mbd.JointCoordinates()),
    ],
    ids=lambda x: x if isinstance(x, str) else name_of(x),
)
def test_eigenvalues_have_derivatives(name, formulation):
    """Forwards, backwards, and by differences, with the position that the numbers change."""
    model_at, numbers, guess = CASES[name]
    system = mbd.formulate(model_at(jnp.asarray(numbers)), formulation)
    start = mbd.assemble(system, guess)

    @eqx.filter_jit
    def lowest(numbers):
        system = mbd.formulate(model_at(numbers), formulation)
        found = mbd.equilibrium(system, start, method="newton")
        n = 2 if name == "following load" else 1
        return jnp.sum(jnp.arange(1.0, n + 1.0) * found.eigenvalues[:n])

    numbers, along = jnp.asarray(numbers), jnp.asarray([0.4, -0.3, 0.5])
    _, forward = eqx.filter_jit(lambda x: jax.jvp(lowest, (x,), (along,)))(numbers)
    slope = difference(lowest, numbers, along, h=1e-3)
    assert float(forward) == pytest.approx(slope, rel=1e-7)
    gradient = eqx.filter_jit(jax.grad(lowest))(numbers)
    assert float(gradient @ along) == pytest.approx(float(forward), rel=1e-10)


@pytest.mark.thorough
@pytest.mark.parametrize("follower", [False, True])
def test_lowest_eigenvalues_of_a_column_by_sparse_factors(follower):
    """With fewer directions than steps of Lanczos' method, below and beyond the critical load."""
    n, length, stiffness = 10, 0.1, 30.0
    for load, stable in ((5.0, True), (60.0, False)):
        system = mbd.formulate(
            column(n, load, length, stiffness, follower), mbd.MaximalCoordinates()
        )
        warned = pytest.warns(mbd.UnstableEquilibriumWarning, match="'hinge.', .*moves away")
        with nullcontext() if stable else warned:
            found = mbd.equilibrium(system, mbd.assemble(system), method="newton")
        M, K = column_matrices(n, load, length, stiffness, follower)
        expected = np.sort(np.linalg.eigvals(np.linalg.solve(M, K)).real)[:4]
        assert found.eigenvalues[:4] == pytest.approx(expected, rel=1e-7)
        assert bool(found.stable) == stable
        assert bool(found.unstable) != stable


@pytest.mark.thorough
@pytest.mark.parametrize(("n", "formulation"), [(2, None), (10, mbd.MaximalCoordinates())])
def test_the_warning_about_flutter_names_its_frequency_and_growth(n, formulation):
    """A follower load on a column, by all eigenvalues and by the lowest ones."""
    load, length, stiffness = (30.0, 0.5, 5.0) if n == 2 else (100.0, 0.1, 30.0)
    M, K = column_matrices(n, load, length, stiffness, follower=True)
    s = np.sqrt(-np.linalg.eigvals(np.linalg.solve(M, K)).astype(complex))
    fastest = s[np.argmax(s.real)]
    assert fastest.imag != 0
    frequency = abs(fastest.imag) / (2 * np.pi)
    message = rf"flutter at {frequency:.3g} Hz; without damping it grows at {fastest.real:.3g} 1/s"
    system = mbd.formulate(column(n, load, length, stiffness, True), formulation)
    with pytest.warns(mbd.UnstableEquilibriumWarning, match=message):
        found = mbd.equilibrium(system, mbd.assemble(system), method="newton")
    assert np.any(found.imaginary != 0)
