"""The energy- and momentum-conserving scheme of Bauchau et al. (2013), eqs (9) and (22).

δ are increments of the poses, u the velocities of the bodies along body-fixed axes:

    δ = h (u₀ + u₁) / 2
    (P₁ - P₀) / h = f̄(q₀, q₁) + Ḡ(q₀, q₁)ᵀ λ + f(t½, q½, v½),   g(q₁) = 0

The work of f̄ is the loss of the potentials, Ḡᵀ λ does no work, and f are the other applied forces.
First-order states follow the midpoint rule, z₁ = z₀ + h r(t½, q½, v½, z½), z½ = (z₀ + z₁) / 2, and
f depends on z½. Unknowns are δ and h² λ.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..lie import CayleyGibbsRodrigues
from ..nonlinear import Newton, as_newton
from ..system.abstract import AbstractSystem, State, Time, Velocities
from ..system.body_increments import AbstractIncrements, RotationIncrements, as_increments
from ..system.configuration import AbstractConfiguration
from ..system.constraints import n_constraints, residual
from ..system.nonconservative import nonconservative
from ..system.two_point import conservative_wrenches, constraint_wrenches, on_bodies
from .abstract import Attempt
from .intrinsic import AbstractIntrinsic, Rows, Start
from .second_order import StepMemory
from .states import after_middle, with_middle_states


class EnergyMomentum(AbstractIntrinsic):
    """Scheme of order 2 that conserves energy and momentum to rounding.

    Energy is conserved for every choice of `increments`, with potential forces and joints too.
    Momentum is conserved without forces and joints; with them it is conserved if points move by
    v + ω × p̄ about their mean position, as for `RotationIncrements(CayleyGibbsRodrigues())` and
    `MotionIncrements(Cayley())`. Drives, dampers and friction act at the middle of the step.
    Vibration of any frequency is not damped. g = 0 holds at the end of each step.

    Advances models in `MaximalCoordinates` without rotors and couplings.

    **Arguments:**

    - `increments`: parameterization of the change of poses in a step.
      Default: `RotationIncrements(CayleyGibbsRodrigues())`.
    - `newton`: the solver of the equations of a step. Default: `Newton(tolerance=0.0)`, which
      iterates down to rounding; `Newton()` may lose a part of 5e-15 of the energy in every step.

    For example:

        bodies = mbd.formulate(model, mbd.MaximalCoordinates())
        start = mbd.assemble(bodies, {"hinge": 0.3})
        states = mbd.rollout(bodies, start, 0.01, 10, mbd.EnergyMomentum())
    """

    increments: AbstractIncrements
    newton: Newton

    def __init__(self, increments: AbstractIncrements | None = None, newton: Newton | None = None):
        default = RotationIncrements(CayleyGibbsRodrigues())
        given = default if increments is None else increments
        self.increments = as_increments(given, "EnergyMomentum")
        self.newton = as_newton(newton, "EnergyMomentum", Newton(tolerance=0.0))

    def attempt(
        self, system: AbstractSystem, t: Time, h: Time, state: State, memory: StepMemory
    ) -> Attempt:
        start = Start(self.increments, system, t, h, state)
        ng = n_constraints(system)
        guess = jnp.concatenate([start.predicted(memory.trend).ravel(), h * h * memory.lam])
        root = self.solved(_equations, guess, start, system, t, h, state, memory)
        delta, impulse = _split(root.x, start)
        end = start.reached(delta, 2.0 * delta / h - start.u)
        if system.nz:
            end = State(end.q, end.v, after_middle(_middle(delta, start)[0], state.z))
        return self.finished(h, state, memory, end, impulse, root, rings=ng > 0)


def _split(x: Float[Array, "n"], start: Start) -> tuple[Array, Array]:
    nv = start.system.nv
    return x[:nv].reshape(-1, 6), x[nv:]


def _middle(delta: Rows, start: Start) -> tuple[AbstractConfiguration, Velocities]:
    """Configuration with first-order states, and velocities, at the middle of a step."""
    system, h = start.system, start.h
    state = start.reached(0.5 * delta, delta / h)
    c = system.configuration(start.t + 0.5 * h, state.q)
    return with_middle_states(system, c, state.v, h, start.state.z), state.v


def _equations(x: Float[Array, "n"], start: Start) -> Float[Array, "n"]:
    system, t, h = start.system, start.t, start.h
    delta, impulse = _split(x, start)
    u1 = 2.0 * delta / h - start.u
    end = start.reached(delta, u1)
    first, last = system.configuration(t, start.state.q), system.configuration(t + h, end.q)
    X0, X1 = first.ports, last.ports
    pull = conservative_wrenches(system.mechanism, t + 0.5 * h, X0, X1)
    push = constraint_wrenches(system, X0, X1, impulse)
    wrenches = h * h * on_bodies(system.mechanism, pull) + on_bodies(system.mechanism, push)
    rest = start.load(0.5 * delta, nonconservative(*_middle(delta, start)))
    rows = h * start.gained(delta, u1) - start.mean_load(delta, wrenches) - h * h * rest
    return jnp.concatenate([0.5 * rows.ravel(), residual(system, last)])
