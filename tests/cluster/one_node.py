"""A Slurm cluster of this machine alone, in a folder, for as long as it is asked for.

Debian's packages slurmctld, slurmd, slurmdbd, slurm-client, munge and mariadb-server are what it
needs; nothing of theirs is changed, and whoever starts it is the cluster's only user.
"""

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

PROGRAMS = (
    *("munged", "mungekey", "mariadbd", "mariadb-install-db"),
    *("slurmdbd", "slurmctld", "slurmd", "sbatch", "sacct", "sacctmgr"),
)

CONTROLLER = """
ClusterName=rlmem
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldParameters=enable_configless
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={ports[2]}
AccountingStoragePass={folder}/munge.socket
JobAcctGatherType=jobacct_gather/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
KillWait=5
OverTimeLimit=0
SchedulerParameters=sched_interval=2,batch_sched_delay=1
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=4000 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""

DATABASE = """
DbdHost=localhost
DbdPort={ports[2]}
SlurmUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={ports[3]}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm
"""


def missing() -> list[str]:
    """Programs of it that this machine lacks."""
    return [name for name in PROGRAMS if not _find(name)]


def _find(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class OneNode:
    """The cluster, as a context. `environment` is what its commands need.

    Args:
        folder: where everything of it lies; a short path, as sockets must have.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "OneNode":
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._stop()

    def ask(self, *command: str) -> str:
        """What a command of Slurm's prints."""
        return subprocess.run(
            command, env=self.environment, check=True, capture_output=True, text=True, timeout=60
        ).stdout

    def _start(self) -> None:
        folder, user = self.folder, getpass.getuser()
        values = {
            "folder": folder,
            "user": user,
            "host": socket.gethostname().split(".")[0],
            "ports": _free_ports(4),
            "cpus": len(os.sched_getaffinity(0)),
        }
        for name in ("state", "spool", "database"):
            (folder / name).mkdir()
        folder.chmod(0o755)  # munge trusts no folder that others may write into
        (folder / "slurm.conf").write_text(CONTROLLER.format(**values))
        (folder / "slurmdbd.conf").write_text(DATABASE.format(**values))
        (folder / "slurmdbd.conf").chmod(0o600)
        self.ask(_find("mungekey") or "", "--create", f"--keyfile={folder}/munge.key")
        names = ("socket", "pid", "log", "seed")
        self._run(
            "munged", "--foreground", f"--key-file={folder}/munge.key",
            *(f"--{n if n == 'socket' else f'{n}-file'}={folder}/munge.{n}" for n in names),
        )  # fmt: skip
        self._database(values["ports"][3])
        self._run("slurmdbd", "-D")
        self._until("sacctmgr", "--immediate", "add", "cluster", "rlmem")
        self._run("slurmctld", "-D", "-i")
        self._run("slurmd", "-D", "-N", values["host"])
        self._until("sinfo", "--noheader", "--format=%T", wanted="idle")

    def _database(self, port: int) -> None:
        data, user = self.folder / "database", getpass.getuser()
        (self.folder / "grants.sql").write_text(
            "CREATE DATABASE slurm;\n"
            "CREATE USER slurm@localhost IDENTIFIED BY 'slurm';\n"
            "GRANT ALL ON slurm.* TO slurm@localhost;\n"
        )
        subprocess.run(
            [_find("mariadb-install-db") or "", "--no-defaults", f"--datadir={data}",
             f"--user={user}", "--auth-root-authentication-method=normal", "--skip-test-db"],
            check=True, capture_output=True,
        )  # fmt: skip
        self._run(
            "mariadbd", "--no-defaults", f"--datadir={data}", f"--user={user}",
            f"--port={port}", "--bind-address=127.0.0.1", f"--socket={self.folder}/db.socket",
            f"--pid-file={self.folder}/db.pid", f"--init-file={self.folder}/grants.sql",
        )  # fmt: skip
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.2)
        raise TimeoutError("the database of the cluster does not answer")

    def _run(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.txt").open("wb") as output:
            command = [_find(name) or name, *arguments]
            self._processes.append(
                subprocess.Popen(command, env=self.environment, stdout=output, stderr=output)
            )

    def _until(self, *command: str, wanted: str = "") -> None:
        end, said = time.monotonic() + 60, ""
        while time.monotonic() < end:
            done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
            said = done.stdout + done.stderr
            if done.returncode == 0 and wanted in done.stdout:
                return
            time.sleep(0.5)
        raise TimeoutError(f"{' '.join(command)}: {said}")

    def _stop(self) -> None:
        subprocess.run(
            ["scancel", "--user", getpass.getuser()], env=self.environment, capture_output=True
        )
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
