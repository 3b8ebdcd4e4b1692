"""Tables and figures of the paper; `anyorder reproduce NAME` runs them."""
