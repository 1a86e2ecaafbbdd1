"""Ranks find each other by what a launcher says: each launcher's environment, and real ones where they are installed."""

import contextlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

import fairway
from fairway import launch

import ranks

SLURM = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "3", "SLURM_STEP_NUM_NODES": "2", "SLURM_JOB_ID": "17", "SLURM_STEP_ID": "0", "SLURM_LOCALID": "1"}
# A sanitizer's runtime is for the ranks alone: it knows no fork in a program of several threads, as Slurm's daemons are.
PRELOADED = [f"LD_PRELOAD={os.environ['LD_PRELOAD']}"] if "LD_PRELOAD" in os.environ else []
PYTHON = ["env", *PRELOADED, sys.executable]
OWN = {"FAIRWAY_JOB": f"test {os.getpid()}"}
JOINED = """
    import fairway, numpy, os
    {before}
    with fairway.Communicator.join(timeout=20.0{options}) as group:
        total = int(group.all_reduce(numpy.array([group.rank]))[0])
        assert total == group.size * (group.size - 1) // 2, total
        print(f"rank {{group.rank}} of {{group.size}}")
"""


def program(before="", options=""):
    return textwrap.dedent(JOINED).format(before=before, options=options)


class Environments(unittest.TestCase):
    def test_each_launchers_words(self):
        for words, expected in (
            ({"RANK": "1", "WORLD_SIZE": "2"}, (1, 2, "environment", True, "")),
            ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "4000"}, (1, 2, "environment", True, "127.0.0.1:4000")),
            ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "node1", "MASTER_PORT": "4000"}, (1, 2, "environment", False, "node1:4000")),
            (
                {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "x", "MASTER_ADDR": "n", "MASTER_PORT": "9"},
                (5, 8, "torchrun", False, "n:10"),
            ),
            (
                {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"},
                (2, 4, "Open MPI", True, ""),
            ),
            ({"PMI_RANK": "0", "PMI_SIZE": "3", "MPI_LOCALNRANKS": "3"}, (0, 3, "MPICH", True, "")),
            ({"PMI_RANK": "0", "PMI_SIZE": "3", "MPI_LOCALNRANKS": "1", "MASTER_ADDR": "n"}, (0, 3, "MPICH", False, "n:29511")),
            ({**SLURM, "SLURM_STEP_NODELIST": "rack[03-05,9],spare"}, (3, 4, "Slurm", False, None)),
            ({**SLURM, "SLURM_STEP_NUM_NODES": "1"}, (3, 4, "Slurm", True, "")),
            ({"JOB_COMPLETION_INDEX": "2", "WORLD_SIZE": "3", "MASTER_ADDR": "job-0.svc", "MASTER_PORT": "5"}, (2, 3, "Kubernetes", False, "job-0.svc:5")),
        ):
            found = launch.detect(words)
            self.assertEqual((found.rank, found.size, found.launcher, found.one_host), expected[:4], words)
            if expected[4] is not None:
                self.assertEqual(found.master, expected[4], words)
        slurm = launch.detect({**SLURM, "SLURM_STEP_NODELIST": "rack[03-05,9],spare"}).master
        self.assertRegex(slurm, r"^rack03:2\d{4}$")
        self.assertEqual(slurm, launch.detect({**SLURM, "SLURM_PROCID": "0", "SLURM_STEP_NODELIST": "rack[03-05,9],spare"}).master)
        for nodes, first in (("a", "a"), ("a,b", "a"), ("n[1,3]", "n1"), ("n[08-11]-ib,x", "n08-ib")):
            self.assertEqual(launch.first_host(nodes), first)

    def test_a_host_has_an_address_towards_another(self):
        for towards, own in (("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), ("::1", "[::1]"), ("[::1]", "[::1]")):
            if ":" in own and not pathlib.Path("/proc/net/if_inet6").read_text().strip():
                continue  # a machine without IPv6
            self.assertEqual(launch.own_address(towards), own)

    def test_what_is_missing_or_wrong_is_named(self):
        for words, complaint in (
            ({}, "no launcher"),
            ({"RANK": "1"}, "WORLD_SIZE"),
            ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK is no number: 'x'"),
            ({"RANK": "2", "WORLD_SIZE": "2"}, "rank 2 of 2"),
            ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK is -1"),
            ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "n"}, "MASTER_PORT"),
            ({"OMPI_COMM_WORLD_RANK": "2"}, "OMPI_COMM_WORLD_SIZE"),
            ({"JOB_COMPLETION_INDEX": "2"}, "completions"),
        ):
            with self.assertRaisesRegex(fairway.Error, complaint):
                launch.detect(words)
        several = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "192.0.2.1", "MASTER_PORT": "4000"}
        with self.assertRaisesRegex(fairway.InvalidArgument, "FAIRWAY_JOB_KEY"):
            fairway.Communicator.join(environment=several, timeout=1.0)
        mpi = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
        with self.assertRaisesRegex(fairway.InvalidArgument, "MASTER_ADDR"):
            fairway.Communicator.join(environment={**mpi, "FAIRWAY_JOB_KEY": "k"}, timeout=1.0)

    def test_an_absent_rank_is_named(self):
        with self.assertRaisesRegex(fairway.TimedOut, "ranks: 1, 2"):
            fairway.Communicator.join(environment={"RANK": "0", "WORLD_SIZE": "3", **OWN}, timeout=0.5)


class Meeting(unittest.TestCase):
    def wait_until_entered(self, process, rank):
        """Until the rank's place is this process's: what a dead one left there is not enough."""
        deadline = time.monotonic() + 20
        while process.poll() is None and time.monotonic() < deadline:
            for place in pathlib.Path(f"/dev/shm/fairway-{os.getuid()}").glob(f"*/process-{rank}"):
                with contextlib.suppress(FileNotFoundError):  # ranks of another job may have met meanwhile
                    if place.read_text().startswith(f"{process.pid} "):
                        return
            time.sleep(0.02)
        ((_, said),) = ranks.end([process], timeout=0.1)
        self.fail(f"rank {rank} did not enter: {said}")

    def test_by_hand_on_one_host(self):
        said = ranks.run(self, program(), 3, prelude="")
        self.assertEqual(said, [f"rank {rank} of 3\n" for rank in range(3)])
        self.assertFalse(any(files for _, _, files in os.walk(f"/dev/shm/fairway-{os.getuid()}") if any(name == "rank-2" for name in files)))

    def test_one_session_is_one_job_whatever_is_put_in_front(self):
        commands = "".join(f"RANK={rank} WORLD_SIZE=2 {front} {sys.executable} -c '{program()}' & " for rank, front in enumerate(("timeout 50", "nice")))
        done = subprocess.run(["setsid", "--wait", "sh", "-c", commands + "wait"], capture_output=True, text=True, timeout=60)
        # Two processes write there: their lines may run into each other.
        self.assertEqual(sorted(re.findall(r"rank \d of \d", done.stdout)), ["rank 0 of 2", "rank 1 of 2"], done.stderr)

    def test_nobody_else_gets_in(self):
        script = """
            with joined() as group, fairway.Engine() as stranger:
                try:
                    stranger.connect(group.addresses[1 - group.rank])
                    sys.exit("a stranger got in")
                except fairway.AuthenticationFailed:
                    group.barrier()
        """
        ranks.run(self, script, 2)
        with self.assertRaisesRegex(fairway.TimedOut, "rank 0"):
            fairway.Communicator.join(environment={"RANK": "1", "WORLD_SIZE": "2", **OWN}, timeout=0.5)

    def test_what_the_dead_left_is_cleared_away_and_a_second_job_is_told(self):
        killed = ranks.start("joined()", 3)
        for rank, process in enumerate(killed[:2]):  # rank 2 never comes
            self.wait_until_entered(process, rank)
            process.kill()
        killed[2].kill()
        ranks.end(killed)
        waiting = ranks.start(program(), 1, {"WORLD_SIZE": "3"}, prelude="")
        self.wait_until_entered(waiting[0], 0)
        environment = {**os.environ, "WORLD_SIZE": "3", **OWN}
        second = subprocess.run(
            [sys.executable, "-c", program()], env={**environment, "RANK": "0"}, capture_output=True, text=True, timeout=60
        )
        self.assertIn(f"process {waiting[0].pid} is rank 0", second.stderr)
        waiting += [
            subprocess.Popen([sys.executable, "-c", program()], env={**environment, "RANK": rank}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for rank in "12"
        ]
        for status, said in ranks.end(waiting):
            self.assertEqual(status, 0, said)

    def test_at_rank_0s_address(self):
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(ranks.free_port()), "FAIRWAY_JOB_KEY": "secret"}
        ranks.run(self, program(), 3, address, prelude="")

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("ip"), "needs root and ip (iproute2) for network namespaces")
    def test_two_hosts_with_one_key(self):
        one, two = (f"fairway-{os.getpid()}-{i}" for i in (1, 2))
        for name in (one, two):
            made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
            if made.returncode:
                self.skipTest(f"no network namespaces here: {made.stderr.strip()}")
            self.addCleanup(subprocess.run, ["ip", "netns", "del", name])
        subprocess.run(["ip", "link", "add", "cable", "netns", one, "type", "veth", "peer", "name", "cable", "netns", two], check=True)
        for name, address in ((one, "192.0.2.1/24"), (two, "192.0.2.2/24")):
            for words in (["addr", "add", address, "dev", "cable"], ["link", "set", "cable", "up"], ["link", "set", "lo", "up"]):
                subprocess.run(["ip", "-n", name, *words], check=True)
        address = {"MASTER_ADDR": "192.0.2.1", "MASTER_PORT": "4000", "FAIRWAY_JOB_KEY": "secret"}
        ranks.run(self, program(), 3, address, prelude="", before=lambda rank: ["ip", "netns", "exec", two if rank else one])

    def test_slurms_variables_beside_another_job(self):
        base = {name: value for name, value in SLURM.items() if name != "SLURM_PROCID"} | {"SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "2"}
        rank = "os.environ['SLURM_PROCID'] = os.environ.pop('RANK'); del os.environ['FAIRWAY_JOB']"
        groups = [ranks.start(program(rank), 2, {**base, "SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": step}, prelude="") for step in "01"]
        for group in groups:
            for status, said in ranks.end(group):
                self.assertEqual(status, 0, said)

    def launched(self, *command):
        environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "LD_PRELOAD")}
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(program())
            file.flush()
            done = subprocess.run([*command, file.name], capture_output=True, text=True, timeout=100, env=environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(sorted(re.findall("rank . of .", done.stdout)), ["rank 0 of 2", "rank 1 of 2"])

    @unittest.skipUnless(shutil.which("mpirun.openmpi"), "Open MPI is not installed (apt-get install openmpi-bin)")
    def test_open_mpis_mpirun(self):
        self.launched("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2", *PYTHON)

    @unittest.skipUnless(shutil.which("mpiexec.mpich"), "MPICH is not installed (apt-get install mpich)")
    def test_mpichs_mpiexec(self):
        self.launched("mpiexec.mpich", "-n", "2", *PYTHON)
        self.launched("mpiexec.mpich", "-n", "2", "sh", "-c", f'{shlex.join(PYTHON)} "$0"')  # behind a shell of its own

    @unittest.skipUnless(
        os.geteuid() == 0 and all(shutil.which(name) for name in ("slurmctld", "slurmd", "srun", "unshare", "ip")),
        "needs root and Slurm (apt-get install slurmctld slurmd slurm-client)",
    )
    def test_srun_of_a_real_slurm(self):
        self.launched("unshare", "--net", "--uts", sys.executable, "slurm_cluster.py", *PYTHON)

    @unittest.skipUnless(shutil.which("torchrun") or shutil.which("torch-run"), "torchrun is not installed (python3-torch)")
    def test_torchrun(self):
        self.launched(*PYTHON, "-m", "torch.distributed.run", "-r", "1", "-t", "1", "--standalone", "--nproc_per_node", "2")


if __name__ == "__main__":
    unittest.main()
