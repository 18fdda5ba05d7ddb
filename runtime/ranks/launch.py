"""Starts Hloom on MPI ranks (`hloom run F --ranks N`), and ends a rank.

The launcher finds mpiexec, starts N copies of the same command, passes signals on, and turns the outcome into one exit
code. It handles problems that were met in trials: mpiexec is not on the PATH in an environment that is not activated;
Open MPI refuses root and more ranks than cores; the mpiexec of one MPI with the library of another starts N jobs of
size 1; standard input reaches rank 0 at most; ranks times BLAS threads overload the cores. A rank writes its verdict to
a small file, because mpiexec's exit code does not distinguish a program's failure from the death of a rank. After a
failure this process ends the job, by a signal: MPI_Abort would print a report of its own.

No process outlives the one that started it: mpiexec gets SIGTERM when this process dies, and ends its ranks; a rank
ends when mpiexec, its parent, is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from ...ir.diagnostics import fail
from .cores import core_count
from .failed import EXIT_RANK_FAILED
from .hosts import HOST_FILE
from .leftovers import remove_leftovers
from .library import EXIT_MPI_MISSING, ONE_SIDED, MpiMissing, load_mpi
from .processes import status

EXPECTED_RANKS = "HLOOM_EXPECTED_RANKS"
MPIEXEC = "HLOOM_MPIEXEC"
_VERDICTS = "HLOOM_VERDICT_DIR"
_FIRST = "left"  # the file of what is left before the start
# Open MPI names the folder of a job after the number of a process. Those of jobs that were killed stay, and a later job
# with the same number fails: "The PMIx server's listener thread failed to start". So each job has a place of its own.
_SESSIONS = "PRTE_MCA_prte_local_tmpdir_base"
_TOLERANT = ("--with-ft", "ulfm")  # of Open MPI 5: ranks that are left are told, and the job goes on
_GRACE_SECONDS = 10.0  # for the job to end after a signal
_LAST_WORDS_SECONDS = 1.0  # for other ranks to fail as well
_SETTLED_SECONDS = 2.0  # for ranks to start
_PARENT_SECONDS = 0.5  # between checks that the parent is alive
_NEWS_SECONDS = 2.0  # for MPI to know which rank is lost, where another one has acted on it already
_PR_SET_PDEATHSIG = 1  # of Linux's prctl

Leave = Callable[[str, bytes], None]

_LAUNCHER_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK")
_RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_REMOTE_SHELLS = ("ssh", "rsh")
_FORWARD = "OMPI_MCA_mca_base_env_list"  # the variables that Open MPI forwards to other hosts

# Allows root and more ranks than cores, without binding ranks to cores. A mapping policy needs its unit: without
# `slot` all ranks land on the first host of a host file. MPICH ignores these.
_OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_rmaps_default_mapping_policy": "slot:oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    **ONE_SIDED,
}


def inside_launcher() -> bool:
    """Returns whether this process is already a rank. (SLURM_PROCID proves nothing: batch shells have it too.)"""
    return any(name in os.environ for name in _LAUNCHER_VARIABLES)


def started_by_hloom() -> bool:
    """Returns whether this process is a rank that `launch` started."""
    return _VERDICTS in os.environ


def find_mpiexec() -> str:
    """Returns the launcher: HLOOM_MPIEXEC, or that of this Python's environment, or that on PATH. Raises MpiMissing."""
    chosen = os.environ.get(MPIEXEC)
    if chosen:
        found = shutil.which(chosen)
        if found is None:
            raise MpiMissing(f"{MPIEXEC}={chosen} cannot be run")
        return found
    places = [sysconfig.get_path("scripts"), str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    for place in places:
        found = shutil.which("mpiexec", path=place)
        if found is not None:
            return found
    raise MpiMissing(f"mpiexec was not found; pip install 'hloom[mpi]', or set {MPIEXEC}")


def launch(
    argv: list[str], ranks: int, program: Sequence[str] = ("-m", "hloom"), left: bytes = b"", survives: bool = False,
    orderly: Sequence[int] = (), meanwhile: Callable[[Leave], None] | None = None, hosts: str = "",
) -> int:
    """Runs `python -m hloom ARGV` on this many ranks and returns the exit code of the whole.

    0, 1, 2, 65 and the like: the program's own; 69: no MPI; 75: a rank died; 128 + n: stopped by signal n. Ranks on
    this host find what is `left` for them (`left_for_ranks`). With `survives` the job goes on when a rank dies, if MPI
    can do that, and ends well if those that are left do. The first of the signals `orderly` comes to the ranks as
    SIGUSR1, and they end when they are ready. `meanwhile` runs in a thread after the first seconds of the job, and may
    leave more for ranks on this host, under names. `hosts` takes the place of the content of Open MPI's host file.
    """
    try:
        mpiexec = find_mpiexec()
        if importlib.util.find_spec("mpi4py") is None:
            raise MpiMissing("mpi4py is not installed; pip install 'hloom[mpi]'")
    except MpiMissing as error:
        print(f"hloom: error: {error}", file=sys.stderr)
        return EXIT_MPI_MISSING
    remove_leftovers()
    with tempfile.TemporaryDirectory(prefix="hloom-", ignore_cleanup_errors=True) as folder:
        environment = _environment(ranks, folder)
        if left:
            Path(folder, _FIRST).write_bytes(left)
        if hosts:
            environment[HOST_FILE] = str(Path(folder, "hosts"))
            Path(folder, "hosts").write_text(hosts)
        elif HOST_FILE not in environment and not any(map(shutil.which, _REMOTE_SHELLS)):
            environment.setdefault("OMPI_MCA_plm", "isolated")  # Open MPI 4 starts nothing without one, even here
        started = time.time()
        try:
            survives = survives and _tolerates_faults(mpiexec)
            options = [*(_TOLERANT if survives else ()), "-n", str(ranks)]
            # A session of its own: mpiexec gets a Ctrl-C once, from here, and the rest can be killed as a group.
            child = subprocess.Popen(
                [mpiexec, *options, sys.executable, "-m", "mpi4py", *program, *argv], env=environment,
                stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_end_with_parent(),
            )  # fmt: skip
        except OSError as error:
            print(f"hloom: error: {mpiexec} cannot be run: {error.strerror}", file=sys.stderr)
            return EXIT_MPI_MISSING
        with _running(meanwhile, Path(folder)):
            code, stopped_by = _follow(child, Path(folder), orderly)
        remove_leftovers(since=started)
        if stopped_by:
            return 128 + stopped_by
        if code < 0:
            print(f"hloom: error: {mpiexec} was ended by {signal.Signals(-code).name}", file=sys.stderr)
        verdicts = _verdicts(folder)
        if survives and verdicts:
            code = 0
        elif len(list(Path(folder).glob("process*"))) > len(verdicts):
            code = code or EXIT_RANK_FAILED  # mpiexec gives 0 where it has lost the daemon of a host
        return _outcome(code, verdicts)


@contextlib.contextmanager
def _running(work: Callable[[Leave], None] | None, folder: Path) -> Generator[None]:
    """Runs some work in a thread during the block, once the job has started."""
    ended = threading.Event()

    def leave(name: str, data: bytes) -> None:
        with contextlib.suppress(OSError):  # of a job that has ended
            (folder / f"part-{name}").write_bytes(data)
            (folder / f"part-{name}").rename(folder / name)

    def run() -> None:
        if work is not None and not ended.wait(_SETTLED_SECONDS):
            work(leave)

    thread = threading.Thread(target=run, name="hloom-meanwhile", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_LAST_WORDS_SECONDS)


def _tolerates_faults(mpiexec: str) -> bool:
    """Returns whether a launcher knows the options of Open MPI for jobs that go on without a rank."""
    asked = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, check=False)
    return "Open MPI" in asked.stdout


def _environment(ranks: int, folder: str) -> dict[str, str]:
    environment = dict(os.environ)
    environment.update({EXPECTED_RANKS: str(ranks), _VERDICTS: folder})
    environment.setdefault(_SESSIONS, folder)
    for name, value in _OPEN_MPI.items():
        environment.setdefault(name, value)
    for name in _THREAD_VARIABLES:
        environment.setdefault(name, str(max(1, core_count() // ranks)))
    theirs = [name for name in environment if name.startswith("HLOOM_") or name in (*_THREAD_VARIABLES, "PYTHONPATH")]
    environment[_FORWARD] = ";".join([*filter(None, [environment.get(_FORWARD)]), *theirs])
    return environment


def _follow(child: subprocess.Popen[bytes], folder: Path, orderly: Sequence[int]) -> tuple[int, int]:
    """Returns the exit code of a job, and the signal that this process received and passed on (0: none)."""
    received: list[int] = []
    ending: list[int] = []  # those of them that end the job at once

    def forward(number: int, _: FrameType | None) -> None:
        is_first = number in orderly and not received
        received.append(number)
        if is_first:
            child.send_signal(signal.SIGUSR1)
        else:
            ending.append(number)
            child.send_signal(signal.SIGTERM if number in orderly else number)

    handled = {signal.SIGINT, signal.SIGTERM, *orderly}
    before = {number: signal.signal(number, forward) for number in handled}
    try:
        _wait_for_job(child, folder, ending)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _end(child, folder)
    return child.wait(), received[0] if received else 0


def _wait_for_job(child: subprocess.Popen[bytes], folder: Path, received: list[int]) -> None:
    """Waits for the end of the job. After a signal or a failed rank, waits only as long as an orderly end may take."""
    failed_at = stopped_at = float("inf")
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=0.1)
            return
        now = time.monotonic()
        if any(_verdicts(folder).values()):
            failed_at = min(failed_at, now)
        if received or now - failed_at > 2 * _LAST_WORDS_SECONDS:
            if stopped_at == float("inf") and not received:
                child.terminate()
            stopped_at = min(stopped_at, now)
        if now - stopped_at > _GRACE_SECONDS:
            return


def _end_with_parent() -> Callable[[], None] | None:
    """Returns the function that makes a child process receive SIGTERM when this process dies (Linux only)."""
    if not sys.platform.startswith("linux"):
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before the request
            os._exit(EXIT_RANK_FAILED)

    return ask


def _end(child: subprocess.Popen[bytes], folder: Path) -> None:
    """Kills the remaining processes of the job: none, after an orderly end. mpiexec may end before its ranks do."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    noted = [(int(file.read_text()), folder / file.name.replace("process", "rank")) for file in folder.glob("process*")]
    for process, verdict in noted:
        if not verdict.exists():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
    end = time.monotonic() + _LAST_WORDS_SECONDS
    while any(status(process) not in ("", "Z") for process, _ in noted) and time.monotonic() < end:
        time.sleep(0.01)  # until they have given their memory back


def _verdicts(folder: str | Path) -> dict[int, int]:
    """Returns the exit codes that ranks have recorded."""
    return {int(path.name.removeprefix("rank")): int(path.read_text()) for path in Path(folder).glob("rank*")}


def _outcome(code: int, verdicts: dict[int, int]) -> int:
    failed = [verdict for _, verdict in sorted(verdicts.items()) if verdict]
    if failed:
        return failed[0]
    return 0 if code == 0 else EXIT_RANK_FAILED


def world(expected: int | None = None) -> Any:
    """Returns the communicator of all ranks. Raises MpiMissing if MPI cannot be used or does not have the expected
    size, CompileError if another launcher has started another number.

    Without `expected` the size that the launcher announced is expected; without Hloom's launcher, any size.
    """
    comm = load_mpi().COMM_WORLD
    announced = os.environ.get(EXPECTED_RANKS)
    wanted = expected if expected is not None else int(announced) if announced else comm.size
    if comm.size != wanted and announced is None and comm.size > 1:
        fail(f"{wanted} ranks are asked for, and the launcher has started {comm.size}", help="leave out --ranks")
    if comm.size != wanted:
        library = load_mpi().Get_library_version().splitlines()[0].strip(" \0")
        raise MpiMissing(
            f"{wanted} ranks were started, but MPI has {comm.size}: mpiexec and the library of mpi4py "
            f"({library}) do not belong to the same MPI; set {MPIEXEC}"
        )
    return comm


def left_for_ranks(name: str = _FIRST) -> bytes:
    """Returns the launcher's data of a name for the ranks; nothing on another host, or without Hloom's launcher, or as
    long as it has left none.
    """
    path = Path(os.environ.get(_VERDICTS, "/dev/null"), name)
    return path.read_bytes() if path.exists() else b""


def finish_rank(main: Callable[[], int]) -> int:
    """Runs the main function of a rank, records its exit code for the launcher, and returns the exit code of the
    process.

    A failure stops the other ranks too, which may be waiting for this one. An exception is not a verdict: it ends the
    job like a death. The rank also ends when the process that started it does.
    """
    threading.Thread(target=_follow_parent, args=(os.getppid(),), name="hloom-parent", daemon=True).start()
    ours = _VERDICTS in os.environ
    folder = Path(os.environ.get(_VERDICTS, ""))
    here = ours and folder.is_dir()  # else this is another host
    if here:
        _leave_note(folder, "process", os.getpid())
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    if here:
        _leave_note(folder, "rank", code)
        if not code and _lost:
            os._exit(0)  # the end of MPI would wait for the lost ranks
    all_failed = here and bool(code) and _all_left_verdicts(folder)
    if code and not all_failed and "mpi4py.MPI" in sys.modules and load_mpi().COMM_WORLD.size > 1:
        # Hloom's launcher ends the job without a report of MPI's. Under another launcher the failed rank reports first.
        time.sleep(_GRACE_SECONDS if ours else _LAST_WORDS_SECONDS)
        load_mpi().COMM_WORLD.Abort(code)
    # The verdict is recorded, so mpiexec must not see the failure: it would only add its own report.
    return 0 if here else code


def survivors(comm: Any, others: Sequence[Any] = ()) -> Any:
    """Returns a communicator of the ranks that are left, in their order, after MPI has reported that some of `comm` are
    lost; None if it knows of none, or if the job does not go on without them. All that are left must call it; those
    that wait on `others` are told.
    """
    global _lost
    mpi, end = load_mpi(), time.monotonic() + _NEWS_SECONDS
    try:
        while not (comm.Get_failed().Get_size() or comm.Is_revoked()):
            if time.monotonic() > end:
                return None
            with contextlib.suppress(mpi.Exception):
                comm.Iprobe()  # news comes while MPI is called
            time.sleep(0.001)
        for waited in (comm, *others):
            with contextlib.suppress(mpi.Exception):
                waited.Revoke()
        _lost = True
        return comm.Shrink()
    except (mpi.Exception, NotImplementedError, AttributeError):  # an MPI without fault tolerance
        return None


_lost = False  # whether this rank has gone on without others


def process_state(rank: int) -> str:
    """Tells that the process of a rank on this host is stopped, or gone; nothing where that is not known."""
    note = Path(os.environ.get(_VERDICTS, ""), f"process{rank}")
    if not note.is_file():
        return ""
    found = status(int(note.read_text()))
    return ": its process is gone" if not found else ": its process is stopped" if found in "Tt" else ""


def _follow_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_SECONDS)
    os._exit(EXIT_RANK_FAILED)


def _leave_note(folder: Path, what: str, number: int) -> None:
    """Writes a number to the file of this rank: `processN` its process, `rankN` its verdict."""
    name = next((os.environ[n] for n in _RANK_VARIABLES if n in os.environ), "0")
    part = folder / f"part{name}"
    part.write_text(str(number))
    part.rename(folder / f"{what}{name}")  # renamed, so that readers see complete files only


def _all_left_verdicts(folder: Path) -> bool:
    """Returns whether every rank ends within a moment, as when all fail alike."""
    ranks = int(os.environ.get(EXPECTED_RANKS, "0"))
    deadline = time.monotonic() + _LAST_WORDS_SECONDS
    while len(list(folder.glob("rank*"))) < ranks:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
