"""NVML's refusals in words, and which of them mean that the GPU is gone."""

from __future__ import annotations

from typing import Any

import pynvml

_GARBAGE = "NVML answers what is no text: is libnvidia-ml.so.1 the driver's?"
NOT_QUERIED = "not queried yet"
NOT_WITH_MIG = "not offered while the GPU is cut into instances (MIG)"
_LOST = {
    pynvml.NVML_ERROR_GPU_IS_LOST: "the GPU is lost",
    pynvml.NVML_ERROR_RESET_REQUIRED: "the GPU has to be reset",
}
_REASONS = _LOST | {
    pynvml.NVML_ERROR_NOT_SUPPORTED: "not offered by this GPU",
    pynvml.NVML_ERROR_NO_PERMISSION: "not permitted for this user",
    pynvml.NVML_ERROR_UNKNOWN: "NVML reports an unknown error",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "not offered by this driver",
    pynvml.NVML_ERROR_NOT_FOUND: "NVML has no such figure now",
}


class RefusalError(Exception):
    """A figure is not available for a reason without a code of NVML; the message is the reason."""


# possible errors of a query to NVML; one of text is of a library that is broken, or not NVIDIA's
REFUSALS = (pynvml.NVMLError, RefusalError, AttributeError, UnicodeDecodeError)


def reason_of(error: Exception) -> str:
    """Why a figure is not to be had."""
    if isinstance(error, pynvml.NVMLError):
        code: Any = getattr(error, "value", None)
        return _REASONS.get(code) or _message(error)
    if isinstance(error, UnicodeDecodeError):
        return _GARBAGE
    if isinstance(error, AttributeError):
        return "not known to the installed nvidia-ml-py: pip install -U nvidia-ml-py"
    return str(error)


def _message(error: Exception) -> str:
    """NVML's own words."""
    try:
        return str(error)
    except UnicodeDecodeError:
        return _GARBAGE


def is_loss(error: Exception) -> bool:
    """True if an error means that the GPU answers nothing any more."""
    return isinstance(error, pynvml.NVMLError) and getattr(error, "value", None) in _LOST
