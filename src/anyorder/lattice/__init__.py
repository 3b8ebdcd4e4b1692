"""The paper's combinatorics: mask laws, query laws, protocols and the exact training law.

Read in this order: `masks`, `query_laws`, `protocols`, `training_law` (the exact sampler),
`query_samplers` (its closed forms and its general case), `exact_weights`, `enumeration`.
"""

from anyorder.lattice import enumeration as enumeration  # the public `anyorder.enumeration`
