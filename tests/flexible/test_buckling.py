"""Columns and shafts in their supports: buckling loads and frequencies under load."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, flexible, forces, joints

# E I = ρ A = L = 1 for bending in the x-z plane; across it the beam is 100 times as stiff.
SECTION = flexible.General(A=1e-3, Iy=1e-9, Iz=1e-7, J=1e-9)
ROUND = flexible.General(A=1e-3, Iy=1e-9, Iz=1e-9, J=2e-9)
BASE, TIP = Frame("rod", node="base"), Frame("rod", node="tip")


def beam(E=1e9, section=SECTION, n_modes=4, n_elements=8, **options):
    """Between two supports; G does not change with E."""
    return flexible.beam(
        1.0, E, 4e8, 1000.0, section, n_elements, n_modes, "bernoulli", ("base", "tip"), **options
    )


def column(body, thrust=1.0):
    """A beam on two pins; the second pin slides along it."""
    return mbd.Model(
        {"rod": body},
        {
            "pin": joints.Revolute("ground", BASE, [0, 1, 0]),
            "slide": joints.PointOnLine(Frame("ground", [1, 0, 0]), TIP, [1, 0, 0]),
        },
        {"thrust": forces.AppliedForce(TIP, [-thrust, 0, 0])},
    )


@pytest.mark.thorough
def test_a_pinned_column_buckles_under_its_thrust():
    """Euler: π² E I / L²."""
    system = mbd.formulate(column(beam(), 1e-3))
    found = mbd.buckling(system, mbd.assemble(system), "thrust")
    assert 1e-3 * float(found.critical) == pytest.approx(np.pi**2, rel=1e-4)


@pytest.mark.thorough
def test_thrust_lowers_the_frequency_of_a_pinned_beam():
    """ω² = ω₀² (1 - P / P_cr), and its derivatives by P and E: with ω₀² = π⁴ E I / ρ A L⁴ and
    P_cr = π² E I / L² it is linear in both."""
    shapes = beam()
    system = mbd.formulate(column(shapes, 0.0))
    state = mbd.assemble(system)
    names = mbd.linearize(system, 0.0, state).coordinates

    @jax.jit
    @jax.value_and_grad
    def square(numbers):
        thrust, E = numbers
        body = beam(E, basis=shapes)
        system = mbd.formulate(column(body, thrust))
        # Straight, and shortened by the thrust.
        along = body.translations[-1, : body.n_elastic, 0]
        eta = jnp.linalg.solve(body.stiffness, -thrust * along)
        rest = mbd.State(jnp.concatenate([state.q[: -eta.size], eta]), state.v)
        linear = mbd.linearize(system, 0.0, rest, coordinates=names)
        values = linear.eigen().values
        return jnp.min(-(values**2).real)

    for part in (-0.5, 0.0, 0.5, 0.9):
        value, (by_thrust, by_E) = square(jnp.array([part * np.pi**2, 1e9]))
        assert value == pytest.approx(np.pi**4 * (1.0 - part), rel=1e-3)
        assert by_thrust == pytest.approx(-(np.pi**2), rel=1e-3)
        assert 1e9 * by_E == pytest.approx(np.pi**4, rel=1e-3)


@pytest.mark.thorough
def test_a_shaft_buckles_sideways_under_torque():
    """A shaft that is clamped at its base and guided by a sleeve: tan u = u for u = T L / 2 E I,
    T = 8.987 E I / L (Greenhill's problem with clamped ends). The error is that of the beam: 0.49 %
    with 8 elements and 8 modes, 0.03 % with 16 and 16, as of Ritz's method on the same shapes."""
    model = mbd.Model(
        {"rod": beam(section=ROUND, n_elements=16, n_modes=16)},
        {
            "clamp": joints.Fixed("ground", BASE),
            "sleeve": joints.Cylindrical(Frame("ground", [1, 0, 0]), TIP, [1, 0, 0]),
        },
        {"torque": forces.AppliedTorque(TIP, [1e-6, 0, 0])},
    )
    system = mbd.formulate(model)
    found = mbd.buckling(system, mbd.assemble(system), "torque")
    assert 1e-6 * float(found.critical) == pytest.approx(2 * 4.493409458, rel=5e-4)
