"""Fitting the parameters of a model to measured motion."""

from .experiment import Experiment as Experiment
from .identify import Fit as Fit
from .identify import RankWarning as RankWarning
from .identify import identify as identify
from .methods import FirstOrder as FirstOrder
from .methods import LevenbergMarquardt as LevenbergMarquardt
from .parameters import Parameter as Parameter
from .prediction import predict as predict
from .sensors import FramePosition as FramePosition
from .sensors import JointPosition as JointPosition
from .sensors import JointVelocity as JointVelocity
from .transforms import Bounded as Bounded
from .transforms import Entries as Entries
from .transforms import PhysicalBody as PhysicalBody
from .transforms import Positive as Positive
from .transforms import Scaled as Scaled
from .transforms import Unbounded as Unbounded

__all__ = [
    "Bounded",
    "Entries",
    "Experiment",
    "FirstOrder",
    "Fit",
    "FramePosition",
    "JointPosition",
    "JointVelocity",
    "LevenbergMarquardt",
    "Parameter",
    "PhysicalBody",
    "Positive",
    "RankWarning",
    "Scaled",
    "Unbounded",
    "identify",
    "predict",
]
