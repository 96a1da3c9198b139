"""A small language model with LoRA adapters: only adapters and classifier are trained, sent and counted.

PYTHONPATH=examples fedbench run --model lora_text:Encoder --data lora_text:sentences --data.collate pad \\
    --partition dirichlet --partition.clients 8 --model.head net.base_model.model.classifier --method fedper

It needs `pip install peft`. For pretrained weights, build the network with `from_pretrained`, and tokenise with its
tokenizer.
"""

import numpy as np
import torch
from lightning import LightningModule
from peft import LoraConfig, TaskType, get_peft_model
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

WORDS, TOPIC = 200, 10


class Encoder(LightningModule):
    """A BERT of random weights; its attention gets adapters of this rank."""

    def __init__(self, classes: int, width: int = 32, rank: int = 4) -> None:
        super().__init__()
        size = {"hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": 2, "num_attention_heads": 2}
        encoder = BertForSequenceClassification(BertConfig(vocab_size=WORDS, num_labels=classes, **size))
        adapters = LoraConfig(task_type=TaskType.SEQ_CLS, r=rank, target_modules=["query", "value"])
        self.net = get_peft_model(encoder, adapters)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> object:
        return self.net(input_ids=input_ids, attention_mask=attention_mask, labels=labels)

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        return self(**batch).loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW([p for p in self.parameters() if p.requires_grad], lr=5e-3)


def sentences(train: bool, count: int = 400) -> list[dict[str, object]]:
    """Sentences of 6 to 16 words, of which half are of one of four topics."""
    draw = np.random.default_rng(int(train))
    found = []
    for label in draw.integers(0, 4, count if train else count // 2).tolist():
        words = draw.integers(1, WORDS, draw.integers(6, 17))
        words[: len(words) // 2] = 1 + TOPIC * label + draw.integers(0, TOPIC, len(words) // 2)
        found.append({"input_ids": words, "attention_mask": np.ones_like(words), "labels": label})
    return found
