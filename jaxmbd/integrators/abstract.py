"""What an integrator adds to a diffrax solver: which equations it integrates."""

from abc import abstractmethod

import diffrax
from jaxtyping import Array, Float, PyTree

from ..system.abstract import AbstractSystem, State


class AbstractIntegrator(diffrax.AbstractSolver):
    """A diffrax solver whose `args` is the system that it moves."""

    @abstractmethod
    def terms(self, system: AbstractSystem) -> diffrax.AbstractTerm:
        """What to hand to `diffrax.diffeqsolve` for this system.

        **Raises** `IncompatibleIntegrator` where the integrator cannot move it.
        """

    def differentiated_by(self, adjoint: diffrax.AbstractAdjoint | None) -> "AbstractIntegrator":
        """The same method, ready for a mode of differentiation; here it is for all of them."""
        return self

    def start(
        self,
        terms: diffrax.AbstractTerm,
        t0: Float[Array, ""],
        dt: Float[Array, ""],
        state: State,
        system: AbstractSystem,
    ) -> PyTree:
        """The first `memory` of `advance`: what steps hand on beside the state, here nothing."""
        return None

    def saved(self, system: AbstractSystem, ts: Float[Array, "n"], states: State) -> State:
        """States at times between steps, or at their ends, as they are to be returned.

        Here as dense output has them.
        """
        return states

    @abstractmethod
    def advance(
        self,
        terms: diffrax.AbstractTerm,
        t0: Float[Array, ""],
        t1: Float[Array, ""],
        state: State,
        memory: PyTree,
        system: AbstractSystem,
    ) -> tuple[State, PyTree]:
        """The state at `t1`, NaN where the step could not be made, and the next memory."""
