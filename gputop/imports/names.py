"""Meaning of names in other tools: operators, Python functions, HIP calls, NCCL."""

from __future__ import annotations

import re
import sys
from typing import Final

from gputop.analysis.evidence.api_classes import OPERATOR, PYTHON, RANGE
from probes import api
from probes.activities import python_place

FRAME_KINDS: Final = (OPERATOR, RANGE, PYTHON)
# numbers that differ each time
_TAILS: Final = re.compile(r"(?:, (?:op_id|seq|sizes|input_op_ids) ?= ?(?:\[[^\n]*\]|-?\d+))+\Z")
_ADDRESS: Final = re.compile(r" (?:object )?at 0x[0-9a-f]+")
# Kineto strips the folders of sys.path, site-packages among them: these packages are not the user's program
_PACKAGES: Final = frozenset(
    """
    IPython PIL absl accelerate aiohttp albumentations anyio apex asttokens attr av bitsandbytes click
    cloudpickle colossalai compressed_tensors cupy cv2 dask datasets decord deepspeed detectron2 diffusers
    dgl dill einops fairscale fairseq fastapi fbgemm_gpu filelock flash_attn flashinfer flax fsspec gradio
    gunicorn h5py httpx huggingface_hub hydra ignite imageio ipykernel jax jaxlib jinja2 joblib kornia
    lightning lightning_fabric litellm lmdb matplotlib megatron mlflow mmcv mmdet mmengine monai mosaic
    mpi4py msgpack multiprocess networkx nltk numba numexpr numpy nvidia nvtx omegaconf onnx onnxruntime
    openai optree orjson outlines pandas peft pkg_resources polars psutil pyarrow pydantic pygments pytest
    pytorch_lightning ray regex requests rich safetensors scipy sentence_transformers sentencepiece
    setuptools sgl_kernel sglang skimage sklearn soundfile starlette streaming sympy tensorboard
    tensorboardX tensordict tensorflow tensorrt tensorrt_llm tiktoken timm tokenizers torch torch_geometric
    torchao torchaudio torchdata torchmetrics torchrec torchtext torchtitan torchvision tornado tqdm
    transformer_engine transformers triton trl typing_extensions ultralytics unsloth urllib3 uvicorn uvloop
    vllm wandb webdataset wrapt xformers xgboost yaml zmq zstandard
    """.split()  # noqa: SIM905 - a list is longer
)
_COLLECTIVES: Final = {
    "allreduce": "ncclAllReduce",
    "allgather": "ncclAllGather",
    "allgatherbase": "ncclAllGather",
    "allgatherintotensor": "ncclAllGather",
    "allgatherintotensorcoalesced": "ncclAllGather",
    "reducescatter": "ncclReduceScatter",
    "reducescatterbase": "ncclReduceScatter",
    "reducescattertensor": "ncclReduceScatter",
    "reducescattertensorcoalesced": "ncclReduceScatter",
    "alltoall": "ncclAlltoAll",
    "alltoallv": "ncclAlltoAll",
    "alltoallsingle": "ncclAlltoAll",
    "alltoallbase": "ncclAlltoAll",
    "broadcast": "ncclBroadcast",
    "reduce": "ncclReduce",
    "gather": "ncclGather",
    "scatter": "ncclScatter",
    "send": "ncclSend",
    "recv": "ncclRecv",
    "sendrecv": "ncclSend",
    "allreducecoalesced": "ncclAllReduce",
}
_NCCL_KERNEL: Final = re.compile(
    r"(?:void )?nccl(?:Dev)?Kernel_?"
    r"(AllReduce|AllGather|ReduceScatter|AllToAll|Broadcast|Reduce|SendRecv|Gather|Scatter)"
)
_SPECIAL_HIP: Final = {
    "hipMemcpyWithStream": "cudaMemcpy",
    "hipModuleLaunchKernel": "cuLaunchKernel",
    "hipExtModuleLaunchKernel": "cuLaunchKernel",
    "hipHccModuleLaunchKernel": "cuLaunchKernel",
    "hipExtLaunchKernel": "cudaLaunchKernel",
    "hipLaunchByPtr": "cudaLaunchKernel",
    "hipLaunchKernelExC": "cudaLaunchKernelExC",
    "hipDrvLaunchKernelEx": "cuLaunchKernelEx",
    "hipMemcpyHtoD": "cuMemcpyHtoD",
    "hipMemcpyDtoH": "cuMemcpyDtoH",
    "hipMemcpyDtoD": "cuMemcpyDtoD",
}
_SIZES: Final = {
    "byte": 1, "char": 1, "bool": 1, "half": 2, "bfloat16": 2, "short": 2, "int": 4, "float": 4, "long": 8,
    "double": 8,
    "float8_e5m2": 1, "float8_e4m3fn": 1, "complexfloat": 8, "complexdouble": 16,
}  # fmt: skip


def cleaned(name: str) -> str:
    """Return the name of an operator or range without parts that vary."""
    if " at 0x" in name:
        name = _ADDRESS.sub("", name)
    return _TAILS.sub("", name) if " = " in name or "op_id" in name else name


def with_folders(path: str) -> str:
    """Return a file's path with the folder that Kineto stripped: ``torch/x.py`` is in site-packages."""
    if path.startswith(("/", "<")):
        return path
    first = path.partition("/")[0].removesuffix(".py")
    if first in _PACKAGES:
        return f"/site-packages/{path}"
    return f"/lib/python3/{path}" if first in sys.stdlib_module_names else path


def python_name(name: str) -> str:
    """Return the name of a Python function, with the folders of its file."""
    place = python_place(name)
    return f"{with_folders(place[0])}({place[1]}): {place[2]}" if place else cleaned(name)


def frame_of(name: str, kind: int, *, own: bool) -> tuple[str, int, str]:
    """Return (file, line, function) of a frame.

    Args:
        name: Name of the operator, range or function.
        kind: Index in ``FRAME_KINDS``.
        own: No Python function is known, so operators stand for the program's lines.
    """
    if FRAME_KINDS[kind] == PYTHON:
        return python_place(name) or ("<built-in>", 0, name)
    return "torch" if own else "<torch>", 0, name


def cuda_name(name: str) -> str:
    """Return CUDA's name of a HIP function, if it has one."""
    if not name.startswith("hip"):
        return name
    found = _SPECIAL_HIP.get(name)
    for candidate in (found, f"cuda{name[3:]}", f"cu{name[3:]}"):
        if candidate in api.OP_OF:
            return str(candidate)
    return name


def collective_of(name: str) -> str:
    """Return the NCCL function of a framework's or kernel's name, or ""."""
    kernel = _NCCL_KERNEL.match(name)
    word = kernel[1] if kernel else name.removeprefix("nccl:").partition(" ")[0]
    return _COLLECTIVES.get(word.replace("_", "").lower(), "")


def bytes_of(count: int, dtype: str) -> int:
    """Return the bytes of so many elements; 0 for an unknown type."""
    return count * _SIZES.get(dtype.lower(), 0)
