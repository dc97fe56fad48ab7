"""The exact energy-conserving step of Simo and Gonzalez (1993) for points and vectors, eqs [14] to
[19] of "A three dimensional rigid body dynamic model based on finite element methodology":

    (q₁ - q₀) / h = (v₀ + v₁) / 2
    M (v₁ - v₀) / h + f̄(q₀, q₁) = f(t½, q½, v½) + G(q½)ᵀ λ,   g(q₁) = 0

f̄ is the difference quotient of the potentials over the step, with respect to the scalar products
that each depends on; f are the other applied forces. The paper takes f at the start of the step and
has no constraints. Quadratic constraints change by G(q½)(q₁ - q₀), so that λ does no work.
First-order states follow the midpoint rule, z₁ = z₀ + h r(t½, q½, v½, z½), z½ = (z₀ + z₁) / 2, and
loads depend on z½.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import IncompatibleIntegrator
from ..nonlinear import Newton, as_newton
from ..system.abstract import AbstractSystem, State, Time, Velocities
from ..system.configuration import AbstractConfiguration
from ..system.constraints import n_constraints
from ..system.discrete_gradients import conservative_force_between
from ..system.loads import nonconservative
from ..system.nodal import AbstractNodalSystem
from .abstract import Attempt
from .implicit import after_middle, is_smooth, with_middle_states
from .second_order import AbstractSecondOrder, StepMemory, check_discrete_gradients


class SimoGonzalez(AbstractSecondOrder):
    """Scheme of order 2 that conserves energy and both momenta to rounding.

    The energy includes that of springs of the formulation, of any stiffness. Vibration is not
    damped. Drives, dampers and friction act at the middle of the step.

    Advances models in `NaturalCoordinates` and `PointCoordinates`, without couplings.

    **Arguments:** `newton`: the solver of the equations of a step. Default:
    `Newton(tolerance=0.0)`, which iterates down to rounding; `Newton()` may lose a part of 5e-15 of
    the energy in every step.

    For example:

        points = mbd.formulate(model, mbd.PointCoordinates("zx"))
        start = mbd.assemble(points, {"hinge": 0.3})
        states = mbd.rollout(points, start, 0.01, 10, mbd.SimoGonzalez())
    """

    newton: Newton

    def __init__(self, newton: Newton | None = None):
        self.newton = as_newton(newton, "SimoGonzalez", Newton(tolerance=0.0))

    def check(self, system: AbstractSystem) -> None:
        if not isinstance(system, AbstractNodalSystem):
            raise IncompatibleIntegrator(
                f"SimoGonzalez needs points and vectors for coordinates, {type(system).__name__} "
                "has others; use NaturalCoordinates() or PointCoordinates(), or GeneralizedAlpha()"
            )
        check_discrete_gradients("SimoGonzalez", system)

    def attempt(
        self, system: AbstractSystem, t: Time, h: Time, state: State, memory: StepMemory
    ) -> Attempt:
        ng, nv = n_constraints(system), system.nv
        smooth = is_smooth(h, state.v, memory.trend.vdot)
        speed = state.v + jnp.where(smooth, 0.5 * h * memory.trend.vdot, 0.0)
        guess = jnp.concatenate([h * speed, h * h * memory.lam])
        assert isinstance(system, AbstractNodalSystem)  # By `check`.
        start = system, t, h, state
        root = self.solved(_equations, guess, start, system, t, h, state, memory)
        step, impulse = root.x[:nv], root.x[nv:]
        z = after_middle(_middle(step, start), state.z) if system.nz else state.z
        end = State(state.q + step, 2.0 * step / h - state.v, z)
        return self.finished(h, state, memory, end, impulse, root, rings=ng > 0)


_Start = tuple[AbstractNodalSystem, Time, Time, State]


def _middle(step: Velocities, start: _Start) -> AbstractConfiguration:
    """Configuration at the middle of a step, with first-order states."""
    system, t, h, state = start
    q0, q1 = state.q, state.q + step
    c = system.configuration(t + 0.5 * h, 0.5 * (q0 + q1))
    return with_middle_states(system, c, step / h, h, state.z)


def _equations(x: Float[Array, "n"], start: _Start) -> Float[Array, "n"]:
    """Eq. [15] times h² / 2, and g(q₁)."""
    system, t, h, state = start
    step, impulse = x[: system.nv], x[system.nv :]
    q0, q1 = state.q, state.q + step
    pull = conservative_force_between(system, t + 0.5 * h, q0, q1)
    resisted = system.internal_force_between(q0, q1)
    middle = _middle(step, start)
    given = nonconservative(middle, step / h)
    # g is quadratic, so that G at the middle times the step is exactly g(q₁) - g(q₀).
    _, transpose = jax.vjp(system.constraint_of, middle.q)
    gained = system.momentum_of(step - h * state.v)  # h (v₁ - v₀) / 2
    rows = gained - 0.5 * h * h * (pull + given - resisted) - 0.5 * transpose(impulse)[0]
    return jnp.concatenate([rows, system.constraint_of(q1)])
