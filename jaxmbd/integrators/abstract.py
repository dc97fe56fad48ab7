"""What an integrator adds to a diffrax solver: which equations it integrates."""

from abc import abstractmethod

import diffrax

from ..system.abstract import AbstractSystem


class AbstractIntegrator(diffrax.AbstractSolver):
    """A diffrax solver whose `args` is the system that it moves."""

    @abstractmethod
    def terms(self, system: AbstractSystem) -> diffrax.AbstractTerm:
        """What to hand to `diffrax.diffeqsolve` for this system.

        **Raises** `IncompatibleIntegrator` where the integrator cannot move it.
        """
