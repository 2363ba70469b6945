"""The GPU model of a pool: one that there is data for, or what the stack file says of another."""

from divvy.model.gpu_models import GpuModel, model_or_undescribed
from divvy.model.stack import Hardware


def hardware_model(hardware: Hardware) -> GpuModel:
    """Return the GPU model of a pool's hardware; UnknownGpuModel where the file says too little."""
    return model_or_undescribed(hardware.model, hardware.memory_mib)
