"""Log-probabilities of rows, against those that the sampler kept."""

import numpy as np
import torch
from agentcli.policies.chat import prompt_ids
from agentcli.training.loop.forward import pad_rows, response_logprobs, scoring
from transformers import AutoModelForCausalLM


def test_padding_and_company_do_not_change_a_rows_logprobs(rollout):
    model = AutoModelForCausalLM.from_pretrained(rollout.model, dtype=torch.float32)
    steps = [step for tree in rollout.tree_list for step in tree.steps][:9]
    rows = [(prompt_ids(rollout.tokenizer, step.prompt), step.token_ids) for step in steps]
    ids_BT, response_BT = pad_rows(rows, pad=0)
    batch = {"ids_BT": ids_BT, "response_BT": response_BT, "targets_N": ids_BT[response_BT]}
    with scoring(model):
        (together,) = response_logprobs(model, batch, [None], torch.device("cpu"), None)
    np.testing.assert_allclose(together, [value for step in steps for value in step.logprobs], atol=1e-5)
