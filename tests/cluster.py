"""A cluster started the way users start one, on this machine: `ray up clusters/local.yaml` over machines of namespaces.

`make cluster-test` makes a head and two workers, each with a network, processes, memory, home folder and ssh server of
its own, and a fourth one that stands in for the user's laptop. From there it starts the cluster, submits a run and a
grid, cuts the cable of one worker and kills a trial on the other, fetches the results, and compares them with those of
one process; then it brings the lost worker back and stops the cluster. It wants root, openssh-server, rsync, iproute2.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from fedbench.report.scores import final_table_text
from fedbench.report.study import Study
from tests.end_to_end.commands import Process, descendants

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
HEAD, WORKERS = "head", ("worker-1", "worker-2")
ADDRESSES = {"laptop": "10.77.0.1", HEAD: "10.77.0.2", "worker-1": "10.77.0.3", "worker-2": "10.77.0.4"}
DASHBOARD = "http://localhost:8265"
TRIAL = "ray::ResourceTrainable"
"""What Ray calls a process that works on a trial."""
LIBRARIES = ("OPENBLAS_", "MKL_", "OMP_", "ATEN_")
"""How variables begin by which numerical libraries choose kernels."""
PATIENCE = 900.0
LOOK = 0.5
SMALL = ["--model", "mlp", "--model.hidden", "16", "--rounds", "60", "--checkpoint.every", "5", "--train.epochs", "2"]
GRID = ["grid", "--method", "fedcac", "--space", "method.tau=0.2,0.3,0.5,0.7", "--baselines", "fedavg-ft"]
GRID += ["--seeds", "0", "1", "--tune-seeds", "90", *SMALL]
RUN = ["run", "--method", "fedper", *SMALL]
PLACED = ["--address", "auto", "--hosts", "3", "--resources.strategy", "spread"]

SSHD = """
Port 22
HostKey {folder}/hostkey
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
StrictModes no
AuthorizedKeysFile {folder}/key.pub
PidFile none
Subsystem sftp internal-sftp
"""
BASHRC = """
export PATH={bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PYTHONPATH=/root/fedbench RAY_AUTH_MODE=disabled OMP_NUM_THREADS=1
"""
BOOT = """
set -e
mount --bind {own}/ray /tmp/ray
mount -t tmpfs -o size=3g tmpfs /dev/shm
mount --rbind {own}/home /root
mkdir -p /run/sshd
hostname {name}
exec /usr/sbin/sshd -D -e -f {folder}/sshd
"""


class Lab:
    """Machines on one cable, and a laptop at its end."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fl", dir="/tmp"))
        self.machines: dict[str, subprocess.Popen] = {}
        self._spaces: list[str] = []
        self._others: list[subprocess.Popen] = []
        Path("/tmp/ray").mkdir(exist_ok=True)
        for name in ("key", "hostkey"):
            command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name))
        (self.folder / "sshd").write_text(SSHD.format(folder=self.folder))
        (self.folder / "laptop" / "ray").mkdir(parents=True)
        self._network()

    def _network(self) -> None:
        self._space("laptop")
        self._ip("laptop", "link add br0 type bridge")
        self._ip("laptop", f"addr add {ADDRESSES['laptop']}/24 dev br0")
        self._ip("laptop", "link set br0 up")
        for name in (HEAD, *WORKERS):
            self._space(name)
            ends = ("netns", self.space(name), "type", "veth", "peer", "name", name, "netns", self.space("laptop"))
            command("ip", "link", "add", "eth0", *ends)
            self._ip(name, f"addr add {ADDRESSES[name]}/24 dev eth0")
            self._ip(name, "link set eth0 up")
            self._ip("laptop", f"link set {name} master br0")
            self.cable(name, "up")

    def space(self, name: str) -> str:
        return f"{self.folder.name}-{name}"

    def _space(self, name: str) -> None:
        command("ip", "netns", "add", self.space(name))
        self._spaces.append(self.space(name))
        self._ip(name, "link set lo up")

    def _ip(self, name: str, words: str) -> None:
        command("ip", "-n", self.space(name), *words.split())

    def cable(self, name: str, state: str) -> None:
        """`up` or `down`, at the laptop's end."""
        self._ip("laptop", f"link set {name} {state}")

    def boot(self, name: str, steps: str = BOOT) -> None:
        """A machine with the libraries and what the steps start: an ssh server, and an empty home folder."""
        own = self.folder / name
        (own / "ray").mkdir(parents=True)
        (own / "home").mkdir()
        (own / "home" / ".bashrc").write_text(BASHRC.format(bin=BIN))
        steps = steps.format(own=own, name=name, folder=self.folder)
        base = Path(sys.base_prefix).resolve()
        if base.is_relative_to("/root"):  # the interpreter is to be found where it was
            inside = own / "home" / base.relative_to("/root")
            inside.mkdir(parents=True)
            steps = steps.replace("mount --rbind", f"mount --bind {base} {inside}\nmount --rbind")
        script = own / "boot.sh"  # a file, so that no command has the names of all that it starts in its words
        script.write_text(steps)
        alone = ["unshare", "-m", "-u", "-p", "-f", "--mount-proc", "--kill-child", "bash", str(script)]
        with (own / "log").open("w") as log:
            words = ["ip", "netns", "exec", self.space(name), *alone]
            self.machines[name] = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)

    def at_laptop(self, *words: str | Path) -> list[str]:
        """A command as the laptop's user gives it."""
        steps = f'mount --bind {self.folder}/laptop/ray /tmp/ray && exec "$@"'
        alone = ["unshare", "-m", "-p", "-f", "--mount-proc", "--kill-child", "bash", "-c", steps, "bash"]
        home = ["env", f"HOME={self.folder}/laptop", f"PATH={BIN}:{os.environ['PATH']}", "RAY_AUTH_MODE=disabled"]
        return ["ip", "netns", "exec", self.space("laptop"), *home, *alone, *map(str, words)]

    def laptop(self, *words: str | Path) -> str:
        """What a command on the laptop prints. Raises RuntimeError where it fails."""
        return command(*self.at_laptop(*words))

    def begin(self, log: Path, *words: str | Path) -> subprocess.Popen:
        """A command on the laptop that stays."""
        with log.open("w") as file:
            words = self.at_laptop(*words)
            started = subprocess.Popen(words, stdout=file, stderr=file, cwd=ROOT, start_new_session=True)
        self._others.append(started)
        return started

    def running(self, name: str, word: str) -> list[Process]:
        """Processes of a machine whose command has the word in it."""
        return [p for p in descendants(self.machines[name].pid) if word in command_of(p)]

    def close(self) -> None:
        for process in [*self._others, *self.machines.values()]:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # all that is in its namespace dies with it
            process.wait()
        for space in self._spaces:
            subprocess.run(["ip", "netns", "del", space], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def command(*words: str, **more: Any) -> str:
    """What it prints. Raises RuntimeError with it where it fails."""
    done = subprocess.run(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT, **more)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.returncode}\n{done.stdout[-3000:]}")
    return done.stdout


def command_of(process: Process) -> str:
    try:
        return Path(f"/proc/{process.number}/cmdline").read_text()
    except OSError:
        return ""


def until(there: Callable[[], Any], what: str, patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not there():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {patience:g} s: {what}")
        time.sleep(LOOK)


class Said:
    """Tells what was done, with the seconds that it took."""

    def __init__(self) -> None:
        self.begun = self.last = time.monotonic()

    def __call__(self, text: str) -> None:
        now = time.monotonic()
        print(f"{now - self.begun:5.0f} s  {text} ({now - self.last:.0f} s)", flush=True)
        self.last = now


def cluster_file(lab: Lab) -> Path:
    """clusters/local.yaml with these machines, which reach no package index and have the libraries already."""
    asked = yaml.safe_load((ROOT / "clusters" / "local.yaml").read_text())
    asked["provider"] |= {"head_ip": ADDRESSES[HEAD], "worker_ips": [ADDRESSES[name] for name in WORKERS]}
    asked["auth"] = {"ssh_user": "root", "ssh_private_key": str(lab.folder / "key")}
    asked["setup_commands"] = ["python -c 'import fedbench; assert fedbench.__file__.startswith(\"/root/fedbench/\")'"]
    small = "ray start --num-cpus=1 --object-store-memory=200000000"
    own = {"head": f"{small} --node-ip-address={ADDRESSES[HEAD]}", "worker": small}
    for kind, start in own.items():
        key = f"{kind}_start_ray_commands"
        asked[key] = [line.replace("ray start", start) for line in asked[key]]
    path = lab.folder / "local.yaml"
    path.write_text(yaml.safe_dump(asked))
    return path


def alive(lab: Lab, file: Path) -> int:
    """How many machines the cluster has."""
    ask = "import ray; ray.init('auto', logging_level='ERROR'); print('alive', sum(n['Alive'] for n in ray.nodes()))"
    told = lab.laptop("ray", "exec", file, f'python -c "{ask}"')
    return int(told.rpartition("alive ")[2].split()[0])


def submit(lab: Lab, log: Path, *words: str) -> subprocess.Popen:
    return lab.begin(log, "ray", "job", "submit", "--address", DASHBOARD, "--", "fedbench", *words)


def ended(job: subprocess.Popen, log: Path) -> None:
    until(lambda: job.poll() is not None, f"the job ends; so far:\n{log.read_text()[-3000:]}")
    if job.returncode:
        raise RuntimeError(f"the job failed:\n{log.read_text()[-3000:]}")


def campaign(lab: Lab, said: Said) -> list[str]:
    """What went wrong."""
    for name in (HEAD, *WORKERS):
        lab.boot(name)
    file = cluster_file(lab)
    said("three machines with an ssh server each")
    lab.laptop("ray", "up", "-y", file)
    said("ray up")
    until(lambda: alive(lab, file) == 3, "three machines join")
    said("all machines are there")
    lab.begin(lab.folder / "dashboard.log", "ray", "dashboard", file)
    until(lambda: "version" in (answer := reached(lab)) and answer, "the dashboard is forwarded", 60)
    log = lab.folder / "run.log"
    ended(submit(lab, log, *RUN, *PLACED, "--out", "/root/results/placed"), log)
    said("ray job submit: a run on a host per machine, which said")
    print(
        "".join(
            f"           {line}\n"
            for line in log.read_text().splitlines()
            if line.startswith(("cluster:", "results and", "hosts:"))
        )
    )
    grid_with_accidents(lab, said)
    home = lab.folder / "home"
    lab.laptop("ray", "rsync-down", file, "/root/results/", f"{home}/")
    said("ray rsync-down")
    wrong = compared(lab, home)
    said("the same commands in one process, compared")
    lab.cable("worker-2", "up")
    lab.laptop("ray", "up", "-y", file)
    until(lambda: alive(lab, file) == 3, "the lost machine is back")
    said("ray up again: the lost machine is back")
    lab.laptop("ray", "down", "-y", file)
    said("ray down")
    until(
        lambda: not any(lab.running(name, "/raylet/raylet") for name in (HEAD, *WORKERS)),
        "Ray has ended everywhere",
        180,
    )
    said("Ray has ended on all machines")
    return wrong


def reached(lab: Lab) -> str:
    ask = f"import urllib.request as u; print(u.urlopen('{DASHBOARD}/api/version', timeout=5).read())"
    asked = subprocess.run(lab.at_laptop(sys.executable, "-c", ask), capture_output=True, text=True, cwd=ROOT)
    return asked.stdout


def grid_with_accidents(lab: Lab, said: Said) -> None:
    log = lab.folder / "grid.log"
    job = submit(lab, log, *GRID, "--address", "auto", "--out", "/root/results/grid")
    records = lab.folder / HEAD / "home" / "results" / "grid"
    under_way = lambda name: lab.running(name, TRIAL)  # noqa: E731
    until(lambda: all(under_way(name) for name in WORKERS), "each worker has a trial")
    until(lambda: list(records.glob("run/*/checkpoint/*")), "a trial has sent a checkpoint home")
    lab.cable("worker-2", "down")
    said("ray job submit: a grid; the cable of worker-2 is cut while it has a trial")
    until(lambda: any(process.kill() for process in under_way("worker-1")), "a trial on worker-1 is killed")
    said("a trial on worker-1 is killed")
    ended(job, log)
    said("the grid ended")
    print(log.read_text())


def compared(lab: Lab, home: Path) -> list[str]:
    """What differs between the results from the cluster and those of one process."""
    single = lab.folder / "single"
    # The machines, which ssh starts, have none of this shell's choices of kernels, which round differently.
    own = {name: value for name, value in os.environ.items() if not name.startswith(LIBRARIES)}
    here = own | {"PYTHONPATH": str(ROOT), "FEDBENCH_CACHE": str(lab.folder / "cache")}
    fedbench = (sys.executable, "-m", "fedbench")
    command(*fedbench, *RUN, "--hosts", "0", "--out", str(single / "placed"), env=here)
    command(*fedbench, *GRID, "--hosts", "0", "--trials", "1", "--out", str(single / "grid"), env=here)
    names = {str(path.relative_to(single)) for path in single.rglob("metrics.jsonl")}
    wrong = [name for name in sorted(names) if read(home / name) != read(single / name)]
    tables = [final_table_text((study := Study.load(folder / "grid")).table, study.metric) for folder in (home, single)]
    print(tables[1])
    print(f"{len(names)} runs compared to the bit")
    return wrong + (["the table of the grid"] if tables[0] != tables[1] else [])


def read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def missing() -> str | None:
    """What this machine lacks, in one line."""
    programs = {"ip": "iproute2", "unshare": "util-linux", "rsync": "rsync", "ssh-keygen": "openssh-client"}
    return lacking("cluster-test", programs | {"/usr/sbin/sshd": "openssh-server"})


def lacking(name: str, programs: dict[str, str]) -> str | None:
    """What a command of the Makefile lacks here, in one line. programs: the package of each."""
    if os.geteuid():
        return f"{name} makes network namespaces: run it as root"
    packages = [package for program, package in programs.items() if shutil.which(program) is None]
    return f"{name} needs {', '.join(packages)}: apt-get install {' '.join(packages)}" if packages else None


def main(lack: str | None, campaign: Callable[["Lab", "Said"], list[str]]) -> int:
    """Says what a campaign on machines made of namespaces found to differ. lack: why it cannot be run here."""
    if lack:
        print(lack, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the machines are taken down then too
    said, lab = Said(), Lab()
    try:
        wrong = campaign(lab, said)
    except Exception:
        for log in lab.folder.glob("*.log"):
            print(f"{log.name}:\n{log.read_text()[-3000:]}", file=sys.stderr)
        raise
    finally:
        lab.close()
    print(f"differs: {', '.join(wrong)}" if wrong else "the same bits")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(missing(), campaign))
