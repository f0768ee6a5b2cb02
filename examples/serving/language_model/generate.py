"""Choose among options with transformers' `generate`. The model here is tiny and random: nothing is downloaded.

python examples/serving/language_model/generate.py
"""

from __future__ import annotations

import torch
from options import CalibratedOptions
from transformers import GPT2Config, GPT2LMHeadModel, LogitsProcessorList

from attemper import BayesianTemperatureScaling
from attemper.tokens import option_scores

LETTERS = [31, 41, 35, 42]  # the tokens of A, B, C, D: ask your tokenizer


def main() -> None:
    """Fit on questions whose answers are known, then generate, and compare with NumPy."""
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=60, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config).eval()
    model.lm_head.weight = torch.nn.Parameter(8 * model.lm_head.weight)  # an opinion on what it does not know
    prompts = torch.randint(1, 60, (600, 10))
    with torch.no_grad():
        logits = model(prompts).logits[:, -1]
    answers = torch.distributions.Categorical(logits=logits[:, LETTERS] / 1.7).sample()
    known, new = slice(0, 500), slice(500, 600)

    bts = BayesianTemperatureScaling().fit(option_scores(logits[known], options=LETTERS, labels=answers[known]))
    settings = {
        "attention_mask": torch.ones_like(prompts[new]),
        "max_new_tokens": 1,
        "pad_token_id": 0,
        "return_dict_in_generate": True,
        "output_scores": True,
        "logits_processor": LogitsProcessorList([CalibratedOptions(bts, LETTERS)]),
    }
    greedy = model.generate(prompts[new], do_sample=False, **settings)
    sampled = model.generate(prompts[new], do_sample=True, top_k=0, **settings)

    expected = torch.from_numpy(bts.predict_proba(logits[new][:, LETTERS].numpy()))
    for out in (greedy, sampled):
        probs = out.scores[0].softmax(-1)
        assert torch.allclose(probs[:, LETTERS], expected, atol=1e-6)
        assert torch.isin(out.sequences[:, -1], torch.tensor(LETTERS)).all()
    best = torch.tensor(LETTERS)[logits[new][:, LETTERS].argmax(-1)]
    assert (greedy.sequences[:, -1] == best).all()  # the same answers as before
    hot = model.generate(prompts[new], do_sample=True, top_k=0, temperature=2.0, **settings)
    assert torch.allclose(hot.scores[0].softmax(-1)[:, LETTERS], (expected.log() / 2).softmax(-1), atol=1e-6)
    print(f"T = {bts.temperature_:.2f}; probabilities of A to D for the first question:", expected[0].tolist())


if __name__ == "__main__":
    main()
