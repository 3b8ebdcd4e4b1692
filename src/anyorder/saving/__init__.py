"""Saving: run folders with weights in safetensors and the rest in JSON, atomic; never pickle."""
