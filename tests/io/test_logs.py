"""`read_log`: files written with the libraries that define their kinds, read bit for bit."""

import json

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.io import Channel

pd = pytest.importorskip("pandas")
N = 200
RNG = np.random.default_rng(0)
TS = np.cumsum(RNG.uniform(0.004, 0.016, N))
Q = RNG.normal(size=(N, 3)) / 3
START = 1_764_320_000_123_456_789  # A stamp of today [ns], which has no exact float in seconds.
STAMPS = START + np.round(TS * 1e9).astype("int64")
JOINTS = ["base", "elbow", "wrist"]


def relative(stamps):
    return (stamps - stamps[0]) / 1e9


# Tables ------------------------------------------------------------------------------------------


def frame():
    return pd.DataFrame({"t": TS, "q1": Q[:, 0], "q2": Q[:, 1], "q3": Q[:, 2]})


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize(
    ("delimiter", "decimal"), [(",", "."), (";", "."), ("\t", "."), (";", ",")]
)
def test_text_is_read_bit_for_bit(tmp_path, encoding, delimiter, decimal):
    path = tmp_path / "run.csv"
    frame().to_csv(path, sep=delimiter, decimal=decimal, encoding=encoding, index=False)
    log = mbd.io.read_log(path, {"a": "q1", "all": ["q1", "q2", "q3"]}, time="t", decimal=decimal)
    assert np.array_equal(log["a"].values, Q[:, 0])
    assert np.array_equal(log["all"].values, Q)
    assert np.array_equal(log["a"].ts, TS)
    assert log.origin == 0


def test_text_without_header_line(tmp_path):
    path = tmp_path / "run.csv"
    frame().to_csv(path, header=False, index=False)
    with pytest.raises(mbd.DataError, match="no names; pass the names of all 4 columns"):
        mbd.io.read_log(path, {"a": "q1"}, time="t")
    log = mbd.io.read_log(path, {"a": "q1"}, time="t", header=["t", "q1", "q2", "q3"])
    assert np.array_equal(log["a"].values, Q[:, 0])


def test_parquet_and_data_frames(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "run.parquet"
    table = frame().assign(single=Q[:, 0].astype("float32"), count=np.arange(N))
    table.to_parquet(path)
    for source in (path, table):
        log = mbd.io.read_log(source, {"a": "q1", "b": "single", "c": "count"}, time="t")
        assert np.array_equal(log["a"].values, Q[:, 0])
        assert np.array_equal(log["b"].values, Q[:, 0].astype("float32"))
        assert np.array_equal(log["c"].values, np.arange(N))


def test_units_gains_and_offsets():
    table = frame()
    channels = {
        "angle": Channel("q1", unit="deg"),
        "torque": Channel("q2", unit="mA", gain=0.12, offset=0.5, limits=(-300, 300)),
        "count": Channel("q3", gain=-2 * np.pi / 4096, period=4096),
        "speed": Channel("q1", unit="rpm"),
    }
    log = mbd.io.read_log(table, channels, time="t")
    assert np.allclose(log["angle"].values, np.deg2rad(Q[:, 0]), rtol=1e-15)
    assert np.allclose(log["torque"].values, 0.12e-3 * Q[:, 1] + 0.5, rtol=1e-15)
    assert np.allclose(log["torque"].limits, (0.5 - 0.036, 0.5 + 0.036))
    assert np.isclose(log["count"].period, 2 * np.pi)
    assert np.allclose(log["speed"].values, Q[:, 0] * 2 * np.pi / 60)
    assert [log[x].unit for x in channels] == ["rad", "", "", "rad/s"]
    with pytest.raises(mbd.DataError, match="unit 'furlong' is unknown"):
        Channel("q1", unit="furlong")


def test_clocks_of_tables():
    table = frame().assign(
        ms=np.arange(N) * 5,
        ns=STAMPS,
        epoch=STAMPS / 1e9,
        date=pd.to_datetime(STAMPS, unit="ns", utc=True),
    )

    def read(time):
        return mbd.io.read_log(table, {"a": "q1"}, time=time)

    assert np.array_equal(read(Channel("ms", unit="ms"))["a"].ts, np.arange(N) * 5 / 1000)
    for log in (read(Channel("ns", unit="ns")), read("date")):
        assert np.array_equal(log["a"].ts, relative(STAMPS))
        assert log.origin == START + round(TS[0] * 1e9)
    # Floats of a Unix time resolve a quarter of a microsecond.
    assert np.allclose(read("epoch")["a"].ts, relative(STAMPS), atol=5e-7)
    log = mbd.io.read_log(table, {"a": "q1"}, rate=200.0)
    assert np.array_equal(log["a"].ts, np.arange(N) / 200.0)


def test_dates_of_text(tmp_path):
    path = tmp_path / "run.csv"
    dates = pd.to_datetime(STAMPS, unit="ns", utc=True)
    pd.DataFrame({"time": dates.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "q": Q[:, 0]}).to_csv(path)
    log = mbd.io.read_log(path, {"a": "q"})
    assert np.allclose(log["a"].ts, relative(STAMPS), atol=1.1e-6)


def test_missing_samples(tmp_path):
    path = tmp_path / "run.csv"
    path.write_text("time,q,r\n0,1,-9999\n0.1,,2\n0.2,nan,3\n0.3,inf,4\n0.4,5,5\n")
    log = mbd.io.read_log(path, {"q": "q", "r": Channel("r", missing=-9999)})
    assert log["q"].valid.tolist() == [True, False, False, False, True]
    assert log["r"].valid.tolist() == [False, True, True, True, True]
    assert "3" in str(log)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time,q\n0,1\n0,2\n0.1,3\n", "0 s in row 1 occurs twice"),
        ("time,q\n0,1\n0.2,2\n0.1,3\n", "0.1 s in row 2 follows 0.2 s"),
        ("time,q\n0,1\n0.1,x2\n", "'q' in row 1 is not a number: 'x2'"),
        ("time;q\n0;1,5\n1;2,5\n", "pass decimal=','"),
        ("time,q\n0,1\n0.1\n", "the last line has too few fields"),
        ("time,q\n0,1\n,2\n", "the time 'time' in row 1 is missing"),
        ("time,q,q\n0,1,1\n1,2,1\n", "2 columns have the name 'q'"),
        ("time,p\n0,1\n1,2\n", "no column 'q'; there are time, p"),
        ("t,q\n0,1\n1,2\n", "no column 'time'; there are t, q"),
        ("time,q\n0,\n1,\n", "none of the 2 samples is valid"),
        ("time,q\n", "needs two or more lines"),
    ],
)
def test_faults_of_text_are_named(tmp_path, text, message):
    path = tmp_path / "run.csv"
    path.write_text(text)
    with pytest.raises(mbd.DataError, match=f"run.csv.*{message}"):
        mbd.io.read_log(path, {"a": "q"})


def test_repeated_stamps_on_request(tmp_path):
    path = tmp_path / "run.csv"
    path.write_text("time,q\n0,1\n0,2\n0.1,3\n0.1,4\n0.1,5\n")
    first = mbd.io.read_log(path, {"a": "q"}, duplicates="first")["a"]
    last = mbd.io.read_log(path, {"a": "q"}, duplicates="last")["a"]
    assert first.values.tolist() == [1, 3]
    assert last.values.tolist() == [2, 5]


def test_xarray_has_a_clock_for_each_signal():
    pytest.importorskip("xarray")
    table = frame()
    table.loc[3, "q1"] = np.nan
    log = mbd.io.read_log(table, {"a": Channel("q1", unit="deg"), "b": ["q2", "q3"]}, time="t")
    dataset = log.to_xarray()
    assert dataset["a"].dims == ("time_a",)
    assert dataset["b"].dims == ("time_b", "b_component")
    assert dataset["a"].attrs["units"] == "rad"
    assert np.isnan(dataset["a"][3])
    assert np.array_equal(dataset["time_b"], TS)


# Messages ----------------------------------------------------------------------------------------

JOINT_STATE = """std_msgs/Header header
string[] name
float64[] position
float64[] velocity
float64[] effort
================================================================================
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
"""


def orders():
    """The order of joints in each message."""
    rng = np.random.default_rng(1)
    return [rng.permutation(3) for _ in range(N)]


def by_joint(log):
    return np.stack([log[name].values for name in JOINTS], axis=1)


BY_NAME = {name: f"/joint_states.position[{name}]" for name in JOINTS}


def write_json(path, permuted=True, header=True):
    from mcap.writer import Writer

    with path.open("wb") as stream:
        writer = Writer(stream)
        writer.start()
        schema = writer.register_schema("JointState", "jsonschema", b'{"type": "object"}')
        joints = writer.register_channel("/joint_states", "json", schema)
        imu = writer.register_channel("/imu", "json", schema)
        for i, order in enumerate(orders() if permuted else [range(3)] * N):
            stamp = {"sec": int(STAMPS[i] // 10**9), "nsec": int(STAMPS[i] % 10**9)}
            message = {"name": [JOINTS[k] for k in order], "position": [Q[i, k] for k in order]}
            if header:
                message["header"] = {"stamp": stamp}
            data, late = json.dumps(message).encode(), int(STAMPS[i]) + 2_000_000 + 1000 * (i % 7)
            writer.add_message(joints, late, data, late)
            if i % 4 == 0:
                data = json.dumps({"rate": {"x": Q[i, 0], "y": Q[i, 1]}, "t": TS[i]}).encode()
                writer.add_message(imu, late, data, late - 500_000)
        writer.finish()


def test_mcap_with_json(tmp_path):
    pytest.importorskip("mcap")
    pytest.importorskip("rosbags")
    path = tmp_path / "run.mcap"
    write_json(path)
    imu = ["/imu.rate.x", "/imu.rate.y"]
    log = mbd.io.read_log(path, {**BY_NAME, "gyro": imu, "own": Channel("imu.rate.x", time="log")})
    assert np.array_equal(by_joint(log), Q)
    assert np.array_equal(log["gyro"].values, Q[::4, :2])
    assert log.clocks["elbow"] == "header.stamp"
    assert log.clocks["gyro"] == log.clocks["own"] == "log"
    assert log.origin == STAMPS[0]
    assert np.array_equal(log["elbow"].ts, relative(STAMPS))
    late = STAMPS[::4] + 2_000_000 + 1000 * (np.arange(0, N, 4) % 7)
    assert np.array_equal(log["gyro"].ts, (late - STAMPS[0]) / 1e9)
    published = mbd.io.read_log(path, {"gyro": imu}, time="publish")
    assert published.origin == late[0] - 500_000
    field = mbd.io.read_log(path, {"gyro": imu}, time="t")
    assert np.array_equal(field["gyro"].ts, TS[::4])


def test_numbered_items_refuse_permuted_joints(tmp_path):
    pytest.importorskip("mcap")
    pytest.importorskip("rosbags")
    path = tmp_path / "run.mcap"
    write_json(path)
    with pytest.raises(mbd.DataError, match="use the name, as in"):
        mbd.io.read_log(path, {"a": "/joint_states.position[1]"})
    with pytest.raises(mbd.DataError, match="no name 'knee' in"):
        mbd.io.read_log(path, {"a": "/joint_states.position[knee]"})
    with pytest.raises(mbd.DataError, match="there is no field 'pos'; there are name, position"):
        mbd.io.read_log(path, {"a": "/joint_states.pos[1]"})
    with pytest.raises(mbd.DataError, match="there are /imu, /joint_states"):
        mbd.io.read_log(path, {"a": "/joints.position[1]"})
    write_json(path, permuted=False, header=False)
    log = mbd.io.read_log(path, {"a": "joint_states.position[1]", "all": "joint_states.position"})
    assert np.array_equal(log["a"].values, Q[:, 1])
    assert np.array_equal(log["all"].values, Q)
    assert log.clocks["a"] == "log"


def test_truncated_mcap_is_refused(tmp_path):
    pytest.importorskip("mcap")
    pytest.importorskip("rosbags")
    path = tmp_path / "run.mcap"
    write_json(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(mbd.DataError, match="cannot be read as MCAP"):
        mbd.io.read_log(path, BY_NAME)


def test_mcap_with_protobuf(tmp_path):
    pytest.importorskip("rosbags")
    writers = pytest.importorskip("mcap_protobuf.writer")
    from google.protobuf.struct_pb2 import ListValue, Value
    from google.protobuf.timestamp_pb2 import Timestamp

    path = tmp_path / "run.mcap"
    with path.open("wb") as stream, writers.Writer(stream) as writer:
        for i, stamp in enumerate(map(int, STAMPS)):
            numbers = ListValue(values=[Value(number_value=x) for x in Q[i]])
            writer.write_message("/joints", numbers, stamp, stamp)
            clock = Timestamp(seconds=stamp // 10**9, nanos=stamp % 10**9)
            writer.write_message("/clock", clock, stamp, stamp)
    channels = {"a": "/joints.values[2].number_value", "b": "/clock.nanos"}
    log = mbd.io.read_log(path, channels)
    assert np.array_equal(log["a"].values, Q[:, 2])
    assert np.array_equal(log["b"].values, STAMPS % 10**9)
    assert np.array_equal(log["a"].ts, relative(STAMPS))


def joint_states(store, kind):
    """Messages of `sensor_msgs/JointState` of ROS 1 or 2, whose order of joints changes."""
    types = store.types
    state, header = types["sensor_msgs/msg/JointState"], types["std_msgs/msg/Header"]
    time = types["builtin_interfaces/msg/Time"]
    for i, order in enumerate(orders()):
        stamp = time(sec=int(STAMPS[i] // 10**9), nanosec=int(STAMPS[i] % 10**9))
        extra = {"seq": i} if kind == 1 else {}
        q, empty = Q[i, order], np.zeros(0)
        yield state(
            header=header(stamp=stamp, frame_id="", **extra),
            name=[JOINTS[k] for k in order],
            position=q,
            velocity=-q,
            effort=empty,
        )


@pytest.mark.parametrize("kind", ["ros1", "ros2 sqlite", "ros2 mcap"])
def test_ros_bags(tmp_path, kind):
    pytest.importorskip("rosbags")
    from rosbags import rosbag1, rosbag2
    from rosbags.typesys import Stores, get_typestore

    one = kind == "ros1"
    store = get_typestore(Stores.ROS1_NOETIC if one else Stores.ROS2_HUMBLE)
    path, name = tmp_path / ("run.bag" if one else "run"), "sensor_msgs/msg/JointState"
    if one:
        writer = rosbag1.Writer(path)
    else:
        plugin = rosbag2.StoragePlugin.MCAP if "mcap" in kind else rosbag2.StoragePlugin.SQLITE3
        writer = rosbag2.Writer(path, version=9, storage_plugin=plugin)
    with writer:
        connection = writer.add_connection("/joint_states", name, typestore=store)
        serialize = store.serialize_ros1 if one else store.serialize_cdr
        for i, message in enumerate(joint_states(store, 1 if one else 2)):
            writer.write(connection, int(STAMPS[i]) + 3_000_000, serialize(message, name))
    signals = {**BY_NAME, "speed": Channel("/joint_states.velocity[elbow]", unit="deg/s")}
    log = mbd.io.read_log(path, signals)
    assert np.array_equal(by_joint(log), Q)
    assert np.allclose(log["speed"].values, -np.deg2rad(Q[:, 1]), rtol=1e-15)
    assert np.array_equal(log["elbow"].ts, relative(STAMPS))
    assert log.clocks["elbow"] == "header.stamp"
    assert mbd.io.read_log(path, BY_NAME, time="log").origin == STAMPS[0] + 3_000_000
    with pytest.raises(mbd.DataError, match=r"no message .* there are 0 items, not \[elbow\]"):
        mbd.io.read_log(path, {"a": "/joint_states.effort[elbow]"})
    if kind == "ros2 mcap":  # The file within the folder, without the library of bags.
        alone = mbd.io.read_log(path / "run.mcap", BY_NAME)
        assert np.array_equal(by_joint(alone), Q)
        assert np.array_equal(alone["elbow"].ts, log["elbow"].ts)


# MDF4 --------------------------------------------------------------------------------------------


@pytest.mark.long
def test_mdf(tmp_path):
    asammdf = pytest.importorskip("asammdf")
    path = tmp_path / "run.mf4"
    fast, slow = TS, TS[::5] + 0.001

    def signal(samples, ts, name, unit):
        return asammdf.Signal(samples=samples, timestamps=ts, name=name, unit=unit)

    with asammdf.MDF() as file:
        file.append([signal(Q[:, 0], fast, "q", "deg"), signal(Q[:, 1], fast, "r", "rad")])
        counts = np.arange(len(slow), dtype="int16")
        file.append([signal(counts, slow, "i", "mA"), signal(Q[::5, 2], slow, "r", "bananas")])
        file.save(path)
    channels = {
        "q": "q",
        "raw": Channel("q", unit=""),
        "i": Channel("i", gain=2.0),
        "r": "0/r",
        "s": Channel("1/r", unit=""),
    }
    log = mbd.io.read_log(path, channels)
    assert np.allclose(log["q"].values, np.deg2rad(Q[:, 0]), rtol=1e-15)
    assert np.array_equal(log["raw"].values, Q[:, 0])
    assert np.allclose(log["i"].values, 2e-3 * counts, rtol=1e-15)
    assert np.array_equal(log["r"].values, Q[:, 1])
    assert np.array_equal(log["s"].values, Q[::5, 2])
    assert np.array_equal(log["q"].ts, fast)
    assert np.array_equal(log["i"].ts, slow)
    for channel, message in (
        ("r", "use one of '0/r', '1/r'"),
        ("1/r", "unit 'bananas' is unknown"),
        ("x", "no channel 'x'; there are"),
        (["q", "i"], "have different clocks"),
    ):
        with pytest.raises(mbd.DataError, match=message):
            mbd.io.read_log(path, {"a": channel})


def test_unknown_files_are_refused(tmp_path):
    with pytest.raises(mbd.DataError, match="there is no such file"):
        mbd.io.read_log(tmp_path / "run.csv", {"a": "q"})
    (tmp_path / "run.xyz").write_text("")
    with pytest.raises(mbd.DataError, match=r"unknown kind of file '\.xyz'"):
        mbd.io.read_log(tmp_path / "run.xyz", {"a": "q"})
    with pytest.raises(mbd.DataError, match="must be the path of a file"):
        mbd.io.read_log(3.0, {"a": "q"})
