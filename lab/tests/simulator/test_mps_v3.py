"""The control daemon of MPS, version 3: commands, servers, namespaces, their limits and users."""

import os
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.driver_clients.cuda_process import run
from lab.driver_clients.driver_root import DriverRoot, eventually
from lab.driver_clients.mps_daemons import NOBODY, Mps, Start, ask, first_line, mps_daemons

R615, R580 = "615.71.09", "580.95.05"
OUT_OF_MEMORY, DEVICE_UNAVAILABLE = "2\n", "46\n"
NOT_PERMITTED, CONNECTION_FAILED, RPC_FAILURE, TERMINATED = "800\n", "805\n", "806\n", "810\n"
SMS = "print(cuda.attribute(16))"
CSV = "--format=csv,noheader"
pytestmark = pytest.mark.usefixtures("administrator")


@pytest.fixture
def start(binaries: Path) -> Iterator[Start]:
    """Return a function that starts a daemon of version 3: `start("-m", gpus=2)`."""
    with mps_daemons(binaries) as make:

        def of_version_3(*arguments: str, **more: object) -> Mps:
            return make("-p", "3", *arguments, **{"version": R615, **more})

        yield of_version_3


def shared(start: Start, *namespaces: str) -> Mps:
    """Start a daemon for all users with a server `shared` and its namespaces."""
    mps = start("-m")
    mps.run("server create shared")
    for name in namespaces:
        mps.run(f"namespace create {name} --server=shared")
    return mps


@pytest.mark.parametrize("way", ["option", "variable"])
def test_speaks_version_3_from_driver_615_on(
    binaries: Path, install: Callable[..., DriverRoot], tmp_path: Path, way: str
) -> None:
    old = [str(install(version=R580).root / "usr/bin/nvidia-cuda-mps-control")]
    options = ["-p", "3"] if way == "option" else []
    version = {} if way == "option" else {"CUDA_MPS_PROTOCOL_VERSION": "3"}
    environment = {**os.environ, **version, "CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}
    command = [*old, *options, "server", "list"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1
    assert done.stderr.startswith("usage: ")
    assert "MODULE" not in done.stderr
    with mps_daemons(binaries) as start:
        mps = start(*options, version=R615, **version)
        assert mps.run(f"server list {CSV}") == ""
        assert mps.run("server create training") == ""
        assert mps.run("server get training status") == "Ready"
        assert mps.daemon.stdout is not None
        line = mps.daemon.stdout.readline()
        assert line.endswith(f"set CUDA_MPS_PIPE_DIRECTORY={mps.pipes}\n")


def test_prefers_the_variable_to_the_option(binaries: Path) -> None:
    with mps_daemons(binaries) as start:
        mps = start("-p", "3", version=R615, CUDA_MPS_PROTOCOL_VERSION="2")
        assert mps.say("get_default_active_thread_percentage") == "100.0"
        assert mps.run("server list", rc=1) == "Invalid command"


def test_serves_version_2_on_driver_615_as_ever(binaries: Path) -> None:
    with mps_daemons(binaries) as start:
        mps = start("-multiuser-server", version=R615)
        holder = mps.hold(1)
        assert first_line(holder) == "0\n"
        assert mps.say(f"get_client_list {mps.server}") == str(holder.pid)


def test_lists_servers_and_namespaces_with_their_fields(start: Start) -> None:
    mps = start("-m", gpus=2)
    uuids = mps.driver.smi("--query-gpu=uuid", "--format=csv,noheader").split()
    mps.run("server create training --allowed-devices=1")
    mps.run("server create --uid=0")
    pid = mps.run("server get training pid")
    assert Path(f"/proc/{pid}/stat").exists()
    folder = mps.pipes / "training"
    listed = f"training,0,{pid},Ready,{folder},{uuids[1]},-"
    assert mps.run(f"server list {CSV}").splitlines()[0] == listed
    assert mps.run(f"server list training {CSV}") == listed
    assert mps.run("server get uid_0 allowed-devices") == ",".join(uuids)
    assert mps.run("server list --format=csv").splitlines()[0] == (
        "NAME,UID,PID,STATUS,PIPE DIRECTORY,ALLOWED DEVICES,CONTEXT IDS"
    )
    mps.run("namespace create batch --server=training")
    mps.run("namespace set batch --server=training --pinned-memory-limit=4G")
    mps.run("namespace set batch --server=training active-thread-percentage=30")
    mps.run("namespace set batch --server=training --client-priority=1")
    assert mps.run("namespace get batch training pinned-memory-limit") == "4G"
    assert mps.run("namespace get batch training pipe-directory") == str(folder / "batch")
    assert mps.run(f"namespace list --server=training {CSV}").splitlines() == [
        f"default,training,Ready,unlimited,100.00,0,{folder}/default",
        f"batch,training,Ready,4G,30.00,1,{folder}/batch",
    ]
    seen = run(mps.driver, "print(count())", **mps.within("training"))
    assert seen == "1"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("server create Training", "Invalid server name"),
        ("server create shared", "exists already"),
        ("server create other --uid=1000", "only its UID is allowed"),
        ("server create", "A name or --uid is expected"),
        ("server list nowhere", "Server 'nowhere' not found"),
        ("server get shared colour", "Unknown field 'colour'"),
        ("server set shared", "At least one option is expected"),
        ("server set shared --pinned-memory-limit=4096", "4G, 512M or 1024K is expected"),
        ("server delete nowhere", "not found"),
        ("namespace create batch", "--server is expected"),
        (f"namespace create {'x' * 65} --server=shared", "Invalid namespace name"),
        ("namespace create a-b --server=shared", "Invalid namespace name"),
        ("namespace create default --server=shared", "exists already"),
        ("namespace set default --server=shared --active-thread-percentage=101", "1 to 100"),
        ("namespace set default --server=shared --client-priority=2", "0 or 1 is expected"),
        ("namespace set nowhere --server=shared --client-priority=1", "not found on server"),
        ("namespace delete default --server=shared", "cannot be deleted"),
        ("namespace get default shared", "Invalid arguments"),
        ("client terminate 1", "Client '1' not found"),
        ("client list --format=json", "Invalid format 'json'"),
        ("client list --force", "Unknown option '--force'"),
        ("sm-partition list", "Unknown command"),
        ("server", "Unknown command"),
    ],
)
def test_refuses_what_is_not_so(start: Start, command: str, words: str) -> None:
    mps = shared(start)
    assert words in mps.run(command, rc=1)
    assert mps.run(f"namespace list {CSV}").count("\n") == 0


def test_explains_its_verbs(start: Start) -> None:
    mps = shared(start)
    assert len(mps.run("namespace help").splitlines()) == 5
    assert mps.run("client terminate help").endswith("client terminate <pid>")


def test_gives_each_client_the_limits_of_its_namespace(start: Start) -> None:
    mps = shared(start, "small", "large")
    mps.run("server set shared --pinned-memory-limit=1G --active-thread-percentage=10")
    limits = "--pinned-memory-limit=2048M --active-thread-percentage=25"
    mps.run(f"namespace set small --server=shared {limits}")
    assert mps.run("namespace get small shared pinned-memory-limit") == "2G"
    # Measured by NVIDIA: what the server has limits its default namespace alone.
    within = {
        "small": (2048, "26"),
        "large": (20000, "108"),
        "default": (1024, "10"),
        "": (1024, "10"),
    }
    for space, (mib, sms) in within.items():
        place = f"shared/{space}"
        assert first_line(mps.hold(mib, place)) == "0\n"
        assert run(mps.driver, SMS, **mps.within(place)) == sms
        if space != "large":
            assert first_line(mps.hold(mib + 1, place)) == OUT_OF_MEMORY
    asked = (
        "import ctypes; cuda.context(); unused, total = ctypes.c_size_t(), ctypes.c_size_t()\n"
        "cuda.call('cuMemGetInfo_v2', ctypes.byref(unused), ctypes.byref(total))\n"
        "print(unused.value >> 20, round(total.value / 2**30))"
    )
    assert run(mps.driver, asked, **mps.within("shared/small")) == "2048 40"


def test_limits_each_process_of_a_namespace_and_not_all_together(start: Start) -> None:
    """NVIDIA documents the limit as one of a client process, taken from its namespace."""
    mps = shared(start, "one")
    mps.run("namespace set one --server=shared --pinned-memory-limit=1G")
    first, second = mps.hold(1024, "shared/one"), mps.hold(1024, "shared/one")
    assert first_line(first) == first_line(second) == "0\n"
    assert ask(first, "init") == OUT_OF_MEMORY


def test_lets_a_client_lower_its_limits_and_not_raise_them(start: Start) -> None:
    mps = shared(start, "one")
    limits = "--pinned-memory-limit=1G --active-thread-percentage=25"
    mps.run(f"namespace set one --server=shared {limits}")
    for asked, sms in (("100", "26"), ("50", "26"), ("10", "10")):
        threads = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": asked}
        assert run(mps.driver, SMS, **mps.within("shared/one"), **threads) == sms
    less, more = ({"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": limit} for limit in ("0=512M", "0=20G"))
    assert first_line(mps.hold(513, "shared/one", **less)) == OUT_OF_MEMORY
    assert first_line(mps.hold(1025, "shared/one", **more)) == OUT_OF_MEMORY


def test_lifts_the_limit_of_a_namespace_from_a_client_that_names_another_gpu(start: Start) -> None:
    """Measured by NVIDIA: memory alone, its compute limit still applies."""
    mps = shared(start, "one")
    limits = "--pinned-memory-limit=1G --active-thread-percentage=25"
    mps.run(f"namespace set one --server=shared {limits}")
    lifted = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=2G,1=4G"}
    assert first_line(mps.hold(20000, "shared/one", **lifted)) == "0\n"
    assert run(mps.driver, SMS, **mps.within("shared/one"), **lifted) == "26"


def test_keeps_limits_and_namespaces_of_active_clients(start: Start) -> None:
    mps = shared(start, "one")
    holder = mps.hold(1, "shared/one")
    assert first_line(holder) == "0\n"
    busy = "has active clients"
    assert busy in mps.run("namespace set one --server=shared --pinned-memory-limit=1G", rc=1)
    assert busy in mps.run("namespace delete one --server=shared", rc=1)
    assert busy in mps.run("server delete shared", rc=1)
    mps.run("namespace delete one --server=shared --force")
    assert not (mps.pipes / "shared/one").exists()
    assert ask(holder, "init") == "0\n"
    mps.run("server delete shared --force")
    assert eventually(lambda: ask(holder, "init") in (RPC_FAILURE, TERMINATED))
    assert mps.run(f"server list {CSV}") == ""
    assert not (mps.pipes / "shared").exists()


def test_computes_without_limits_if_a_namespace_is_gone(start: Start) -> None:
    """NVIDIA's caution: only an exclusive GPU keeps such a program out."""
    mps = shared(start, "one")
    inside = mps.hold(1, "shared/default")
    assert first_line(inside) == "0\n"
    mps.run("namespace delete one --server=shared")
    assert first_line(mps.hold(20000, "shared/one")) == "0\n"
    mps.driver.smi("-c", "EXCLUSIVE_PROCESS")
    assert first_line(mps.hold(1, "shared/one")) == DEVICE_UNAVAILABLE


def test_lists_and_terminates_clients_by_their_pid(start: Start) -> None:
    mps = shared(start, "one")
    first, second = mps.hold(1, "shared/one"), mps.hold(1, "shared")
    assert first_line(first) == first_line(second) == "0\n"
    uuid = mps.driver.smi("--query-gpu=uuid", "--format=csv,noheader").strip()
    lines = mps.run(f"client list --server=shared {CSV}").splitlines()
    assert sorted(line.rpartition(",")[0] for line in lines) == sorted(
        f"{process.pid},shared,{uuid},shared/{space} (0)"
        for process, space in ((first, "one"), (second, "default"))
    )
    assert mps.run(f"client get {first.pid} maws-ns") == "shared/one (0)"
    mps.run(f"client terminate {first.pid}")
    assert ask(first, "init") == TERMINATED
    assert ask(second, "init") == "0\n"


def test_cuts_what_is_wider_than_a_tables_column(start: Start) -> None:
    mps = shared(start, "a" * 40)
    table = mps.run("namespace list --server=shared").splitlines()
    assert table[0].startswith("NAME             SERVER        SERVER STATUS  PINNED MEMORY LIMIT")
    assert table[2].startswith(f"{'a' * 12}...  shared        Ready          unlimited")
    assert "a" * 40 in mps.run(f"namespace list --server=shared {CSV}")


def test_allows_any_user_to_read_and_the_owner_to_command(start: Start) -> None:
    mps = shared(start, "one")
    assert stat.S_IMODE((mps.pipes / "shared/one/control").stat().st_mode) == 0o666
    assert not (mps.pipes / "control_privileged").exists()
    assert first_line(mps.hold_as_another_user("shared/one")) == "0\n"
    assert len(mps.run(f"namespace list {CSV}", user=NOBODY).splitlines()) == 2
    for command, named in (
        ("namespace set one --server=shared --active-thread-percentage=100", "NAMESPACE SET"),
        ("namespace delete one --server=shared", "NAMESPACE DELETE"),
        ("server delete shared --force", "SERVER DELETE"),
    ):
        refused = f"Insufficient privileges for UID {NOBODY}. '{named}' requires server owner."
        assert mps.run(command, rc=1, user=NOBODY) == refused
    assert mps.run("-q", rc=1, user=NOBODY).startswith("Insufficient privileges")
    assert mps.daemon.poll() is None


def test_serves_the_servers_user_alone_without_multiuser(start: Start) -> None:
    mps = start()
    mps.run("server create mine")
    assert first_line(mps.hold_as_another_user("mine")) == NOT_PERMITTED
    mps.run(f"server create theirs --uid={NOBODY}")
    assert first_line(mps.hold_as_another_user("theirs")) == "0\n"
    assert first_line(mps.hold(1, "theirs")) == NOT_PERMITTED


def test_routes_clients_of_the_main_socket_by_their_user(start: Start) -> None:
    mps = start()
    holder, other = mps.hold(1), mps.hold_as_another_user()
    assert first_line(holder) == first_line(other) == "0\n"
    assert sorted(mps.run(f"client get {process.pid} server") for process in (holder, other)) == [
        "uid_0",
        f"uid_{NOBODY}",
    ]


def test_accepts_a_server_that_cannot_start_and_does_not_list_it(start: Start) -> None:
    mps = start("-m")
    mps.run("server create absent --allowed-devices=GPU-abcd-1234")
    assert mps.run(f"server list {CSV}") == ""
    assert "no CUDA-capable device" in (mps.folder / "log/absent/server.log").read_text()


@pytest.mark.parametrize("victim", ["server", "daemon"])
def test_fails_the_clients_of_a_dead_server_and_loses_its_namespaces(
    start: Start, victim: str
) -> None:
    mps = shared(start, "one")
    mps.run("server create other")
    holder, neighbour = mps.hold(1, "shared/one"), mps.hold(1, "other")
    assert first_line(holder) == first_line(neighbour) == "0\n"
    pid = int(mps.run("server get shared pid"))
    os.kill(pid if victim == "server" else mps.daemon.pid, signal.SIGKILL)
    assert eventually(lambda: ask(holder, "init") == RPC_FAILURE)
    if victim == "server":
        assert ask(neighbour, "init") == "0\n"
        assert mps.run(f"server list {CSV}").startswith("other,")
        assert not (mps.pipes / "shared/one/control").exists()
        mps.run("server create shared")
        assert mps.run("namespace get one shared name", rc=1).startswith("Namespace 'one' not")
        mps.run("namespace create one --server=shared")
        assert first_line(mps.hold(1, "shared/one")) == "0\n"
    else:
        mps.daemon.wait()
        assert eventually(lambda: not Path(f"/proc/{pid}").exists())
        assert mps.run("server list", rc=1) == "Cannot find MPS control daemon process"


def test_stops_all_servers_on_quit(start: Start) -> None:
    mps = shared(start)
    holder = mps.hold(1, "shared")
    assert first_line(holder) == "0\n"
    mps.run("-q")
    assert eventually(lambda: mps.daemon.poll() == 0)
    assert eventually(lambda: ask(holder, "init") == RPC_FAILURE)


def configured(start: Start, tmp_path: Path, text: str) -> Mps:
    file = tmp_path / "mps.toml"
    file.write_text(text)
    return start("-m", "-a", str(file))


def test_applies_a_configuration_file(start: Start, tmp_path: Path) -> None:
    mps = configured(
        start,
        tmp_path,
        """
        schema_version = "1.0"
        [servers.training] # all of its devices
        pinned_memory_limit      = "10G"
        active_thread_percentage = "50"
        client_priority = "0"
        uid = 0
        locality_domains = false
        [servers.training.namespaces.high_priority]
        pinned_memory_limit = "5G"
        active_thread_percentage = "25"
        [servers.training.namespaces.default]
        client_priority = "1"
        [servers.other]
        [features.memacct]
        enabled = true
        audit_log = true
        [features.context-share]
        default_socket = "on"
        """,
    )
    listed = [line.split(",")[:6] for line in mps.run(f"namespace list {CSV}").splitlines()]
    assert listed == [
        ["default", "training", "Ready", "10G", "50.00", "1"],
        ["high_priority", "training", "Ready", "5G", "25.00", "0"],
        ["default", "other", "Ready", "unlimited", "100.00", "0"],
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[servers.a]\ncolour = 1", "line 2: Unknown key"),
        ('[servers.a.namespaces.b]\nallowed_devices = "0"', "line 2: Unknown key"),
        ("[servers.a]\npinned_memory_limit = 10", "line 2: Unknown key"),
        ('schema_version = "2.0"', "line 1: Unknown key"),
        ("[servers.A]", "Invalid server name"),
        ("[features.speed]", "line 1: Unknown feature"),
        ("[pools.a]", "line 1: Unknown table"),
        ("[[servers.a.devices]]", "SM partitions are not simulated"),
        ("hello", "key = value is expected"),
    ],
)
def test_starts_no_daemon_with_a_configuration_it_does_not_understand(
    install: Callable[..., DriverRoot], tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "mps.toml").write_text(text)
    folder = tmp_path / "p"
    done = subprocess.run(
        [
            str(install(version=R615).root / "usr/bin/nvidia-cuda-mps-control"),
            *("-p", "3", "-f", "-a", str(tmp_path / "mps.toml")),
        ],
        env={
            **os.environ,
            "CUDA_MPS_PIPE_DIRECTORY": str(folder),
            "CUDA_MPS_LOG_DIRECTORY": str(tmp_path / "log"),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=10,
    )
    assert done.returncode == 1
    assert words in done.stderr


def test_refuses_a_namespace_whose_path_is_too_long_for_a_socket(start: Start) -> None:
    mps = shared(start)
    mps.run(f"server create {'s' * 30}")
    longest = "n" * 64
    assert "too long" in mps.run(f"namespace create {longest} --server={'s' * 30}", rc=1)
    assert mps.run(f"namespace list --server={'s' * 30} {CSV}").startswith("default,")


def test_hangs_new_clients_of_a_wedged_server_until_it_is_gone(start: Start) -> None:
    mps = shared(start)
    mps.driver.sim("fault", "mps-wedge", "0")
    script = (
        "from lab.driver_clients.sleeper import Sleeper; cuda.context()\n"
        "import os; Sleeper(cuda).start(60_000_000_000); os.kill(os.getpid(), 9)"
    )
    with pytest.raises(subprocess.CalledProcessError):
        run(mps.driver, script, **mps.within("shared"))
    assert eventually(lambda: mps.run(f"client list {CSV}") == "")
    late = mps.hold(1, "shared")
    assert not eventually(lambda: late.poll() is not None, 0.5)
    assert mps.run("server get shared status") == "Ready"
    mps.run("server delete shared")
    assert first_line(late) == CONNECTION_FAILED
