"""What an integrator adds to a diffrax solver: which equations it integrates."""

from abc import abstractmethod

import diffrax
from jaxtyping import Array, Float

from ..system.abstract import AbstractSystem, State


class AbstractIntegrator(diffrax.AbstractSolver):
    """A diffrax solver whose `args` is the system that it moves."""

    @abstractmethod
    def terms(self, system: AbstractSystem) -> diffrax.AbstractTerm:
        """What to hand to `diffrax.diffeqsolve` for this system.

        **Raises** `IncompatibleIntegrator` where the integrator cannot move it.
        """

    @abstractmethod
    def advance(
        self,
        terms: diffrax.AbstractTerm,
        t0: Float[Array, ""],
        t1: Float[Array, ""],
        state: State,
        system: AbstractSystem,
    ) -> State:
        """The state at `t1`, by one step that needs no memory of the one before."""
