"""A simulated GPU: C libraries with the names and symbols of the CUDA runtime, driver and NVML.

Programs that find them through ``LD_LIBRARY_PATH`` run unchanged on a machine without a GPU. The simulation
logs its calls and the simulated device's busy time, as a truth that is independent of any observer.
"""

from gputop.simgpu.library_build import ensure_built, environment, nvml_path
from gputop.simgpu.log import ProcessLog, read_log
from gputop.simgpu.trace import Trace, read_trace

__all__ = [
    "ProcessLog",
    "Trace",
    "ensure_built",
    "environment",
    "nvml_path",
    "read_log",
    "read_trace",
]
