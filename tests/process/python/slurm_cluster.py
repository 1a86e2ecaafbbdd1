"""A Slurm of one host for a test: unshare --net --uts python3 slurm_cluster.py COMMAND... runs two tasks of it by srun.

In namespaces of its own, since its daemons listen; they trust everybody there. Needs root."""

import os
import pathlib
import subprocess
import sys
import tempfile

CONFIGURATION = """ClusterName=fairway
SlurmctldHost=localhost(127.0.0.1)
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
SelectType=select/linear
ReturnToService=2
SlurmdParameters=config_overrides
StateSaveLocation={folder}
SlurmdSpoolDir={folder}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
NodeName=localhost NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=localhost Default=YES MaxTime=5 State=UP
"""


def main(folder):
    links = ("link set lo up", "link add one type veth peer name two", "addr add 192.0.2.1/24 dev one", "link set one up", "link set two up")
    for words in links:  # with nothing but lo the resolver finds no name
        subprocess.run(["ip", *words.split()], check=True)
    subprocess.run(["hostname", "localhost"], check=True)
    file = folder / "slurm.conf"
    file.write_text(CONFIGURATION.format(folder=folder))
    environment = {**os.environ, "SLURM_CONF": str(file)}
    daemons = [subprocess.Popen([name, "-D", "-f", file], env=environment, stderr=subprocess.DEVNULL) for name in ("slurmctld", "slurmd")]
    try:
        done = subprocess.run(["srun", "-n", "2", "--immediate=30", *sys.argv[1:]], env=environment, timeout=60)
        if done.returncode:
            print(*(log.read_text() for log in folder.glob("*.log")), sep="\n", file=sys.stderr)
        return done.returncode
    finally:
        for daemon in daemons[::-1]:
            daemon.terminate()
            daemon.wait(20)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        sys.exit(main(pathlib.Path(made)))
