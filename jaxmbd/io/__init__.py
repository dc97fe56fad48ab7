"""Input and output: models, robot descriptions, measured records, labelled arrays."""

from .mjcf import MJCF as MJCF
from .mjcf import Keyframe as Keyframe
from .mjcf import from_mjcf as from_mjcf
from .model_files import load_model as load_model
from .model_files import save_model as save_model
from .records import read_record as read_record
from .urdf import from_urdf as from_urdf
from .urdf import urdf_limits as urdf_limits
from .urdf import urdf_mimics as urdf_mimics
from .urdf import urdf_shapes as urdf_shapes
from .urdf_parts import JointLimits as JointLimits
from .urdf_parts import Mimic as Mimic

__all__ = [
    "MJCF",
    "JointLimits",
    "Keyframe",
    "Mimic",
    "from_mjcf",
    "from_urdf",
    "load_model",
    "read_record",
    "save_model",
    "urdf_limits",
    "urdf_mimics",
    "urdf_shapes",
]
