"""Going on with a search: what an Optuna study in the sweep's folder still lacks."""

import fcntl
from pathlib import Path
from typing import IO

from omegaconf import DictConfig

from rlmem import machine
from rlmem.run_files import lock_file

_held: list[IO[str]] = []  # the lock of the study that this process works on, until it ends


def go_on(sweeper: DictConfig, folder: Path) -> int:
    """Trials to make, of the `n_trials` that the study is to have in all.

    Trials that were cut off or failed are drawn again with the parameters that they had, so
    their runs go on in the same folders.

    Args:
        sweeper: the configuration of Hydra's Optuna sweeper.
        folder: of the sweep.
    """
    import optuna
    from optuna.trial import TrialState

    optuna.logging.set_verbosity(optuna.logging.WARNING)  # each job says itself what it came to
    wanted = int(sweeper.n_trials)
    alone = _join(folder)
    if sweeper.storage is None:
        return wanted
    try:
        study = optuna.load_study(study_name=sweeper.study_name, storage=sweeper.storage)
    except KeyError:
        return wanted  # it is new
    if alone:
        for trial in study.get_trials(deepcopy=False, states=[TrialState.RUNNING]):
            study.tell(trial.number, state=TrialState.FAIL)
    trials = study.get_trials(deepcopy=False)
    known = [t.params for t in trials if t.state in (TrialState.COMPLETE, TrialState.RUNNING)]
    known += [t.system_attrs.get("fixed_params") for t in trials if t.state == TrialState.WAITING]
    again = [t.params for t in trials if t.state == TrialState.FAIL and t.params]
    for number, params in enumerate(again):
        if params not in known and params not in again[:number]:
            study.enqueue_trial(params)
    taken = sum(t.state in (TrialState.COMPLETE, TrialState.RUNNING) for t in trials)
    return max(0, wanted - taken)


def _join(folder: Path) -> bool:
    """Say that this process works on the folder's study; whether it is the only one."""
    lock = lock_file(folder / ".study.lock")
    _held[:] = [lock]  # lets go of a study before
    try:
        machine.lock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        alone = True
    except BlockingIOError:
        alone = False
    machine.lock(lock, fcntl.LOCK_SH)
    return alone
