"""Fits of model parameters to measured motion."""

from .base_parameters import BaseParameters as BaseParameters
from .base_parameters import base_parameters as base_parameters
from .certificate import Verification as Verification
from .certificate import verify as verify
from .channel_checks import Thresholds as Thresholds
from .comparison import Candidate as Candidate
from .comparison import ModelComparison as ModelComparison
from .comparison import compare_models as compare_models
from .data_checks import DataReport as DataReport
from .data_checks import check_data as check_data
from .excitation import Excitation as Excitation
from .excitation import design_excitation as design_excitation
from .experiment import Experiment as Experiment
from .fit import Fit as Fit
from .identify import identify as identify
from .input_design import InputDesign as InputDesign
from .input_design import design_inputs as design_inputs
from .linear import LinearFit as LinearFit
from .linear import identify_linear as identify_linear
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
from .smooth_motion import SmoothMotion as SmoothMotion
from .smooth_motion import smooth_motion as smooth_motion
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
    "BaseParameters",
    "BoundWarning",
    "Bounded",
    "Candidate",
    "Cauchy",
    "Comparison",
    "DataReport",
    "Entries",
    "Excitation",
    "Experiment",
    "FirstOrder",
    "Fit",
    "InputDesign",
    "IntegrationWarning",
    "LevenbergMarquardt",
    "LinearFit",
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
    "SmoothMotion",
    "StaticExperiment",
    "Thresholds",
    "Unbounded",
    "Verification",
    "base_parameters",
    "check_data",
    "compare_models",
    "design_excitation",
    "design_inputs",
    "identify",
    "identify_linear",
    "log_posterior",
    "misfit",
    "monitor",
    "predict",
    "regressor",
    "smooth_motion",
    "verify",
]
