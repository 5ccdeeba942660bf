"""Dask: workers that are processes and may be killed, a scheduler at an address, scripts of job queues."""

import os
import signal
import threading
import time

import pytest

import warpfactor as wf
from people import volumes
from serial import use_serial
from small import QUICK
from warpfactor.cohort.engine import engine as dask_engine
from warpfactor.cohort.engine.settings import EngineSettings

distributed = pytest.importorskip("distributed", reason="the extra `cohort` is not installed")
# Sockets and event loops that a killed process leaves behind are Dask's; their warnings are not about our code.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def kill_workers_of(cluster, folder):
    """Kill every worker once, with signal 9, as soon as one of them has begun to work on a row."""
    claims = folder / ".cohort" / "claims"
    until = time.monotonic() + 60
    while time.monotonic() < until and not (claims.is_dir() and any(claims.iterdir())):
        time.sleep(0.01)
    for worker in cluster.workers.values():
        os.kill(worker.process.pid, signal.SIGKILL)


def test_killed_workers_lose_nothing_and_results_stay_the_same(people, tmp_path, monkeypatch):
    """Through the address of a scheduler, which stands for any cluster; the reference is made in this process."""
    monkeypatch.setattr("warpfactor.checks.examine.align", lambda *_: None)
    with dask_engine.open_engine(EngineSettings(workers=1), need_bytes=1, jobs=9) as engine:
        cluster = engine._cluster
        killer = threading.Thread(target=kill_workers_of, args=(cluster, tmp_path / "out"))
        killer.start()
        there = EngineSettings(scheduler=cluster.scheduler_address)
        frame = wf.cohort.run(people / "table.csv", tmp_path / "out", overrides=QUICK, engine=there)
        killer.join()
        assert engine.workers() == 1
    assert list(frame["state"]) == ["done"] * 3
    assert not list((tmp_path / "out").glob(".*-p*")), "nothing of the killed worker is left"
    use_serial(monkeypatch)
    wf.cohort.run(people / "table.csv", tmp_path / "calm", overrides=QUICK)
    for name in frame["name"]:
        assert volumes(tmp_path / "out" / name) == volumes(tmp_path / "calm" / name)


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("slurm", ("#SBATCH --cpus-per-task=3", "#SBATCH --mem=4G", "#SBATCH -p short", "#SBATCH -t 02:00:00")),
        ("pbs", ("#PBS -q short", "#PBS -l walltime=02:00:00")),
        ("sge", ("#$ -q short", "#$ -l h_rt=02:00:00")),
        ("lsf", ("#BSUB -q short", "#BSUB -n 3", "#BSUB -W 02:00")),
    ],
)
def test_the_script_of_a_job_queue(kind, lines, tmp_path):
    pytest.importorskip("dask_jobqueue")
    config = tmp_path / "jobqueue.yaml"
    walltime = "02:00" if kind == "lsf" else "02:00:00"
    config.write_text(f"jobqueue:\n  {kind}:\n    queue: short\n    walltime: '{walltime}'\n")
    settings = EngineSettings(workers=4, threads_per_worker=3, jobqueue=kind, jobqueue_config=config)
    with dask_engine.jobqueue_cluster(settings, need_bytes=int(3.3 * 2**30)) as cluster:
        script = cluster.job_script()
    for line in (*lines, "--nthreads 3", "--resources registration=1"):
        assert line in script, script
