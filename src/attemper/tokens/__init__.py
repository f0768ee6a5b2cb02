"""Scores of language models: logits of tokens or of answer options, and log-probabilities of the k most likely tokens.

Servers return top-k log-probabilities; the tokens that they leave out are one class, the tail.
"""

from attemper.tokens.positions import check_options, option_scores, token_scores
from attemper.tokens.responses import Position, TopK, read_topk, topk_of
from attemper.tokens.topk import topk_option_scores, topk_scores

__all__ = [
    "Position",
    "TopK",
    "check_options",
    "option_scores",
    "read_topk",
    "token_scores",
    "topk_of",
    "topk_option_scores",
    "topk_scores",
]
