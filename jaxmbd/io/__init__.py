"""Input and output: models, robot descriptions, measured records, labelled arrays."""

from .channels import Channel as Channel
from .csv_records import read_record as read_record
from .logs import Log as Log
from .logs import read_log as read_log
from .mjcf import MJCF as MJCF
from .mjcf import Keyframe as Keyframe
from .mjcf import from_mjcf as from_mjcf
from .mjcf_writer import WrittenMJCF as WrittenMJCF
from .mjcf_writer import to_mjcf as to_mjcf
from .model_files import load_model as load_model
from .model_files import save_model as save_model
from .urdf import from_urdf as from_urdf
from .urdf import urdf_limits as urdf_limits
from .urdf import urdf_mimics as urdf_mimics
from .urdf import urdf_shapes as urdf_shapes
from .urdf import urdf_transmissions as urdf_transmissions
from .urdf_parts import JointLimits as JointLimits
from .urdf_parts import Mimic as Mimic
from .urdf_parts import Transmission as Transmission
from .urdf_visuals import Visual as Visual
from .urdf_visuals import urdf_visuals as urdf_visuals
from .urdf_writer import to_urdf as to_urdf
from .urdf_xml import expand_xacro as expand_xacro

__all__ = [
    "MJCF",
    "Channel",
    "JointLimits",
    "Keyframe",
    "Log",
    "Mimic",
    "Transmission",
    "Visual",
    "WrittenMJCF",
    "expand_xacro",
    "from_mjcf",
    "from_urdf",
    "load_model",
    "read_log",
    "read_record",
    "save_model",
    "to_mjcf",
    "to_urdf",
    "urdf_limits",
    "urdf_mimics",
    "urdf_shapes",
    "urdf_transmissions",
    "urdf_visuals",
]
