"""Signals of recorded messages: MCAP and ROS bags."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rosbags.typesys import (  # pyright: ignore[reportMissingImports]
    Stores,
    get_types_from_idl,
    get_types_from_msg,
    get_typestore,
)

from ..errors import DataError
from .channels import Channel, Raw, as_channel
from .log_tables import to_stamps

PART = re.compile(r"\.?([^.\[\]]+)|\[([^\[\]]+)\]")
# Lists of the names of joints in messages, such as sensor_msgs/JointState.
NAMES = ("name", "names", "joint_names")
SECONDS, FRACTIONS = ("sec", "secs", "seconds"), ("nanosec", "nsec", "nsecs", "nanos")
CLOCKS = ("log", "publish")


class Message(NamedTuple):
    """A decoded message, with the recorder's times [ns]; `publish` is None if there is none."""

    topic: str
    content: Any
    log: int
    publish: int | None


class Part(NamedTuple):
    """A step of a path: a field of a message, or an item of a list by number or name."""

    key: str
    is_item: bool


class NoSample(Exception):
    """A message does not have a field; the argument says what it has."""


def read_mcap(path: Path, channels: Mapping[str, Channel]) -> dict[str, Raw]:
    """Signals of an MCAP file with messages of JSON, ROS 1, ROS 2 or protobuf."""
    from mcap.exceptions import McapError  # pyright: ignore[reportMissingImports]
    from mcap.reader import make_reader  # pyright: ignore[reportMissingImports]

    def messages(stream: Any, topics: Sequence[str]) -> Iterator[Message]:
        decoders: dict[int, Callable[[bytes], Any]] = {}
        reader = make_reader(stream)
        for schema, channel, message in reader.iter_messages(topics, log_time_order=False):
            if channel.id not in decoders:
                decoders[channel.id] = _decoder(path, schema, channel)
            content = decoders[channel.id](message.data)
            yield Message(channel.topic, content, message.log_time, message.publish_time)

    try:
        with path.open("rb") as stream:
            summary = make_reader(stream).get_summary()
            if summary is not None and summary.channels:
                topics = [x.topic for x in summary.channels.values()]
            else:
                topics = [x.topic for _, x, _ in make_reader(stream).iter_messages()]
            stream.seek(0)
            return _collected(path, channels, topics, lambda wanted: messages(stream, wanted))
    except McapError as error:
        raise DataError(f"{path}: cannot be read as MCAP: {error}; is it truncated?") from error


def _decoder(path: Path, schema: Any, channel: Any) -> Callable[[bytes], Any]:
    """A function from the bytes of a message to its content."""
    encoding = channel.message_encoding
    if encoding == "json":
        return json.loads
    if encoding == "protobuf":
        from mcap_protobuf.decoder import DecoderFactory  # pyright: ignore[reportMissingImports]

        decoder = DecoderFactory().decoder_for(encoding, schema)
        if decoder is not None:
            return decoder
    if encoding in ("cdr", "ros1") and schema is not None:
        store, text = get_typestore(Stores.EMPTY), schema.data.decode()
        if schema.encoding == "ros2idl":
            store.register(get_types_from_idl(text))
        else:
            store.register(get_types_from_msg(text, _with_msg(schema.name)))
        read = store.deserialize_cdr if encoding == "cdr" else store.deserialize_ros1
        return lambda data: read(data, _with_msg(schema.name))
    raise DataError(
        f"{path}: messages of {channel.topic!r} have the encoding {encoding!r}; read_log reads "
        "json, protobuf, cdr (ROS 2) and ros1"
    )


def _with_msg(name: str) -> str:
    """The name of a type as ROS 2 writes it: `sensor_msgs/msg/JointState`."""
    package, _, own = name.rpartition("/")
    return name if "/msg" in package else f"{package}/msg/{own}"


def read_bag(path: Path, channels: Mapping[str, Channel]) -> dict[str, Raw]:
    """Signals of a ROS 1 bag, or of the folder of a ROS 2 bag."""
    from rosbags.highlevel import AnyReader, AnyReaderError  # pyright: ignore[reportMissingImports]

    try:
        # A ROS 2 bag may have no definitions of its messages: those of a release are used then.
        with AnyReader([path], default_typestore=get_typestore(Stores.LATEST)) as reader:

            def messages(topics: Sequence[str]) -> Iterator[Message]:
                wanted = [x for x in reader.connections if x.topic in topics]
                for connection, stamp, data in reader.messages(wanted):
                    content = reader.deserialize(data, connection.msgtype)
                    yield Message(connection.topic, content, stamp, None)

            return _collected(path, channels, [x.topic for x in reader.connections], messages)
    except AnyReaderError as error:
        raise DataError(f"{path}: cannot be read as a bag: {error}") from error


def _collected(
    path: Path,
    channels: Mapping[str, Channel],
    topics: Iterable[str],
    messages: Callable[[Sequence[str]], Iterator[Message]],
) -> dict[str, Raw]:
    """Samples of all signals, by one pass over the messages of their topics."""
    known = sorted(set(topics))
    collectors = {name: Collector(channel, known, path) for name, channel in channels.items()}
    by_topic: dict[str, list[Collector]] = {}
    for collector in collectors.values():
        by_topic.setdefault(collector.topic, []).append(collector)
    for message in messages(list(by_topic)):
        for collector in by_topic[message.topic]:
            collector.add(message)
    return {name: collector.raw() for name, collector in collectors.items()}


class Collector:
    """Samples of one signal, from the messages of its topic."""

    def __init__(self, channel: Channel, topics: Sequence[str], source: Path):
        self.called = f"{source}: {channel.called}"
        split = [_split(path, topics, self.called) for path in channel.paths]
        self.topic = split[0][0]
        if any(topic != self.topic for topic, _ in split):
            raise DataError(f"{self.called}: the paths are of several topics")
        self.paths = [_parse(field, self.called) for _, field in split]
        clock = channel.time
        self.clock = None if clock is None else as_channel(clock, f"{source}: time")
        field = None if self.clock is None else self.clock.paths[0]
        self.of_clock = None if field in (None, *CLOCKS) else _parse(str(field), self.called)
        self.values: list[Any] = []
        self.logged: list[int] = []
        self.published: list[int | None] = []
        self.stamps: list[Any] = []  # Of the field of the clock, or of the header.
        self.are_stamps = True
        self.order: dict[int, str] = {}
        self.reason = ""

    def add(self, message: Message) -> None:
        """Add the sample of a message, if it has one.

        **Raises** `DataError` if an item is given by its number and the order of names changes.
        """
        try:
            columns = [self._value(message.content, path) for path in self.paths]
        except NoSample as error:
            self.reason = str(error)
            return
        self.values.append(columns[0] if len(columns) == 1 else columns)
        self.logged.append(message.log)
        self.published.append(message.publish)
        field = self.of_clock or (Part("header", False), Part("stamp", False))
        try:
            stamp, is_stamp = _stamp(self._value(message.content, field))
        except NoSample as error:
            if self.of_clock is not None:
                raise DataError(f"{self.called}: no time in a message: {error}") from error
            stamp, is_stamp = None, False
        self.stamps.append(stamp)
        self.are_stamps = self.are_stamps and is_stamp

    def _value(self, content: Any, path: Sequence[Part]) -> Any:
        owner = value = content
        for part in path:
            if part.is_item:
                value = self._item(value, part.key, _names(owner) or _names(content))
            else:
                owner, value = value, _field(value, part.key)
        return value

    def _item(self, values: Any, key: str, names: list[str] | None) -> Any:
        """An item of a list, by its number or by the name of a joint."""
        try:
            n = len(values)
        except TypeError as error:
            raise NoSample(f"[{key}] of a single value") from error
        if re.fullmatch(r"-?\d+", key) is None:
            if names is None:
                raise NoSample(f"there is no list {', '.join(NAMES)} beside [{key}]")
            if key not in names:
                raise NoSample(f"there is no name {key!r} in {', '.join(names)}")
            index = names.index(key)
        else:
            index = int(key)
            if names is not None and n == len(names) and -n <= index < n:
                self._check_order(index, names)
        if not -n <= index < n:
            raise NoSample(f"there are {n} items, not [{key}]")
        return values[index]

    def _check_order(self, index: int, names: list[str]) -> None:
        first = self.order.setdefault(index, names[index])
        if first != names[index]:
            raise DataError(
                f"{self.called}: item [{index}] is {first!r} in one message and {names[index]!r} "
                f"in another; use the name, as in [{first}]"
            )

    def raw(self) -> Raw:
        """The samples, in the order of the file."""
        if not self.values:
            reason = f": {self.reason}" if self.reason else ""
            raise DataError(f"{self.called}: no message of {self.topic!r} has it{reason}")
        try:
            values = np.array(self.values)
        except ValueError as error:
            raise DataError(f"{self.called}: messages have different numbers of items") from error
        if values.dtype.kind not in "fiub" or values.ndim > 2:
            raise DataError(
                f"{self.called} is no number or list of numbers but {self.values[0]!r:.80}; add a "
                "field or an item to the path"
            )
        stamps, clock = self._clock()
        return Raw(stamps, values, None, clock)

    def _clock(self) -> tuple[np.ndarray, str]:
        """Stamps of the samples, and the name of their clock."""
        if self.clock is None:
            # A stamp of zero is one that the publisher did not set.
            if self.are_stamps and all(self.stamps):
                return np.array(self.stamps, dtype="int64"), "header.stamp"
            return np.array(self.logged, dtype="int64"), "log"
        name = self.clock.paths[0]
        if self.of_clock is not None:
            numbers = np.array(self.stamps)
            if numbers.dtype.kind not in "fiu":
                raise DataError(f"{self.called}: its time {name!r} is not a number")
            if self.are_stamps:
                return numbers.astype("int64"), name
            return to_stamps(numbers, self.clock.unit or "s", f"{self.called}: time"), name
        times = self.logged if name == "log" else self.published
        if None in times:
            raise DataError(f"{self.called}: a bag has no times of publication; use time='log'")
        return np.array(times, dtype="int64"), name


def _split(path: str, topics: Sequence[str], name: str) -> tuple[str, str]:
    """Topic and field of a path; the slash before the topic may be omitted.

    **Raises** `DataError` for an unknown topic.
    """
    for topic in sorted(topics, key=len, reverse=True):
        for start in (topic, topic.removeprefix("/")):
            if path.startswith((start + ".", start + "[")):
                return topic, path[len(start) :]
    known = ", ".join(topics)
    raise DataError(f"{name}: {path!r} is not '<topic>.<field>' of a topic; there are {known}")


def _parse(field: str, name: str) -> tuple[Part, ...]:
    """The steps of a path such as `.position[elbow]`."""
    parts, end = [], 0
    for match in PART.finditer(field):
        if match.start() != end:
            break
        end = match.end()
        is_item = match.group(2) is not None
        parts.append(Part((match.group(2) if is_item else match.group(1)).strip(), is_item))
    if end != len(field) or not parts:
        raise DataError(f"{name}: {field!r} is not a path such as '.position[elbow]'")
    return tuple(parts)


def _field(message: Any, key: str) -> Any:
    if isinstance(message, Mapping):
        if key in message:
            return message[key]
        known: list[str] = [str(x) for x in message]
    elif hasattr(message, "DESCRIPTOR"):  # Protobuf.
        known = [x.name for x in message.DESCRIPTOR.fields]
        if key in known:
            return getattr(message, key)
    else:
        known = [x for x in getattr(message, "__dataclass_fields__", {}) if x != "__msgtype__"]
        if key in known:
            return getattr(message, key)
    raise NoSample(f"there is no field {key!r}; there are {', '.join(known) or 'none'}")


def _names(message: Any) -> list[str] | None:
    """The list of names of a message, if it has one."""
    for key in NAMES:
        try:
            names = list(_field(message, key))
        except (NoSample, TypeError):
            continue
        if names and all(isinstance(x, str) for x in names) and len(names[0]) > 0:
            return names
    return None


def _stamp(value: Any) -> tuple[Any, bool]:
    """Nanoseconds of a stamp with seconds and nanoseconds; other values as they are."""
    for seconds in SECONDS:
        for fraction in FRACTIONS:
            try:
                whole, rest = _field(value, seconds), _field(value, fraction)
            except NoSample:
                continue
            return int(whole) * 10**9 + int(rest), True
    return value, False
