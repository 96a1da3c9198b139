"""The retry policy: how often dead processes are started again, and how long to wait."""

RAY_START = 3
"""Attempts to start Ray: on a busy machine its processes exceed each other's time limits."""
RAY = 5
"""Deaths of the Ray started by this process at which the run or study gives up."""
DRIVER = 5
"""Deaths of a run's driver actor at which the run gives up."""
HOST = 5
"""Deaths of a host in one step of an exchange at which the run gives up."""
LOST_STATES = 5
"""Losses of private states without a newer checkpoint in between at which the run gives up."""
TRIAL = 3
"""Restarts by Ray Tune of a trial whose process died."""
GPU_MEMORY = 6
"""Repetitions of a trial for which its share of a GPU was too small, each with twice the share, up to a whole GPU."""

WAIT_FOR_PLACES = 600.0
"""Seconds to wait for places on a cluster, for a host to start, and for the driver to answer."""
WAIT_BEFORE_WARNING = 20.0
"""Seconds without an answer from the driver before the user is warned and Ray is asked whether its machine is alive."""
WAIT_FOR_COMMAND = 10.0
"""Seconds for the processes of a killed command to leave its folder."""
WAIT_FOR_DRIVER = 60.0
"""Seconds for the driver of a killed command to end."""
WAIT_FOR_GPUS = 60.0
"""Seconds for the machines of a cluster to say how much memory their GPUs have."""
