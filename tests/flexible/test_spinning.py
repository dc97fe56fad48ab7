"""A spinning cantilever in a mechanism, stiffened within its body, or divided into several."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, flexible, joints

from .beams import SLENDER, unit_beam

# Of the differential equation of a cantilever that spins about its root; Ω = 1 … 5.
FLAP = {1: 3.6816, 2: 4.1373, 3: 4.7973, 4: 5.5850, 5: 6.4495}


def spinning(bodies) -> mbd.Model:
    """Bodies welded one to the next, the first to a hub so heavy that its speed is constant."""
    names = [f"part {i}" for i in range(len(bodies))]
    ends = [Frame("hub"), *(Frame(name, node="tip") for name in names[:-1])]
    welds = {
        f"weld {name}": joints.Fixed(end, Frame(name, node="base"))
        for end, name in zip(ends, names, strict=True)
    }
    hub = mbd.RigidBody(1e6, 1e6 * np.ones(3))
    return mbd.Model(
        {"hub": hub, **dict(zip(names, bodies, strict=True))},
        {"axle": joints.Revolute("ground", "hub", [0, 0, 1]), **welds},
    )


def lowest_frequencies(system, speeds):
    """The two lowest angular frequencies [rad/s] about the steady state of each speed."""
    n = system.nv

    def accelerations(x):
        state = mbd.State(x[:n], x[n:])
        return mbd.accelerations(system, 0.0, state)[0]

    @jax.jit
    def linearized(x):
        return accelerations(x), jax.jacfwd(accelerations)(x)

    found = {}
    for omega in speeds:
        x = jnp.zeros(2 * n).at[n].set(omega)
        for _ in range(4):
            vdot, J = linearized(x)
            x = x.at[1:n].add(-jnp.linalg.solve(J[1:, 1:n], vdot[1:]))
        _, J = linearized(x)
        elastic = np.r_[1:n, n + 1 : 2 * n]
        A = np.concatenate([np.eye(2 * n)[n:], J])[elastic][:, elastic]
        values = np.linalg.eigvals(A)
        found[omega] = np.sort(values.imag[values.imag > 0])[:2]
    return found


def expected(omega):
    """Frequencies of lag, in the plane of the spin, and of flap."""
    return np.sqrt([FLAP[omega] ** 2 - omega**2, FLAP[omega] ** 2])


@pytest.mark.thorough
def test_one_body_with_geometric_stiffening():
    system = mbd.formulate(spinning([unit_beam(6, 6)]), mbd.JointCoordinates())
    for omega, own in lowest_frequencies(system, FLAP).items():
        np.testing.assert_allclose(own, expected(omega), rtol=1e-3)


@pytest.mark.thorough
def test_frames_of_reference_do_not_change_frequencies():
    """With shapes of the same span: also displacements of second order agree.

    The centrifugal load stretches the beam by 8e-6, on which terms of third order act.
    """
    found = []
    for frame in ("clamped", "chord"):
        body = unit_beam(6, 4, interfaces=("base", "tip"), frame=frame)
        system = mbd.formulate(spinning([body]), mbd.JointCoordinates())
        found.append(lowest_frequencies(system, [4])[4])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


@pytest.mark.thorough
def test_several_bodies_without_geometric_stiffening():
    """Errors of bodies that do not stiffen within themselves shrink with their length squared.

    The limit, extrapolated from 8 and 16 bodies, is that of the differential equation.
    """
    squares = []
    for n in (8, 16):
        part = flexible.beam(
            1.0 / n, 1e9, 4e8, 1000.0, SLENDER, 1, 0, "bernoulli", ("base", "tip"), stiffening=False
        )
        system = mbd.formulate(spinning([part] * n), mbd.JointCoordinates())
        own = lowest_frequencies(system, FLAP)
        squares.append(np.stack([own[omega] ** 2 for omega in FLAP]))
    exact = np.stack([expected(omega) for omega in FLAP])
    limit = np.sqrt(squares[1] + (squares[1] - squares[0]) / 3.0)
    np.testing.assert_allclose(limit, exact, rtol=1e-3)
    errors = [np.abs(x - exact**2) for x in squares]
    np.testing.assert_allclose(np.log2(errors[0] / errors[1])[1:], 2.0, atol=0.15)
