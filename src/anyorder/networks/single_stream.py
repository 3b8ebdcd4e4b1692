"""The one-pass network, one stream: a token carries its value and the question that comes next."""

import torch
from torch import Tensor, nn

from anyorder.networks.embedding import INITIAL_SCALE
from anyorder.networks.path_state import PathState
from anyorder.networks.path_streams import PathStreams, Tokens


class SingleStreamPathTransformer(PathStreams):
    r"""Every factor of any conditional in one pass over |E| + |U| tokens.

    Token k of the path carries variable k, its value, and variable k + 1, which it predicts; token
    0 carries the first question only. It looks from the position of what it predicts and is seen at
    its own. Half the tokens of two streams, but a question is part of the path: when several
    variables are asked at once, each is a path of its own.
    """

    asks_many = False

    def _add_parts(self) -> None:
        self.next = None
        if self.positions != "rotary":
            # A table of its own: the sum of two rows of one would not say which is asked.
            self.next = nn.Embedding(self.embedding.num_variables, self.width)
            nn.init.normal_(self.next.weight, std=INITIAL_SCALE)

    def ask(self, state: PathState, variables: Tensor) -> Tensor:
        """Features of variables; see `PathNetwork.ask`."""
        told_variables, told_values = state.pending_variables, state.pending_values
        variables = variables.expand(len(told_variables), -1)
        if variables.shape[1] != 1:
            return self._ask_each(state, variables)
        # Token 0, which asks for the first variable of the path, is never among the pending ones.
        begins = state.length == 0
        asked = torch.cat([told_variables if begins else told_variables[:, 1:], variables], dim=1)
        told = self.embedding.told(told_values, told_variables)
        tokens = self._tokens(told, told_variables, asked)
        features = self._step(state, tokens, asked=1)
        # The last token may still be asked something else: it stays pending until ``tell``.
        state.length += asked.shape[1] - 1
        state.pending_variables, state.pending_values = told_variables[:, -1:], told_values[:, -1:]
        state.asked = variables
        return features

    def _ask_each(self, state: PathState, variables: Tensor) -> Tensor:
        """Each variable as if it were the only one: a continuation of its own from one state."""
        number = variables.shape[1]
        alone = self.ask(state.expand(number), variables.reshape(-1, 1))
        return alone.view(len(variables), number, -1)

    def tell(self, state: PathState, variables: Tensor, values: Tensor) -> PathState:
        """Notes known values, in place, for the next `ask`; see `PathNetwork.tell`."""
        variables = variables.expand_as(values)
        if state.asked is not None and torch.equal(state.asked, variables[:, :1]):
            # The answer to the question: the token that asked it is in the cache, keep it.
            state.length += 1
            state.pending_variables, state.pending_values = variables[:, :0], values[:, :0]
        state.asked = None
        return super().tell(state, variables, values)

    def _path_tokens(self, x: Tensor, path: Tensor) -> tuple[Tokens, int]:
        before = path[:, :-1]
        told = self.embedding.told(x.gather(1, before), before)
        return self._tokens(told, before, path), 0

    def _tokens(self, told: Tensor, told_variables: Tensor, asked_variables: Tensor) -> Tokens:
        """Told tokens, behind token 0 if they begin the path, each with what comes next."""
        if told.shape[1] < asked_variables.shape[1]:
            told = torch.cat([self.embedding.blank.expand(len(told), 1, -1), told], dim=1)
            told_variables = nn.functional.pad(told_variables, (1, 0), value=self.nowhere)
        hidden = told if self.next is None else told + self.next(asked_variables)
        return Tokens(hidden, asked_variables, told_variables)
