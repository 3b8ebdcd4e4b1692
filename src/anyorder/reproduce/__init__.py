"""The paper's tables and figures, one module each; `anyorder reproduce NAME` runs them."""
