"""Saving: run folders with weights in safetensors and JSON, written atomically; never pickle."""
