"""Fits of model parameters to measured motion."""

from .certificate import Verification as Verification
from .certificate import verify as verify
from .channel_checks import Thresholds as Thresholds
from .comparison import Candidate as Candidate
from .comparison import ModelComparison as ModelComparison
from .comparison import compare_models as compare_models
from .data_checks import DataReport as DataReport
from .data_checks import check_data as check_data
from .experiment import Experiment as Experiment
from .fit import Fit as Fit
from .identify import identify as identify
from .losses import Cauchy as Cauchy
from .losses import PseudoHuber as PseudoHuber
from .minimizers import FirstOrder as FirstOrder
from .minimizers import LevenbergMarquardt as LevenbergMarquardt
from .misfit import Misfit as Misfit
from .misfit import misfit as misfit
from .modal_experiment import ModalExperiment as ModalExperiment
from .monitor import Monitor as Monitor
from .monitor import monitor as monitor
from .parameters import Parameter as Parameter
from .posterior import LogPosterior as LogPosterior
from .posterior import log_posterior as log_posterior
from .prediction import Prediction as Prediction
from .prediction import predict as predict
from .priors import Normal as Normal
from .problem import Problem as Problem
from .records import AbstractBoundRecord as AbstractBoundRecord
from .records import AbstractRecord as AbstractRecord
from .records import Comparison as Comparison
from .regressor import Regressor as Regressor
from .regressor import regressor as regressor
from .static_experiment import StaticExperiment as StaticExperiment
from .substeps import IntegrationWarning as IntegrationWarning
from .summary import BoundWarning as BoundWarning
from .summary import RankWarning as RankWarning
from .transforms import Bounded as Bounded
from .transforms import Entries as Entries
from .transforms import PhysicalBody as PhysicalBody
from .transforms import PhysicalInertia as PhysicalInertia
from .transforms import Positive as Positive
from .transforms import Scaled as Scaled
from .transforms import Unbounded as Unbounded

__all__ = [
    "AbstractBoundRecord",
    "AbstractRecord",
    "BoundWarning",
    "Bounded",
    "Candidate",
    "Cauchy",
    "Comparison",
    "DataReport",
    "Entries",
    "Experiment",
    "FirstOrder",
    "Fit",
    "IntegrationWarning",
    "LevenbergMarquardt",
    "LogPosterior",
    "Misfit",
    "ModalExperiment",
    "ModelComparison",
    "Monitor",
    "Normal",
    "Parameter",
    "PhysicalBody",
    "PhysicalInertia",
    "Positive",
    "Prediction",
    "Problem",
    "PseudoHuber",
    "RankWarning",
    "Regressor",
    "Scaled",
    "StaticExperiment",
    "Thresholds",
    "Unbounded",
    "Verification",
    "check_data",
    "compare_models",
    "identify",
    "log_posterior",
    "misfit",
    "monitor",
    "predict",
    "regressor",
    "verify",
]
