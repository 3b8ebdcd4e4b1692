"""Networks: tensors in, features out; no probability in here."""
