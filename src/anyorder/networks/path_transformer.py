"""The one-pass network, two streams: what is told and what is asked are tokens of their own."""

import torch
from torch import Tensor

from anyorder.networks.path_state import PathState
from anyorder.networks.path_streams import PathStreams, Tokens


class PathTransformer(PathStreams):
    r"""Every factor of any conditional in one pass over |E| + 2|U| tokens.

    Tokens are E (evidence, values), U (query values, in canonical order) and Q (questions: which
    variable, no value)::

        E sees E;   U_k sees E, U_1..U_k;   Q_k sees E, U_1..U_{k-1} and itself;
        nothing else sees Q.

    Questions are read, not remembered, so many variables can be asked at once. No factor conditions
    on the last value of the path, so it is not told in a fused pass.

    Reference:
        Shih, Sadigh and Ermon (2022), Alg. 1 and 2, without a loop of passes.

    Example:
        >>> from anyorder.variables import Schema, Variable
        >>> schema = Schema(tuple(Variable.categorical(name, [1, 2, 3]) for name in "wxyz"))
        >>> network = PathTransformer(schema, layers=2, width=16, heads=2)
        >>> x, given = torch.tensor([[0, 1, 2, 0]]), torch.tensor([[True, False, False, False]])
        >>> network(x, query=~given, given=given, rank=torch.arange(4)).target
        tensor([1, 2, 3])
        >>> network.ask(network.encode(x, given), torch.tensor([3])).shape
        torch.Size([1, 1, 16])
    """

    def ask(self, state: PathState, variables: Tensor) -> Tensor:
        """Features of variables; see `PathNetwork.ask`."""
        told_variables, told_values = state.pending_variables, state.pending_values
        variables = variables.expand(len(told_variables), -1)
        told = self.embedding.told(told_values, told_variables)
        tokens = self._tokens(told, told_variables, variables)
        features = self._step(state, tokens, asked=variables.shape[1])
        state.length += told_variables.shape[1]
        state.pending_variables, state.pending_values = told_variables[:, :0], told_values[:, :0]
        return features

    def _path_tokens(self, x: Tensor, path: Tensor) -> tuple[Tokens, int]:
        before = path[:, :-1]
        told = self.embedding.told(x.gather(1, before), before)
        return self._tokens(told, before, path), path.shape[1]

    def _tokens(self, told: Tensor, told_variables: Tensor, asked_variables: Tensor) -> Tokens:
        """U, then Q; only U has keys."""
        hidden = torch.cat([told, self.embedding.asked(asked_variables)], dim=1)
        return Tokens(hidden, torch.cat([told_variables, asked_variables], dim=1), told_variables)
