"""The scheme of Bauchau et al. (2013) that keeps energy and momentum, eqs (9) and (22).

With increments δ of the poses, and u the velocities of the bodies along their own axes:

    δ = h (u₀ + u₁) / 2
    (P₁ - P₀) / h = f̄(q₀, q₁) + Ḡ(q₀, q₁)ᵀ λ + f(t½, q½, v½),   g(q₁) = 0

f̄ does the work that the potentials lose and Ḡᵀ λ none, f is the rest of the applied forces.
First-order states follow the midpoint rule, z₁ = z₀ + h r(t½, q½, v½, z½), z½ = (z₀ + z₁) / 2, and
f depends on z½.
Unknowns are δ and h² λ.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..lie import CayleyGibbsRodrigues
from ..nonlinear import Blocks, Newton
from ..system.abstract import AbstractSystem, State, Time, Velocities
from ..system.body_increments import AbstractIncrements, RotationIncrements
from ..system.configuration import AbstractConfiguration
from ..system.constraints import n_constraints, redundant_rows, residual
from ..system.nonconservative import nonconservative
from ..system.two_point import conservative_wrenches, constraint_wrenches, on_bodies
from .implicit import Attempt, typical_sizes
from .intrinsic import AbstractIntrinsic, Rows, Start
from .second_order import StepMemory
from .states import after_middle, with_middle_states


class EnergyMomentum(AbstractIntrinsic):
    """Of order 2, with energy and momentum as they are in nature, to rounding.

    Energy is kept with every choice of `increments`, forces with potentials and joints included.
    Momentum is kept without them; with them where points move by v + ω × p̄ about their mean
    position, which `RotationIncrements(CayleyGibbsRodrigues())` and `MotionIncrements(Cayley())`
    do. Drives, dampers and friction act at the middle of the step. Vibration is not damped, however
    fast; g = 0 holds at the end of each step.

    Moves models in `MaximalCoordinates` without rotors and couplings.

    **Arguments:**

    - `increments`: how poses change in a step, `RotationIncrements(CayleyGibbsRodrigues())` where
      left out.
    - `newton`: how the equations of a step are solved. By default a part of 1e-15 of the energy
      may go in every step; `Newton(tolerance=0.0)` iterates until rounding stops it.
    """

    increments: AbstractIncrements
    newton: Newton

    def __init__(self, increments: AbstractIncrements | None = None, newton: Newton | None = None):
        default = RotationIncrements(CayleyGibbsRodrigues())
        self.increments = default if increments is None else increments
        self.newton = Newton() if newton is None else newton

    def attempt(
        self, system: AbstractSystem, t: Time, h: Time, state: State, memory: StepMemory
    ) -> Attempt:
        start = Start(self.increments, system, t, h, state)
        ng = n_constraints(system)
        small, heavy = typical_sizes(system, t, h, state, memory.trend.vdot)
        guess = jnp.concatenate([start.predicted(memory.trend).ravel(), h * h * memory.lam])
        blocks = Blocks(
            (system.nv, ng), (small, heavy), redundant_rows(system), system.sparsity_pattern()
        )
        root = self.newton(_equations, guess, start, blocks)
        delta, impulse = _split(root.x, start)
        end = start.reached(delta, 2.0 * delta / h - start.u)
        if system.nz:
            end = State(end.q, end.v, after_middle(_middle(delta, start)[0], state.z))
        return self.finished(h, state, memory, end, impulse, root.converged, rings=ng > 0)


def _split(x: Float[Array, "n"], start: Start) -> tuple[Array, Array]:
    nv = start.system.nv
    return x[:nv].reshape(-1, 6), x[nv:]


def _middle(delta: Rows, start: Start) -> tuple[AbstractConfiguration, Velocities]:
    """Configuration, with first-order states, and velocities at the middle of a step."""
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


__all__ = ["EnergyMomentum"]
