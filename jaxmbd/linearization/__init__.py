"""Linearization, modes, frequency responses, stability against parameters, and buckling."""

from .buckling import Buckling as Buckling
from .buckling import buckling as buckling
from .campbell import Campbell as Campbell
from .campbell import campbell as campbell
from .frequency_response import FrequencyResponse as FrequencyResponse
from .linearization import Linearization as Linearization
from .linearization import linearize as linearize
from .modes import Modes as Modes
from .root_locus import RootLocus as RootLocus
from .root_locus import root_locus as root_locus

__all__ = [
    "Buckling",
    "Campbell",
    "FrequencyResponse",
    "Linearization",
    "Modes",
    "RootLocus",
    "buckling",
    "campbell",
    "linearize",
    "root_locus",
]
