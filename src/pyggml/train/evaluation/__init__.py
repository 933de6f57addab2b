# SPDX-License-Identifier: MIT
"""Evaluation: the loss and other metrics of a model on validation sets."""

from .evaluate import eval_batches, evaluate
from .harness import harness_model, token_scores
from .questions import AnswerScores, ChoiceScores, score_answers, score_choices

__all__ = [
    "AnswerScores",
    "ChoiceScores",
    "eval_batches",
    "evaluate",
    "harness_model",
    "token_scores",
    "score_answers",
    "score_choices",
]
