"""Exceptions and warnings of jaxmbd."""

import sys
import warnings
from typing import NamedTuple

PACKAGE = __name__.partition(".")[0]


class ModelError(ValueError):
    """A model, a formulation or an argument is invalid; names the component.

    For example:

        try:
            mbd.Frame("rod", [1.0, 0])
        except mbd.ModelError as error:
            print(error)
    """


class IncompatibleIntegrator(ModelError):
    """The integrator cannot move the system; names both and a remedy.

    For example:

        try:
            mbd.rollout(system, state, 0.01, 10, mbd.EnergyMomentum())
        except mbd.IncompatibleIntegrator as error:
            print(error)
    """


class AssemblyError(RuntimeError):
    """No position or velocity satisfies the joints; names the open joints and their constraint
    residuals."""


class SimulationError(RuntimeError):
    """A simulation ended early or is not finite; names the time."""


class EquilibriumError(RuntimeError):
    """No static equilibrium was reached; names the joints that still move."""


class DataError(ValueError):
    """A measured record is invalid; names the record, the column and the row."""


class DamagedFileWarning(UserWarning):
    """A file of results is damaged; names the file and the scenarios that are computed again."""


class FloatTypeWarning(UserWarning):
    """A model mixes float types; names the leaves of narrower types and the type chosen."""


class UnstableEquilibriumWarning(UserWarning):
    """A static equilibrium is unstable, or an unstable one was left; names the joints."""


class EnergyGainWarning(UserWarning):
    """The energy of a motion grows though no element can add energy; states gain and time."""


class ArtificialEnergyWarning(UserWarning):
    """Springs instead of rigidity store much energy; states how much, and a remedy."""


class ContactWarning(UserWarning):
    """Shapes overlap at the start of a motion, or a contact lasts for too few steps; names the
    contact, and the step that would do."""


class BifurcationWarning(UserWarning):
    """A loop passed a singular position, where its motion could also go on in another way; names
    the loop and the time."""


class NotRepresentedWarning(UserWarning):
    """A file of another program has parts that a model does not represent; lists them."""


class InertiaWarning(UserWarning):
    """Impossible inertias of a file were repaired; the message has the links and the changes."""


class OperatingPointWarning(UserWarning):
    """A point of linearization is neither an equilibrium nor a steady motion; names the state
    that changes, and its rate."""


class Outermost(NamedTuple):
    """The function of this package that a user called, and the number of frames from
    there to the caller."""

    name: str
    depth: int


def outermost_call() -> Outermost:
    """The outermost function of this package among those that run."""
    frame, depth, found = sys._getframe(1), 0, Outermost("", 0)
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] == PACKAGE:
            found = Outermost(frame.f_code.co_qualname.removesuffix(".__init__"), depth)
        frame, depth = frame.f_back, depth + 1
    return found


def warn(message: str, category: type[Warning]) -> None:
    """Warn, at the line of the user's code that called this package."""
    warnings.warn(message, category, stacklevel=outermost_call().depth + 2)
