"""clusters/slurm.sbatch on a Slurm of two machines, which are made of namespaces of this one.

`make slurm-test` submits a run with a host on each, as a user does, and compares it with the same run in one process.
It wants root, and slurmctld, slurmd, slurm-client, munge, iproute2.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

from tests.cluster import ADDRESSES, BIN, HEAD, ROOT, RUN, Lab, Said, command, lacking, main, read, until

NODES = (HEAD, "worker-1")
CONF = """
ClusterName=lab
SlurmctldHost=head({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NODE = "NodeName={name} NodeAddr={address} CPUs=1 RealMemory=1000"
BOOT = """
set -e
mount --bind {own}/ray /tmp/ray
mount -t tmpfs -o size=3g tmpfs /dev/shm
for folder in /run /var/spool /etc/slurm /sys/fs/cgroup; do mount -t tmpfs tmpfs $folder; done
for kind in freezer memory cpuset cpu cpuacct devices; do
  mkdir /sys/fs/cgroup/$kind && mount -t cgroup -o $kind none /sys/fs/cgroup/$kind
done
cp {folder}/slurm.conf {folder}/cgroup.conf /etc/slurm/
mount --bind {folder}/hosts /etc/hosts
hostname {name}
mkdir -p /run/munge /var/spool/slurmctld /var/spool/slurmd
chown munge /run/munge
own="--pid-file=/run/munge/pid --log-file=/run/munge/log --seed-file=/run/munge/seed"
runuser -u munge -- munged --foreground $own &
until munge -n > /dev/null 2>&1; do sleep 0.1; done
if [ {name} = head ]; then slurmctld -D & fi
slurmd -D
"""


def slurm(lab: Lab) -> None:
    """Start it on both machines, and wait for it."""
    nodes = "\n".join(NODE.format(name=name, address=ADDRESSES[name]) for name in NODES)
    (lab.folder / "slurm.conf").write_text(CONF.format(address=ADDRESSES[HEAD], nodes=nodes))
    (lab.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    names = "".join(f"{ADDRESSES[name]} {name}\n" for name in NODES)
    (lab.folder / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
    Path("/etc/slurm").mkdir(exist_ok=True)
    for name in NODES:
        lab.boot(name, BOOT)
    until(lambda: lab.running(HEAD, "slurmctld"), "slurmctld runs", 60)
    until(lambda: idle(lab) == "2", "both machines are idle", 60)


def idle(lab: Lab) -> str:
    """How many machines wait for work; nothing while Slurm does not answer yet."""
    with suppress(RuntimeError):
        return at_head(lab, "sinfo", "-h", "-t", "idle", "-o", "%D").strip()
    return ""


def at_head(lab: Lab, *words: str) -> str:
    process = lab.running(HEAD, "slurmctld")[0].number
    environment = ["env", f"PYTHONPATH={ROOT}", "RAY_AUTH_MODE=disabled", f"PATH={BIN}:{os.environ['PATH']}"]
    return command("nsenter", "-t", str(process), "-m", "-u", "-n", "-p", f"--wd={ROOT}", *environment, *words)


def campaign(lab: Lab, said: Said) -> list[str]:
    """What went wrong."""
    slurm(lab)
    said("Slurm on two machines")
    log, out = lab.folder / "job.log", lab.folder / "out"
    asked = [*RUN, "--hosts", "2", "--resources.strategy", "spread", "--out", str(out)]
    # This Slurm knows no GPUs.
    job = at_head(lab, "sbatch", "--parsable", "--gpus-per-node=0", f"--output={log}", "clusters/slurm.sbatch", *asked)
    until(lambda: not at_head(lab, "squeue", "-h", "-j", job.strip()).strip(), "the job ends")
    said("sbatch clusters/slurm.sbatch, which said")
    text = log.read_text()
    print("".join(f"           {line}\n" for line in text.splitlines() if line.startswith(("cluster:", "hosts:"))))
    if not (out / "summary.json").exists():
        raise RuntimeError(text[-3000:])
    single = lab.folder / "single"
    here = os.environ | {"PYTHONPATH": str(ROOT), "FEDBENCH_CACHE": str(lab.folder / "cache")}
    command(sys.executable, "-m", "fedbench", *RUN, "--hosts", "0", "--out", str(single), env=here)
    said("the same run in one process, compared")
    return [] if read(single / "metrics.jsonl") == read(out / "metrics.jsonl") else ["metrics.jsonl"]


def missing() -> str | None:
    """What this machine lacks, in one line."""
    slurm = {"slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client", "munged": "munge"}
    return lacking("slurm-test", slurm | {"ip": "iproute2"})


if __name__ == "__main__":
    sys.exit(main(missing(), campaign))
