"""The paper's combinatorics: mask laws, query laws, protocols and the exact training law."""

from anyorder.lattice import enumeration as enumeration  # the public `anyorder.enumeration`
