"""The paper's tables and figures; `anyorder reproduce NAME` runs them."""
