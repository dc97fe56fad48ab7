"""Models as JSON files: components of public classes, arrays with their types, nothing executable.

A file is an object with `format`, `version` and `model`. Values are plain JSON, or an object with
one of these keys:

- `class` and `fields`: a component of a public class of jaxmbd, such as `joints.Revolute`;
- `array`, `dtype` and `shape`: an array, its numbers in row-major order;
- `function`: one of `FUNCTIONS`;
- `record`: the name of a record of measurements;
- `tuple`, `list`, `dict`, `bytes` (base64): these types of Python.

Numbers are decimals that give the same binary numbers.
"""

import base64
import binascii
import dataclasses
import functools
import importlib
import inspect
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import AnnotationError

from scalarjit.whole_files import written_whole

from ..errors import ModelError
from ..forces.abstract_controller import OutputReference
from ..model import Model
from ..model.frame import Frame, JointReference
from ..model.text_files import read_file
from ..model.values import as_direction, as_path, directions_of, is_concrete
from ..sweeps.chunks import version_of

FORMAT, VERSION = "jaxmbd model", 1
# Public modules whose classes a file may name.
MODULES = ("bodies", "joints", "forces", "signals", "tyres", "contact", "sensors", "control")
# Functions of components that a file may name.
FUNCTIONS = {"jax.numpy.tanh": jnp.tanh}
DTYPES = ("bool", "int32", "int64", "uint32", "uint64", "float32", "float64")


@functools.cache
def known_classes() -> dict[str, type]:
    """Classes that a file may name: concrete public components, by module and name."""
    references = (Frame, JointReference, OutputReference)
    found: dict[str, type] = {x.__name__: x for x in references}
    for part in MODULES:
        module = importlib.import_module(f"..{part}", __package__)
        for name in module.__all__:
            value = getattr(module, name)
            is_component = inspect.isclass(value) and issubclass(value, eqx.Module)
            if is_component and not name.startswith("Abstract"):
                found[f"{part}.{name}"] = value
    return found


# Parts of the package whose classes are options of problems of identification.
OF_PROBLEMS = ("identification", "formulations", "integrators", "nonlinear", "system")


@functools.cache
def _every_class() -> dict[str, type]:
    """Classes of `known_classes`, and those of problems of identification, by part and name.

    A model with one of the latter in place of a component is refused by `Model`.
    """
    package = importlib.import_module(__name__.partition(".")[0])
    for name in package.__all__:  # Loads the modules of all options.
        getattr(package, name)
    found, left = dict(known_classes()), [eqx.Module]
    while left:
        for cls in left.pop().__subclasses__():
            left.append(cls)
            root, _, rest = cls.__module__.partition(".")
            part = rest.partition(".")[0]
            if root == package.__name__ and part in OF_PROBLEMS and cls.__name__[0] != "_":
                # Equinox derives classes of the same name; theirs come later.
                found.setdefault(f"{part}.{cls.__name__}", cls)
    for name, value in vars(diffrax).items():
        if inspect.isclass(value) and issubclass(value, diffrax.AbstractSolver):
            found[f"diffrax.{name}"] = value
    return found


@functools.cache
def _names_of_components() -> dict[type, str]:
    return {value: name for name, value in known_classes().items()}


@functools.cache
def _names_of_classes() -> dict[type, str]:
    names: dict[type, str] = {}
    for name, value in _every_class().items():
        names.setdefault(value, name)
    return names


def save_model(model: Any, path: Any) -> None:
    """Write a model to a JSON file, which `load_model` reads with the same numbers.

    The file is complete or does not exist: it is written under another name first.

    **Raises** `ModelError`, with the path of the part, for traced numbers, for functions of Python
    instead of signals, for classes outside of jaxmbd, and for a file that cannot be written.
    """
    if not isinstance(model, Model):
        raise ModelError(f"save_model needs a Model, got a {type(model).__name__}")
    content = {
        "format": FORMAT,
        "version": VERSION,
        "jaxmbd": version_of("jaxmbd"),
        "model": encoded_model(model),
    }
    target = as_path(path, "save_model: path")
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    try:
        if target.is_dir() or target.name in ("", ".."):
            raise ModelError(f"save_model: {str(target)!r} is a folder; add the name of a file")
        if not target.parent.is_dir():
            raise ModelError(f"save_model: there is no folder {str(target.parent)!r}; make it")
        with written_whole(target) as part:
            part.write_text(text, encoding="utf-8")
    except ModelError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a path with a null character.
        raise ModelError(f"save_model: cannot write {str(target)!r}: {error}") from error


def encoded_model(model: Model) -> dict[str, Any]:
    """The components of a model as JSON, by kind and name."""
    return {
        field.name: {
            name: encoded(component, f"{field.name}.{name}")
            for name, component in getattr(model, field.name).items()
        }
        for field in dataclasses.fields(Model)
    }


def load_model(path: Any) -> Model:
    """Read a model from a file of `save_model`.

    Directions of joints become unit vectors, as by the constructors.

    **Raises** `ModelError` for a file that cannot be read, is cut short or no model, has a key
    twice, is of another version, names unknown classes or fields, or holds arrays of wrong types or
    shapes; and for a model that `Model` rejects.
    """
    caller = f"load_model: {path}"
    content = read_versioned(path, caller, (FORMAT, VERSION), "a model", "`save_model`")
    return decoded_model(content.get("model"), caller)


def decoded_model(parts: Any, caller: str) -> Model:
    """A model from `encoded_model`; errors name `caller`."""
    kinds = {field.name for field in dataclasses.fields(Model)}
    if not isinstance(parts, dict) or set(parts) != kinds:
        raise ModelError(f"{caller} must have a model with {', '.join(sorted(kinds))}")
    model = {}
    for kind, components in parts.items():
        if not isinstance(components, dict):
            raise ModelError(f"{caller}: {kind} must be components by name")
        model[kind] = {
            name: decoded(value, f"{caller}: {kind}.{name}") for name, value in components.items()
        }
    try:
        return Model(**model)
    except ModelError as error:
        raise ModelError(f"{caller}: {error}") from error


def read_json(path: Any, caller: str) -> Any:
    """The content of a JSON file. **Raises** `ModelError`, with `caller`, if it cannot be read."""
    try:
        return json.loads(
            read_file(path).decode("utf-8"), parse_constant=_refused, object_pairs_hook=_object
        )
    except ModelError as error:
        raise ModelError(f"{caller}: {error}") from error
    except (OSError, TypeError) as error:
        raise ModelError(f"{caller} cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{caller} is not complete JSON, maybe cut short: {error}") from error


def read_versioned(
    path: Any, caller: str, known: tuple[str, int], what: str, writer: str
) -> dict[str, Any]:
    """The content of a JSON file of `known` format and version. **Raises** `ModelError` otherwise.

    **Arguments:** `caller` begins the messages; `what` and `writer` are `a model` and what writes
    it.
    """
    content = read_json(path, caller)
    if not isinstance(content, dict) or content.get("format") != known[0]:
        raise ModelError(f"{caller} is not the file of {what}; {writer} writes these")
    if content.get("version") != known[1]:
        raise ModelError(
            f"{caller} has version {content.get('version')!r} of the format, this jaxmbd reads "
            f"{known[1]}; install the version that wrote it, jaxmbd {content.get('jaxmbd')}"
        )
    return content


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, of which a second value of a key would replace the first one."""
    given = dict(pairs)
    if len(given) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ModelError(f"the key {twice!r} occurs twice in one object; remove one of them")
    return given


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is not a number of JSON")


def encoded(value: Any, where: str) -> Any:
    """A value as JSON; `where` is its path in messages."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and not isinstance(value, np.generic):
        return _number(value, where)
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return _array(value, where)
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode("ascii")}
    if isinstance(value, tuple | list):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [encoded(x, f"{where}[{i}]") for i, x in enumerate(value)]}
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) for name in value):
            raise ModelError(f"save_model: {where}: keys must be texts")
        return {"dict": {name: encoded(x, f"{where}.{name}") for name, x in value.items()}}
    name = _names_of_components().get(type(value)) or _names_of_classes().get(type(value))
    if name is not None:
        fields = {}
        for field in dataclasses.fields(value):
            x, own = getattr(value, field.name), f"{where}.{field.name}"
            if isinstance(x, float | np.ndarray) and not _fits(x, field.type):
                x = jnp.asarray(x)  # Replaced by a number of Python or NumPy.
            if not _fits(x, field.type) and is_concrete(x):
                raise ModelError(
                    f"save_model: {own} must be {_in_words(field.type)}, got {_described(x)}; a "
                    "file holds one model, not a batch"
                )
            fields[field.name] = encoded(x, own)
        return {"class": name, "fields": fields}
    if type(value).__name__ == "RecordName":
        return {"record": value.text}
    for function_name, function in FUNCTIONS.items():
        if value is function:
            return {"function": function_name}
    raise ModelError(
        f"save_model: {where} is a {type(value).__name__}, which a file cannot hold: only public "
        "classes of jaxmbd, numbers and texts; for a function of time use a signal such as "
        "signals.Spline or signals.Samples"
    )


def _array(value: Any, where: str) -> dict[str, Any]:
    if not is_concrete(value):
        raise ModelError(f"save_model: {where} is traced; save the model outside of jit")
    x = np.asarray(value)
    if x.dtype.name not in DTYPES:
        raise ModelError(f"save_model: {where} has dtype {x.dtype}; possible are {DTYPES}")
    numbers = x.ravel().tolist()
    if x.dtype.kind == "f":
        numbers = [_number(number, where) for number in numbers]
    return {"array": numbers, "dtype": x.dtype.name, "shape": list(x.shape)}


def _number(value: float, where: str) -> float:
    if not math.isfinite(value):
        raise ModelError(f"save_model: {where} must be finite, got {value}")
    return value


def decoded(value: Any, where: str) -> Any:
    """A value from JSON; `where` is its path in messages."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if not isinstance(value, dict):
        raise ModelError(f"{where} is {value!r:.60}, which the format does not have")
    for keys, decode in _DECODERS.items():
        if set(value) == set(keys):
            return decode(*(value[key] for key in keys), where)
    raise ModelError(f"{where} has the unknown keys {', '.join(sorted(value)) or 'none'}")


def _decoded_class(name: Any, fields: Any, where: str) -> Any:
    cls = None
    if isinstance(name, str):
        cls = known_classes().get(name) or _every_class().get(name)
    if cls is None:
        raise ModelError(
            f"{where} is of class {name!r}, which is not a public component of this jaxmbd"
        )
    known = {field.name: field.type for field in dataclasses.fields(cls)}
    if not isinstance(fields, dict) or set(fields) != set(known):
        raise ModelError(f"{where}: a {name} has the fields {', '.join(known) or 'none'}")
    component = object.__new__(cls)
    for field, content in fields.items():
        value = decoded(content, f"{where}.{field}")
        if not _fits(value, known[field]):
            raise ModelError(
                f"{where}.{field} must be {_in_words(known[field])}, got {_described(value)}"
            )
        if field in directions_of(cls):
            value = as_direction(value, f"{where}.{field}")
        object.__setattr__(component, field, value)
    return component


def _fits(value: Any, annotation: Any) -> bool:
    """True if a value has the type and shape of a field, as far as they can be checked."""
    try:
        return isinstance(value, annotation)
    except (
        TypeError,
        NameError,
        AnnotationError,
    ):  # Such as tuple[str, ...], Callable[...], "n-1".
        return True


def _described(value: Any) -> str:
    if eqx.is_array(value):
        return f"an array of {value.dtype} and shape {value.shape}"
    return f"a {type(value).__name__}"


def _in_words(annotation: Any) -> str:
    return getattr(annotation, "__name__", str(annotation))


def _decoded_array(numbers: Any, dtype: Any, shape: Any, where: str) -> Any:
    if dtype not in DTYPES or not isinstance(numbers, list):
        raise ModelError(
            f"{where}: an array has a list of numbers and one of the dtypes {', '.join(DTYPES)}"
        )
    kinds = {"b": bool, "i": int, "u": int, "f": int | float}[np.dtype(dtype).kind]
    for x in numbers:
        if not isinstance(x, kinds) or (kinds is not bool and isinstance(x, bool)):
            raise ModelError(f"{where}: {x!r:.40} is not a {dtype}")
    sizes = isinstance(shape, list) and all(type(k) is int and k >= 0 for k in shape)
    if not sizes or math.prod(shape) != len(numbers):
        raise ModelError(f"{where}: {len(numbers)} numbers do not fill the shape {shape!r:.60}")
    if jax.dtypes.canonicalize_dtype(dtype) != np.dtype(dtype):
        raise ModelError(
            f"{where} is {dtype}, which needs jax.config.update('jax_enable_x64', True) first"
        )
    try:
        return jnp.asarray(np.array(numbers, dtype=dtype).reshape(shape))
    except OverflowError as error:
        raise ModelError(f"{where}: a number is too large for {dtype}") from error


def _decoded_function(name: Any, where: str) -> Any:
    if not isinstance(name, str) or name not in FUNCTIONS:
        raise ModelError(f"{where} names the function {name!r:.60}; known are {list(FUNCTIONS)}")
    return FUNCTIONS[name]


def _decoded_record(text: Any, where: str) -> Any:
    from ..identification.experiment import RecordName

    if not isinstance(text, str):
        raise ModelError(f"{where}: the name of a record must be a text, got {text!r:.60}")
    return RecordName(text)


def _decoded_sequence(kind: type) -> Callable[[Any, str], Any]:
    def decode(items: Any, where: str) -> Any:
        if not isinstance(items, list):
            raise ModelError(f"{where}: a {kind.__name__} needs a list")
        return kind(decoded(x, f"{where}[{i}]") for i, x in enumerate(items))

    return decode


def _decoded_dict(items: Any, where: str) -> dict[str, Any]:
    if not isinstance(items, dict):
        raise ModelError(f"{where}: a dict needs values by name")
    return {name: decoded(x, f"{where}.{name}") for name, x in items.items()}


def _decoded_bytes(text: Any, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise ModelError(f"{where}: bytes must be base64") from error


_DECODERS: dict[tuple[str, ...], Callable[..., Any]] = {
    ("class", "fields"): _decoded_class,
    ("array", "dtype", "shape"): _decoded_array,
    ("function",): _decoded_function,
    ("record",): _decoded_record,
    ("tuple",): _decoded_sequence(tuple),
    ("list",): _decoded_sequence(list),
    ("dict",): _decoded_dict,
    ("bytes",): _decoded_bytes,
}
